"""From a pattern, and what weights cut, to a layout.

The pairs that exist are pattern & (within reach | exempt), the bracket once for every weight that
cuts or exempts. Written as a union of clauses, those become disjoint pieces (`pieces`), and these
the parts of walks (`walks`). Where a step does not apply, the whole pattern becomes one tile list,
which always does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from ..patterns import Pattern, PerHead
from ..patterns.base import need_one_head
from ..remembering import plainly
from .clauses import (
    Clause,
    TooManyClauses,
    Within,
    Without,
)
from .heads import of_all_heads
from .parts import ALL_ACT, Layout, Order, Part, Walk
from .pieces import Choice, Frame, NeedsTiles, pieces_of
from .remembered import remembered
from .tiles import tile_list
from .walks import walks_of

__all__ = ["Cut", "compile_layout"]


class Cut(NamedTuple):
    """What one weight does to existence: pairs farther than `reach` (int `(B|1, H|1, N)`) go, but
    for `exempt` ones.
    """

    reach: Tensor | None = None
    exempt: Pattern | None = None


def compile_layout(
    pattern: Pattern,
    cuts: tuple[Cut, ...],
    n: int,
    m: int,
    device: torch.device,
    *,
    merge: bool,
    stamp: Tensor | None = None,
) -> Layout:
    """Compiles a pattern for n queries and m keys, in O(n + m + tiles), without waiting for a GPU.

    Where no weight cuts, the layout is that of the last time, if pattern and tensors are the same.

    Args:
        pattern: which pairs exist.
        cuts: for each weight, in order, what it cuts and exempts.
        n: queries.
        m: keys.
        device: where the layout is wanted, which is where the pattern's tensors are.
        merge: may a row's pairs be in two walks (softmax can merge their results, entmax cannot)?
        stamp: of the pattern's tensors, in a compiled program: see `Remembered.found`.
    """
    exempts = tuple([cut.exempt for cut in cuts])
    if any([cut.reach is not None for cut in cuts]):
        return _compile(pattern, cuts, n, m, device, merge)
    patterns = (pattern, *exempts)
    if not any([p is not None and p.has_tensors() for p in patterns]):
        return _static(pattern, exempts, n, m, device, merge)

    def compiled(own: tuple[Pattern | None, ...]) -> Layout:
        first, *rest = own
        assert first is not None
        return _compile(first, tuple([Cut(None, exempt) for exempt in rest]), n, m, device, merge)

    return remembered(compiled, patterns, (n, m, device, merge), stamp=stamp)


@lru_cache(maxsize=256)
@plainly()
def _static(
    pattern: Pattern,
    exempts: tuple[Pattern | None, ...],
    n: int,
    m: int,
    device: torch.device,
    merge: bool,
) -> Layout:
    cuts = tuple(Cut(None, exempt) for exempt in exempts)
    return _compile(pattern, cuts, n, m, torch.device("cpu"), merge).to(device)


def _compile(
    pattern: Pattern, cuts: tuple[Cut, ...], n: int, m: int, device: torch.device, merge: bool
) -> Layout:
    per_head = [p for p in (pattern, *(c.exempt for c in cuts)) if isinstance(p, PerHead)]
    if not per_head:
        return _compile_heads(pattern, cuts, n, m, device, merge)
    count = len(per_head[0].patterns)
    own = of_all_heads([pattern.of_head(head) for head in range(count)])
    same = [c for c in (_of_all_heads(cut, count) for cut in cuts) if c is not None]
    if own is not None and len(same) == len(cuts):
        return _compile_heads(own, tuple(same), n, m, device, merge)
    return _compile_apart(pattern, cuts, count, n, m, device, merge)


def _of_all_heads(cut: Cut, count: int) -> Cut | None:
    if cut.exempt is None:
        return cut
    found = of_all_heads([cut.exempt.of_head(head) for head in range(count)])
    return None if found is None else Cut(cut.reach, found)


def _compile_apart(
    pattern: Pattern,
    cuts: tuple[Cut, ...],
    count: int,
    n: int,
    m: int,
    device: torch.device,
    merge: bool,
) -> Layout:
    """Compiles for heads that have other parts than others: each kind has walks of its own."""
    groups: list[tuple[list[int], Pattern, tuple[Pattern | None, ...]]] = []
    for head in range(count):
        own = pattern.of_head(head)
        exempts = tuple(None if c.exempt is None else c.exempt.of_head(head) for c in cuts)
        for heads, known, known_exempts in groups:
            if own == known and exempts == known_exempts:
                heads.append(head)
                break
        else:
            groups.append(([head], own, exempts))
    walks: list[Walk] = []
    merged, notes = False, []
    for heads, own, exempts in groups:
        cut_here = []
        for cut, exempt in zip(cuts, exempts, strict=True):
            reach = cut.reach
            if reach is not None and reach.shape[1] > 1:
                reach = reach[:, heads]
            cut_here.append(Cut(reach, exempt))
        layout = _compile_heads(own, tuple(cut_here), n, m, device, merge)
        for walk in layout.walks:
            if walk.instances != len(heads):
                need_one_head(own, walk.instances)
        walks += [Walk(w.queries, w.parts, tuple(heads)) for w in layout.walks]
        merged |= layout.merged
        notes += [f"heads {', '.join(map(str, heads))}: {note}" for note in layout.notes]
    return Layout(n, m, tuple(walks), merged, tuple(notes))


def _compile_heads(
    pattern: Pattern, cuts: tuple[Cut, ...], n: int, m: int, device: torch.device, merge: bool
) -> Layout:
    """Compiles for heads that share one pattern."""
    frame = Frame(n, m, device)
    if n == 0 or m == 0:
        return Layout(n, m, ())
    try:
        pieces = [piece for choice in _choices(cuts) for piece in pieces_of(pattern, choice, frame)]
        return walks_of(pieces, frame, merge)
    except (NeedsTiles, TooManyClauses) as reason:
        note = f"one tile list: {reason or 'the pattern has too many alternatives'}"
    parts = []
    for choice in _choices(cuts):
        limits = Clause(limits=tuple(Within(reach) for reach in choice.reaches))
        low, high = frame.bounds(limits)
        inside: Pattern = pattern
        for exempt in choice.inside:
            inside = inside & exempt
        if choice.outside:
            inside = Without(inside, choice.outside)
        tiles = tile_list(inside, n, m, device)
        parts.append(Part(Order(m), low, high + 1, tiles=tiles, active=choice.active))
    return Layout(n, m, (Walk(Order(n), tuple(parts)),), notes=(note,))


def _choices(cuts: tuple[Cut, ...]) -> list[Choice]:
    found = []
    for exempted in product(*((False,) if c.exempt is None else (True, False) for c in cuts)):
        active = ALL_ACT
        if any(exempted):
            active = sum(1 << w for w, exempt in enumerate(exempted) if not exempt)
        acting = [c for c, exempt in zip(cuts, exempted, strict=True) if not exempt]
        found.append(
            Choice(
                active,
                tuple(c.reach for c in acting if c.reach is not None),
                _exempt(c for c, exempt in zip(cuts, exempted, strict=True) if exempt),
                _exempt(acting),
            )
        )
    return found


def _exempt(cuts: Iterable[Cut]) -> tuple[Pattern, ...]:
    """What these cuts leave alone."""
    return tuple(cut.exempt for cut in cuts if cut.exempt is not None)
