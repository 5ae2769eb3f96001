"""A group of tiles with its inputs gathered: what the torch backend works on at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..layout import TILE, Group, Plan, Walk, plan_of
from .problem import Problem, Term
from .products import over_seen

__all__ = ["KeyHeads", "Tile", "buffer_bytes", "plan_for", "tiles_of"]


def buffer_bytes(device: torch.device) -> int:
    """The size of a working buffer: near a CPU's cache, and enough to keep a GPU busy."""
    return (2 if device.type == "cpu" else 16) << 20


class KeyHeads(NamedTuple):
    """Samples [first, last) and key heads [low, high)."""

    first: int
    last: int
    low: int
    high: int


@dataclass(slots=True, eq=False)
class Tile:
    """G blocks of R query rows with L keys each, for P copies: samples and heads that share these
    pairs.

    Attributes:
        b: sample of each copy and block, int64 `(P, G)`.
        h: query head, likewise.
        rows: query rows `(G, R)`.
        keys: key positions `(G, L)`.
        slots: the walk's slot tiles that the keys come from `(G, L / TILE)`.
        seen: which pairs exist, bool `(G, R, L)`; `(P, G, R, L)` once a bias has taken some away.
        active: which weights act where, int64 `(G, L)`, or None when all do.
        q: queries `(P, G, R, D)`, wide.
        finite: are all inputs finite?
    """

    problem: Problem
    b: Tensor
    h: Tensor
    rows: Tensor
    keys: Tensor
    slots: Tensor
    seen: Tensor
    active: Tensor | None
    q: Tensor
    finite: bool
    _offset: Tensor | None = field(default=None)

    @property
    def offset(self) -> Tensor:
        """j − i of each pair `(G, R, L)`, wide."""
        if self._offset is None:
            shift = self.problem.layout.m - self.problem.layout.n
            whole = self.keys[:, None, :] - (self.rows + shift)[:, :, None]
            self._offset = whole.to(self.problem.wide)
        return self._offset

    @property
    def at(self) -> tuple[Tensor, Tensor, Tensor]:
        """Index of the rows in a tensor `(B, H, N, …)`; picks `(P, G, R, …)`."""
        return self.b[..., None], self.h[..., None], self.rows[None]

    @property
    def key_head(self) -> Tensor:
        """Which key head each copy and block reads, `(P, G)`."""
        return self.h // (self.problem.q.shape[1] // self.problem.k.shape[1])

    def per_row(self, values: Tensor) -> Tensor:
        """Values `(B|1, H|1, N|1)` of the rows, `(P, G, R, 1)`."""
        at = [
            index if size > 1 else torch.zeros_like(index)
            for index, size in zip(self.at, values.shape, strict=True)
        ]
        return values[at[0], at[1], at[2]][..., None].expand(*self.q.shape[:3], 1)

    def per_head(self, values: Tensor) -> Tensor:
        """Values `(H|1, …)` of the heads, `(P, G, …)`."""
        return values[self.h if values.shape[0] > 1 else torch.zeros_like(self.h)]

    def acting(self, term: Term) -> Tensor | None:
        """Where a term acts, bool `(G, 1, L)`, or None for everywhere."""
        return None if self.active is None else ((self.active >> term.number) & 1).bool()[:, None]

    def steps(self, width: int) -> Iterator[slice]:
        """The keys in steps of whole tiles, so that `(P, G, step, width)` stays small."""
        each = self.b.numel() * width * self.problem.wide.itemsize
        step = max(1, buffer_bytes(self.b.device) // (each * TILE)) * TILE
        total = self.keys.shape[1]
        for start in range(0, total, step):
            yield slice(start, min(start + step, total))

    def meet_keys(self, rows: Tensor) -> Tensor:
        """rows `(P, G, R', D)` · kᵀ."""
        return self._meet(rows, self.problem.k)

    def meet_values(self, rows: Tensor) -> Tensor:
        """rows `(P, G, R', Dv)` · vᵀ."""
        return self._meet(rows, self.problem.v)

    def collect_keys(self, w: Tensor) -> Tensor:
        """w `(P, G, R, L)` · k, over the pairs that exist."""
        return self._collect(w, self.problem.k)

    def collect_values(self, w: Tensor) -> Tensor:
        """w `(P, G, R, L)` · v, over the pairs that exist."""
        return self._collect(w, self.problem.v)

    def _load(self, x: Tensor, keys: slice) -> Tensor:
        at = (self.b[..., None], self.key_head[..., None], self.keys[None, :, keys])
        return x[at].to(self.problem.wide)

    def _meet(self, rows: Tensor, x: Tensor) -> Tensor:
        found = [rows @ self._load(x, keys).transpose(-1, -2) for keys in self.steps(x.shape[3])]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def _collect(self, w: Tensor, x: Tensor) -> Tensor:
        found = (
            over_seen(w[..., keys], self.seen[..., keys], self._load(x, keys), finite=self.finite)
            for keys in self.steps(x.shape[3])
        )
        total = next(found)
        for more in found:
            total = total + more
        return total


def plan_for(problem: Problem, walk: Walk) -> Plan:
    """The walk's units in blocks of 64 rows, or of fewer where rows are so long that 64 would not
    fit a buffer.
    """
    layout = problem.layout
    rows = TILE
    while rows > 1 and rows // 2 >= walk.queries.length:
        rows //= 2
    plan = plan_of(walk, layout.n, layout.m, rows)
    row_bytes = int(plan.count.max()) * TILE * problem.wide.itemsize
    while rows > 1 and rows * row_bytes > buffer_bytes(problem.q.device):
        rows //= 2
    return plan_of(walk, layout.n, layout.m, rows)


def tiles_of(
    problem: Problem,
    walk: Walk,
    *,
    finite: bool,
    units: Tensor | None = None,
    only: KeyHeads | None = None,
) -> Iterator[Tile]:
    """All of a walk, or some of its units and heads, tile group by tile group."""
    plan = plan_for(problem, walk)
    wide = max(1, max(problem.k.shape[3], problem.v.shape[3]) // plan.rows)
    pairs = buffer_bytes(problem.q.device) // problem.wide.itemsize // wide
    b, h = _copies(problem, walk, only)
    for group in plan.groups(max(1, pairs // max(1, len(b))), units):
        most = max(1, pairs // group.exists.numel())
        for own_b, own_h in zip(b.split(most), h.split(most), strict=True):
            yield _tile(problem, walk, group, own_b, own_h, finite)


def _copies(problem: Problem, walk: Walk, only: KeyHeads | None) -> tuple[Tensor, Tensor]:
    """Samples and heads `(P,)` that share the walk's pairs; −1 where the units tell them apart."""
    batch, heads = problem.q.shape[:2]
    each = heads // problem.k.shape[1]
    own = list(range(heads)) if walk.heads is None else list(walk.heads)
    samples = range(batch)
    if only is not None:
        samples = range(only.first, only.last)
        own = [h for h in own if only.low <= h // each < only.high]
    pairs = [
        (b, h)
        for b in (samples if walk.batch == 1 else (-1,))
        for h in (own if walk.instances == 1 else (-1,))
    ]
    table = torch.tensor(pairs, dtype=torch.int64, device=problem.q.device).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _tile(problem: Problem, walk: Walk, group: Group, b: Tensor, h: Tensor, finite: bool) -> Tile:
    head = group.head
    if walk.heads is not None:
        head = torch.tensor(walk.heads, device=head.device)[head]
    shape = (len(b), len(head))
    samples = (group.sample[None] if walk.batch > 1 else b[:, None]).expand(shape)
    heads = (head[None] if walk.instances > 1 else h[:, None]).expand(shape)
    active = None
    if group.active is not None:
        active = group.active.repeat_interleave(TILE, 1)
    q = problem.q[samples[..., None], heads[..., None], group.rows[None]].to(problem.wide)
    return Tile(
        problem,
        samples,
        heads,
        group.rows,
        group.keys,
        group.slots,
        group.exists,
        active,
        q,
        finite,
    )
