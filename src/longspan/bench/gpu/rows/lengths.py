"""The row of lengths: does a token cost the same in a long text."""

from __future__ import annotations

from ....patterns import Window
from ..contenders import OURS, Bench, compared, ours
from ..records import Entry, Figure, Result
from .row import Row
from .windows import REACH

__all__ = ["LENGTHS", "lengths_row", "tokens_of"]

# As many tokens in all up to 65,536, then one sample.
LENGTHS = {n: max(1, 65536 // n) for n in (4096, 8192, 16384, 32768, 65536, 131072, 262144)}
QUICK = {256: 2, 512: 1}
PASSES = ("forward", "backward")


def tokens_of(entry: Entry) -> tuple[int, int]:
    """Samples and length, out of an entry's name."""
    batch, length = (part.split("=")[1] for part in entry.name.split())
    return int(batch), int(length)


def lengths_row() -> Row:
    """A window of 128 from 4,096 tokens to 262,144."""
    title = f"time per token, window of {REACH} each side"

    def run(bench: Bench) -> Result:
        entries = []
        for length, batch in (QUICK if bench.quick else LENGTHS).items():
            size = bench.size(batch=batch, length=length)
            found = compared(bench, {OURS: ours(bench, size, Window(REACH, REACH))}, PASSES)[0]
            entries.append(
                Entry(
                    name=f"B={size.batch} N={size.length}",
                    passes=found.passes,
                    note=found.note,
                    missing=found.missing,
                )
            )
        figures = [_spread(entries, which) for which in PASSES]
        return Result(row="lengths", title=title, entries=entries, figures=figures)

    return Row(name="lengths", title=title, run=run)


def _spread(entries: list[Entry], which: str) -> Figure:
    each = []
    for entry in entries:
        batch, length = tokens_of(entry)
        if which in entry.passes:
            each.append(entry.passes[which].median / (batch * length))
    return Figure(
        what=f"{which}, longest time per token above the shortest",
        unit="%",
        value=100 * (max(each) / min(each) - 1) if len(each) > 1 else None,
        target=15,
        at_least=False,
    )
