from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from longspan.bench import load
from longspan.bench.machine import WARM
from longspan.cli import MEASURED, app
from longspan.gallery import EXAMPLES

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")


def longspan(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def fails(*arguments: str) -> str:
    """The one line that a wrong command prints."""
    result = longspan(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.mark.parametrize("name", EXAMPLES)
def test_draws_every_named_pattern_with_its_expression(name: str) -> None:
    result = longspan("draw", name, "--length", "12")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(EXAMPLES[name] + "\n")
    assert "12 tokens: " in result.stdout
    assert "hops: " in result.stdout


def test_draws_an_expression() -> None:
    result = longspan("draw", "Causal() & (Window(1, 0) | Strided(3))", "--length", "4")
    assert result.stdout.splitlines() == [
        "Causal() & (Window(1, 0) | Strided(3))",
        "■ · · ·",
        "■ ■ · ·",
        "· ■ ■ ·",
        "■ · ■ ■",
        "4 tokens: 8 of 16 pairs (50.0%), at most 3 a query",
        "hops: 2 layers until every token has heard all it can (50% of others), 1.3 on average",
    ]


def test_says_when_no_token_hears_another() -> None:
    assert "no token hears another" in longspan("draw", "Window(0, 0)", "--length", "5").stdout


def test_does_not_count_hops_of_long_patterns() -> None:
    result = longspan("draw", "window", "--length", "600")
    assert result.exit_code == 0
    assert "hops: counted up to 512 tokens only" in result.stdout


@pytest.mark.parametrize(
    ("expression", "tokens"),
    [
        ("SameDocument([0, 0, 1, 1, 1])", 5),
        ("Causal() & SameDocument([0, 1, 1])", 3),
        ("Mask([[[[True, False], [True, True]]]])", 2),
        ("Global([True, False, False])", 3),
        ("SameDocument(ids)", 32),
        ("Global([1, 2])", 32),
    ],
)
def test_ids_and_masks_decide_the_length(expression: str, tokens: int) -> None:
    assert f"\n{tokens} tokens: " in longspan("draw", expression).stdout


def test_draws_each_sample_and_head() -> None:
    result = longspan("draw", "PerHead([Causal(), Global([[0], [2]])])", "--length", "3")
    for name in ("sample 0, head 0", "sample 0, head 1", "sample 1, head 0", "sample 1, head 1"):
        assert name in result.stdout
    assert "of 36 pairs" in result.stdout


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("Window(3", "'Window(3' is not an expression"),
        ("Window(3)", "Window: missing a required argument: 'right'"),
        ("Window(-1, 0)", "Window: left must be at least 0, got -1"),
        ("windo", "there is no pattern 'windo': choose one of full, causal, window"),
        ("__import__('os').getcwd()", "cannot read"),
        ("SameDocument([0, 1]) | Causal()", "SameDocument: ids must have shape (1, 9)"),
        ("bigbird(4, block=2)", "drawn for length 4"),
    ],
)
def test_a_wrong_expression_is_one_line(expression: str, reason: str) -> None:
    assert reason in fails("draw", expression, "--length", "9")


def test_a_bell_has_its_reach_tokens_and_underflows() -> None:
    result = longspan("draw", "bell", "--variance", "9.5", "--threshold", "0.5")
    assert result.exit_code == 0
    assert "reach 3: 3 tokens each side and the query's own, 7 tokens" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["float16", "14", "19"] in rows
    assert ["bfloat16", "41", "43"] in rows
    assert ["float32", "41", "45"] in rows
    assert "within the reach, U underflows in none of them" in result.stdout


def test_a_bell_by_its_reach() -> None:
    result = longspan("draw", "bell", "--reach", "128")
    assert "2 · 11818.6" in result.stdout
    assert "257 tokens" in result.stdout


def test_a_bell_that_is_cut_too_late_for_a_dtype() -> None:
    result = longspan("draw", "bell", "--threshold", "1e-12")
    assert "within the reach, U underflows in float16" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("bell", "--variance", "-1"), "variance must be above 0"),
        (("bell", "--variance", "nan"), "variance must be above 0"),
        (("bell", "--variance", "inf"), "variance must be above 0 and at most"),
        (("bell", "--threshold", "1"), "threshold must be above 0 and below 1"),
        (("bell", "--variance", "3", "--reach", "3"), "not both"),
        (("bell", "--length", "3"), "--length is for a pattern"),
        (("gallery", "--length", "3"), "--length is for a pattern"),
        (("window", "--variance", "3"), "are for 'longspan draw bell'"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails("draw", *arguments)


@pytest.mark.parametrize("what", ["window", "bell", "gallery"])
def test_refuses_a_picture_of_another_kind(what: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.gif"
    assert "path must end in .png or .svg, got 'picture.gif'" in fails(
        "draw", what, "-o", str(picture)
    )
    assert not picture.exists()


def test_says_when_a_picture_cannot_be_written(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    result = longspan("draw", "window", "-o", str(in_the_way / "picture.svg"))
    assert result.exit_code == 2
    assert "Error: " in result.stderr


@pytest.mark.parametrize("what", ["Window(1, 1) | Global(1)", "bell", "gallery"])
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_saves_a_picture(what: str, suffix: str, start: bytes, tmp_path: Path) -> None:
    picture = tmp_path / "new" / f"picture{suffix}"
    result = longspan("draw", what, "--output", str(picture))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(f"saved {picture}\n")
    assert picture.read_bytes().startswith(start)
    assert list(picture.parent.iterdir()) == [picture]


def test_draw_alone_shows_every_pattern() -> None:
    result = longspan("draw")
    assert result.exit_code == 0
    for name in EXAMPLES:
        assert name in result.stdout


def test_the_demonstration_draws_and_measures(tmp_path: Path) -> None:
    arguments = ("--pictures", str(tmp_path), "--length", "80", "--no-example")
    result = longspan("demo", *arguments)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "gallery.svg").exists()
    assert str(tmp_path / "gallery.svg") in result.stdout
    assert "dense SDPA" in result.stdout
    for expression in MEASURED:
        assert expression.split("(")[0] in result.stdout
    # A row for each expression, two of dense attention and one of a learned window.
    table = result.stdout[result.stdout.index("forward") :]
    assert table.count("%") == len(MEASURED) + 3


def test_every_kind_of_pattern_is_measured() -> None:
    kinds = {expression.split("(")[0] for expression in EXAMPLES.values()}
    assert {expression.split("(")[0] for expression in MEASURED} == kinds


def test_a_demonstration_without_matplotlib_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("longspan.cli._measure", lambda console, size: measured.append(size))
    result = longspan("demo", "--no-example", "--length", "3")
    assert result.exit_code == 0
    assert "No picture of the gallery: pictures need matplotlib" in result.stdout
    assert [size.length for size in measured] == [3]


@pytest.mark.parametrize(("program", "code"), [("print('trained')", 0), ("raise SystemExit(3)", 2)])
def test_the_demonstration_runs_the_example(
    program: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    example = tmp_path / "examples" / "learned_window.py"
    example.parent.mkdir()
    example.write_text(program)
    monkeypatch.setattr("longspan.cli.__file__", str(tmp_path / "src" / "longspan" / "cli.py"))
    monkeypatch.setattr("longspan.cli._measure", lambda console, size: None)
    result = longspan("demo", "--pictures", str(tmp_path))
    assert result.exit_code == code
    assert ("trained" in capfd.readouterr().out) == (code == 0)
    assert ("ended with exit code 3" in result.stderr) == (code != 0)


def test_an_installed_demonstration_says_where_the_example_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longspan.cli.__file__", str(tmp_path / "lib" / "longspan" / "cli.py"))
    monkeypatch.setattr("longspan.cli._measure", lambda console, size: None)
    result = longspan("demo", "--pictures", str(tmp_path))
    assert result.exit_code == 0
    assert "The example is in a checkout of longspan" in result.stdout


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the command had already started itself anew, which would end the tests."""
    for name in WARM:
        monkeypatch.setenv(name, "1")


@pytest.mark.usefixtures("warm")
def test_a_quick_benchmark_prints_a_table_and_saves_it(tmp_path: Path) -> None:
    result = longspan("bench", "cpu", "--quick", "--only", "global", "-o", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "one global token added" in result.stdout
    assert "≤ 10" in result.stdout
    assert "MALLOC_MMAP_THRESHOLD_=1" in result.stdout
    assert "A quick look" in result.stdout
    report = load(tmp_path / "bench.json")
    assert [figure.problem for figure in report.figures] == ["global"]
    assert result.stdout.endswith(f"saved {tmp_path / 'bench.json'}\n")


@pytest.mark.usefixtures("warm")
def test_an_unknown_benchmark_is_one_line() -> None:
    assert "there is no problem 'windo'" in fails("bench", "cpu", "--only", "windo")


def test_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["longspan", "draw", "Causal()", "--length", "2"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("longspan", run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("Causal()\n■ ·\n■ ■\n")


@pytest.mark.usefixtures("warm")
def test_layers_are_measured_and_shown_again(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    first, second = tmp_path / "first", tmp_path / "second"
    args = ("bench", "layers", "--quick", "--only", "longformer")
    result = longspan(*args, "-o", str(first))
    assert result.exit_code == 0, result.stderr
    assert "Longformer's layer" in result.stdout
    again = longspan("bench", "layers", "--from", str(first / "bench.json"), "-o", str(second))
    assert again.exit_code == 0, again.stderr
    assert (second / "figures.md").read_text() == (first / "figures.md").read_text()
    assert load(second / "bench.json") == load(first / "bench.json")
    assert "--device must be cpu or cuda" in fails("bench", "layers", "--device", "tpu")
