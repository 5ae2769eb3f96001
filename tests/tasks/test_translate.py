"""Translation."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.batch import NOT_COUNTED
from longspan.tasks.translate import Translate

pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")

GERMAN = ["Ein Hund läuft schnell.", "Zwei Katzen schlafen.", "Das Haus ist groß und alt."]
ENGLISH = ["A dog runs fast.", "Two cats are sleeping.", "The house is large and old."]


def made(data: Path, **settings: Any) -> Translate:
    cache = (data if data.is_dir() else data.parent) / "cache"
    sizes = {"length": 40, "vocabulary": 300}
    task = tasks.make("translate", data, cache=cache, **{**sizes, **settings})
    assert isinstance(task, Translate)
    return task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train", "val", "test_2016"):
        (tmp_path / f"{name}.de").write_text("\n".join(GERMAN) + "\n")
        packed = gzip.compress(("\n".join(ENGLISH) + "\n").encode())
        (tmp_path / f"{name}.en.gz").write_bytes(packed)
    return tmp_path


def test_encoder_decoder_and_what_is_asked(folder: Path) -> None:
    task = made(folder)
    batch = task.batch([0, 1])
    assert batch.source is not None
    read = task.texts(batch.source["tokens"][0][batch.source["real"][0]].tolist())
    assert (
        read[-1] == "[SEP]"
        and task.input_reader.text(batch.source["tokens"][0].tolist()) == GERMAN[0]
    )
    assert (batch.tokens[:, 0] == task.begin).all()
    target = batch.targets["tokens"][0]
    asked = target[target != NOT_COUNTED]
    assert int(asked[-1]) == task.end and task.input_reader.text(asked[:-1].tolist()) == ENGLISH[0]
    assert (asked[:-1] == batch.tokens[0, 1 : len(asked)]).all()
    assert batch.target_count() == int(batch.real.sum())


def test_right_translations_score_full_marks(folder: Path) -> None:
    task = made(folder)
    outputs = {n: task.dev[n].target.tolist() for n in range(3)}
    assert task.score(outputs) == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}
    assert [own["translation"] for own in task.predictions(outputs)] == ENGLISH
    wrong = {n: task.dev[(n + 1) % 3].target.tolist() for n in range(3)}
    assert task.score(wrong)["bleu"] < 20


def test_bleu_by_hand(folder: Path) -> None:
    # Seven words with the full stop, the one before it exchanged: 6 of 7 words are right, 4 of 6
    # pairs, 3 of 5 threes and 2 of 4 fours.
    task = made(folder)
    given = task.tokenizer.encode("The house is large and new.", add_special_tokens=False).ids
    wanted = (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert task.score({2: given})["bleu"] == pytest.approx(100 * wanted, abs=1e-6)


def test_other_files_to_measure_on_and_the_other_way(folder: Path) -> None:
    task = made(folder, dev=folder / "test_2016", source="en", target="de")
    assert task.pairs["dev"][0] == (ENGLISH[0], GERMAN[0])
    assert [Path(file.path).name for file in task.files] == [
        "train.en.gz",
        "train.de",
        "test_2016.en.gz",
        "test_2016.de",
    ]
    again = tasks.from_description(task.describe(), cache=folder / "cache")
    assert again.describe() == task.describe()


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "deu-eng.txt"
    lines = [f"{e}\t{g}\tnote\n" for e, g in zip(ENGLISH, GERMAN, strict=True)]
    path.write_text("".join(lines * 4))
    task = made(path, columns=(1, 0))
    assert task.pairs["train"][0] == (GERMAN[0], ENGLISH[0])
    assert (len(task.train), len(task.dev)) == (11, 1)


def test_long_texts_are_cut(folder: Path) -> None:
    with pytest.warns(UserWarning, match="texts have more tokens than length=6 leaves"):
        task = made(folder, length=6)
    batch = task.batch([0, 1, 2])
    assert batch.source is not None
    assert batch.source["tokens"].shape == (3, 6) and batch.tokens.shape == (3, 6)


def test_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    (folder / "val.de").write_text("Eins\n")
    with pytest.raises(ValueError, match=r"val\.de has 1 lines and .*val\.en\.gz has 3"):
        made(folder)
    with pytest.raises(ValueError, match=r"has neither train\.fr and train\.en nor a table"):
        made(folder, source="fr")
    with pytest.raises(FileNotFoundError, match=r"no files .*absent\.de and .*absent\.en"):
        made(folder, dev=folder / "absent")
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\nno tab here\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 2: no TAB in 'no tab here'"):
        made(path)
    path.write_text("a\tb\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 1: no column 2 among 2"):
        made(path, columns=(0, 2))
