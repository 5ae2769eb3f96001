"""Weights on a group of tiles, and their gradients, for the torch backend.

Each kind of term has a class with `forward(s)`, which returns the scores after it, `factor()`,
which returns what multiplies the probabilities, and the backward of each. All of them see one
`Tile`: S = (P, G, R, L) scores of P copies (samples and heads that share pairs) of G blocks of R
query rows with L keys each.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..fixed_order import add_at, row_sum
from .problem import (
    SUM_BYTES,
    AlibiTerm,
    BellTerm,
    BiasTerm,
    DistanceTerm,
    Problem,
    RampTerm,
    RelativeTerm,
    Term,
)
from .tile import Tile, buffer_bytes

__all__ = ["Gradients", "TileTerm", "tile_terms"]


class Gradients:
    """Gradients of learned tensors, gathered tile by tile in one fixed order."""

    def __init__(self, problem: Problem, wanted: frozenset[tuple[int, str]]) -> None:
        self.problem = problem
        self.wanted = wanted
        self.sums: dict[tuple[int, str], Tensor] = {}

    def wants(self, term: Term, name: str) -> bool:
        """Does anybody want the gradient of this tensor of a term?"""
        return (term.number, name) in self.wanted

    def of(self, term: Term, name: str, shape: tuple[int, ...]) -> Tensor:
        """The running sum for a learned tensor, which may be kept in a larger shape than the tensor
        has.
        """
        return self.sum_for((term.number, name), shape)

    def sum_for(self, key: tuple[int, str], shape: tuple[int, ...]) -> Tensor:
        """The running sum under a key; in float64, as thousands of pairs may meet in one entry,
        unless it is large.
        """
        if key not in self.sums:
            small = 8 * math.prod(shape) <= SUM_BYTES
            dtype = torch.float64 if small else self.problem.wide
            self.sums[key] = torch.zeros(shape, dtype=dtype, device=self.problem.q.device)
        return self.sums[key]

    def add_rows(self, term: Term, name: str, tile: Tile, values: Tensor) -> None:
        """Adds `(P, G, R)` to the rows' places of a learned `(B|1, H|1, N|1)`."""
        total = self.of(term, name, tuple(self.problem.q.shape[:3]))
        total[tile.at] = total[tile.at] + values

    def add_heads(self, term: Term, name: str, tile: Tile, values: Tensor) -> None:
        """Adds `(P, G, R, …)` to the heads' places of a learned `(H|1, …)`."""
        total = self.of(term, name, (self.problem.q.shape[1], *values.shape[3:]))
        own = tile.h[..., None].expand(values.shape[:3])
        add_at(total, own.flatten(), values.flatten(0, 2))


class TileTerm:
    """A term on one tile; what a backward needs is kept here by its forward."""

    def __init__(self, term: Any, tile: Tile) -> None:
        self.term, self.tile = term, tile
        self.acting = tile.acting(term)

    def only_acting(self, x: Tensor, other: float | Tensor) -> Tensor:
        return x if self.acting is None else torch.where(self.acting, x, other)

    def forward(self, s: Tensor) -> Tensor:
        return s

    def removed(self) -> Tensor | None:
        """Pairs that the term's values take out of existence."""
        return None

    def factor(self) -> Tensor | None:
        return None

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        """The gradient before the term, from that after it; what goes to q beside the scores is
        added to `to_q`.
        """
        return ds

    def factor_backward(self, to_log: Tensor, gradients: Gradients) -> None:
        """From the gradient to the logarithm of the factor, 0 where no pair exists."""

    def to_keys(self) -> tuple[Tensor, Tensor] | None:
        """What goes to k beside the scores, as weights `(P, G, R, L)` and rows `(P, G, R, D)`;
        after `backward`.
        """
        return None


class BellTile(TileTerm):
    term: BellTerm

    def log_curve(self) -> Tensor:
        variance = self.tile.per_row(self.term.variance)
        coefficient = -0.5 / variance
        curve = self.tile.offset.square() * coefficient
        if self.term.normalized:
            curve = curve - (2 * math.pi * variance).log() / 2
        return self.only_acting(curve, 0)

    def forward(self, s: Tensor) -> Tensor:
        if self.term.form == "bias":
            return s + self.log_curve()
        if self.term.form == "score":
            self.before, self.curve = s, self.log_curve().exp()
            return s * self.curve
        return s

    def factor(self) -> Tensor | None:
        return self.log_curve().exp() if self.term.form == "weight" else None

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        if self.term.form == "bias":
            self.factor_backward(ds, gradients)
        elif self.term.form == "score":
            shrunk = ds * self.curve
            self.factor_backward(torch.where(ds == 0, 0, shrunk * self.before), gradients)
            return shrunk
        return ds

    def factor_backward(self, to_log: Tensor, gradients: Gradients) -> None:
        """d ln U / d variance = (j−i)²/(2·variance²), less 1/(2·variance) when U is normalised."""
        if not gradients.wants(self.term, "variance"):
            return
        to_log = self.only_acting(to_log, 0)
        variance = self.tile.per_row(self.term.variance)[..., 0]
        total = row_sum(to_log * self.tile.offset.square()) / (2 * variance.square())
        if self.term.normalized:
            total = total - row_sum(to_log) / (2 * variance)
        gradients.add_rows(self.term, "variance", self.tile, total)


class RampTile(TileTerm):
    term: RampTerm

    def height(self) -> Tensor:
        """m, above 0: the reach has already said which pairs exist, whatever rounding says here."""
        span = self.tile.per_row(self.term.span)
        m = (self.term.softness - self.tile.offset.abs() + span) / self.term.softness
        return m.clamp(torch.finfo(m.dtype).tiny, 1)

    def forward(self, s: Tensor) -> Tensor:
        return s + self.only_acting(self.height().log(), 0)

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        """d ln m / d span = 1/(softness·m) on the slope, 0 where m is 1."""
        if not gradients.wants(self.term, "span"):
            return ds
        m = self.height()
        share = torch.where(m < 1, ds / m, 0)
        total = row_sum(self.only_acting(share, 0)) / self.term.softness
        gradients.add_rows(self.term, "span", self.tile, total)
        return ds


class BiasTile(TileTerm):
    term: BiasTerm

    def index(self) -> Tensor:
        """Where each pair is in the bias laid out flat, int64 `(P, G, R, L)`."""
        tile, shape = self.tile, self.term.tensor.shape
        place = torch.zeros((), dtype=torch.int64, device=tile.b.device)
        parts = (tile.b[..., None, None], tile.h[..., None, None], tile.rows[None, :, :, None])
        for index, size in zip((*parts, tile.keys[None, :, None, :]), shape, strict=True):
            place = place * size + (index if size > 1 else 0)
        return place

    def values(self) -> Tensor:
        tile = self.tile
        parts = (tile.b[..., None, None], tile.h[..., None, None], tile.rows[None, :, :, None])
        at = [
            index if size > 1 else torch.zeros_like(index)
            for index, size in zip(
                (*parts, tile.keys[None, :, None, :]), self.term.tensor.shape, strict=True
            )
        ]
        return self.term.tensor[at[0], at[1], at[2], at[3]]

    def forward(self, s: Tensor) -> Tensor:
        bias = self.values()
        self.gone = bias <= torch.finfo(bias.dtype).min
        return s + torch.where(self.gone, 0, bias).to(s.dtype)

    def removed(self) -> Tensor | None:
        return self.gone

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        if gradients.wants(self.term, "tensor"):
            total = gradients.of(self.term, "tensor", tuple(self.term.tensor.shape)).view(-1)
            add_at(total, self.index().expand(ds.shape).flatten(), ds.flatten())
        return ds


class DistanceTile(TileTerm):
    term: DistanceTerm

    def index(self) -> Tensor:
        heads, length = self.term.table.shape
        where = self.tile.offset.long() + (length - 1 - self.term.right)
        own = self.tile.h[..., None, None] if heads > 1 else 0
        return own * length + where.clamp(0, length - 1)

    def forward(self, s: Tensor) -> Tensor:
        return s + self.term.table.reshape(-1)[self.index()]

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        if gradients.wants(self.term, "table"):
            total = gradients.of(self.term, "table", tuple(self.term.table.shape)).view(-1)
            add_at(total, self.index().expand(ds.shape).flatten(), ds.flatten())
        return ds


class AlibiTile(TileTerm):
    term: AlibiTerm

    def forward(self, s: Tensor) -> Tensor:
        return s - self.tile.per_head(self.term.slopes)[..., None, None] * self.tile.offset.abs()

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        if gradients.wants(self.term, "slopes"):
            each = -row_sum(ds * self.tile.offset.abs())
            gradients.add_heads(self.term, "slopes", self.tile, each)
        return ds


class RelativeTile(TileTerm):
    """scale·((q_i + v)·r_{j−i} + u·k_j); the second is u as one more query that meets the keys."""

    term: RelativeTerm

    def __init__(self, term: Any, tile: Tile) -> None:
        super().__init__(term, tile)
        self.scale = tile.problem.scale

    def queries(self) -> Tensor:
        if self.term.position_bias is None:
            return self.tile.q
        return self.tile.q + self.tile.per_head(self.term.position_bias)[:, :, None]

    def steps(self) -> list[slice]:
        """Keys in steps, so that an encoding for every pair stays small."""
        p, g, r, d = self.tile.q.shape
        keys = self.tile.keys.shape[1]
        step = max(
            1, buffer_bytes(self.tile.q.device) // (p * g * r * d * self.tile.q.element_size())
        )
        return [slice(start, min(start + step, keys)) for start in range(0, keys, step)]

    def index(self, keys: slice) -> Tensor:
        heads, length = self.term.positions.shape[:2]
        where = self.tile.offset[..., keys].long() + (length - 1 - self.term.right)
        own = self.tile.h[..., None, None] if heads > 1 else 0
        return own * length + where.clamp(0, length - 1)

    def encodings(self, keys: slice) -> Tensor:
        flat = self.term.positions.flatten(0, 1)
        return flat[self.index(keys)]  # (P, G, R, L', D)

    def of_pairs(self, part: Tensor, vectors: Tensor, keys: slice) -> Tensor:
        """part·vectors of each pair `(P, G, R, L', D)`; 0 where it is not seen, also times NaN."""
        each = part * vectors
        return each if self.tile.finite else torch.where(self.tile.seen[..., keys, None], each, 0)

    def forward(self, s: Tensor) -> Tensor:
        q = self.queries()[..., None, :]
        added = torch.empty_like(s)
        for keys in self.steps():
            added[..., keys] = (self.encodings(keys) * q).sum(-1)
        if self.term.content_bias is not None:
            added = added + self.tile.meet_keys(
                self.tile.per_head(self.term.content_bias)[:, :, None]
            )
        return s + self.scale * added

    def backward(self, ds: Tensor, gradients: Gradients, to_q: Tensor) -> Tensor:
        self.after = scaled = self.scale * ds
        q, term = self.queries(), self.term
        total = gradients.of(term, "positions", tuple(term.positions.shape)).flatten(0, 1)
        seen = torch.zeros_like(self.tile.q)
        for keys in self.steps():
            part = scaled[..., keys, None]
            seen += self.of_pairs(part, self.encodings(keys), keys).sum(-2)
            if gradients.wants(term, "positions"):
                each = self.of_pairs(part, q[..., None, :], keys).flatten(0, -2)
                add_at(total, self.index(keys).expand(part.shape[:-1]).flatten(), each)
        to_q += seen
        if gradients.wants(term, "position_bias"):
            gradients.add_heads(term, "position_bias", self.tile, seen)
        if gradients.wants(term, "content_bias"):
            gradients.add_heads(term, "content_bias", self.tile, self.tile.collect_keys(scaled))
        return ds

    def to_keys(self) -> tuple[Tensor, Tensor] | None:
        if self.term.content_bias is None:
            return None
        rows = self.tile.per_head(self.term.content_bias)[:, :, None]
        return self.after, rows.expand_as(self.tile.q)


_TILES: dict[type[Term], type[TileTerm]] = {
    BellTerm: BellTile,
    RampTerm: RampTile,
    BiasTerm: BiasTile,
    DistanceTerm: DistanceTile,
    AlibiTerm: AlibiTile,
    RelativeTerm: RelativeTile,
}


def tile_terms(problem: Problem, tile: Tile) -> list[TileTerm]:
    """The problem's terms on one tile, in the order in which they act."""
    return [_TILES[type(term)](term, tile) for term in problem.terms]
