"""The commands of `longspan bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from .. import bench as benchmark
from ..terminal import console_of, errors_in_one_line, say
from . import allocators as allocators_benchmark
from . import gpu as gpu_benchmark
from . import layers as layers_benchmark
from . import train as train_benchmark
from .gpu.markdown import save_figures as save_gpu_figures
from .gpu.plots import save_plots as save_gpu_plots
from .gpu.table import show as show_gpu
from .gpu.text import lines_of
from .layers.markdown import save_figures as save_layers_figures
from .layers.plots import save_plots as save_layers_plots
from .layers.table import show as show_layers
from .plots import save_plots
from .table import show

__all__ = ["bench"]

bench = typer.Typer(no_args_is_help=True, help="Measure speed and memory, beside the peers.")


@bench.callback()
def _about_bench() -> None:
    """Measure speed and memory, beside the peers."""


@bench.command()
def cpu(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs and few rounds: does all of it run?")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"A problem by name; may be repeated: {', '.join(benchmark.PROBLEMS)}."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of torch.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the JSON and the plots.")
    ] = None,
) -> None:
    """Measure the CPU backend beside its peers, and say which targets it meets.

    Takes about ten minutes. Peers are timed where they are installed: pip install
    'longspan[bench]'. Where the C library is glibc, the command starts itself anew with freed
    memory kept, as a training loop keeps it; otherwise every large buffer is paid for in each call.
    """
    benchmark.warm_allocator(sys.argv[1:])
    # The table is wide, and in a file nothing has to be folded.
    console = console_of(150)
    with errors_in_one_line():
        # Without a thread that redraws it: its time would be counted as that of the calls.
        hidden = not console.is_terminal
        with Progress(
            console=console, transient=True, auto_refresh=False, disable=hidden
        ) as progress:
            names = only or list(benchmark.PROBLEMS)
            task = progress.add_task("", total=len(names))
            begun: list[str] = []

            def on_problem(title: str) -> None:
                progress.update(task, completed=len(begun))
                begun.append(title)

            def on_turn(name: str) -> None:
                progress.update(task, description=f"{begun[-1]}: {name}", refresh=True)

            report = benchmark.run(
                names, threads=threads, quick=quick, on_problem=on_problem, on_turn=on_turn
            )
        show(report, console)
        if output is not None:
            benchmark.save(report, output / "bench.json")
            saved = [output / "bench.json"]
            try:
                saved += save_plots(report, output)
            except ImportError as error:
                say(console, f"No plots: {error}")
            say(console, f"saved {', '.join(map(str, saved))}")


@bench.command()
def gpu(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs and few rounds: does all of it run?")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"A row by name; may be repeated: {', '.join(gpu_benchmark.ROWS)}."),
    ] = None,
    peers: Annotated[bool, typer.Option(help="Time the peers too.")] = True,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no row begins.")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Time launch options of the kernels instead.")
    ] = False,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Measure nothing: show this record; may be repeated, later rows win."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the JSON and the plots.")
    ] = None,
) -> None:
    """Measure the Triton backend beside its peers on one NVIDIA GPU, and say which targets it
    meets.

    Takes some minutes, most of them for FlexAttention to compile. Where only torch and
    Triton are installed, run python -m longspan.bench.gpu -o DIR and bring the JSON here with
    --from.
    """
    console = console_of(170)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    with errors_in_one_line():
        if tune:
            path = (output or Path()) / "tune.json"
            gpu_benchmark.tune(path, quick=quick, budget=budget, say=lambda text: say(aside, text))
            return
        record = None if output is None else output / "bench.json"
        if records:
            report = gpu_benchmark.merged(gpu_benchmark.load(path) for path in records)
            if record is not None:
                gpu_benchmark.save(report, record)
        else:
            report = gpu_benchmark.measure(
                only,
                quick=quick,
                peers=peers,
                budget=budget,
                path=record,
                on_row=lambda row: say(aside, f"… {row.name}: {row.title}"),
                on_result=lambda result, total: say(aside, "\n".join(lines_of(result, total))),
                say=lambda text: say(aside, text),
            )
        show_gpu(report, console)
        if output is not None:
            saved = [output / "bench.json", save_gpu_figures(report, output)]
            try:
                saved += save_gpu_plots(report, output)
            except ImportError as error:
                say(console, f"No plots: {error}")
            say(console, f"saved {', '.join(map(str, saved))}")


@bench.command()
def layers(
    device: Annotated[str, typer.Option(help="Where: cpu or cuda.")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs and few rounds: does all of it run?")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A problem by name; may be repeated: {', '.join(layers_benchmark.PROBLEMS)}."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, on a CPU.")] = 2,
    layers: Annotated[int, typer.Option(min=1, help="Of the encoders; 12 is BERT-base.")] = 12,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Measure nothing: show this record; may be repeated, later ones win."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the JSON and the plot.")
    ] = None,
) -> None:
    """Measure whole layers and encoders beside Hugging Face's, with all that is not attention.

    Needs transformers, and on a CPU about 16 GB of memory and a quarter of an hour. On a GPU,
    python -m longspan.bench.layers --device cuda -o DIR does the same without this command.
    """
    if device == "cpu" and not records:
        benchmark.warm_allocator(sys.argv[1:])
    console = console_of(150)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    with errors_in_one_line():
        record = None if output is None else output / "bench.json"
        if records:
            report = layers_benchmark.merged(layers_benchmark.load(path) for path in records)
            if record is not None:
                layers_benchmark.save(report, record)
        else:
            if device not in ("cpu", "cuda"):
                raise ValueError(f"--device must be cpu or cuda, got {device!r}")
            report = layers_benchmark.run(
                only,
                device="cuda" if device == "cuda" else "cpu",
                threads=threads,
                layers=layers,
                quick=quick,
                path=record,
                on_problem=lambda title: say(aside, f"… {title}"),
            )
        show_layers(report, console)
        if output is not None:
            saved = [output / "bench.json", save_layers_figures(report, output)]
            try:
                saved += save_layers_plots(report, output)
            except ImportError as error:
                say(console, f"No plots: {error}")
            say(console, f"saved {', '.join(map(str, saved))}")


@bench.command()
def train(
    device: Annotated[str, typer.Option(help="Where: cpu or cuda.")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny model and few rounds: does all of it run?")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, on a CPU.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the JSON.")
    ] = None,
) -> None:
    """Measure what the trainer adds to the bare training step of a small model.

    Needs accelerate: pip install 'longspan[train]'. Takes about a minute.
    """
    console = Console(highlight=False)
    with errors_in_one_line():
        if device not in ("cpu", "cuda"):
            raise ValueError(f"--device must be cpu or cuda, got {device!r}")
        report = train_benchmark.measure(threads=threads, device=device, quick=quick)
        for name, own in (("bare step", report.bare), ("trainer", report.trainer)):
            say(console, f"{name:10} {1000 * own.median:8.1f} ms, median of {own.rounds} rounds")
        met = report.added < train_benchmark.TARGET
        say(
            console,
            f"the trainer adds {report.added:.1f} %, {'below' if met else 'not below'} the "
            f"{train_benchmark.TARGET:g} % that it may",
        )
        if output is not None:
            train_benchmark.save(report, output / "bench.json")
            say(console, f"saved {output / 'bench.json'}")


@bench.command()
def allocators(
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny model and few steps: does all of it run?")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, help="Of training, in each way.")] = 40,
    threads: Annotated[int, typer.Option(min=1, help="Of torch.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the JSON and the table.")
    ] = None,
) -> None:
    """Measure what ways of allocating memory cost training on a CPU.

    Needs accelerate and tokenizers: pip install 'longspan[train]'; and jemalloc for its part. Takes
    about a quarter of an hour.
    """
    console = Console(highlight=False)
    with errors_in_one_line():

        def told(own: allocators_benchmark.Cost) -> None:
            memory = "" if own.peak is None else f"{own.peak / 2**30:6.1f} GiB"
            figures = f"{own.tokens_per_second:8,.0f} tokens/s {memory}"
            say(console, f"{own.name:28} {own.missing or figures}")

        report = allocators_benchmark.measure(steps=steps, threads=threads, quick=quick, told=told)
        if output is not None:
            saved = allocators_benchmark.save(report, output)
            say(console, f"saved {', '.join(map(str, saved))}")
