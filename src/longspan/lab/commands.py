"""The commands that train and compare, and show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .. import recipes, tasks
from ..modules import module_of
from ..paths import PATH
from ..recipes import Plan, Planned
from ..report import write as write_report
from ..tasks.registry import kind_of_task
from ..terminal import console_of, errors_in_one_line, say
from ..training import RunConfig
from ..training.processes import first_process, part, started_together
from . import table
from .checking import check_plan, make_places, settings_said
from .dry_run import show_plan
from .jobs import run_at_once
from .model_commands import OF_A_MODEL
from .options import named, options_of
from .pictures import save_quality, save_reaches
from .records import Done, lines_of, read_all
from .rows import apart, note, plan_of, tables_of
from .runner import Failed, moved_aside, run_plan

__all__ = ["add_to"]

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, in every run; may be repeated: stages.*.steps=100."),
]
RUNS = Path("runs")
Folder = Annotated[Path, typer.Option("--output", "-o", help="The folder for the runs.", **PATH)]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--fresh",
        help="Go on with runs that were stopped, and keep those that have a result; or move what "
        "is there into the folder 'before', and begin anew.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(min=1, help="Runs at once, each in a process of its own; they share the device."),
]
Rows = Annotated[
    list[str] | None,
    typer.Option("--row", help="A row of the recipe's table, to be made alone; may be repeated."),
]
Records = Annotated[
    Path | None,
    typer.Option(
        help="A folder of small records of runs: those that have one are not made again, wherever "
        "they were made, and the others get one.",
        **PATH,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (run, compare, report, data, *OF_A_MODEL):
        app.command()(command)
    app.command("table")(records_table)


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            help=f"A recipe by name ({', '.join(recipes.RECIPES)}), a Python file with a function "
            "`recipe`, a run's config.json, or a run's folder."
        ),
    ] = "quick",
    settings: Sets = None,
    output: Folder = RUNS,
    resume: Resume = True,
    jobs: Jobs = 1,
    records: Records = None,
    rows: Rows = None,
    option: Annotated[
        list[str] | None, typer.Option(help="name=value, of the recipe's function.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say what would be run, with parameters, memory and time from a few steps of "
            "each stage; write nothing.",
        ),
    ] = False,
) -> None:
    """Train what a recipe plans: every run that has no result yet; and write a report.

    One that was stopped goes on where its last checkpoint is; --resume says so, and need not be
    given. Several processes are the same command, behind accelerate launch -m or torchrun -m.
    """
    console = console_of()
    with errors_in_one_line():
        with settings_said():
            plan = _plan(recipe, option or []).with_set(settings or [])
            plan = plan.of_rows(rows) if rows else plan
        # A run that is there goes on where it is.
        there = recipe not in recipes.RECIPES and Path(recipe).is_dir()
        folder = Path(recipe).resolve().parent if there else output
        if there and output.resolve() not in (RUNS.resolve(), folder):
            raise ValueError(
                f"-o {output}: a run that is there goes on where it is; give its config.json to "
                "make another"
            )
        if dry_run:
            with settings_said():
                show_plan(console, plan, folder if resume else None, records)
            return
        _run(console, plan, folder, resume=resume, jobs=jobs, records=records)


def compare(
    task: Annotated[str, typer.Argument(help=f"One of {', '.join(tasks.NAMES)}.")],
    mechanisms: Annotated[
        str, typer.Option(help=f"Separated by commas: {', '.join(recipes.MECHANISMS)}.")
    ] = "full,window,learned",
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    source: Annotated[
        str | None, typer.Option("--data", help="The task's data; what ships by default.")
    ] = None,
    reach: Annotated[int, typer.Option(min=1, help="Tokens to each side, on average.")] = 16,
    steps: Annotated[int, typer.Option(min=1)] = 300,
    batch: Annotated[int, typer.Option(min=1, help="Examples at once.")] = 8,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of an example.")] = None,
    settings: Sets = None,
    output: Folder = RUNS,
    resume: Resume = True,
    jobs: Jobs = 1,
    records: Records = None,
) -> None:
    """Train the same model with several mechanisms, over seeds, and compare them."""
    console = console_of()
    with errors_in_one_line():
        with settings_said():
            plan = recipes.comparison(
                task,
                [name.strip() for name in mechanisms.split(",") if name.strip()],
                data=source,
                reach=reach,
                steps=steps,
                batch=batch,
                length=length,
                seeds=seeds,
            ).with_set(settings or [])
        _run(console, plan, output, resume=resume, jobs=jobs, records=records)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders of such.")],
    output: Annotated[Path, typer.Option("--output", "-o", **PATH)] = Path("report.html"),
) -> None:
    """Write one HTML file about runs."""
    console = console_of()
    with errors_in_one_line():
        if output.suffix not in (".html", ".htm"):
            raise ValueError(f"-o must end in .html, got {output.name!r}")
        found = [run for given in runs for run in _runs_in(given)]
        say(console, f"saved {write_report(found, output)}")


def records_table(
    records: Annotated[Path, typer.Argument(help="A folder of records, as --records leaves it.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file for the table as Markdown.", **PATH),
    ] = None,
    only: Annotated[str, typer.Option(help="Words that a row's name has to have.")] = "",
    without: Annotated[
        list[str] | None,
        typer.Option(help="Words that a row's name may not have; may be repeated."),
    ] = None,
    quality: Annotated[
        Path | None,
        typer.Option(help="A picture (.svg, .png) of quality against pairs.", **PATH),
    ] = None,
    reaches: Annotated[
        Path | None, typer.Option(help="A picture of learned reaches over training.", **PATH)
    ] = None,
) -> None:
    """Show the table of runs of which there are records, and draw them."""
    console = console_of()
    with errors_in_one_line():
        left_out = without or ()
        done = apart(read_all(records, only, left_out))
        table.show(console, records.name, done)
        if output is not None:
            say(console, f"saved {table.save(done, output)}")
        if quality is not None:
            say(console, f"saved {save_quality(done, quality)}")
        if reaches is not None:
            say(console, f"saved {save_reaches(lines_of(records, only, left_out), reaches)}")


def data(
    task: Annotated[str, typer.Argument(help=f"One of {', '.join(tasks.NAMES)}.")],
    source: Annotated[
        str | None, typer.Option("--data", help="The task's data; what ships by default.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="name=value, of the task.")] = None,
) -> None:
    """Read a task's data, and say what is in it."""
    console = console_of()
    with errors_in_one_line():
        with settings_said():
            kind = kind_of_task(task)
            made = tasks.make(
                task, source, **options_of(kind, task, named(option or []), but=("data",))
            )
        for file in made.files:
            say(console, f"{file.path}  {file.sha256[:12]}")
        say(console, f"{made.name}: {made.objective}, measured by {made.metric}")
        say(console, f"{len(made.train):,} examples to learn from, {len(made.dev):,} to measure on")
        for line in made.summary():
            say(console, line)
        say(console, f"{made.vocabulary:,} tokens in the vocabulary, {made.length:,} an example")
        batch = made.batch([0], "dev")
        words = made.texts(batch.tokens[0, :60].tolist())
        say(console, f"the first one begins: {' '.join(words)}")


def _plan(recipe: str, options: list[str]) -> Plan:
    if recipe in recipes.RECIPES:
        return _called(recipes.RECIPES[recipe], recipe, options)
    path = Path(recipe)
    if path.suffix == ".py" and path.is_file():
        module = module_of(path)
        if not callable(getattr(module, "recipe", None)):
            raise ValueError(f"{path} has no function `recipe` that gives a Plan")
        return _called(module.recipe, str(path), options)
    if path.is_file() or (path / "config.json").is_file():
        if options:
            raise ValueError(
                f"--option is of a recipe's function, and {recipe} is a run: --set changes what it "
                "is made with"
            )
        if path.is_dir():
            return plan_of(path.resolve())
        config = RunConfig.read(path)
        row = Planned(row=str(config.task["name"]), config=config)
        return Plan(title=row.row, about="", runs=(row,))
    if path.is_dir() and (inside := _runs_below(path)):
        raise ValueError(
            f"{path} is a folder of runs: name one of them, such as {inside[0]}, or the recipe "
            "that made them, with -o"
        )
    raise ValueError(
        f"there is no recipe {recipe!r}: choose {', '.join(recipes.RECIPES)}, a Python file with a "
        "function `recipe`, a config.json, or the folder of a run"
    )


def _called(function: Any, name: str, options: list[str]) -> Plan:
    plan = function(**options_of(function, name, named(options)))
    if not isinstance(plan, Plan):
        raise ValueError(f"{name} gives no Plan, but {type(plan).__name__}")
    return plan


def _run(
    console: Console, plan: Plan, folder: Path, *, resume: bool, jobs: int, records: Path | None
) -> None:
    first = first_process()
    if jobs > 1 and started_together():
        raise ValueError("--jobs is for runs of one process each: leave it out, or the launcher")
    if not first:
        # Several processes train; one of them speaks.
        console = Console(quiet=True)
    check_plan(plan, folder if resume else None, records)
    make_places(folder, *([] if records is None else [records]))
    if not resume:
        for was, now in moved_aside(plan, folder, records):
            say(console, f"moved {was} to {now}")
    say(console, plan.title, "bold")
    if plan.about:
        say(console, plan.about)

    def told(text: str) -> None:
        say(console, text)

    if jobs > 1:
        made = run_at_once(plan, folder, jobs=jobs, records=records, say=told)
    else:
        made = run_plan(plan, folder, records=records, say=told)
    # The others need not wait while the first one writes a report.
    part()
    if not first:
        return
    try:
        if made.done:
            _show(console, plan, made.done, folder)
    finally:
        _complain(console, plan, made.failed)


def _show(console: Console, plan: Plan, done: list[Done], folder: Path) -> None:
    """The table of what there is, and a report; those in the folder have what other calls have made
    there, too.
    """
    for planned, _ in done:
        note(plan, planned, folder / planned.place)
    tables = tables_of(plan, done, folder)
    if plan.title in tables:
        table.show(console, plan.title, tables[plan.title])
    if tables:
        table.save_all(tables, folder / "table.md")
    # Of runs that were made elsewhere there may be records alone.
    places = [folder / planned.place for planned in plan.runs]
    runs = [place for place in places if (place / "config.json").is_file()]
    runs += [run for run in _runs_below(folder) if run not in runs]
    if runs:
        say(console, f"report: {write_report(runs, folder / 'report.html')}")


def _complain(console: Console, plan: Plan, failed: list[Failed]) -> None:
    """Raises when some runs failed."""
    if not failed:
        return
    if len(failed) == 1:
        raise ValueError(str(failed[0]))
    for one in failed:
        say(console, f"failed: {one}")
    raise ValueError(
        f"{len(failed)} of {len(plan.runs)} runs failed, as said above; the same command takes "
        "them up again"
    )


def _runs_in(folder: Path) -> list[Path]:
    """A run's folder, or those inside it."""
    if (folder / "config.json").is_file():
        return [folder]
    found = _runs_below(folder)
    if not found:
        raise ValueError(f"{folder} is no run, and has none inside: there is no config.json")
    return found


def _runs_below(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/config.json"))
