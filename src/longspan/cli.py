"""The command `longspan`."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
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

from . import __version__
from .bench.commands import bench
from .gallery import EXAMPLES, example_pattern, example_values, panels, save_gallery
from .lab.commands import add_to
from .measure import Case, Size, child_environment, counts_of, peak_memory, times_of
from .patterns import Causal, Full, Pattern, PerHead, SameDocument
from .patterns.drawing import check_suffix, draw_compact, draw_text, save_picture
from .patterns.expressions import parse_pattern
from .patterns.paths import hops_of
from .terminal import errors_in_one_line, say
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
app.add_typer(bench, name="bench")
add_to(app)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Also save a picture: .png or .svg.")
]


def main() -> None:
    """Runs the command."""
    # A user of the command has no use for the line of code that a warning comes from.
    warnings.formatwarning = lambda message, *_, **__: f"Note: {message}\n"
    app(prog_name="longspan")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"longspan {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
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
    with errors_in_one_line():
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
            say(console, f"saved {output}")


@app.command()
def demo(
    pictures: Annotated[Path, typer.Option(help="The folder for the picture.")] = Path("pictures"),
    length: Annotated[int, typer.Option(min=1, help="Tokens in the measured calls.")] = 4096,
    example: Annotated[bool, typer.Option(help="Train the example, about 3 minutes.")] = True,
) -> None:
    """Draw every pattern, train the example, and measure every pattern beside dense attention."""
    console = Console(highlight=False)
    with errors_in_one_line():
        _draw_gallery(console)
        picture = pictures / "gallery.svg"
        try:
            save_gallery(picture)
            say(console, f"The gallery as a picture: {picture}")
        except ImportError as error:
            say(console, f"No picture of the gallery: {error}")
        if example:
            _run_example(console)
    _measure(console, Size(length=length))


def _draw_pattern(console: Console, what: str, length: int | None, output: Path | None) -> None:
    pattern = example_pattern(what, length or 32)
    n = length or _own_length(pattern) or 32
    _check(pattern, n)
    mask = pattern.dense(n)
    code = EXAMPLES.get(what.strip().lower().replace("_", "-"), what.strip())
    say(console, code, "bold")
    say(console, draw_text(mask), "cyan")
    pairs, of = int(mask.sum()), mask.numel()
    most = int(mask.sum(-1).max())
    say(
        console, f"{n} tokens: {pairs:,} of {of:,} pairs ({pairs / of:.1%}), at most {most} a query"
    )
    say(console, f"hops: {_hops(mask)}")
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
    say(console, f"U = exp(−d² / (2 · {variance:g})), cut where U < {threshold:g}", "bold")
    say(console, curve, "cyan")
    say(console, f"reach {far}: {far} tokens each side and the query's own, {2 * far + 1} tokens")
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
    say(console, f"within the reach, U underflows in {' and '.join(lost) or 'none of them'}")
    say(console, "longspan keeps U in float32, and adds ln U, which does not underflow, by default")
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
        say(
            console,
            "The example is in a checkout of longspan, under examples/; this is an installed one.",
        )
        return
    say(console, f"\n{path.parent.name}/{path.name}: a fixed and a learned reach, trained", "bold")
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
