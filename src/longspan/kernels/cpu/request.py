"""A problem written down for the compiled module: addresses, strides and numbers.

`csrc/problem.h` has the other side. Tensors are brought into the form that the kernels read
(float32, the last dim contiguous) and are kept alive by the `Request`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...layout import TILE, Layout, Order, Part, TileList, Walk
from ..problem import (
    ALPHA,
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

__all__ = ["Request"]

BELLS = {"bias": 0, "score": 1, "weight": 2}
RAMP, BIAS, DISTANCE, ALIBI, RELATIVE = 3, 4, 5, 6, 7

# The most numbers of a bias whose gradient is summed in float64.
MOST_WIDE = SUM_BYTES // 8

Wanted = frozenset[tuple[int, str]]


class Request:
    """What the compiled module is asked for.

    Attributes:
        fields: the problem, as the module reads it.
        sums: gradients of learned tensors, which the module adds to.
    """

    def __init__(self, problem: Problem, *, wanted: Wanted = frozenset()) -> None:
        self.problem, self.wanted = problem, wanted
        self.kept: list[Tensor] = []
        self.sums: dict[tuple[int, str], Tensor] = {}
        self.join_samples = self.join_heads = False
        layout = problem.layout
        alpha = problem.alpha
        self.fields: dict[str, Any] = {
            "sizes": (*problem.q.shape[:2], problem.k.shape[1], layout.n, layout.m),
            "q": self.vectors(problem.q),
            "k": self.vectors(problem.k),
            "v": self.vectors(problem.v),
            "walks": [self.walk(walk, problem.q.shape[1]) for walk in layout.walks],
            "merged": layout.merged,
            "terms": [self.term(term) for term in problem.terms],
            "alpha": alpha if isinstance(alpha, float) else 0.0,
            "alphas": None if isinstance(alpha, float) else self.per_head(alpha),
            "scale": problem.scale,
            "rounding": torch.finfo(problem.q.dtype).eps,
            "dropout": problem.dropout,
            "seed": 0 if problem.seed is None else int(problem.seed),
            "fills_rows": fills_rows(layout),
            "fills_keys": fills_keys(layout),
            "alpha_gradient": None,
        }
        if ALPHA in wanted:
            self.sums[ALPHA] = self._per_sample_sums(problem.q.shape[1])
            self.fields["alpha_gradient"] = self.sums[ALPHA].data_ptr()

    def address(self, x: Tensor) -> int:
        """A tensor's address; the tensor lives as long as the request."""
        self.kept.append(x)
        return x.data_ptr()

    def vectors(self, x: Tensor) -> tuple[int, int, int, int, int]:
        """`(B, H, N, D)` as an address, three strides and D."""
        x = x.detach().float()
        x = x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous()
        batch, head, row, _ = x.stride()
        return self.address(x), batch, head, row, x.shape[3]

    def numbers(self, x: Tensor) -> tuple[int, int, int, int]:
        """`(B|1, H|1, N|1)` as an address and three strides, 0 for shared dims."""
        batch, head, row = _strides(x)
        return self.address(x), batch, head, row

    def per_head(self, x: Tensor) -> int:
        heads = self.problem.q.shape[1]
        return self.address(x.detach().float().expand(heads).contiguous())

    def order(self, order: Order) -> tuple[int | None, int, int]:
        if order.index is None:
            return None, 0, order.length
        index = order.index.contiguous()
        return self.address(index), _batch_stride(index), order.length

    def walk(self, walk: Walk, heads: int) -> tuple[Any, ...]:
        places = list(range(heads))
        if walk.heads is not None:
            places = [-1] * heads
            for place, head in enumerate(walk.heads):
                places[head] = place
        shared: dict[int, tuple[int | None, int, int]] = {}
        parts = []
        for part in walk.parts:
            # Parts in one order share what is packed for it: they must name one address.
            key = 0 if part.keys.index is None else id(part.keys)
            if key not in shared:
                shared[key] = self.order(part.keys)
            parts.append(self.part(part, shared[key]))
        return self.order(walk.queries), places, parts

    def part(self, part: Part, keys: tuple[int | None, int, int]) -> tuple[Any, ...]:
        allowed = None
        if part.allowed is not None:
            # One more than the keys, so that both tensors have one stride.
            bits = F.pad(part.allowed, (0, 1))
            before = F.pad(part.allowed.cumsum(1), (1, 0))
            allowed = (self.address(bits), self.address(before), _batch_stride(bits))
        documents = []
        for rows, own in part.documents:
            rows, own = rows.contiguous(), own.contiguous()
            documents.append(
                (self.address(rows), _batch_stride(rows), self.address(own), _batch_stride(own))
            )
        tiles = None if part.tiles is None else self.tiles(part.tiles, part.low.shape[2])
        return (
            keys,
            self.numbers(part.low),
            self.numbers(part.high),
            allowed,
            documents,
            tiles,
            part.active,
        )

    def tiles(self, tiles: TileList, rows: int) -> tuple[int, int, int, int, int, int]:
        edges = torch.arange(-(-rows // TILE) + 1, device="cpu")
        start = torch.searchsorted(tiles.rows.contiguous(), edges)
        mask = tiles.mask.contiguous()
        batch, head, _ = _strides(mask)
        return (
            self.address(start),
            self.address(tiles.columns.contiguous()),
            self.address(mask),
            self.address(tiles.masks.contiguous()),
            batch,
            head,
        )

    def term(self, term: Term) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "number": term.number,
            "value": None,
            "value_gradient": None,
            "normalized": False,
            "softness": 1.0,
            "table": None,
            "table_gradient": None,
            "sum_gradient": None,
            "strides": (0, 0, 0, 0),
            "length": 0,
            "right": 0,
            "content": None,
            "position": None,
            "content_head": 0,
            "position_head": 0,
            "content_gradient": None,
            "position_gradient": None,
        }
        if isinstance(term, BellTerm):
            fields |= {"kind": BELLS[term.form], "normalized": term.normalized}
            self._value(fields, term, "variance", term.variance)
        elif isinstance(term, RampTerm):
            fields |= {"kind": RAMP, "softness": term.softness}
            self._value(fields, term, "span", term.span)
        elif isinstance(term, BiasTerm):
            self._bias(fields, term)
        elif isinstance(term, DistanceTerm):
            table = term.table.detach().float().contiguous()
            heads, length = table.shape
            fields |= {"kind": DISTANCE, "length": length, "right": term.right}
            fields |= {"table": self.address(table), "strides": (0, length * (heads > 1), 0, 0)}
            self._sums(fields, (term.number, "table"), length)
        elif isinstance(term, AlibiTerm):
            slopes = self.per_head(term.slopes)
            fields |= {"kind": ALIBI, "table": slopes, "strides": (0, 1, 0, 0)}
            self._sums(fields, (term.number, "slopes"))
        else:
            assert isinstance(term, RelativeTerm)
            self._relative(fields, term)
        return fields

    def _value(self, fields: dict[str, Any], term: Term, name: str, value: Tensor) -> None:
        fields["value"] = self.numbers(value.detach().float())
        if (term.number, name) in self.wanted:
            total = torch.zeros(self.problem.q.shape[:3], dtype=torch.float32, device="cpu")
            self.sums[term.number, name] = total
            fields["value_gradient"] = self.numbers(total)

    def _bias(self, fields: dict[str, Any], term: BiasTerm) -> None:
        bias = term.tensor.detach()
        if bias.dtype != torch.float32:
            gone = bias <= torch.finfo(bias.dtype).min
            bias = torch.where(gone, -torch.inf, bias.float())
        if (term.number, "tensor") in self.wanted:
            bias = bias.contiguous()
            small = bias.numel() <= MOST_WIDE
            total = torch.zeros_like(bias, dtype=torch.float64 if small else torch.float32)
            self.sums[term.number, "tensor"] = total
            fields["sum_gradient" if small else "table_gradient"] = total.data_ptr()
            self.join_samples |= bias.shape[0] == 1
            self.join_heads |= bias.shape[1] == 1
        fields |= {"kind": BIAS, "table": self.address(bias), "strides": _strides(bias)}

    def _relative(self, fields: dict[str, Any], term: RelativeTerm) -> None:
        table = term.positions.detach().float().contiguous()
        heads, length, size = table.shape
        fields |= {"kind": RELATIVE, "length": length, "right": term.right}
        fields |= {"table": self.address(table), "strides": (0, length * size * (heads > 1), 0, 0)}
        if (term.number, "positions") in self.wanted:
            total = torch.zeros_like(table)
            self.sums[term.number, "positions"] = total
            fields["table_gradient"] = total.data_ptr()
            self.join_samples = True
            self.join_heads |= heads == 1
        for name in ("content", "position"):
            bias = getattr(term, f"{name}_bias")
            if bias is None:
                continue
            bias = bias.detach().float().contiguous()
            fields[name] = self.address(bias)
            fields[f"{name}_head"] = size * (bias.shape[0] > 1)
            key = (term.number, f"{name}_bias")
            if key in self.wanted:
                self.sums[key] = self._per_sample_sums(self.problem.q.shape[1], size)
                fields[f"{name}_gradient"] = self.sums[key].data_ptr()

    def _sums(self, fields: dict[str, Any], key: tuple[int, str], *size: int) -> None:
        if key in self.wanted:
            self.sums[key] = self._per_sample_sums(self.problem.q.shape[1], *size)
            fields["sum_gradient"] = self.sums[key].data_ptr()

    def _per_sample_sums(self, *shape: int) -> Tensor:
        """Sums that every sample has its own of, so that threads need not wait for one another."""
        return torch.zeros(self.problem.q.shape[0], *shape, dtype=torch.float64, device="cpu")


def fills_rows(layout: Layout) -> bool:
    """Does the first walk have every query row of every head?"""
    return bool(layout.walks) and (
        layout.walks[0].heads is None and layout.walks[0].queries.length == layout.n
    )


def fills_keys(layout: Layout) -> bool:
    """Does the first order of keys of the first walk have every key?"""
    if not fills_rows(layout):
        return False
    first = layout.walks[0].parts[0].keys
    return first.index is None and first.length == layout.m


def _strides(x: Tensor) -> tuple[int, ...]:
    """Element strides, 0 for dims that are shared."""
    return tuple(s if size > 1 else 0 for s, size in zip(x.stride(), x.shape, strict=True))


def _batch_stride(x: Tensor) -> int:
    return x.shape[1] if x.shape[0] > 1 else 0
