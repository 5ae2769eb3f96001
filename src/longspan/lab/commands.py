"""The commands that train, compare and use what was trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from .. import recipes, tasks
from ..modules import module_of
from ..paths import expanded
from ..recipes import Plan, Planned
from ..report import write as write_report
from ..tasks.registry import kind_of_task
from ..terminal import bar_columns, errors_in_one_line, say
from ..training import RunConfig, load
from ..training.processes import first_process, part, started_together
from ..training.records import write_json
from . import reaches as reach_files
from . import table
from .checking import check_plan, make_places, settings_said
from .dry_run import show_plan
from .jobs import run_at_once
from .options import named, options_of
from .pictures import save_quality, save_reaches
from .predicting import predict as predict_lines
from .records import Done, lines_of, read_all
from .rows import apart, note, plan_of, tables_of
from .runner import Failed, moved_aside, run_plan

__all__ = ["add_to"]

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, in every run; may be repeated: stages.*.steps=100."),
]
RUNS = Path("runs")
# Shells leave what stands behind an equals sign as it is.
PATH: Any = {"parser": expanded, "metavar": "PATH"}
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
Moved = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        help="The data that the run was trained on, where it lies elsewhere now; may be repeated.",
        **PATH,
    ),
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute, such as cpu; a GPU if there is one.")
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
    for command in (run, compare, report, data, ask, predict, evaluate, reaches):
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
    console = _console()
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
    console = _console()
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
    console = _console()
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
    console = _console()
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
    console = _console()
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


def ask(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was trained on squad.")],
    document: Annotated[Path, typer.Argument(help="A text file.")],
    question: Annotated[str, typer.Argument()],
    looked: Annotated[
        bool, typer.Option("--looked", help="Also say what the model looked at.")
    ] = False,
    device: Device = None,
) -> None:
    """Ask a trained model a question about a document."""
    console = _console()
    with errors_in_one_line():
        from ..tasks.reading import read_text

        text = read_text(document)
        for what, given in ((f"the text of {document}", text), ("the question", question)):
            if not given.strip():
                raise ValueError(f"{what} is empty")
        found = load(run, device=_device(device)).answer(question, text)
        if not found.held:
            say(console, "nothing in the document answers this")
        if not found.text:
            return
        if not found.held:
            say(console, f"the likeliest span, which scores {found.absent:.2f} below that, is")
        say(console, found.text, "bold")
        first, last = max(found.start - 60, 0), found.end + 60
        around = " ".join(text[first:last].split())
        say(console, f"… {around} …")
        say(console, f"characters {found.start} to {found.end}, score {found.score:.2f}")
        if looked:
            say(console, str(found.looked()))


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="JSON lines, or a table with named columns, with what the task's model reads: "
            "question and context (squad), text (classify), words (tag), source (translate), "
            "question (birthplaces)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Gets a JSON line for each.", **PATH)
    ],
    device: Device = None,
) -> None:
    """Predict for a file of new input; a call that was stopped goes on."""
    console = _console()
    with errors_in_one_line():
        trained = load(run, device=_device(device))
        columns, quiet = bar_columns("predictions"), not sys.stdout.isatty()
        with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
            progress = bar.add_task("predicting", total=None)
            lines, before = predict_lines(
                trained,
                source,
                output,
                done=lambda now, total: bar.update(progress, completed=now, total=total),
            )
        had = f", {before} of them there before" if before else ""
        say(console, f"{lines} prediction{'' if lines == 1 else 's'} in {output}{had}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    dev: Annotated[
        Path | None,
        typer.Option(
            help="What to be measured on, in the form of the task's data, such as a test set; the "
            "run's own dev examples by default.",
            **PATH,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A folder for evaluation.json and predictions.json.", **PATH
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Examples at once.")] = 8,
    data: Moved = None,
    device: Device = None,
) -> None:
    """Measure a trained model again, or on other examples than in its run."""
    console = _console()
    with errors_in_one_line():
        if output is not None and output.exists() and not output.is_dir():
            raise NotADirectoryError(f"-o {output} is a file, where a folder is needed")
        trained = load(run, data=_moved(data), device=_device(device))
        columns, quiet = bar_columns("examples"), not sys.stdout.isatty()
        with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
            progress = bar.add_task("reading", total=None)
            found = trained.evaluate(
                dev,
                batch=batch,
                told=lambda now, total: bar.update(progress, completed=now, total=total),
            )
        for name, value in found["metrics"].items():
            say(console, f"{name:24} {value:,.4g}" if value < 1e4 else f"{name:24} {value:,.0f}")
        say(console, f"{'loss':24} {found['loss']:,.4g}, {found['examples']:,} examples")
        if output is not None:
            predictions = output / "predictions.json"
            write_json(predictions, found.pop("predictions"))
            of_what = {"run": str(run), "dev": None if dev is None else str(dev)}
            write_json(output / "evaluation.json", {**of_what, **found})
            say(console, f"saved {output / 'evaluation.json'}, {predictions}")


def reaches(
    run: Annotated[Path, typer.Argument(help="The folder of a run with learned windows.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder for reaches.json, .md and .svg; the run's own by default, where "
            "longspan report finds them.",
            **PATH,
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=1, help="Dev examples to look at, spread evenly over all.")
    ] = 512,
    batch: Annotated[int, typer.Option(min=1, help="Examples at once.")] = 16,
    data: Moved = None,
    device: Device = None,
) -> None:
    """Say what the reach learned: which tokens look far, in which layers and heads."""
    console = _console()
    with errors_in_one_line():
        if output is not None and output.exists() and not output.is_dir():
            raise NotADirectoryError(f"-o {output} is a file, where a folder is needed")
        trained = load(run, data=_moved(data), device=_device(device))
        columns, quiet = bar_columns("examples"), not sys.stdout.isatty()
        with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
            progress = bar.add_task("reading", total=None)
            found = trained.reaches(
                examples,
                batch=batch,
                told=lambda now, total: bar.update(progress, completed=now, total=total),
            )
        reach_files.show(console, found)
        saved = reach_files.save(found, run if output is None else output)
        say(console, f"saved {', '.join(str(path) for path in saved)}")


def _moved(data: list[Path] | None) -> Path | list[Path] | None:
    """A file or folder, or several; None where nothing was said."""
    if not data:
        return None
    return data[0] if len(data) == 1 else data


def _device(name: str | None) -> torch.device:
    """A device by its name, or the GPU that there is."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(f"--device {name} cannot be used: {said}") from error
    return found


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


def _console() -> Console:
    """Where it says things; a file has room for the names of rows."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


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
