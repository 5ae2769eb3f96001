"""Answers in texts of any length, and what was looked at for them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import longspan as ls
from longspan.nn import Attention, BigBird, LearnedWindow, Mechanism, Setting, SlidingWindow
from longspan.patterns import Window
from longspan.tasks import Squad
from longspan.training import RunConfig, Stage, Trained, train
from longspan.training.sight import looks_at, sight_of

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

FAR = "Zanzibar"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned next to nothing, on texts of up to 48 tokens."""
    folder = tmp_path_factory.mktemp("answering")
    lines = [
        {"question": f"Who is {n}?", "context": f"It is said that {n} is Ada.", "answer": "Ada"}
        for n in range(12)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {"length": 48, "stride": 12, "vocabulary": 300, "question_length": 16}
    train(
        RunConfig(
            task={"name": "squad", "data": str(folder / "train.jsonl"), "settings": settings},
            model={"width": 16, "layers": 2, "heads": 2},
            mechanism={"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8},
            stages=[Stage(steps=2, batch=4)],
            output=str(folder / "run"),
        )
    )
    return folder / "run"


@pytest.fixture
def trained(run: Path) -> Trained:
    return ls.load(run)


@pytest.fixture
def knowing(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """A model that finds one word, wherever that stands."""
    tokens = trained.input_reader.tokenizer.encode(FAR, add_special_tokens=False).ids  # type: ignore[attr-defined]
    plain = trained.objective.scores

    def scores(model: Any, batch: Any, padded: bool = True) -> Any:
        begin, end = (own.clone() for own in plain(model, batch, padded))
        rows = batch.tokens.unfold(1, len(tokens), 1) == torch.tensor(tokens)
        for row, place in rows.all(-1).nonzero().tolist():
            begin[row, place] += 50
            end[row, place + len(tokens) - 1] += 50
        return begin, end

    monkeypatch.setattr(trained.objective, "scores", scores)
    return trained


def test_windows_know_how_many_tokens_are_global(trained: Trained) -> None:
    # The question's, with the marks around it.
    assert [own.most_global for own in trained.model.mechanisms()] == [16 + 3] * 2


def test_load_is_there_when_it_is_asked_for(run: Path) -> None:
    assert ls.load is ls.training.load  # type: ignore[attr-defined]
    assert "load" in ls.__all__
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        ls.lode  # type: ignore[attr-defined]  # noqa: B018


def test_data_that_is_gone(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New input is read without it, from wherever; examples are not."""
    gone = tmp_path / "run"
    shutil.copytree(run, gone)
    config = json.loads((gone / "config.json").read_text())
    config["described"]["tasks"][0]["data"] = "nowhere.jsonl"
    (gone / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    trained = ls.load("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    question = ("Who is 1?", "It is said that 1 is Ada.")
    assert trained.answer(*question) == ls.load(run).answer(*question)
    for asks in (trained.outputs, trained.reaches, lambda: trained.task):
        with pytest.raises(FileNotFoundError, match=r"is not where it was: .*nowhere\.jsonl; say"):
            asks()
    assert repr(trained) == f"Trained({str(gone)!r}, task='squad', device='cpu')"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", ", line 1: not JSON"),
        ("[]", " must hold an object"),
        ('{"format": 7}', " is of format 7, this"),
        ('{"format": 1}', " is not of SquadReader: 'fields'"),
        ('{"format": 1, "fields": {"wide": 7}}', " is not of SquadReader: .*'wide'"),
    ],
)
def test_a_reader_that_is_not_whole(run: Path, tmp_path: Path, content: str, says: str) -> None:
    shutil.copytree(run, tmp_path / "run")
    (reader,) = (tmp_path / "run").glob("stages/*/reader.json")
    reader.write_text(content)
    with pytest.raises(ValueError, match=f"reader.json{says}"):
        ls.load(tmp_path / "run").answer("Who?", "Ada.")
    reader.unlink()
    with pytest.raises(ValueError, match="trained for squad, which predicts nothing of new input"):
        ls.load(tmp_path / "run").predict([])


def test_the_reader_is_that_of_the_model(tmp_path: Path) -> None:
    """Stages may have other tasks, and a run may go on."""
    squad = {"length": 48, "stride": 12, "vocabulary": 300, "question_length": 16}
    data = tmp_path / "train.jsonl"
    lines = [{"question": f"Who is {n}?", "context": f"{n} is Ada.", "answer": "Ada"} for n in "ab"]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    stages = (
        Stage(name="short", steps=1, batch=2),
        Stage(name="long", steps=1, batch=2, task={"settings": {"length": 64}}),
    )
    config = RunConfig(
        task={"name": "squad", "data": str(data), "settings": squad},
        model={"width": 8, "layers": 1, "heads": 1},
        stages=stages,
        output=str(tmp_path / "run"),
    )
    train(config)
    (tmp_path / "run" / "stages" / "long").rename(tmp_path / "long")
    short = ls.load(tmp_path / "run")
    (tmp_path / "long").rename(tmp_path / "run" / "stages" / "long")
    long = ls.load(tmp_path / "run")
    for trained, length in ((short, 48), (long, 64)):
        reader: Any = trained.input_reader
        assert reader.length == trained.task.length == length


def test_a_task_and_its_reader_belong_together(tmp_path: Path) -> None:
    """Otherwise it would be found out when the model is used."""

    class Other(Squad):
        reader = None

    data = tmp_path / "train.jsonl"
    lines = [{"question": f"Who is {n}?", "context": f"{n} is Ada.", "answer": "Ada"} for n in "ab"]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = RunConfig(
        task={"name": "squad", "data": str(data)},
        model={"width": 8, "layers": 1, "heads": 1},
        stages=(Stage(steps=1, batch=2),),
        output=str(tmp_path / "run"),
    )
    with pytest.raises(TypeError, match=r"Other\.reader must be SquadReader, .* got None"):
        train(config, task=Other(data, vocabulary=300, length=48, question_length=16))


def test_data_that_was_moved(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found from another folder than the run was made in, and where somebody says it is."""
    config = json.loads((run / "config.json").read_text())
    (task,) = config["described"]["tasks"]
    data = Path(task["data"])
    moved = tmp_path / "moved.jsonl"
    shutil.copy(data, moved)
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for name, base in ((data.name, str(data.parent)), ("nowhere.jsonl", str(tmp_path / "gone"))):
        changed = {**config, "described": {**config["described"], "from": base}}
        changed["described"]["tasks"] = [{**task, "data": name}]
        (copy / "config.json").write_text(json.dumps(changed))
        monkeypatch.chdir(tmp_path)
        where = None if name == data.name else moved
        assert ls.load(copy, data=where).task.describe()["files"][0]["sha256"]
    moved.write_text(data.read_text() + "\n")
    with pytest.raises(ValueError, match="the data changed since"):
        ls.load(copy, data=moved).task  # noqa: B018


def test_documents_far_longer_than_the_model(knowing: Trained) -> None:
    filler = "It was a long day, and nobody knew why. "
    text = filler * 150 + f"At last they met in {FAR} again. " + filler * 20
    found = knowing.answer("Where?", text)
    assert len(text) > 100 * knowing.input_reader.length  # type: ignore[attr-defined]
    assert (found.text, found.start) == (FAR, text.index(FAR))
    assert found.end == found.start + len(FAR)
    looked = found.looked()
    assert looked is not None
    # Read in a part of the document around it, which the answer's place is counted outside of.
    assert 0 < looked.start <= found.start < found.end <= looked.end < len(text)
    assert looked.end - looked.start < 400
    assert len(looked.seen) == 2 * 2 * 2
    for seen, place in zip(looked.seen, (found.start, found.end - 1) * 4, strict=True):
        assert looked.start <= seen.start <= place < seen.end <= looked.end
        assert text[seen.start : seen.end].count(seen.token) >= 1
        assert 0 < seen.reach <= 8
    assert [(own.layer, own.head) for own in looked.seen[::2]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_what_was_looked_at_most(knowing: Trained) -> None:
    question, text = "Where, Ada?", f"They met in {FAR}, Ada said."
    found = knowing.answer(question, text)
    looked = found.looked(top=1000)
    assert looked is not None
    assert sum(piece.weight for piece in looked.pieces) == pytest.approx(1, abs=1e-5)
    weights = [piece.weight for piece in looked.pieces]
    assert weights == sorted(weights, reverse=True)
    for piece in looked.pieces:
        whole = {"text": text, "question": question}.get(piece.part)
        assert whole is None or whole[piece.start : piece.end] == piece.text
    words = [piece.text for piece in looked.pieces if piece.part == "text"]
    assert sorted(words) == sorted(f"They met in {FAR} , Ada said .".split())
    marks = sorted(piece.text for piece in looked.pieces if piece.part == "mark")
    assert marks == ["[CLS]", "[SEP]", "[SEP]"]
    few = found.looked(top=2)
    assert few is not None and few.pieces == looked.pieces[:2]
    assert json.loads(json.dumps(looked.as_dict()))["pieces"][0]["weight"] == weights[0]
    assert "looked most at" in repr(few) and "layer 1 head 1" in repr(few)
    with pytest.raises(ValueError, match="top"):
        found.looked(top=0)


def test_nothing_found_has_looked_at_nothing(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained.objective, "decoded", lambda *_: {0: [(0, 0, 1.0)]})
    found = trained.answer("Why?", "No reason.")
    assert (found.text, found.start, found.looked(), found.held) == ("", -1, None, False)


def test_a_text_that_does_not_tell(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a model that has learned so says that there is no answer."""
    spans = [(0, 0, 3.0), (8, 8, 1.0)]
    monkeypatch.setattr(trained.objective, "decoded", lambda *_: {0: spans})
    found = trained.answer("Why?", "There is no reason at all.")
    reader: Any = trained.input_reader
    assert found.text and found.absent == 2.0 and found.held and not reader.unanswerable
    trained._reader = replace(reader, unanswerable=True)
    found = trained.answer("Why?", "There is no reason at all.")
    assert found.text and not found.held and found.looked() is not None
    trained._reader = replace(reader, unanswerable=True, no_answer=2.5)
    assert trained.answer("Why?", "There is no reason at all.").held


def test_many_questions(trained: Trained) -> None:
    asked = [
        ("Who is 1?", "One is Ada. " * 30),
        ("Who?", "Ben."),
        ("Who is 2?", "One is Ada. " * 30),
    ]
    found = trained.answers(asked)
    assert found == [trained.answer(*own) for own in asked]
    assert json.loads(json.dumps(found[0].as_dict()))["text"] == found[0].text


def test_only_squad_answers(tmp_path: Path) -> None:
    config = RunConfig(
        task={"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
        model={"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
        stages=[Stage(steps=1, batch=2)],
        output=str(tmp_path / "run"),
    )
    train(config)
    with pytest.raises(ValueError, match="trained for recall, which predicts nothing of new input"):
        ls.load(tmp_path / "run").answer("Why?", "No reason.")


MECHANISMS = {
    "cut": lambda: LearnedWindow(16, 2, mean_reach=3, max_reach=6),
    "soft": lambda: LearnedWindow(16, 2, mean_reach=3, max_reach=6, soft=True),
    "window": lambda: SlidingWindow(16, 2, left=3),
    "blocks": lambda: BigBird(24, block=2, drawn=1, global_blocks=0, tokens="extra"),
    "pattern": lambda: Attention(Window(2, 5)),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("marked", [False, True])
def test_rows_are_those_of_the_attention_map(name: str, marked: bool) -> None:
    mechanism: Mechanism = MECHANISMS[name]()
    generator = torch.Generator().manual_seed(3)
    n = 24
    q, k, v = (torch.randn(1, 2, n, 8, generator=generator) for _ in range(3))
    tokens = torch.arange(n)[None] < (3 if marked else 0)
    setting = Setting(
        x=torch.randn(1, n, 16, generator=generator),
        key_padding=torch.arange(n)[None] < 20,
        global_tokens=None if name == "pattern" else tokens,
    )
    asked = mechanism.asks(q, n, setting)
    whole = ls.attention_map(
        q,
        k,
        asked.pattern,
        weight=asked.weight or None,
        normalizer=asked.normalizer,
        key_padding=setting.key_padding,
    )
    rows = [5, 19]
    found = looks_at(mechanism, q, k, v, setting, rows)
    assert found.shape == (2, 2, n)
    torch.testing.assert_close(found, whole[0][:, rows], atol=1e-6, rtol=1e-5)
    # What is looked at is seen: the interval has all of it but what is global.
    every = sight_of(mechanism, q, n, setting)
    for head, sight in enumerate(sight_of(mechanism, q, n, setting, torch.tensor(rows))):
        for own in range(2):
            some = (found[head, own] > 1e-6).nonzero().flatten().tolist()
            some = [at for at in some if name == "pattern" or not tokens[0, at]]
            assert sight.low[own] <= min(some) and max(some) <= sight.high[own]
            assert sight.low[own] == every[head].low[rows[own]]
            assert sight.reach[own] == pytest.approx(every[head].reach[rows[own]])


def test_what_is_no_record_or_question(trained: Trained) -> None:
    for given, says in (
        (
            "Who?",
            r"predict takes a list of records, \[\{'question': …, 'context': …\}\], got str 'Who",
        ),
        ({"question": "Who?"}, "predict takes a list of records"),
        (["Who?"], "predict: records must be as in"),
    ):
        with pytest.raises(TypeError, match=says):
            trained.predict(given)  # type: ignore[arg-type]
    for asked in ("ab", ("a", "b", "c")):
        with pytest.raises(TypeError, match="answers: each must be a question and a text, got"):
            trained.answers([asked])  # type: ignore[list-item]


def test_a_mistake_leaves_no_run_behind(tmp_path: Path) -> None:
    """That of a later stage, too, is said before anything is trained or written."""
    stages = (Stage(name="one", steps=1, batch=2), Stage(name="two", steps=1, windows=3))
    config = RunConfig(
        task={"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
        model={"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
        stages=stages,
        output=str(tmp_path / "run"),
    )
    with pytest.raises(ValueError, match="windows"):
        train(config)
    with pytest.raises(ValueError, match="meanreach"):
        train(
            replace(config, stages=stages[:1], mechanism={"kind": "LearnedWindow", "meanreach": 3})
        )
    assert not (tmp_path / "run" / "config.json").exists()
    train(replace(config, stages=stages[:1]))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file, where a run needs a folder"):
        train(replace(config, stages=stages[:1], output=str(tmp_path / "file")))
