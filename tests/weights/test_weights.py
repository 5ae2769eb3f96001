"""Weights' dense forms against their formulas, written out pair by pair in Python's float64."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.patterns import Causal, Full, Global, Pattern, Window
from longspan.weights import (
    Alibi,
    Bell,
    Bias,
    DistanceBias,
    Place,
    Ramp,
    RelativePosition,
    Weight,
)

B, H, D = 2, 3, 4

sizes = pytest.mark.parametrize(("n", "m"), [(7, 7), (1, 5), (5, 1), (4, 9), (9, 4)])


def inputs(n: int, m: int) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(B, H, n, D, dtype=torch.float64),
        torch.randn(B, H, m, D, dtype=torch.float64),
    )


def place_of(q: Tensor, k: Tensor) -> Place:
    n, m = q.shape[2], k.shape[2]
    i, j = torch.arange(m - n, m)[:, None], torch.arange(m)

    def meet_at(rows: Tensor, table: Tensor, index: Tensor) -> Tensor:
        return torch.einsum(
            "bhnd,hnmd->bhnm", rows, table[:, index].expand(rows.shape[1], -1, -1, -1)
        )

    return Place(j - i, q, lambda rows: rows @ k.transpose(-1, -2), meet_at, 0.7)


def written_out(formula: Callable[[int, int, int, int, int], float], n: int, m: int) -> Tensor:
    """formula(b, h, r, i, j) of every pair, with i the position of row r."""
    rows = range(n)
    return torch.tensor(
        [
            [[[formula(b, h, r, r + m - n, j) for j in range(m)] for r in rows] for h in range(H)]
            for b in range(B)
        ],
        dtype=torch.float64,
    )


def added(weight: Weight, n: int, m: int) -> Tensor:
    """What a weight adds to scores, after checking that it multiplies nothing."""
    q, k = inputs(n, m)
    weight.check(B, H, n, m, D)
    scores = torch.randn(B, H, n, m, dtype=torch.float64)
    place = place_of(q, k)
    assert weight.on_probabilities(place) is None
    return (weight.on_scores(scores, place) - scores).expand(B, H, n, m)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


SHAPES = [(), (1,), (B, H, 0), (B, 1, 1), (1, H, 1), (H, 1), (H, 0), (0,)]


def per_query(shape: tuple[int, ...], n: int) -> tuple[Tensor, list[Any]]:
    """Numbers of a shape that broadcasts to (B, H, N), 0 standing for N; and all of them."""
    found = torch.rand(tuple(size or n for size in shape), dtype=torch.float64) * 9 + 0.5
    return found, found.expand(B, H, n).tolist()


@sizes
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalized", [False, True])
def test_bell(n: int, m: int, shape: tuple[int, ...], normalized: bool) -> None:
    variance, listed = per_query(shape, n)

    def curve(b: int, h: int, r: int, i: int, j: int) -> float:
        own = listed[b][h][r]
        height = 1 / math.sqrt(2 * math.pi * own) if normalized else 1.0
        return height * math.exp(-((j - i) ** 2) / (2 * own))

    u = written_out(curve, n, m)
    q, k = inputs(n, m)
    place, scores = place_of(q, k), torch.randn(B, H, n, m, dtype=torch.float64)

    bias = Bell(variance, normalized=normalized)
    close(added(bias, n, m), u.log())

    score = Bell(variance, form="score", normalized=normalized)
    close(score.on_scores(scores, place), scores * u)
    assert score.on_probabilities(place) is None

    weight = Bell(variance, form="weight", normalized=normalized)
    assert torch.equal(weight.on_scores(scores, place), scores)
    factor = weight.on_probabilities(place)
    assert factor is not None
    close(factor.expand(B, H, n, m), u)
    for each in (bias, score, weight):
        assert each.keeps() is None


def test_a_number_is_a_variance_for_all() -> None:
    close(added(Bell(3), 6, 6), added(Bell(torch.tensor(3.0, dtype=torch.float64)), 6, 6))


@sizes
@pytest.mark.parametrize("shape", [(), (B, H, 0), (1, H, 1), (H, 1)])
@pytest.mark.parametrize("softness", [0.5, 2, 32.0])
def test_ramp(n: int, m: int, shape: tuple[int, ...], softness: float) -> None:
    span, listed = per_query(shape, n)

    def ramp(b: int, h: int, r: int, i: int, j: int) -> float:
        return min(max((softness + listed[b][h][r] - abs(i - j)) / softness, 0.0), 1.0)

    wanted = written_out(ramp, n, m)
    found = added(Ramp(span, softness), n, m)
    exists = wanted > 0
    close(found[exists], wanted[exists].log())
    assert found.isfinite().all(), "what is cut gets no −inf, which would have no gradient"


def test_one_span_a_head() -> None:
    span = torch.tensor([1.0, 2.5, 4.0], dtype=torch.float64)
    close(added(Ramp(span, 2.0), 6, 6), added(Ramp(span[:, None], 2.0), 6, 6))


@sizes
@pytest.mark.parametrize("shape", [(B, H, 1, 1), (1, 1, 1, 1), (1, H, 0, -1), (B, 1, 0, -1)])
def test_bias(n: int, m: int, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(
        [n if size == 0 else m if size == -1 else size for size in shape], dtype=torch.float64
    )
    listed = tensor.expand(B, H, n, m).tolist()
    weight = Bias(tensor)
    close(added(weight, n, m), written_out(lambda b, h, r, i, j: listed[b][h][r][j], n, m))
    kept = weight.keeps()
    assert kept is not None and kept.all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_bias_of_minus_infinity_is_no_pair(dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min
    values = [0.0, -math.inf, lowest, lowest * 0.5, -3.0, math.nan]
    kept = Bias(torch.tensor(values, dtype=dtype)[None, None, None]).keeps()
    assert kept.flatten().tolist() == [True, False, False, True, True, True]


@pytest.mark.parametrize("lowest", [-math.inf, torch.finfo(torch.float32).min])
def test_no_pair_by_a_bias_is_no_pair_by_a_pattern(lowest: float) -> None:
    q, k = (torch.randn(B, H, 6, D) for _ in range(2))
    bias = torch.zeros(1, 1, 6, 6)
    bias.masked_fill_(~Causal().dense(6), lowest)
    bias[0, 0, 2] = lowest
    found = ls.attention_map(q, k, weight=Bias(bias))
    wanted = ls.attention_map(q, k, Causal())
    wanted[:, :, 2] = 0
    torch.testing.assert_close(found, wanted)
    assert (found[:, :, 2] == 0).all()


@sizes
@pytest.mark.parametrize(("length", "right"), [(9, None), (1, None), (4, 0), (4, 3), (50, 20)])
@pytest.mark.parametrize("heads", [None, 1, H])
def test_distance_bias(n: int, m: int, length: int, right: int | None, heads: int | None) -> None:
    shape = (length,) if heads is None else (heads, length)
    table = torch.randn(shape, dtype=torch.float64)
    listed = table.expand(H, length).tolist()
    last = length // 2 if right is None else right
    first = last - length + 1

    def entry(b: int, h: int, r: int, i: int, j: int) -> float:
        return listed[h][min(max(j - i, first), last) - first]

    close(added(DistanceBias(table, right=right), n, m), written_out(entry, n, m))


@sizes
def test_alibi(n: int, m: int) -> None:
    slopes = torch.rand(H, dtype=torch.float64)
    listed = slopes.tolist()
    close(
        added(Alibi(slopes), n, m),
        written_out(lambda b, h, r, i, j: -listed[h] * abs(i - j), n, m),
    )


@sizes
@pytest.mark.parametrize(("length", "right"), [(9, None), (5, 0), (30, 12)])
@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("terms", ["both", "content", "position", "neither"])
def test_relative_position(
    n: int, m: int, length: int, right: int | None, heads: int, terms: str
) -> None:
    q, k = inputs(n, m)
    r = torch.randn(heads, length, D, dtype=torch.float64)
    u = torch.randn(heads, D, dtype=torch.float64) if terms in ("both", "content") else None
    v = torch.randn(heads, D, dtype=torch.float64) if terms in ("both", "position") else None
    last = length // 2 if right is None else right
    first = last - length + 1

    def dot(a: Tensor, b: Tensor) -> float:
        return math.fsum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))

    def four_terms(b: int, h: int, row: int, i: int, j: int) -> float:
        own = h if heads > 1 else 0
        position = r[own, min(max(j - i, first), last) - first]
        total = dot(q[b, h, row], k[b, h, j]) + dot(q[b, h, row], position)
        total += dot(u[own], k[b, h, j]) if u is not None else 0
        return total + (dot(v[own], position) if v is not None else 0)

    place = place_of(q, k)
    weight = RelativePosition(r, u, v, right=right)
    weight.check(B, H, n, m, D)
    found = weight.on_scores(place.scale * q @ k.transpose(-1, -2), place)
    close(found, place.scale * written_out(four_terms, n, m))
    assert weight.on_probabilities(place) is None and weight.keeps() is None


EVERY: dict[str, Callable[[], Weight]] = {
    "Bell": lambda: Bell(torch.rand(B, H, 6) + 0.5, threshold=0.1, max_reach=4),
    "Bell, score": lambda: Bell(2.0, form="score", normalized=True),
    "Bell, weight": lambda: Bell(2.0, form="weight", exempt=Global(1)),
    "Ramp": lambda: Ramp(torch.rand(H) * 3, 2.0, exempt=Global(1)),
    "Bias": lambda: Bias(torch.randn(1, H, 6, 6)),
    "DistanceBias": lambda: DistanceBias(torch.randn(H, 7)),
    "Alibi": lambda: Alibi(torch.rand(H)),
    "RelativePosition": lambda: RelativePosition(
        torch.randn(H, 7, D), torch.randn(H, D), torch.randn(1, D)
    ),
}


def test_every_public_weight_is_tried() -> None:
    public = {
        value
        for name in ls.weights.__all__
        if isinstance(value := getattr(ls.weights, name), type) and issubclass(value, Weight)
    }
    assert public - {Weight} == {type(make()) for make in EVERY.values()}


@pytest.mark.parametrize("name", EVERY)
def test_a_weight_is_its_fields(name: str) -> None:
    weight = EVERY[name]()
    assert set(weight.learned) <= set(weight.fields)
    assert weight.values() == tuple(getattr(weight, field) for field in weight.fields)
    text = repr(weight)
    assert "\n" not in text and "tensor(" not in text
    assert all(f"{field}=" in text for field in weight.fields)
    for twin in (pickle.loads(pickle.dumps(weight)), copy.deepcopy(weight)):
        assert repr(twin) == text


@pytest.mark.parametrize("name", EVERY)
def test_a_map_is_made_of_the_dense_forms(name: str) -> None:
    """Softmax over the pairs that exist, of the scores after the weight, times its factor."""
    weight = EVERY[name]()
    q, k = (torch.randn(B, H, 6, D) for _ in range(2))
    pattern = Causal() | Window(1, 1)
    place = place_of(q, k)._replace(scale=1 / math.sqrt(D))
    scores = place.scale * q @ k.transpose(-1, -2)
    exempt = torch.tensor(False)
    if weight.exempt is not None:
        exempt = weight.exempt.dense(6)
    after = torch.where(exempt, scores, weight.on_scores(scores, place))
    exists = pattern.dense(6) & (within(weight, place.offset) | exempt)
    p = after.masked_fill(~exists, -math.inf).softmax(-1)
    factor = weight.on_probabilities(place)
    if factor is not None:
        p = p * torch.where(exempt, 1, factor)
    found = ls.attention_map(q, k, pattern, weight=weight)
    assert found.dtype == torch.float32 and found.shape == (B, H, 6, 6)
    torch.testing.assert_close(found, p, rtol=1e-5, atol=1e-6)


def within(weight: Weight, offset: Tensor) -> Tensor:
    """Which pairs a weight's own reach leaves, from its curve."""
    far = offset.abs()
    if isinstance(weight, Bell) and weight.threshold is not None:
        variance = torch.as_tensor(weight.variance)[..., None]
        near = torch.exp(-far.square() / (2 * variance)) >= weight.threshold
        return near & (far <= (math.inf if weight.max_reach is None else weight.max_reach))
    if isinstance(weight, Ramp):
        span = torch.as_tensor(weight.span)
        return weight.softness + span.reshape(-1, 1, 1) - far > 0
    return torch.ones_like(far, dtype=torch.bool)


def rows_of(pattern: Pattern | None, weight: Any, n: int = 9) -> Tensor:
    """Which pairs a call has, from what a map of equal scores is not 0 at."""
    q = torch.zeros(1, 1, n, 1)
    return ls.attention_map(q, q, pattern, weight=weight)[0, 0] > 0


@pytest.mark.parametrize("reach", [0, 1, 2, 3, 8])
def test_a_bell_cuts_at_its_reach(reach: int) -> None:
    variance = ls.weights.variance_of(reach, 0.5) if reach else 0.1
    for value in (variance, torch.tensor(variance), torch.full((1, 1, 9), variance)):
        found = rows_of(None, Bell(value, threshold=0.5))
        assert torch.equal(found, Window(reach, reach).dense(9)[0, 0])


def test_the_most_reach_cuts_with_and_without_a_threshold() -> None:
    wide = ls.weights.variance_of(5, 0.5)
    assert torch.equal(rows_of(None, Bell(wide, max_reach=2)), Window(2, 2).dense(9)[0, 0])
    both = Bell(wide, threshold=0.5, max_reach=2)
    assert torch.equal(rows_of(None, both), Window(2, 2).dense(9)[0, 0])
    less = Bell(wide, threshold=0.5, max_reach=7)
    assert torch.equal(rows_of(None, less), Window(5, 5).dense(9)[0, 0])
    assert rows_of(None, Bell(wide)).all()


def test_the_cap_changes_the_cut_and_never_the_curve() -> None:
    q, k = (torch.randn(1, 1, 9, D) for _ in range(2))
    capped = ls.attention_map(q, k, weight=Bell(20.0, max_reach=2))
    window = ls.attention_map(q, k, Window(2, 2), weight=Bell(20.0))
    torch.testing.assert_close(capped, window)


def test_exempt_pairs_are_neither_cut_nor_weighted() -> None:
    found = rows_of(None, Bell(0.1, threshold=0.5, exempt=Global(1)))
    assert torch.equal(found, (Window(0, 0) | Global(1)).dense(9)[0, 0])
    assert torch.equal(
        rows_of(Causal(), Bell(0.1, threshold=0.5, exempt=Global(1))),
        (Causal() & (Window(0, 0) | Global(1))).dense(9)[0, 0],
    )
    q = torch.zeros(1, 1, 9, 1)
    even = ls.attention_map(q, q, weight=Bell(0.1, exempt=Full()))
    torch.testing.assert_close(even, torch.full((1, 1, 9, 9), 1 / 9))


@pytest.mark.parametrize(
    ("span", "softness", "reach"),
    [(0.0, 1.0, 0), (0.0, 2.0, 1), (0.5, 2.0, 2), (1.0, 2.0, 2), (1.001, 2.0, 3), (3.0, 0.5, 3)],
)
def test_a_ramp_cuts_where_it_is_zero(span: float, softness: float, reach: int) -> None:
    for value in (span, torch.tensor([span]), torch.full((1, 1, 9), span)):
        found = rows_of(None, Ramp(value, softness))
        assert torch.equal(found, Window(reach, reach).dense(9)[0, 0])


def test_a_ramp_below_zero_has_no_pairs() -> None:
    assert not rows_of(None, Ramp(-2.0, 2.0)).any()
    assert not rows_of(None, Ramp(torch.tensor([-3.0]), 2.0)).any()


@pytest.mark.parametrize("span", [1e-9, 1e-8, 1e-7, 1e-6, 1e-3])
def test_the_edge_of_a_ramp_counts_little(span: float) -> None:
    """With softness 2 and a span just above 0, m is 1 at 0, about ½ at 1 and span/2 at 2."""
    q = torch.zeros(1, 1, 9, 1)
    found = ls.attention_map(q, q, weight=Ramp(torch.tensor([span]), 2.0))[0, 0, 4]
    m = torch.tensor([0, span / 2, 0.5, 1, 0.5, span / 2, 0]).clamp(min=0)
    wanted = m / m.sum()
    torch.testing.assert_close(found[1:8], wanted, rtol=1e-3, atol=1e-6)


def test_weights_act_in_turn() -> None:
    """(s · U) + b is not (s + b) · U."""
    q, k = (torch.randn(1, 1, 5, D) for _ in range(2))
    bell, alibi = Bell(2.0, form="score"), Alibi(torch.tensor([0.3]))
    far = place_of(q, k).offset.abs()
    scores, u = q @ k.transpose(-1, -2) / math.sqrt(D), torch.exp(-far.square() / 4.0)
    for weights, wanted in (
        ([bell, alibi], scores * u - 0.3 * far),
        ([alibi, bell], (scores - 0.3 * far) * u),
    ):
        torch.testing.assert_close(ls.attention_map(q, k, weight=weights), wanted.softmax(-1))


def test_cuts_of_several_weights_intersect() -> None:
    one, two = Bell(9.0, max_reach=3), Ramp(0.0, 2.0, exempt=Global(1))
    wanted = Window(3, 3) & (Window(1, 1) | Global(1))
    assert torch.equal(rows_of(None, [one, two]), wanted.dense(9)[0, 0])


@pytest.mark.parametrize("name", EVERY)
def test_gradients_of_the_dense_form(name: str) -> None:
    weight = EVERY[name]()
    learned = [f for f in weight.learned if isinstance(getattr(weight, f), Tensor)]
    leaves = [getattr(weight, f).double().requires_grad_() for f in learned]
    if not leaves:
        return
    q, k = inputs(6, 6)
    place, scores = place_of(q, k), torch.randn(B, H, 6, 6, dtype=torch.float64)

    def run(*values: Tensor) -> Tensor:
        own = copy.copy(weight)
        for field, value in zip(learned, values, strict=True):
            setattr(own, field, value)
        return own.on_scores(scores, place)

    assert torch.autograd.gradcheck(run, leaves)


class Squared(Alibi):
    """Another weight, that has the same slopes."""

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        return scores - self.slopes[:, None, None] * place.offset.to(scores.dtype).square()


class Named(Alibi):
    """The same weight, made in another way."""

    fields = ("slopes", "name")

    def __init__(self, slopes: Tensor, name: str) -> None:
        super().__init__(slopes)
        self.name = name


def test_a_subclass_is_what_it_says_it_does() -> None:
    """And not what the class does that it inherits from."""
    q, k, v = (torch.randn(1, 4, 33, 8) for _ in range(3))
    slopes = torch.rand(4)
    wanted = ls.attention(q, k, v, weight=Squared(slopes), backend="reference")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ls.attention(q, k, v, weight=Squared(slopes))
    assert torch.equal(found, wanted)
    with pytest.raises(TypeError, match="has no form for kernels"):
        ls.attention(q, k, v, weight=Squared(slopes), backend="torch")
    plain = ls.attention(q, k, v, weight=Alibi(slopes))
    assert torch.equal(ls.attention(q, k, v, weight=Named(slopes, "own")), plain)
    assert not torch.allclose(found, plain, atol=1e-2)
