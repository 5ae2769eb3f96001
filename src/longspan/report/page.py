"""One page of HTML from run folders: its sections, and their captions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from ..writing import write_text
from . import captions
from .charts import COLOURS
from .document import document_section
from .figures import (
    curve_figures,
    final_reach_figures,
    numbered,
    quality_figures,
    reach_figures,
    reach_points,
)
from .markup import Markup, escaped, joined, tag
from .pictures import looks_of, pattern_pictures, rows_for
from .reading import Run, read_run
from .setups import Setup, setups_of
from .study_section import study_section
from .tables import results_table, verdict

__all__ = ["page_of", "write"]

STYLES = ("page.css",)
SCRIPTS = ("page.js", "charts.js", "document.js")

Figures = Callable[[Sequence[Setup]], list[Markup]]
SetupFigures = Callable[[Setup], list[Markup]]
Keys = Callable[[Sequence[Setup]], Markup]


def write(runs: Sequence[Path | str], path: Path | str) -> Path:
    """Writes one HTML file about run folders, for readers who did not run them.

    The file holds everything it shows, and asks for nothing from elsewhere. A run whose files are
    missing or broken is named in it, with what is wrong, and shown as far as it can be.

    Args:
        runs: run folders, in the order in which they are to appear; one named twice is read once.
        path: the file to write; its folder is made.

    Returns:
        The path of the file.
    """
    if isinstance(runs, (str, Path)):
        raise TypeError(f"runs must be a list of run folders, got one path: write([{str(runs)!r}])")
    folders = list({Path(run).resolve(): Path(run) for run in runs}.values())
    if not folders:
        raise ValueError("runs must name at least one run folder, got none")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"path must be a file such as report.html, got the folder {str(path)!r}")
    text = page_of([read_run(folder) for folder in folders])
    # Half a surrogate pair can stand in JSON, and not in UTF-8.
    write_text(path, text, errors="replace")
    return path


def page_of(runs: Sequence[Run]) -> str:
    """The page about runs that were read."""
    setups = setups_of(runs)
    tasks: dict[str, list[Setup]] = {}
    for setup in setups:
        tasks.setdefault(setup.task, []).append(setup)
    groups = list(tasks.values())
    made = (
        ("results", "Results", _results(groups)),
        (
            "cost",
            "Quality and cost",
            _each_task(groups, quality_figures, captions.COST, keys=_numbers),
        ),
        ("learning", "Learning", _each_task(groups, curve_figures, captions.LEARNING, keys=_keys)),
        ("reach", "Reach over training", _reach(setups)),
        ("final", "Reach at the end", _each_setup(setups, final_reach_figures, captions.FINAL)),
        ("learned", "What the reach learned", _learned(setups)),
        ("document", "A document", _document(setups)),
        ("patterns", "Patterns", _patterns(setups)),
        ("runs", "The runs", _runs(runs)),
    )
    sections = [(id_, title, body) for id_, title, body in made if body is not None]
    title = _title(runs, groups)
    body = [
        _top(title, runs, setups),
        tag("p", id="trouble", class_="trouble", role="alert", hidden=True),
        tag(
            "nav",
            joined(tag("a", name, href=f"#{id_}") for id_, name, _ in sections),
            aria_label="Sections",
        ),
        *[
            tag("section", tag("h2", name, id=f"{id_}-title"), body, id=id_)
            for id_, name, body in sections
        ],
        # Colours for the map, which is drawn by the script.
        tag("i", id="map-global", hidden=True, style="color: var(--whole)"),
    ]
    return Template(_file("page.html")).substitute(
        title=escaped(title),
        style="\n".join(_file(name) for name in STYLES),
        body=joined(body, "\n"),
        script="\n".join(_file(name) for name in SCRIPTS),
    )


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _title(runs: Sequence[Run], groups: Sequence[Sequence[Setup]]) -> str:
    tasks = [group[0].task for group in groups if group[0].task]
    many = f"{len(runs)} run" + ("s" if len(runs) > 1 else "")
    return f"{', '.join(tasks)}: {many}" if tasks else many


def _top(title: str, runs: Sequence[Run], setups: Sequence[Setup]) -> Markup:
    setup = "one setup" if len(setups) == 1 else f"{len(setups)} setups"
    about = f"A report of longspan on {setup}. {captions.WORDS}"
    broken = [run for run in runs if run.problems]
    parts = [
        tag("div", tag("h1", title), tag("p", about, class_="note")),
        tag("button", "Dark", id="theme", type="button", hidden=True),
    ]
    top = tag("header", joined(parts), class_="top")
    if not broken:
        return top
    told = [
        tag("li", tag("strong", run.name), ": ", "; ".join(run.problems), ".") for run in broken
    ]
    several = "of one run" if len(broken) == 1 else f"of {len(broken)} runs"
    return joined(
        [
            top,
            tag(
                "div",
                tag("p", f"Files {several} are missing or broken; the rest is shown."),
                tag("ul", joined(told)),
                class_="problems",
                role="note",
            ),
        ]
    )


def _results(groups: Sequence[Sequence[Setup]]) -> Markup | None:
    if not groups:
        return None
    parts = []
    for group in groups:
        if len(groups) > 1:
            parts.append(tag("h3", group[0].task or "Runs that name no task"))
        parts += [tag("p", verdict(group), class_="verdict"), results_table(group)]
    return joined([*parts, tag("p", captions.RESULTS, class_="note")])


def _each_task(
    groups: Sequence[Sequence[Setup]],
    figures: Figures,
    caption: str,
    *,
    keys: Keys | None = None,
) -> Markup | None:
    parts = []
    for group in groups:
        drawn = figures(group)
        if not drawn:
            continue
        if len(groups) > 1:
            parts.append(tag("h3", group[0].task or "Runs that name no task"))
        if keys is not None:
            parts.append(keys(group))
        parts.append(tag("div", joined(drawn), class_="pair"))
    return joined([tag("p", caption, class_="note"), *parts]) if parts else None


def _each_setup(setups: Sequence[Setup], figures: SetupFigures, caption: str) -> Markup | None:
    parts = []
    for setup in setups:
        drawn = figures(setup)
        if drawn:
            parts.append(_heading(setup))
            parts.append(tag("div", joined(drawn), class_="tiles wide"))
    return joined([tag("p", caption, class_="note"), *parts]) if parts else None


def _reach(setups: Sequence[Setup]) -> Markup | None:
    points = reach_points(setups)
    return _each_setup(setups, lambda setup: reach_figures(setup, points), captions.REACH)


def _learned(setups: Sequence[Setup]) -> Markup | None:
    parts = [part for setup in setups if (part := study_section(setup)) is not None]
    return joined([tag("p", captions.LEARNED, class_="note"), *parts]) if parts else None


def _document(setups: Sequence[Setup]) -> Markup | None:
    section = document_section(setups)
    return (
        None if section is None else joined([tag("p", captions.DOCUMENT, class_="note"), section])
    )


def _patterns(setups: Sequence[Setup]) -> Markup | None:
    looks = looks_of(setups)
    rows = rows_for([look for _, look in looks])
    parts = []
    for setup, look in looks:
        parts += [_heading(setup), pattern_pictures(setup, look, rows)]
    return joined([tag("p", captions.PATTERNS, class_="note"), *parts]) if parts else None


def _heading(setup: Setup) -> Markup:
    return tag("h3", tag("i", class_=f"key c{setup.place % COLOURS}"), setup.name)


def _keys(setups: Sequence[Setup]) -> Markup:
    entries = [
        tag("li", tag("i", class_=f"key c{setup.place % COLOURS}"), setup.name) for setup in setups
    ]
    return tag("ul", joined(entries), class_="keys")


def _numbers(setups: Sequence[Setup]) -> Markup:
    """Which number is which setup, where a chart has numbers for names."""
    if not numbered(setups):
        return Markup("")
    entries = [
        tag("li", tag("i", class_=f"key c{setup.place % COLOURS}"), f"{number}  {setup.name}")
        for number, setup in enumerate(setups, start=1)
    ]
    return tag("ul", joined(entries), class_="keys")


def _runs(runs: Sequence[Run]) -> Markup:
    parts = []
    for run in runs:
        facts = [tag("p", tag("code", run.folder))]
        if run.problems:
            facts.append(tag("ul", joined(tag("li", problem) for problem in run.problems)))
        versions = run.result.get("versions")
        if isinstance(versions, dict):
            told = ", ".join(f"{name} {version}" for name, version in versions.items())
            facts.append(tag("p", told, class_="note"))
        if run.config:
            text = json.dumps(run.config, indent=2, ensure_ascii=False)
            facts.append(tag("pre", tag("code", text), tabindex=0))
        seed = "" if run.seed is None else f", seed {run.seed}"
        state = "" if not run.problems else ", with problems"
        parts.append(tag("details", tag("summary", f"{run.name}{seed}{state}"), joined(facts)))
    caption = "Where each run lies, and the settings it was started with."
    return joined([tag("p", caption, class_="note"), *parts])
