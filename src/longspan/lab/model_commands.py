"""Commands about a model that a run has trained: to ask it, to let it predict, to measure it again
and to see what its reach learned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from ..paths import PATH
from ..terminal import bar_columns, console_of, errors_in_one_line, say
from ..training import load
from ..training.records import write_json
from . import reaches as reach_files
from .predicting import predict as predict_lines

__all__ = ["OF_A_MODEL"]

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
    console = console_of()
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
    console = console_of()
    with errors_in_one_line():
        trained = load(run, device=_device(device))
        with _bar(console, "predicting", "predictions") as told:
            lines, before = predict_lines(trained, source, output, done=told)
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
    console = console_of()
    with errors_in_one_line():
        _need_folder(output)
        trained = load(run, data=_moved(data), device=_device(device))
        with _bar(console, "reading", "examples") as told:
            found = trained.evaluate(dev, batch=batch, told=told)
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
    console = console_of()
    with errors_in_one_line():
        _need_folder(output)
        trained = load(run, data=_moved(data), device=_device(device))
        with _bar(console, "reading", "examples") as told:
            found = trained.reaches(examples, batch=batch, told=told)
        reach_files.show(console, found)
        saved = reach_files.save(found, run if output is None else output)
        say(console, f"saved {', '.join(str(path) for path in saved)}")


@contextmanager
def _bar(console: Console, title: str, what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, on a terminal; it is told how many of how many are done."""
    quiet = not sys.stdout.isatty()
    with Progress(*bar_columns(what), console=console, transient=True, disable=quiet) as bar:
        progress = bar.add_task(title, total=None)
        yield lambda now, total: bar.update(progress, completed=now, total=total)


def _need_folder(output: Path | None) -> None:
    if output is not None and output.exists() and not output.is_dir():
        raise NotADirectoryError(f"-o {output} is a file, where a folder is needed")


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


OF_A_MODEL = (ask, predict, evaluate, reaches)
