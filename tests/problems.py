"""Random problems of attention: what every backend's contract is checked on.

Hypothesis draws the structure (names, sizes, flags and a seed); `Case.build` makes the tensors from
the seed, so that a failing case prints short and can be built again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import longspan as ls
from longspan.normalizers import Entmax, Normalizer, Softmax, Sparsemax
from longspan.patterns import (
    BlockWindow,
    Causal,
    Fixed,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Strided,
    Summaries,
    Window,
)
from longspan.weights import Alibi, Bell, Bias, DistanceBias, Ramp, RelativePosition, Weight

LENGTHS = (1, 2, 3, 17, 63, 64, 65, 100, 130, 200)


@dataclass(frozen=True)
class Size:
    """Sizes of a problem; `groups` query heads share a key head."""

    batch: int = 2
    key_heads: int = 2
    groups: int = 1
    n: int = 37
    m: int = 37
    d: int = 8
    dv: int = 5

    @property
    def heads(self) -> int:
        return self.key_heads * self.groups


@dataclass(frozen=True)
class Case:
    """A problem by name: two patterns and how they join, weights, a normaliser. Queries, and with
    them the scores, are multiplied by `steep`.
    """

    size: Size = Size()
    patterns: tuple[str, ...] = ("window",)
    operator: str = "|"
    weights: tuple[str, ...] = ()
    normalizer: str = "softmax"
    padding: bool = False
    dropout: float = 0.0
    strided: bool = False
    steep: float = 1.0
    seed: int = 0

    def build(self, dtype: torch.dtype, device: str = "cpu") -> Built:
        return Built(self, dtype, device)


class Built:
    """The tensors of a case. Values are drawn in float64 on the CPU: the same for every dtype, up
    to rounding.
    """

    def __init__(self, case: Case, dtype: torch.dtype, device: str) -> None:
        self.case, self.dtype, self.device = case, dtype, device
        self.learned_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.source = torch.Generator().manual_seed(case.seed)
        self.leaves: dict[str, Tensor] = {}
        size = case.size
        self.q = self._leaf("q", (size.batch, size.heads, size.n, size.d), case.steep)
        self.k = self._leaf("k", (size.batch, size.key_heads, size.m, size.d))
        self.v = self._leaf("v", (size.batch, size.key_heads, size.m, size.dv))
        self.grad = self.normal(size.batch, size.heads, size.n, size.dv).to(device, dtype)
        self.options: dict[str, Any] = {
            "pattern": self._pattern(),
            "weight": [getattr(self, f"_{name}")() for name in case.weights],
            "normalizer": self._normalizer(),
            "dropout": case.dropout,
        }
        if case.padding:
            kept = torch.rand(size.batch, size.m, generator=self.source) < 0.7
            self.options["key_padding"] = kept.to(device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.source, dtype=torch.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(*shape, generator=self.source, dtype=torch.float64)
        # Through float32, so that a reach is the same integer in every dtype.
        return (low + (high - low) * drawn).float().double()

    def _leaf(self, name: str, shape: tuple[int, ...], factor: float = 1.0) -> Tensor:
        values = (factor * self.normal(*shape)).to(self.device, self.dtype)
        if self.case.strided:
            # Length before heads in memory, with a gap: what a projection gives.
            wide = torch.zeros(shape[0], shape[2], shape[1], shape[3] + 3).to(values)
            wide[..., : shape[3]] = values.transpose(1, 2)
            values = wide[..., : shape[3]].transpose(1, 2)
        self.leaves[name] = values.requires_grad_()
        return values

    def learned(self, name: str, values: Tensor) -> Tensor:
        name = f"{name}{len(self.leaves)}"
        self.leaves[name] = values.to(self.device, self.learned_dtype).requires_grad_()
        return self.leaves[name]

    def _pattern(self) -> Pattern:
        parts = [getattr(self, f"_{name}_pattern")() for name in self.case.patterns]
        pattern = parts[0]
        for part in parts[1:]:
            pattern = pattern | part if self.case.operator == "|" else pattern & part
        return pattern

    def _full_pattern(self) -> Pattern:
        return Full()

    def _causal_pattern(self) -> Pattern:
        return Causal()

    def _window_pattern(self) -> Pattern:
        return Window(5, 7)

    def _left_pattern(self) -> Pattern:
        return Window(11, 0)

    def _dilated_pattern(self) -> Pattern:
        return Window(3, 2, dilation=3)

    def _blocks_pattern(self) -> Pattern:
        return BlockWindow(16, 1, 1)

    def _global_pattern(self) -> Pattern:
        return Global(2)

    def _ends_pattern(self) -> Pattern:
        return Global(-3, rows=False)

    def _sample_global_pattern(self) -> Pattern:
        size = self.case.size
        return Global((torch.rand(size.batch, size.m, generator=self.source) < 0.1).to(self.device))

    def _sides_pattern(self) -> Pattern:
        size = self.case.size
        queries = torch.randint(size.n, (2,), generator=self.source)
        keys = torch.randint(size.m, (3,), generator=self.source)
        return Global(queries=queries.to(self.device), keys=keys.to(self.device))

    def _random_pattern(self) -> Pattern:
        return Random(2, block=8, seed=3)

    def _strided_pattern(self) -> Pattern:
        return Strided(7)

    def _fixed_pattern(self) -> Pattern:
        return Fixed(8, 2)

    def _summaries_pattern(self) -> Pattern:
        return Summaries(8, 3)

    def _documents_pattern(self) -> Pattern:
        size = self.case.size
        ids = torch.randint(4, (size.batch, size.m), generator=self.source).sort(1).values
        queries = torch.randint(5, (size.batch, size.n), generator=self.source)
        return SameDocument(ids.to(self.device), query_ids=queries.to(self.device))

    def _mask_pattern(self) -> Pattern:
        size = self.case.size
        shape = (size.batch, size.heads, size.n, size.m)
        return Mask((torch.rand(*shape, generator=self.source) < 0.3).to(self.device))

    def _heads_pattern(self) -> Pattern:
        choice = (Window(4, 0), Causal() & Fixed(8, 2), Window(2, 2) | Global(1))
        return PerHead([choice[h % 3] for h in range(self.case.size.heads)])

    def _nothing_pattern(self) -> Pattern:
        return Mask(
            torch.zeros(1, 1, self.case.size.n, self.case.size.m, dtype=torch.bool).to(self.device)
        )

    def _normalizer(self) -> Normalizer:
        heads, name = self.case.size.heads, self.case.normalizer
        if name == "learned":
            return Entmax(self.learned("alpha", self.uniform(1.05, 1.95, heads)))
        fixed = {"softmax": Softmax(), "sparsemax": Sparsemax()}
        return fixed[name] if name in fixed else Entmax(float(name))

    def _variance(self) -> Tensor:
        size = self.case.size
        return self.learned("variance", self.uniform(0.3, 300, size.batch, size.heads, size.n))

    def _bell(self) -> Weight:
        return Bell(self._variance(), threshold=0.5, max_reach=12)

    def _soft_bell(self) -> Weight:
        return Bell(self._variance(), normalized=True)

    def _exempt_bell(self) -> Weight:
        return Bell(self._variance(), threshold=0.5, exempt=Global(2))

    def _head_bell(self) -> Weight:
        variance = self.learned("variance", self.uniform(5, 60, 1, self.case.size.heads, 1))
        return Bell(variance, max_reach=9, form="score")

    def _factor_bell(self) -> Weight:
        return Bell(self._variance(), threshold=0.3, form="weight", exempt=Global(1, rows=False))

    def _plain_bell(self) -> Weight:
        return Bell(40.0, threshold=0.5)

    def _ramp(self) -> Weight:
        span = self.learned("span", self.uniform(-3, 9, self.case.size.heads))
        return Ramp(span, 4.0, exempt=Global(1))

    def _token_ramp(self) -> Weight:
        size = self.case.size
        return Ramp(self.learned("span", self.uniform(0, 30, size.batch, 1, size.n)), 2.5)

    def _bias(self) -> Weight:
        size = self.case.size
        values = self.normal(size.batch, 1, size.n, size.m)
        values[torch.rand(values.shape, generator=self.source) < 0.1] = -torch.inf
        return Bias(self.learned("bias", values))

    def _key_bias(self) -> Weight:
        values = self.normal(1, self.case.size.heads, 1, self.case.size.m)
        values[torch.rand(values.shape, generator=self.source) < 0.2] = torch.finfo(
            self.learned_dtype
        ).min
        return Bias(self.learned("bias", values))

    def _shared_bias(self) -> Weight:
        return Bias(self.learned("bias", self.normal(1, 1, self.case.size.n, self.case.size.m)))

    def _row_bias(self) -> Weight:
        size = self.case.size
        return Bias(self.learned("bias", self.normal(size.batch, 1, size.n, 1)))

    def _distance(self) -> Weight:
        return DistanceBias(self.learned("table", self.normal(self.case.size.heads, 11)))

    def _shared_distance(self) -> Weight:
        return DistanceBias(self.learned("table", self.normal(8)), right=0)

    def _long_distance(self) -> Weight:
        return DistanceBias(self.learned("table", self.normal(1, 2 * self.case.size.m + 1)))

    def _alibi(self) -> Weight:
        return Alibi(self.learned("slopes", self.uniform(0, 1, self.case.size.heads)))

    def _relative(self) -> Weight:
        size = self.case.size
        return RelativePosition(
            self.learned("positions", self.normal(size.heads, 2 * size.m + 1, size.d)),
            self.learned("content", self.normal(size.heads, size.d)),
            self.learned("position", self.normal(1, size.d)),
        )

    def _short_relative(self) -> Weight:
        return RelativePosition(
            self.learned("positions", self.normal(1, 6, self.case.size.d)), right=0
        )

    def run(self, backend: str) -> dict[str, Tensor]:
        """The output and every gradient, by name."""
        torch.manual_seed(self.case.seed)
        y = ls.attention(self.q, self.k, self.v, backend=backend, **self.options)  # type: ignore[arg-type]
        grads = torch.autograd.grad(y, list(self.leaves.values()), self.grad, allow_unused=True)
        found = {"output": y.detach()}
        for (name, leaf), grad in zip(self.leaves.items(), grads, strict=True):
            found[name] = torch.zeros_like(leaf) if grad is None else grad
        return found


def names(kind: str) -> list[str]:
    """The patterns, or the weights, that a case can name."""
    if kind == "pattern":
        return [n[1:-8] for n in vars(Built) if n.endswith("_pattern") and n != "_pattern"]
    others = {"leaf", "pattern", "normalizer", "variance"}
    return [
        n[1:]
        for n in vars(Built)
        if n[0] == "_" and n[1] != "_" and not n.endswith("_pattern") and n[1:] not in others
    ]


PATTERNS = names("pattern")
WEIGHTS = names("weight")
NORMALIZERS = ("softmax", "sparsemax", "1.5", "1.3", "learned")


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    return Size(
        batch=draw(st.integers(1, 2)),
        key_heads=draw(st.integers(1, 2)),
        groups=draw(st.integers(1, 2)),
        n=draw(st.sampled_from(LENGTHS)),
        m=draw(st.sampled_from(LENGTHS)),
        d=draw(st.sampled_from((1, 3, 8, 16))),
        dv=draw(st.sampled_from((1, 4, 11))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    patterns = draw(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique=True))
    size = draw(sizes())
    if "random" in patterns and size.n > size.m:
        # Rows before the first position have no block; they are there without this pattern too.
        size = replace(size, n=size.m)
    return Case(
        size=size,
        patterns=tuple(patterns),
        operator=draw(st.sampled_from("|&")),
        weights=tuple(draw(st.lists(st.sampled_from(WEIGHTS), max_size=2))),
        normalizer=draw(st.sampled_from(NORMALIZERS)),
        padding=draw(st.booleans()),
        dropout=draw(st.sampled_from((0.0, 0.0, 0.3))),
        strided=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )
