"""One class for a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan import tasks
from longspan.tasks.classify import Classify, shortened

pytest.importorskip("tokenizers")


def made(data: Path, **settings: Any) -> Classify:
    cache = (data if data.is_dir() else data.parent) / ".cache"
    sizes = {"length": 16, "vocabulary": 300}
    task = tasks.make("classify", data, cache=cache, **{**sizes, **settings})
    assert isinstance(task, Classify)
    return task


def rows(count: int) -> list[tuple[str, str]]:
    return [
        (f"text {n} is {'good' if n % 2 else 'bad'}", "+" if n % 2 else "-") for n in range(count)
    ]


def test_a_table_with_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows(20)))
    task = made(path)
    assert task.labels == ["+", "-"] and task.classes == 2
    assert (len(task.train), len(task.dev)) == (18, 2)
    batch = task.batch([0, 1])
    assert batch.targets["classes"].tolist() == [1, 0] and batch.target_count() == 2
    words = task.texts(batch.tokens[0].tolist())
    assert words[0] == "[CLS]" and "".join(words).startswith("[CLS] text 0 is bad[SEP]")
    assert batch.global_tokens is not None
    assert batch.global_tokens.sum(1).tolist() == [1, 1] and bool(batch.global_tokens[:, 0].all())


def test_two_texts_are_of_two_types(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    lines = [{"a": "one", "b": "two two two", "label": n % 2} for n in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    task = made(tmp_path, text="a", second="b")
    batch = task.batch([0])
    words = task.texts(batch.tokens[0].tolist())
    assert words.count("[SEP]") == 2
    assert batch.types is not None
    assert batch.types[0].tolist() == [int(n > words.index("[SEP]")) for n in range(len(words))]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    first, second = torch.arange(10), torch.arange(20)
    assert [len(part) for part in shortened([first, second], 30)] == [10, 20]
    assert [len(part) for part in shortened([first, second], 25)] == [10, 15]
    assert [len(part) for part in shortened([first, second], 13)] == [7, 6]
    assert [len(part) for part in shortened([second, first[:2]], 13)] == [11, 2]
    assert [len(part) for part in shortened([second], 13)] == [13]
    path = tmp_path / "a.csv"
    path.write_text("label,text\n" + f"a,{'word ' * 90}\nb,x\nb,y\n")
    with pytest.warns(UserWarning, match="1 of 2 texts have more tokens than length=16"):
        assert made(path).batch([0]).tokens.shape == (1, 16)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for label in ("neg", "pos"):
            folder = tmp_path / "imdb" / split / label
            folder.mkdir(parents=True)
            for n in range(count):
                (folder / f"{n}.txt").write_text(f"{label} {n}")
    # Texts of which nobody says what they are.
    (tmp_path / "imdb" / "train" / "unsup").mkdir()
    (tmp_path / "imdb" / "train" / "unsup" / "0.txt").write_text("whatever")
    task = made(tmp_path / "imdb")
    assert task.labels == ["neg", "pos"] and (len(task.train), len(task.dev)) == (6, 4)
    assert len(task.files) == 10
    shutil.rmtree(tmp_path / "imdb" / "train" / "unsup")
    assert len(made(tmp_path / "imdb" / "train").dev) == 1


def test_hyperpartisan(tmp_path: Path) -> None:
    texts = "".join(
        f'<article id="{n}" title="T{n}"><p>Some <b>news</b> {n}</p></article>' for n in range(4)
    )
    (tmp_path / "articles-training.xml").write_text(f"<articles>{texts}</articles>")
    known = "".join(
        f'<article hyperpartisan="{str(n % 2 == 0).lower()}" id="{n}"/>' for n in range(4)
    )
    truth = tmp_path / "ground-truth-training.xml"
    truth.write_text(f"<articles>{known}</articles>")
    task = made(tmp_path)
    assert task.labels == ["false", "true"]
    assert task.batch([0, 1]).targets["classes"].tolist() == [1, 0]
    assert "".join(task.texts(task.batch([0]).tokens[0].tolist())).startswith("[CLS] t0")
    truth.write_text('<articles><article hyperpartisan="true" id="0"/></articles>')
    with pytest.raises(
        ValueError, match=r"articles-training\.xml, <article> 2: article '1' is not"
    ):
        made(tmp_path)
    truth.write_text("<articles>\n<article")
    with pytest.raises(ValueError, match=r"ground-truth-training\.xml, line 2: not XML"):
        made(tmp_path)


def test_its_scores(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": t, "label": y}) for t, y in rows(8)))
    task = made(path, dev=path)
    # Wanted 1 0 1 0, given 1 1 1 0: F1 of class 0 is 2/3, of class 1 it is 4/5.
    scores = task.score({0: 1, 1: 1, 2: 1, 3: 0})
    assert scores["accuracy"] == 75 and scores["macro_f1"] == pytest.approx(100 * (2 / 3 + 0.8) / 2)
    assert task.predictions({1: 1}) == [{"number": 1, "label": "-", "right": "+"}]
    again = tasks.from_description(task.describe(), cache=tmp_path)
    assert again.describe() == task.describe()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.tsv",
            "text\tclass\nx\ty\n",
            r"a\.tsv, line 2: no field 'label'; there are 'text', 'cl",
        ),
        ("a.tsv", "text\tlabel\nx\n", r"a\.tsv, line 2: 1 columns, where line 1 has 2"),
        ("a.csv", "text,label\nx,\n", r"a\.csv, line 2: 'label' is empty"),
        ("a.csv", "text,label\nx,a\ny,a\n", "1 class in 2 examples; at least two classes"),
        ("a.txt", "text", r"the name must end in \.tsv, \.csv or \.jsonl"),
        ("a.csv", "", r"a\.csv is empty"),
    ],
)
def test_what_is_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        made(tmp_path / name)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"text": None}, "'text' must be a text, got NoneType None"),
        ({"text": 3}, "'text' must be a text, got int 3"),
        ({"second": ["a"]}, "'second' must be a text, got list"),
        ({"label": ["a"]}, "'label' must be a text or a number, got list"),
        ({"label": {"a": 1}}, "'label' must be a text or a number, got dict"),
    ],
)
def test_fields_of_a_wrong_type(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    row = {"text": "one", "second": "two", "label": "+"}
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(row | changed)}\n")
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: {says}"):
        made(path, second="second")


def test_folders_without_texts_and_no_data(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="no folders with texts: one for each class"):
        made(tmp_path)
    with pytest.raises(ValueError, match="classify: name the data"):
        tasks.make("classify")
