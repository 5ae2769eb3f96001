"""The page: its table by hand, its structure, what it says of broken runs, what it escapes."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from longspan import report

from .fakes import look_of, six_runs, write_run
from .pages import Element, parsed, read_page


def table_of(page: Element) -> list[list[str]]:
    (table,) = page.all("table", class_="results")
    return [[cell.text for cell in row.all("th", "td")] for row in table.all("tr")]


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Element:
    root = tmp_path_factory.mktemp("six")
    return read_page(report.write(six_runs(root), root / "report.html"))


def test_the_table_is_what_one_computes_by_hand(six: Element) -> None:
    head, fixed, learned = table_of(six)
    assert head == [
        "setup",
        "seeds",
        "f1 (higher is better)",
        "pairs",
        "tokens/s",
        "peak memory",
        "time",
        "parameters",
    ]
    mean, deviation = statistics.mean((41.2, 42.0, 41.5)), statistics.stdev((41.2, 42.0, 41.5))
    assert (round(mean, 2), round(deviation, 2)) == (41.57, 0.4)
    assert learned == [
        "learned window",
        "3",
        "41.57 ± 0.40",
        "1.23 M",
        "5 k",
        "300 MiB",
        "1 min 23 s ± 4 %",
        "2.35 M",
    ]
    assert fixed[:4] == ["sliding window", "3", "38.03 ± 0.45", "1.5 M"]


def test_bold_is_what_stands_apart(six: Element) -> None:
    (table,) = six.all("table", class_="results")
    assert [bold.text for bold in table.all("strong")] == [
        "1 min 04 s ± 3 %",
        "41.57 ± 0.40",
        "1.23 M",
    ]


def test_nothing_is_bold_within_the_spread(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{kind}{seed}", kind=kind, seed=seed, value=value + 2 * seed)
        for kind, value in (("LearnedWindow", 40.0), ("SlidingWindow", 39.0))
        for seed in range(3)
    ]
    page = read_page(report.write(runs, tmp_path / "report.html"))
    (table,) = page.all("table", class_="results")
    assert not any("±" in bold.text for bold in table.all("strong"))
    assert "within the spread of the seeds" in page.one("p", class_="verdict").text


def test_a_single_seed_is_never_bold(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / kind, kind=kind, value=value)
        for kind, value in (("LearnedWindow", 90.0), ("SlidingWindow", 10.0))
    ]
    page = read_page(report.write(runs, tmp_path / "report.html"))
    assert page.one("table").all("strong") == []
    assert "may owe its place to chance" in page.one("p", class_="verdict").text


def test_lower_can_be_better(tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / f"{kind}{seed}",
            kind=kind,
            seed=seed,
            value=value + 0.01 * seed,
            task="bytes",
            metric="bits",
        )
        for kind, value in (("LearnedWindow", 1.5), ("SlidingWindow", 1.7))
        for seed in range(2)
    ]
    page = read_page(report.write(runs, tmp_path / "report.html"))
    assert table_of(page)[0][2] == "bits (lower is better)"
    assert "1.5050 ± 0.0071" in [bold.text for bold in page.one("table").all("strong")]


def test_tasks_have_tables_of_their_own(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", task="bytes", metric="bits", value=1.5),
    ]
    page = read_page(report.write(runs, tmp_path / "report.html"))
    assert len(page.all("table", class_="results")) == 2
    assert "squad, bytes: 2 runs" in page.one("h1").text


def test_every_section_is_there(six: Element) -> None:
    ids = [section.attributes["id"] for section in six.all("section")]
    assert ids == [
        "results",
        "cost",
        "learning",
        "reach",
        "final",
        "document",
        "patterns",
        "runs",
    ]
    assert [link.attributes["href"] for link in six.one("nav").all("a")] == [f"#{i}" for i in ids]
    curves = six.one("section", id="learning").all("svg")
    assert [len(json.loads(svg.attributes["data-lines"] or "")) for svg in curves] == [6, 6]
    # Reach is learned in one of the two setups, and shown for each layer, with bands and heads.
    reach = six.one("section", id="reach").all("svg")
    assert len(reach) == 2
    assert len(reach[0].all("path", class_="band c1")) == 1
    assert len(reach[0].all("path", class_="band c1 outer")) == 1
    assert len(reach[0].all("path", class_="line c1 faint")) == 2
    assert len(six.one("section", id="final").all("svg")) == 4
    assert len(six.one("section", id="patterns").all("svg")) == 4
    assert len(six.one("section", id="cost").all("circle")) == 4
    # A bar upwards for each setup in both charts, and one along where time differs.
    assert len([p for p in six.all("path") if "error" in (p.attributes["class"] or "")]) == 6


def test_many_setups_are_numbered_in_charts_of_quality(tmp_path: Path, six: Element) -> None:
    runs = [write_run(tmp_path / str(k), settings={"mean_reach": k}) for k in range(8)]
    page = read_page(report.write(runs, tmp_path / "report.html"))
    cost = page.one("section", id="cost")
    keys = [entry.text for entry in cost.one("ul", class_="keys").all("li")]
    assert keys[7] == "8  learned window, mean reach 7"
    labels = [t.text for t in cost.all("text") if "name" in (t.attributes.get("class") or "")]
    assert sorted(labels) == sorted("12345678" * 2)
    assert six.one("section", id="cost").all("ul") == []


def test_the_document_that_differs_most_is_first(six: Element) -> None:
    assert json.loads(six.one("script", id="documents").text)["first"] == 1


def test_ids_are_unique_and_pictures_labelled(six: Element) -> None:
    ids = [element.attributes["id"] for element in six.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    for picture in six.all("svg", "img", "canvas"):
        assert picture.attributes["role"] == "img"
        assert picture.attributes["aria-label"]
    for scrolled in six.all(class_="scroll"):
        assert scrolled.attributes["aria-label"]
        assert scrolled.attributes["tabindex"] == "0"
    for select in six.all("select"):
        assert any(select in label.all("select") for label in six.all("label"))
    assert six.one("html").attributes["lang"] == "en"


def test_nothing_is_fetched(six: Element) -> None:
    assert six.all("link", "iframe", "object", "embed", "base", "form", "audio", "video") == []
    for element in six.all():
        assert "src" not in element.attributes
        assert (element.attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in element.attributes)
    for code in six.all("style", "script"):
        assert "//" not in re.sub(r"^\s*//.*$", "", code.text, flags=re.MULTILINE)
        assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import\(", code.text)
    (policy,) = six.all("meta", http_equiv="Content-Security-Policy")
    assert (policy.attributes["content"] or "").startswith("default-src 'none'")


def test_all_that_comes_from_files_is_escaped(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    run = write_run(
        tmp_path / "a <b> & 'c'",
        kind=evil,
        task=evil,
        metric=evil,
        settings={evil: evil},
        look=look_of(tokens=[evil, "<script>", "b", "c"]) | {"answer": {"text": evil, evil: evil}},
    )
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1, "stage": evil, "kind": evil, "loss": 1.0, evil: 1}))
    broken = tmp_path / "<i>"
    page = read_page(report.write([run, broken], tmp_path / "report.html"))
    assert page.all("img", "i", onerror="alert(1)") == page.all("b") == []
    assert [script.attributes.get("type") for script in page.all("script")] == [
        "application/json",
        None,
    ]
    assert evil in page.one("h1").text
    data = json.loads(page.one("script", id="documents").text)
    assert data["texts"][0]["tokens"][1].strip() == "<script>"
    assert data["views"][0]["answer"] == {"text": evil, "rest": [f"{evil} {evil}"]}


def test_broken_runs_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    runs = six_runs(tmp_path)
    (runs[0] / "result.json").write_text("{")
    (runs[1] / "metrics.jsonl").write_text('{"loss": 1}\n')
    (runs[2] / "looks.json").write_text("{}")
    (runs[3] / "config.json").unlink()
    page = read_page(report.write([*runs, tmp_path / "gone"], tmp_path / "report.html"))
    told = [item.text for item in page.one("div", class_="problems").all("li")]
    assert [line.split(": ")[0] for line in told] == [
        "slidingwindow-0",
        "slidingwindow-1",
        "slidingwindow-2",
        "learnedwindow-0",
        "gone",
    ]
    assert told[-1] == "gone: there is no such folder."
    rows = table_of(page)[1:]
    assert [row[1] for row in rows] == ["2 of 3", "1", "2"]
    assert rows[0][2] == "38.05 ± 0.64"  # of 38.5 and 37.6


def test_runs_that_cannot_be_read_at_all_still_make_a_page(tmp_path: Path) -> None:
    page = read_page(report.write([tmp_path / "gone"], tmp_path / "report.html"))
    assert "there is no such folder" in page.one("div", class_="problems").text
    assert [s.attributes["id"] for s in page.all("section")] == ["runs"]


def test_a_run_that_goes_on_shows_its_curves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "result.json").unlink()
    page = read_page(report.write([run], tmp_path / "report.html"))
    assert "No run has a result yet" in page.one("p", class_="verdict").text
    assert len(page.one("section", id="learning").all("svg")) >= 1


def test_six_long_runs_fit_in_two_megabytes(tmp_path: Path) -> None:
    runs = six_runs(tmp_path, lines=2000, layers=6, heads=8, count=1500)
    path = report.write(runs, tmp_path / "report.html")
    assert path.stat().st_size <= 2_000_000
    data = json.loads(read_page(path).one("script", id="documents").text)
    assert [len(text["tokens"]) for text in data["texts"]] == [1500]


def test_six_long_runs_of_large_models_fit_too(tmp_path: Path) -> None:
    look = look_of(count=1500, layers=12, heads=12)
    runs = [
        write_run(
            tmp_path / str(width),
            settings={"width": width},
            lines=2000 if width < 2 else 200,
            layers=12,
            heads=12,
            look=look,
        )
        for width in range(6)
    ]
    path = report.write(runs, tmp_path / "report.html")
    assert path.stat().st_size <= 2_000_000


def test_documents_too_large_for_a_page_are_cut_and_say_of_how_many(tmp_path: Path) -> None:
    look = look_of(count=1500, layers=24, heads=16)
    run = write_run(tmp_path / "run", look=look)
    path = report.write([run], tmp_path / "report.html")
    assert path.stat().st_size <= 2_000_000
    (text,) = json.loads(read_page(path).one("script", id="documents").text)["texts"]
    assert 100 <= len(text["tokens"]) < 1500
    assert text["of"] == 1500


def test_padding_is_not_shown(tmp_path: Path) -> None:
    look = look_of(count=20) | {"real": [place < 15 for place in range(20)]}
    run = write_run(tmp_path / "run", look=look)
    page = read_page(report.write([run], tmp_path / "report.html"))
    (text,) = json.loads(page.one("script", id="documents").text)["texts"]
    assert (len(text["tokens"]), text["of"]) == (15, 15)


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="runs must name at least one run folder"):
        report.write([], tmp_path / "report.html")
    with pytest.raises(TypeError, match="runs must be a list of run folders"):
        report.write(tmp_path, tmp_path / "report.html")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"path must be a file such as report\.html"):
        report.write([tmp_path / "run"], tmp_path)


def test_a_run_named_twice_is_read_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = report.write([run, tmp_path / "." / "run"], tmp_path / "new" / "report.html")
    assert table_of(read_page(path))[1][1] == "1"
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_the_same_runs_make_the_same_page(tmp_path: Path) -> None:
    runs = six_runs(tmp_path)
    one, two = (report.write(runs, tmp_path / name).read_text() for name in ("1.html", "2.html"))
    assert one == two
    parsed(one)
