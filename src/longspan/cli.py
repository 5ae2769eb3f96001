"""The command `longspan`."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor

from . import bench as benchmark
from .bench import gpu as gpu_benchmark
from .bench.gpu.markdown import save_figures as save_gpu_figures
from .bench.gpu.plots import save_plots as save_gpu_plots
from .bench.gpu.table import show as show_gpu
from .bench.gpu.text import lines_of
from .bench.plots import save_plots
from .bench.table import show
from .gallery import EXAMPLES, example_pattern, example_values, panels, save_gallery
from .measure import Case, Size, child_environment, counts_of, peak_memory, times_of
from .patterns import Causal, Full, Pattern, PerHead, SameDocument
from .patterns.drawing import check_suffix, draw_compact, draw_text, save_picture
from .patterns.expressions import parse_pattern
from .patterns.paths import hops_of
from .weights import Bell, reach_of, variance_of
from .weights.curves import draw_curve, save_curve, underflow_of

__all__ = ["app", "main"]

# Counting hops multiplies n × n matrices, once for every layer.
MOST_FOR_HOPS = 512

MEASURED = (
    "Full()",
    "Causal()",
    "Window(128, 128)",
    "Window(64, 64, dilation=4)",
    "BlockWindow(64, 1, 1)",
    "Global(16)",
    "Random(3, block=64)",
    "Strided(64)",
    "Fixed(64, 8)",
    "SameDocument(ids)",
    "Mask(allowed)",
    "PerHead([Window(64, 64), Window(128, 128), Strided(32), Strided(64)])",
    "longformer(128, tokens=1)",
    "bigbird(length, block=64)",
    "sparse_strided(64)",
    "sparse_fixed(64, summary=8)",
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Also save a picture: .png or .svg.")
]


def main() -> None:
    """Runs the command."""
    # A user of the command has no use for the line of code that a warning comes from.
    warnings.formatwarning = lambda message, *_, **__: f"Note: {message}\n"
    app(prog_name="longspan")


@app.callback()
def _about() -> None:
    """Attention that learns how far to look."""


@app.command()
def draw(
    what: Annotated[
        str,
        typer.Argument(
            help="A pattern, by name or as an expression such as 'Window(3, 3) | Global(1)'; "
            "or 'bell'; or 'gallery'."
        ),
    ] = "gallery",
    length: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Tokens of a pattern.", show_default="32")
    ] = None,
    variance: Annotated[float | None, typer.Option(help="Of a bell.", show_default="9.5")] = None,
    reach: Annotated[
        int | None, typer.Option(min=1, help="Of a bell, instead of its variance.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="At which a bell is cut.", show_default="0.5")
    ] = None,
    output: Output = None,
) -> None:
    """Draw a pattern, a bell, or the gallery of all patterns.

    A name stands for an expression, which is printed with the picture:
    copy it and change it. In an expression, length is the number of tokens,
    ids are those of three documents, and allowed is a mask.
    """
    console = Console(highlight=False)
    with _errors_in_one_line():
        if output is not None:
            check_suffix(output)
        if what != "bell" and (variance, reach, threshold) != (None, None, None):
            raise ValueError("--variance, --reach and --threshold are for 'longspan draw bell'")
        if what in ("bell", "gallery") and length is not None:
            raise ValueError(f"--length is for a pattern, and {what!r} is none")
        if what == "bell":
            _draw_bell(console, variance, reach, 0.5 if threshold is None else threshold, output)
        elif what == "gallery":
            _draw_gallery(console)
            if output is not None:
                save_gallery(output)
        else:
            _draw_pattern(console, what, length, output)
        if output is not None:
            _say(console, f"saved {output}")


@app.command()
def demo(
    pictures: Annotated[Path, typer.Option(help="The folder for the picture.")] = Path("pictures"),
    length: Annotated[int, typer.Option(min=1, help="Tokens in the measured calls.")] = 4096,
    example: Annotated[bool, typer.Option(help="Train the example, about 3 minutes.")] = True,
) -> None:
    """Draw every pattern, train the example, and measure every pattern beside dense attention."""
    console = Console(highlight=False)
    with _errors_in_one_line():
        _draw_gallery(console)
        picture = pictures / "gallery.svg"
        try:
            save_gallery(picture)
            _say(console, f"The gallery as a picture: {picture}")
        except ImportError as error:
            _say(console, f"No picture of the gallery: {error}")
        if example:
            _run_example(console)
    _measure(console, Size(length=length))


bench = typer.Typer(no_args_is_help=True, help="Measure speed and memory, beside the peers.")
app.add_typer(bench, name="bench")


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
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    with _errors_in_one_line():
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
                _say(console, f"No plots: {error}")
            _say(console, f"saved {', '.join(map(str, saved))}")


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
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 170)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    with _errors_in_one_line():
        if tune:
            path = (output or Path()) / "tune.json"
            gpu_benchmark.tune(path, quick=quick, budget=budget, say=lambda text: _say(aside, text))
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
                on_row=lambda row: _say(aside, f"… {row.name}: {row.title}"),
                on_result=lambda result, total: _say(aside, "\n".join(lines_of(result, total))),
                say=lambda text: _say(aside, text),
            )
        show_gpu(report, console)
        if output is not None:
            saved = [output / "bench.json", save_gpu_figures(report, output)]
            try:
                saved += save_gpu_plots(report, output)
            except ImportError as error:
                _say(console, f"No plots: {error}")
            _say(console, f"saved {', '.join(map(str, saved))}")


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """What a user can do wrong ends the command with one line, not with a traceback."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            Text.assemble(("Error: ", "bold red"), str(error))
        )
        raise typer.Exit(2) from None


def _say(console: Console, text: str, style: str = "") -> None:
    """Prints text as it is: nothing in it is markup, and no line is broken."""
    console.print(Text(text, style=style), soft_wrap=True)


def _draw_pattern(console: Console, what: str, length: int | None, output: Path | None) -> None:
    pattern = example_pattern(what, length or 32)
    n = length or _own_length(pattern) or 32
    _check(pattern, n)
    mask = pattern.dense(n)
    code = EXAMPLES.get(what.strip().lower().replace("_", "-"), what.strip())
    _say(console, code, "bold")
    _say(console, draw_text(mask), "cyan")
    pairs, of = int(mask.sum()), mask.numel()
    most = int(mask.sum(-1).max())
    _say(
        console, f"{n} tokens: {pairs:,} of {of:,} pairs ({pairs / of:.1%}), at most {most} a query"
    )
    _say(console, f"hops: {_hops(mask)}")
    if output is not None:
        save_picture(mask, output, code)


def _own_length(pattern: Pattern) -> int | None:
    """The one length that a pattern fits, when ids or a mask in it decide that."""
    if isinstance(pattern, SameDocument):
        return pattern.ids.shape[-1]
    lengths = [_own_length(part) for part in pattern.children()]
    lengths += [t.shape[-1] for t in pattern.tensors() if t.dtype == torch.bool]
    return next(filter(None, lengths), None)


def _check(pattern: Pattern, n: int) -> None:
    """Raises unless the pattern fits n tokens, with as many samples and heads as it names."""
    tensors = list(pattern.tensors())
    batch = max((t.shape[0] for t in tensors if t.dim() in (2, 4)), default=1)
    heads = max((t.shape[1] for t in tensors if t.dim() == 4), default=1)
    pattern.check(batch, len(pattern.patterns) if isinstance(pattern, PerHead) else heads, n, n)


def _hops(mask: Tensor) -> str:
    if mask.shape[-1] > MOST_FOR_HOPS:
        return f"counted up to {MOST_FOR_HOPS} tokens only"
    hops = hops_of(mask)
    if hops.layers == 0:
        return "none: no token hears another"
    layers = "1 layer" if hops.layers == 1 else f"{hops.layers} layers"
    heard = "every other" if hops.connected == 1 else f"all it can ({hops.connected:.0%} of others)"
    alone = ", each sample alone" if mask.shape[0] > 1 else ""
    return f"{layers} until every token has heard {heard}, {hops.mean:.1f} on average{alone}"


def _draw_bell(
    console: Console,
    variance: float | None,
    reach: int | None,
    threshold: float,
    output: Path | None,
) -> None:
    if variance is not None and reach is not None:
        raise ValueError("a bell has --variance or --reach, not both")
    if reach is not None:
        variance = variance_of(reach, threshold)
    variance = 9.5 if variance is None else variance
    far = reach_of(variance, threshold)
    curve = draw_curve(variance, threshold)
    _say(console, f"U = exp(−d² / (2 · {variance:g})), cut where U < {threshold:g}", "bold")
    _say(console, curve, "cyan")
    _say(console, f"reach {far}: {far} tokens each side and the query's own, {2 * far + 1} tokens")
    table = Table("U in", box=None, padding=(0, 2, 0, 0))
    table.add_column("subnormal from distance", justify="right")
    table.add_column("0 from distance", justify="right")
    lost = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        limit = underflow_of(variance, dtype)
        subnormal = str(limit.subnormal) if limit.subnormal < limit.zero else "—"
        table.add_row(name, subnormal, str(limit.zero))
        lost += [name] if limit.subnormal <= far else []
    console.print(table)
    _say(console, f"within the reach, U underflows in {' and '.join(lost) or 'none of them'}")
    _say(
        console, "longspan keeps U in float32, and adds ln U, which does not underflow, by default"
    )
    if output is not None:
        save_curve(variance, threshold, output)


def _draw_gallery(console: Console) -> None:
    """Prints every panel, small; each head of a panel alone."""
    shown = []
    for panel in panels(16):
        heads = panel.values.shape[0]
        for number, head in enumerate(panel.values > 0):
            name = panel.name if heads == 1 else f"{panel.name} {number}"
            title = f"{name} {head.double().mean():.0%}"
            shown.append(Text.assemble((title, "bold"), "\n", (draw_compact(head), "cyan"), "\n"))
    console.print(Columns(shown, padding=(0, 1), equal=True))


def _run_example(console: Console) -> None:
    """Runs the example of a checkout, in a process of its own."""
    path = Path(__file__).resolve().parents[2] / "examples" / "learned_window.py"
    if not path.exists():
        _say(
            console,
            "The example is in a checkout of longspan, under examples/; this is an installed one.",
        )
        return
    _say(console, f"\n{path.parent.name}/{path.name}: a fixed and a learned reach, trained", "bold")
    code = subprocess.run([sys.executable, str(path)], env=child_environment()).returncode
    if code != 0:
        raise ValueError(f"{path} ended with exit code {code}")


def _cases(size: Size) -> list[Case]:
    """Dense attention first, then every pattern, then a learned window: reaches from 16 to 240."""
    values = example_values(size.length)
    source = random.Random(0)
    shape = (1, size.heads, size.length)
    reaches = [source.uniform(16, 240) for _ in range(size.heads * size.length)]
    variance = variance_of(torch.tensor(reaches).view(shape), 0.5).requires_grad_()
    return [
        Case(name="dense SDPA", pattern=Full(), by="sdpa"),
        Case(name="dense SDPA, causal", pattern=Causal(), by="sdpa"),
        *(Case(name=code, pattern=parse_pattern(code, values)) for code in MEASURED),
        Case(name="Bell(v, threshold=0.5)", pattern=Full(), weight=Bell(variance, threshold=0.5)),
    ]


def _measure(console: Console, size: Size) -> None:
    """Prints what every pattern costs beside dense attention."""
    cases = _cases(size)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("memory", total=2 * len(cases))
        memory = []
        for peak in peak_memory(_cases, size):
            memory.append(peak)
            progress.advance(task)
        times = []
        for case in cases:
            progress.update(task, description=case.name.split("(")[0])
            times.append(times_of(case, size, enough=0.5))
            progress.advance(task)
    dtype = str(size.dtype).removeprefix("torch.")
    table = Table(
        title=f"{size.batch} × {size.heads} heads × {size.length} tokens × {size.head_dim}, "
        f"{dtype}, threads: {torch.get_num_threads()}",
        caption="Times are medians; both: forward and backward; ×: both against dense SDPA. "
        "Memory is what a process takes at its peak in both, beyond the inputs.",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("call", overflow="fold")
    for name in ("pairs", "share", "tiles", "forward", "both", "×", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for case, peak, seconds in zip(cases, memory, times, strict=True):
        counts = counts_of(case, size)
        table.add_row(
            Text(case.name),
            f"{counts.pairs / 1e6:.2f} M",
            f"{counts.share:.1%}",
            "—" if counts.tiles is None else f"{counts.tiles:,}",
            f"{seconds.forward * 1e3:.0f} ms",
            f"{seconds.both * 1e3:.0f} ms",
            f"{seconds.both / times[0].both:.2f}",
            "—" if peak is None else f"{peak / 2**20:.0f} MiB",
            end_section=case is cases[1],
        )
    console.print(Padding(table, (1, 0, 0, 0)))
