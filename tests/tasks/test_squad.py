"""Questions about texts."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan import tasks
from longspan.tasks.squad import Squad
from longspan.tasks.squad_files import Questions, read_questions
from longspan.tasks.squad_reader import SquadReader

tokenizers = pytest.importorskip("tokenizers")

RIVER = "The Rhine rises in the Alps. It flows north, through six countries, to the North Sea."
KING = "King Ludwig was born in Munich in 1845, and built Neuschwanstein, a castle on a hill."
SEA = "Salt water covers most of the Earth. The deepest place is the Mariana Trench."


def question(name: str, text: str, context: str, *answers: str, **more: Any) -> dict[str, Any]:
    found = [{"text": a, "answer_start": context.index(a)} for a in answers]
    return {"id": name, "question": text, "answers": found, **more}


def articles() -> list[dict[str, Any]]:
    rhine = [
        question("r1", "Where does the Rhine rise?", RIVER, "the Alps", "Alps"),
        question("r2", "Through how many countries does it flow?", RIVER, "six"),
    ]
    king = [question("k1", "Where was Ludwig born?", KING, "Munich")]
    sea = [question("s1", "What is the deepest place?", SEA, "Mariana Trench")]
    return [
        {
            "title": "Germany",
            "paragraphs": [{"context": RIVER, "qas": rhine}, {"context": KING, "qas": king}],
        },
        {"title": "Sea", "paragraphs": [{"context": SEA, "qas": sea}]},
    ]


def write(path: Path, data: Any) -> Path:
    text = json.dumps({"version": "1.1", "data": data}).encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)
    return path


def made(path: Any, **settings: Any) -> Squad:
    sizes = {"length": 64, "stride": 16, "question_length": 16, "vocabulary": 400}
    first = path[0] if isinstance(path, list) and path else path
    cache = (first if first.is_dir() else first.parent) / "cache" if path else None
    task = tasks.make("squad", path, cache=cache, **{**sizes, **settings})
    assert isinstance(task, Squad)
    return task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train-v1.1.json", articles())
    write(tmp_path / "dev-v1.1.json.xz", articles())
    return tmp_path


def asked(task: Squad, split: str = "train") -> Questions:
    """The texts of a split, and the questions about them."""
    return task._split(split).source


def right(task: Squad, number: int, split: str = "dev") -> tuple[int, int]:
    targets = task.batch([number], split).targets
    return int(targets["start"][0]), int(targets["end"][0])


def test_a_row_is_question_and_text(folder: Path) -> None:
    task = made(folder)
    batch = task.batch([0])
    words = task.texts(batch.tokens[0].tolist())
    assert words[0] == "[CLS]" and words.count("[SEP]") == 2 and words[-1] == "[SEP]"
    middle = words.index("[SEP]")
    assert "".join(words[1:middle]).strip() == "where does the rhine rise?"
    assert batch.types is not None and batch.global_tokens is not None
    assert batch.types[0].tolist() == [0] * (middle + 1) + [1] * (len(words) - middle - 1)
    assert batch.global_tokens[0].tolist() == [n <= middle for n in range(len(words))]
    allowed = batch.targets["allowed"][0].tolist()
    assert allowed == [n == 0 or middle < n < len(words) - 1 for n in range(len(words))]


def test_short_rows_are_padded(folder: Path) -> None:
    task = made(folder)
    batch = task.batch(range(len(task.train)))
    assert not batch.real.all()
    assert (batch.tokens[~batch.real] == task.pad).all()
    assert batch.global_tokens is not None and not batch.global_tokens[~batch.real].any()
    assert not batch.targets["allowed"][~batch.real].any()


def test_right_spans_give_the_answers_back(folder: Path) -> None:
    task = made(folder)
    outputs = {}
    for number in range(len(task.dev)):
        start, end = right(task, number)
        outputs[number] = [(start, end, 9.0 if start else -9.0), (0, 0, 1.0)]
    assert task.score(outputs) == {"f1": 100.0, "exact_match": 100.0, "questions": 4.0}
    found = task.prediction_file(outputs)
    assert found == {"r1": "the Alps", "r2": "six", "k1": "Munich", "s1": "Mariana Trench"}
    read = task.predictions(outputs)[0]
    assert RIVER[read["start"] : read["end"]] == "the Alps"
    assert read["answers"] == ["the Alps", "Alps"]


def test_scores_are_over_the_questions_that_have_outputs(folder: Path) -> None:
    task = made(folder)
    first = next(n for n in range(len(task.dev)) if right(task, n) != (0, 0))
    start, end = right(task, first)
    scores = task.score({first: [(start + 1, end, 1.0)]})
    assert scores == {"f1": 100.0, "exact_match": 100.0, "questions": 1.0}  # "Alps" will do


def test_lengths_are_those_of_the_rows(folder: Path) -> None:
    task = made(folder)
    for split in ("train", "dev"):
        rows = [task.batch([n], split).tokens.shape[1] for n in range(len(task.examples(split)))]
        assert list(task.lengths(split)) == rows


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    first = write(tmp_path / "a.json", articles())
    second = write(tmp_path / "b.json", articles())
    one, both = (made(data, question_length=24) for data in (first, [first, second]))
    for split in ("train", "dev"):
        alone, found = one._split(split).source, both._split(split).source
        assert found.contexts == alone.contexts * 2
        assert len(set(found.groups)) == 2 * len(set(alone.groups))
        texts = [found.contexts[question.context] for question in found.questions]
        assert texts == [alone.contexts[question.context] for question in alone.questions] * 2
    assert both.data == [str(first), str(second)] and len(both.files) == 2
    again = Squad.from_description(both.describe())
    assert len(again.train) == len(both.train) == 2 * len(one.train)
    with pytest.raises(ValueError, match="at least one file"):
        made([])
    with pytest.raises(TypeError, match="data must be a path, got int 3"):
        made([first, 3])


def test_long_texts_are_read_through_windows_that_overlap(tmp_path: Path) -> None:
    text = " ".join(f"word{n}" for n in range(120)) + " treasure " + "end " * 10
    entry = question("q", "Where is it?", text, "treasure")
    data = [{"paragraphs": [{"context": text, "qas": [entry]}]}, *articles()]
    task = made(write(tmp_path / "train.json", data), dev=write(tmp_path / "dev.json", data))
    mine = [n for n in range(len(task.dev)) if task.dev[n].question == 0]
    assert len(mine) > 3
    count = len(task.dev.tokens.contexts[0])
    covered = set()
    for number in mine:
        window = task.dev[number]
        covered |= set(range(window.low, window.high))
        assert task.batch([number], "dev").tokens.shape[1] <= 64
    assert covered == set(range(count))
    having = [n for n in mine if right(task, n) != (0, 0)]
    assert 1 <= len(having) < len(mine)
    # All windows propose something; the best of all counts, wherever it is.
    outputs: dict[int, Any] = {n: [(20, 21, 1.0), (0, 0, 0.5)] for n in mine}
    outputs[having[0]] = [(*right(task, having[0]), 2.0)]
    assert task.prediction_file(outputs) == {"q": "treasure"}


def test_a_whole_article_is_one_text(folder: Path) -> None:
    task = made(folder, by="article", length=128)
    assert task.dev.source.contexts[0] == f"{RIVER}\n{KING}"
    number = next(n for n in range(len(task.dev)) if task.dev.question_of(n).id == "k1")
    start, end = right(task, number)
    assert task.prediction_file({number: [(start, end, 1.0)]}) == {"k1": "Munich"}
    assert task.dev[number][1:] == (0, len(task.dev.tokens.contexts[0]))


def test_spans_outside_the_text_are_no_answers(folder: Path) -> None:
    task = made(folder)
    assert task.prediction_file({0: [(1, 2, 9.0), (0, 0, 5.0), (0, 30, 4.0)]}) == {"r1": ""}
    json.dumps(task.predictions({0: []}), allow_nan=False)


def test_questions_without_answers(tmp_path: Path) -> None:
    data = articles()
    data[1]["paragraphs"][0]["qas"].append(
        {"id": "s2", "question": "Who owns it?", "answers": [], "is_impossible": True}
    )
    for article in data:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                entry.setdefault("is_impossible", False)
    path = write(tmp_path / "train.json", data)
    task = made(path, dev=path, length=128)
    assert right(task, 4) == (0, 0)
    outputs: dict[int, Any] = {n: [(*right(task, n), 5.0), (0, 0, 1.0)] for n in range(4)}
    outputs[4] = [(0, 0, 6.0), (20, 21, 5.5)]
    scores = task.score(outputs)
    assert scores["f1"] == 100 and scores["no_answer_accuracy"] == 100
    assert scores["has_answer_exact_match"] == 100 and scores["best_f1"] == 100
    assert task.prediction_file(outputs)["s2"] == ""
    bold = made(path, dev=path, length=128, no_answer=1.0)
    assert bold.prediction_file(outputs)["s2"] != ""
    scores = bold.score(outputs)
    assert scores["f1"] == 80 and scores["no_answer_accuracy"] == 0
    # With the threshold left open, the best is as good as the other task's, and says how.
    assert scores["best_f1"] == 100 and scores["best_no_answer"] == -4.0


def test_answers_without_words_count_in_the_first_version_alone(tmp_path: Path) -> None:
    data = articles()
    data[0]["paragraphs"][0]["qas"] = [question("r1", "Where?", RIVER, "the Alps", "The", ".")]
    path = write(tmp_path / "train.json", data)
    task = made(path, dev=path)
    number = next(n for n in range(len(task.dev)) if right(task, n)[0])
    first = int(task.batch([number], "dev").targets["allowed"][0].nonzero()[1])
    outputs = {number: [(first, first, 1.0), (0, 0, 0.0)]}
    assert task.prediction_file(outputs) == {"r1": "The"}
    assert task.score(outputs)["exact_match"] == 100 and task.score(outputs)["f1"] == 0
    data[0]["paragraphs"][0]["qas"][0]["is_impossible"] = False
    two = made(write(path, data), dev=path)
    assert two.score(outputs)["exact_match"] == 0 and two.score(outputs)["f1"] == 0


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_questions_of_ones_own(tmp_path: Path, kind: str) -> None:
    rows = [
        ("Where does it rise?", RIVER, "the Alps"),
        ("Where was he born?", KING, "Munich"),
        ("What is deepest?", SEA, "Mariana Trench"),
    ]
    path = tmp_path / f"mine.{kind}"
    if kind == "jsonl":
        lines = [json.dumps({"question": q, "context": c, "answer": a}) for q, c, a in rows]
    else:
        lines = ["question,context,answer", *(f'{q},"{c}",{a}' for q, c, a in rows)]
    path.write_text("\n".join(lines))
    task = made(path)
    assert len({w.question for w in task.train}) == 2
    outputs = {n: [(*right(task, n), 1.0)] for n in range(len(task.dev)) if right(task, n)[0]}
    assert task.prediction_file(outputs) == {"2": "Mariana Trench"}


def test_texts_with_marked_clauses(tmp_path: Path) -> None:
    def marked(text: str, *parts: str) -> list[dict[str, Any]]:
        return [{"start": text.index(part), "text": part} for part in parts]

    rows: list[dict[str, Any]] = [
        {"text": RIVER, "clauses": {"Source": marked(RIVER, "the Alps"), "Mouth": []}},
        {"text": KING, "title": "A king", "clauses": {"Birth": marked(KING, "Munich")}},
        {"text": SEA, "clauses": {"Depth": marked(SEA, "Mariana Trench", "Trench")}},
    ]
    path = tmp_path / "marked.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    task = made(path, by="article")
    asked = {task.train.question_of(n) for n in range(len(task.train))}
    assert {(q.id, q.text) for q in asked} == {
        ("0: Source", "Which part of this text is about Source?"),
        ("A king: Birth", "Which part of this text is about Birth?"),
    }
    outputs = {n: [(*right(task, n), 1.0)] for n in range(len(task.dev)) if right(task, n)[0]}
    assert task.prediction_file(outputs) == {"2: Depth": "Mariana Trench"}
    rows[1]["clauses"]["Birth"][0]["start"] += 1
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(UserWarning, match="1 of 4 answers are not where the data says"):
        made(path)
    for clauses, message in (([], "lists of places by kind"), ({"Birth": [3]}, "no text 'text'")):
        path.write_text(json.dumps({"text": KING, "clauses": clauses}))
        with pytest.raises(ValueError, match=rf"marked\.jsonl.*{message}"):
            made(path)


def test_answers_that_are_not_at_their_offset_are_counted(tmp_path: Path) -> None:
    data = articles()
    data[0]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"] += 1
    path = write(tmp_path / "train.json", data)
    message = r"2 of 10 answers are not where the data says \(the first is that of question 'k1'\)"
    with pytest.warns(UserWarning, match=message):
        task = made(path, dev=path)
    assert task.misplaced == ["k1", "k1"]
    assert {task.train.question_of(n).id for n in range(len(task.train))} == {"r1", "r2", "s1"}
    number = next(n for n in range(len(task.dev)) if task.dev.question_of(n).id == "k1")
    assert task.batch([number], "dev").target_count() == 0


def test_an_answer_of_ones_own_that_is_not_in_its_text_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f'question,context,answer\nWho?,"{KING}",Otto\nWhat?,"{SEA}",Salt\n')
    with pytest.warns(UserWarning, match="2 of 4 answers are not where the data says"):
        made(path, dev=path)


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ({"questions": []}, r"train\.json: no 'data' at the top, where SQuAD's JSON has"),
        ([], r"train\.json: no 'data' at the top"),
        ({"data": []}, r"train\.json has no questions"),
        ({"data": [{"title": "x"}]}, r"data\[0\]: no list 'paragraphs'"),
        (
            {"data": [{"paragraphs": [{"qas": []}]}]},
            r"data\[0\].paragraphs\[0\]: no text 'context'",
        ),
        (
            {"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1}]}]}]},
            r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: no text 'question'",
        ),
    ],
)
def test_json_of_another_shape(tmp_path: Path, top: Any, message: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(top))
    with pytest.raises(ValueError, match=message):
        made(path)


@pytest.mark.parametrize(
    ("field", "wrong", "says"),
    [
        ("answer", False, "'answer' must be a text, a list of texts, or nothing.*got bool False"),
        ("answer", 0, "'answer' must be .*got int 0"),
        ("answer", {"text": "Alps"}, "'answer' must be .*got dict"),
        ("answer", ["Alps", 3], "'answer' must be .*got list"),
        ("answer", [None], "'answer' must be .*got list"),
        ("question", 3, "'question' must be a text, got int 3"),
        ("context", None, "'context' must be a text, got NoneType None"),
        ("clauses", {"Source": [{"text": "Alps", "start": "4"}]}, "'start' must be a whole number"),
        ("clauses", {"Source": [{"text": "Alps", "start": True}]}, "'start' must be .*bool True"),
        ("clauses", {"Source": [{"text": "Alps"}]}, "'start' must be .*got NoneType None"),
        ("clauses", {"Source": False}, r"clauses\['Source'\]: must be .*got bool False"),
    ],
)
def test_fields_of_ones_own_of_a_wrong_type(
    tmp_path: Path, field: str, wrong: Any, says: str
) -> None:
    row: dict[str, Any] = {"question": "Where?", "context": RIVER, "answer": "the Alps"}
    if field == "clauses":
        row["text"] = RIVER
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{json.dumps(row | {'clauses': {}} if field == 'clauses' else row)}\n")
    with path.open("a") as file:
        file.write(json.dumps(row | {field: wrong}))
    with pytest.raises(ValueError, match=rf"mine\.jsonl, line 2: .*{says}"):
        made(path)


@pytest.mark.parametrize("nothing", [None, "", [], [""]])
def test_nothing_is_no_answer(tmp_path: Path, nothing: Any) -> None:
    row = {"question": "Where?", "context": RIVER, "answer": "the Alps"}
    other = {"question": "Who?", "context": KING, "answer": nothing}
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(own) for own in (row, other)))
    assert [q.answerable for q in read_questions(path).questions] == [True, False]


def test_whether_a_question_has_an_answer_is_true_or_false(tmp_path: Path) -> None:
    data = articles()
    data[0]["paragraphs"][0]["qas"][0]["is_impossible"] = "false"
    message = (
        r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: 'is_impossible' must be true or false, got str"
    )
    with pytest.raises(ValueError, match=message):
        made(write(tmp_path / "train.json", data))


def test_questions_of_one_id_are_all_answered(tmp_path: Path) -> None:
    """In one file, and where several number theirs by lines."""
    rows = [
        {"question": f"Who is {n}?", "context": f"{n} is {name}.", "answer": name}
        for n, name in enumerate(("Ada", "Ben", "Eva", "Jon"))
    ]
    for name, more in (("a.jsonl", {"id": "x"}), ("b.jsonl", {}), ("c.jsonl", {})):
        (tmp_path / name).write_text("\n".join(json.dumps(row | more) for row in rows))
    ids = [question.id for question in read_questions(tmp_path / "a.jsonl").questions]
    assert ids == ["x", "x (2)", "x (3)", "x (4)"]
    for data, dev in (("b.jsonl", "a.jsonl"), (["b.jsonl", "c.jsonl"], None)):
        paths = [tmp_path / own for own in ([data] if isinstance(data, str) else data)]
        task = tasks.make(
            "squad", paths, dev=None if dev is None else tmp_path / dev, length=64,
            question_length=16, vocabulary=300, cache=tmp_path / "cache",
        )  # fmt: skip
        outputs = {n: [(0, 0, 1.0)] for n in range(len(task.dev))}
        assert len(task.prediction_file(outputs)) == len(task.predictions(outputs)) >= 2


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("What?")
    with pytest.raises(ValueError, match=r"mine\.txt: the name must end in \.json, \.jsonl, \.csv"):
        made(tmp_path / "mine.txt")


def test_an_empty_file_and_one_text_alone(tmp_path: Path) -> None:
    (tmp_path / "train.json").touch()
    with pytest.raises(ValueError, match="is empty"):
        made(tmp_path / "train.json")
    with pytest.raises(ValueError, match="one text alone: name a file to be measured on with dev="):
        made(write(tmp_path / "one.json", articles()[:1]), by="article")


def test_the_tokenizer_of_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "alps", "rhine", "where", "in", "##s"]
    wordpiece = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: n for n, w in enumerate(words)}, unk_token="[UNK]")
    )
    wordpiece.normalizer = tokenizers.normalizers.BertNormalizer()
    wordpiece.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    wordpiece.enable_truncation(4)  # as checkpoints have it; texts must stay whole
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    wordpiece.save(str(checkpoint / "tokenizer.json"))
    for path in (checkpoint, checkpoint / "tokenizer.json"):
        task = made(folder, tokenizer=path)
        assert task.vocabulary == 10
        start, end = right(task, 0)
        assert task.prediction_file({0: [(start, end, 1.0)]}) == {"r1": "the Alps"}
    with pytest.raises(FileNotFoundError, match=r"there is no file .*cache.tokenizer\.json"):
        made(folder, tokenizer=folder / "cache")
    with pytest.raises(ValueError, match="is not a file of tokenizers"):
        made(folder, tokenizer=folder / "train-v1.1.json")


def test_a_tokenizer_with_two_marks_between_texts(folder: Path, tmp_path: Path) -> None:
    words = ["<pad>", "<unk>", "<s>", "</s>"]
    model = tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    roberta = tokenizers.Tokenizer(model)
    roberta.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    roberta.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 3), ("<s>", 2))
    roberta.save(str(tmp_path / "roberta.json"))
    task = made(folder, tokenizer=tmp_path / "roberta.json")
    assert task.texts(task.batch([0]).tokens[0].tolist()).count("</s>") == 3
    start, end = right(task, 0)
    assert task.prediction_file({0: [(start, end, 1.0)]}) == {"r1": "the Alps"}


def test_settings_that_leave_no_room_for_the_text(folder: Path) -> None:
    with pytest.raises(ValueError, match="length=64 leaves 11 tokens for the text"):
        made(folder, question_length=50)
    assert made(folder, stride=None).settings["stride"] == 32
    assert made(folder, stride=None, question_length=40).settings["stride"] == 20
    with pytest.raises(ValueError, match="by must be 'paragraph' or 'article'"):
        made(folder, by="book")
    with pytest.raises(ValueError, match="vocabulary must be at least 261"):
        made(folder, vocabulary=100)


def test_it_is_described_and_made_again(folder: Path) -> None:
    task = made(folder, by="article", length=80)
    again = tasks.from_description(json.loads(json.dumps(task.describe())), cache=folder / "cache")
    assert again.describe() == task.describe()
    assert torch.equal(again.batch([1]).tokens, task.batch([1]).tokens)


def test_tokens_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(folder)

    def never(*arguments: Any) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("longspan.tasks.squad.write_tokens", never)
    again = made(folder, length=72)
    assert again.vocabulary == first.vocabulary


def test_someone_asks(folder: Path, tmp_path: Path) -> None:
    task = made(folder)
    assert [path.name for path in task.save(tmp_path)] == ["tokenizer.json", "reader.json"]
    reader = SquadReader.read(tmp_path)
    assert reader.settings() == task.input_reader.settings()
    windows = reader.asked([("Where was he born?", KING), ("Where does it rise?", RIVER)])
    batch = windows.batch(range(len(windows)))
    assert batch.target_count() == len(windows)
    second = next(n for n in range(len(windows)) if windows[n].question == 1)
    begin = int(batch.targets["allowed"][second].nonzero()[1])
    found = windows.answers({second: [(begin, begin + 1, 3.0)]})
    assert RIVER.startswith(found[1].text) and found[1].text and found[1].start == 0


def test_the_sample_ships(tmp_path: Path) -> None:
    task = tasks.make("squad", vocabulary=500, question_length=200, cache=tmp_path)
    assert len(task.train) > 4000 and len(task.dev) > 800
    assert task.batch([0, 1, 2]).target_count() == 3


def long_article(words: int = 300) -> list[dict[str, Any]]:
    text = " ".join(f"word{number}" for number in range(words)) + " The castle is old."
    qas = [question("c", "What is old?", text, "The castle")]
    return [{"title": str(n), "paragraphs": [{"context": text, "qas": qas}]} for n in range(2)]


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_few_windows_without_the_answer(empty: int, tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", long_article())
    whole, few = made(path, dev=path), made(path, dev=path, empty=empty)
    having = sum(right(whole, n, "train") != (0, 0) for n in range(len(whole.train)))
    found = [right(few, n, "train") != (0, 0) for n in range(len(few.train))]
    assert having == sum(found) and len(found) == having + 2 * empty < len(whole.train)
    # The same ones the next time; and all are there to be measured on.
    again = made(path, dev=path, empty=empty)
    assert list(again.train) == list(few.train) and len(few.dev) == len(whole.dev)


def test_some_questions_to_be_measured_on(folder: Path) -> None:
    task = made(folder, dev_questions=2)
    assert [own.id for own in asked(task, "dev").questions] == ["r1", "k1"]
    assert len(made(folder, dev_questions=9).dev) == len(made(folder).dev)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mismatched": 1.5}, "mismatched must be a share"),
        ({"mismatched": 0.5, "by": "article"}, "give by='paragraph'"),
        ({"removed": -1}, "removed must be a share"),
        ({"removed": 0.5, "by": "article"}, "removed questions .* give by='paragraph'"),
        ({"empty": -1}, "empty"),
        ({"dev_questions": 0}, "dev_questions"),
    ],
)
def test_wrong_choices(settings: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=said):
        made(folder, **settings)


def test_ids_blanks_and_answers_without_text(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [
        {"id": 7, "question": "Where?", "context": RIVER, "answer": " the Alps "},
        {"id": 0, "question": "Where?", "context": KING, "answer": "Munich"},
        {"id": "", "question": "Who?", "context": KING, "answer": "  "},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    source = asked(made(path, dev=path))
    assert [own.id for own in source.questions] == ["7", "0", "2"]
    assert source.questions[0].answers == ((("the Alps", RIVER.index("the Alps"))),)
    assert not source.misplaced and not source.questions[2].answerable
    data = articles()
    data[0]["paragraphs"][0]["qas"].append(
        {"id": "none", "question": "Why?", "answers": [{"text": "", "answer_start": 0}]}
    )
    squad = write(tmp_path / "train.json", data)
    questions = asked(made(squad, dev=squad), "dev").questions
    assert [own.id for own in questions if not own.answerable] == ["none"]
