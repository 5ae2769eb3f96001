"""Language modelling of bytes."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from longspan import tasks
from longspan.tasks.batch import NOT_COUNTED
from longspan.tasks.bytes import Bytes

TEXT = bytes(range(256)) * 8  # every place can be told from those near it


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(TEXT)
    return path


def test_examples_to_learn_from_lie_at_places_drawn_by_the_seed(file: Path) -> None:
    task = Bytes(file, length=16, seed=3)
    batch = task.batch([0, 1, 2, 3])
    assert batch.tokens.shape == (4, 16) and batch.target_count() == 64
    assert (batch.targets["tokens"] == (batch.tokens + 1) % 256).all()
    again = Bytes(file, length=16, seed=3)
    assert [again.train[n] for n in range(50)] == [task.train[n] for n in range(50)]
    other = Bytes(file, length=16, seed=4)
    assert [other.train[n] for n in range(50)] != [task.train[n] for n in range(50)]
    ends = [task.train[n].end for n in range(len(task.train))]
    assert max(ends) <= 2048 - 2 * 102 and len(set(ends)) > 100


def test_every_byte_is_measured_once_with_context_before_it(file: Path) -> None:
    task = Bytes(file, length=16, context=10, split=(1900, 100, 48))
    for split, first, last in (("dev", 1900, 2000), ("test", 2000, 2048)):
        named = []
        for number in range(len(task.examples(split))):
            batch = task.batch([number], split)
            target = batch.targets["tokens"][0]
            counted = target != NOT_COUNTED
            begin = task.examples(split)[number].begin
            assert int(counted.nonzero()[0]) == 10  # so many bytes are only read, and the next one
            named += [begin + 1 + place for place in counted.nonzero()[:, 0].tolist()]
            assert (target[counted] == ((batch.tokens[0] + 1) % 256)[counted]).all()
        assert named == list(range(first, last))


def test_the_last_stretch_is_short_and_padded(file: Path) -> None:
    task = Bytes(file, length=16, context=8, split=(1900, 100, 48))
    batch = task.batch([0, len(task.dev) - 1], "dev")
    assert batch.real.sum(1).tolist() == [16, 12]
    assert batch.target_count() == 8 + 4


def test_a_split_without_bytes_before_it_starts_at_the_second(file: Path) -> None:
    task = Bytes(file, length=16, context=4, split=(100, 0, 0))
    assert len(task.dev) == 0
    assert task._in_order(0, 100)[0] == (0, 1, 13)


def test_bits_are_a_mean_over_bytes_not_over_stretches(file: Path) -> None:
    task = Bytes(file, length=16)
    assert task.score({0: (10.0, 8, 4), 1: (6.0, 2, 1)}) == {"bits": 1.6, "accuracy": 50.0}
    assert [r["bits"] for r in task.predictions({0: (10.0, 8, 4)})] == [1.25]
    assert task.lower_is_better


def test_a_compressed_file_is_the_same(file: Path, tmp_path: Path) -> None:
    packed = tmp_path / "text.xz"
    packed.write_bytes(lzma.compress(TEXT))
    task = tasks.make("bytes", packed, length=16, cache=tmp_path / "cache")
    plain = tasks.make("bytes", file, length=16)
    assert (task.batch([5]).tokens == plain.batch([5]).tokens).all()
    again = tasks.from_description(task.describe(), cache=tmp_path / "cache")
    assert again.describe() == task.describe()


def test_the_sample_ships(tmp_path: Path) -> None:
    task = tasks.make("bytes", cache=tmp_path)
    assert "<title>" in "".join(task.texts(task.batch(range(4), "dev").tokens.flatten().tolist()))
    assert len(task.dev) > 100


def test_a_description_of_a_file_that_changed_does_not_fit(file: Path) -> None:
    described = tasks.make("bytes", file, length=16).describe()
    file.write_bytes(TEXT[::-1])
    with pytest.raises(ValueError, match=r"the data changed since this was described: .*text"):
        tasks.from_description(described)


def test_what_does_not_fit(file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty is empty"):
        Bytes(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent"):
        Bytes(tmp_path / "absent")
    with pytest.raises(ValueError, match="bytes to learn from are too few for length=4000"):
        Bytes(file, length=4000)
    with pytest.raises(ValueError, match="split asks for 3,000 bytes of a file of 2,048"):
        Bytes(file, split=(1000, 1000, 1000))
    with pytest.raises(ValueError, match="split must be three numbers"):
        Bytes(file, split=(1, 2))
    with pytest.raises(ValueError, match="context must be below length"):
        Bytes(file, length=8, context=8)
