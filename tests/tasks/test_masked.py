"""Masked language modelling."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.batch import NOT_COUNTED
from longspan.tasks.fasta import documents_of, read_fasta
from longspan.tasks.masked import Masked

pytest.importorskip("tokenizers")


def made(data: Path, **settings: Any) -> Masked:
    cache = (data if data.is_dir() else data.parent) / "cache"
    sizes = {"length": 32, "vocabulary": 300}
    task = tasks.make("masked", data, cache=cache, **{**sizes, **settings})
    assert isinstance(task, Masked)
    return task


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    lines = [" ".join(f"w{(n * 7 + k) % 31}" for k in range(60)) for n in range(30)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    source = random.Random(0)
    bases = "".join(source.choice("ACGT") for _ in range(120_000))
    lines = [bases[n : n + 60].lower() for n in range(0, len(bases), 60)]
    path = tmp_path / "chr.fa"
    path.write_text(">chr1 test\n" + "\n".join(lines) + "\n")
    return path


def test_some_tokens_are_asked_and_most_of_them_hidden(text: Path) -> None:
    task = made(text, share=0.3)
    batch = task.batch(range(len(task.train)))
    asked = batch.targets["tokens"] != NOT_COUNTED
    assert not asked[:, 0].any() and not asked[~batch.real].any()
    inner = batch.real.sum() - 2 * len(batch.tokens)
    assert int(asked.sum()) / int(inner) == pytest.approx(0.3, abs=0.02)
    mask = task.tokenizer.token_to_id("[MASK]")
    hidden = batch.tokens == mask
    assert not (hidden & ~asked).any()
    assert float(hidden.sum() / asked.sum()) == pytest.approx(0.8, abs=0.02)
    same = (batch.tokens == batch.targets["tokens"]) & asked
    assert float(same.sum() / asked.sum()) == pytest.approx(0.1, abs=0.02)


def test_an_example_is_always_the_same_and_draws_differ(text: Path) -> None:
    task, again = made(text, draws=3), made(text, draws=3)
    count = len(task.train) // 3
    assert (task.batch([4]).tokens == again.batch([4]).tokens).all()
    one, other = task.batch([4]), task.batch([4 + count])
    assert task.train[4][:3] == task.train[4 + count][:3]
    assert not (one.tokens == other.tokens).all()

    def whole(batch: Any) -> list[int]:
        target = batch.targets["tokens"]
        return batch.tokens.where(target == NOT_COUNTED, target)[0].tolist()

    assert whole(one) == whole(other)


def test_all_of_a_document_is_read(text: Path) -> None:
    task = made(text, draws=1)
    lengths: dict[int, int] = {}
    for number in range(len(task.train)):
        document, low, high, _ = task.train[number]
        assert low == lengths.get(document, 0) and high - low <= 30
        lengths[document] = high
    assert list(lengths.values()) == task._rows["train"].lengths
    assert len(lengths) == 27


def test_documents_are_parted_by_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n\n\nthree\n\nfour\n")
    task = made(path)
    assert len(task._rows["train"].lengths) == 2
    assert "".join(task.texts(task._rows["train"].tokens(0, 0, 99))).strip() == "one\ntwo"


@pytest.mark.parametrize("around", ["", "\n", "\n\n"])
def test_empty_lines_around_a_file_part_nothing(around: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(around + "".join(f"text {n}\n" for n in range(12)) + around)
    task = made(path)
    assert len(task._rows["train"].lengths) + len(task._rows["dev"].lengths) == 12


def test_its_scores(text: Path) -> None:
    task = made(text)
    scores = task.score({0: (1, 4, 4 * math.log(2)), 1: (2, 2, 2 * math.log(2))})
    assert scores == {"bits": pytest.approx(1.0), "accuracy": 50.0}
    assert task.predictions({0: (1, 4, 0.0)})[0]["hidden"] == 4
    again = tasks.from_description(task.describe(), cache=text.parent / "cache")
    assert again.describe() == task.describe()


def test_a_genome_is_cut_into_documents_of_pieces(genome: Path) -> None:
    sequence = read_fasta(genome)[0]
    assert len(sequence) == 120_000 and set(sequence) == set("ACGT")
    documents = documents_of([sequence], 10, 0)
    pieces = [len(piece) for document in documents for piece in document]
    assert min(pieces[:-1]) < 510 and max(pieces) > 990
    wholes: list[str] = []
    for document in documents:
        joined = "".join(document)
        if wholes and len(wholes[-1]) < len(sequence):
            assert 50 <= len(document) <= 100 or len(wholes[-1] + joined) == len(sequence)
            wholes[-1] += joined
        else:
            wholes.append(joined)
    assert wholes == [sequence] * 10
    assert documents_of([sequence], 2, 0) == documents[: len(documents_of([sequence], 2, 0))]
    assert documents[0] != documents_of([sequence], 1, 1)[0]


def test_a_genome_as_a_task(genome: Path) -> None:
    task = made(genome, splits=2, draws=1, length=256, vocabulary=1000)
    assert task.dna and task.share == 0.1
    tokens = task._rows["train"].tokens(0, 0, 4000)
    marks = [n for n, token in enumerate(tokens) if token == task.tokenizer.token_to_id("[SEP]")]
    words = task.texts(tokens[: marks[0]])
    assert 500 <= len("".join(words)) <= 1000 and set("".join(words)) <= set("ACGT")
    assert len("".join(words)) / len(words) > 4
    assert task.batch([0, 1]).target_count() > 40


def test_several_sequences_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.fna"
    path.write_text("".join(f">s{n}\n{base * 600}\n" for n, base in enumerate("ACG")))
    task = made(path, splits=1, draws=1, vocabulary=40)
    # No base is unknown, also one that was never seen.
    assert set("".join(task.texts(task._rows["dev"].tokens(0, 0, 999)))) <= set("G[SEP]")
    assert len(task._rows["train"].lengths) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.fa", "ACGT\n", r"a\.fa, line 1: a FASTA file begins with a line of '>'"),
        ("a.fa", ">x\nACGT\nAC!T\n", r"a\.fa, line 3: '!' is not a base"),
        ("a.fa", ">x\n", r"a\.fa has no bases"),
        ("a.txt", "\n\n", r"a\.txt has no text"),
        ("a.txt", "", r"a\.txt is empty"),
    ],
)
def test_what_is_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        made(tmp_path / name)


def test_settings_that_do_not_fit(text: Path) -> None:
    with pytest.raises(ValueError, match="share must lie between 0 and 1"):
        made(text, share=1.5)
    path = text.parent / "a.fa"
    path.write_text(">x\n" + "ACGT" * 400)
    with pytest.raises(ValueError, match=r"vocabulary must be at least 21 \(all letters and 5"):
        made(path, vocabulary=10)
