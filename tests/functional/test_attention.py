"""The one call: what it refuses, and what it does with dtypes, shapes and defaults."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.normalizers import Entmax, Sparsemax
from longspan.patterns import (
    Causal,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Window,
)
from longspan.weights import Alibi, Bell, Bias, DistanceBias, Ramp, RelativePosition


def inputs(
    n: int = 12, m: int = 12, *, heads: int = 2, d: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, heads, n, d), torch.randn(2, heads, m, d), torch.randn(2, heads, m, 3)


Q, K, V = inputs()

BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "q is no tensor": (([1.0], K, V), {}, TypeError, "^q must be a tensor, got list"),
    "q has three dims": ((Q[0], K, V), {}, ValueError, r"^q must have shape \(batch, heads"),
    "k has three dims": ((Q, K[0], V), {}, ValueError, "^k must have shape"),
    "v has five dims": ((Q, K, V[None]), {}, ValueError, "^v must have shape"),
    "q is whole numbers": ((Q.long(), K, V), {}, TypeError, "^q must be float32"),
    "dtypes differ": ((Q, K.double(), V), {}, TypeError, "^k must have the dtype of q"),
    "v's dtype differs": ((Q, K, V.half()), {}, TypeError, "^v must have the dtype of q"),
    "devices differ": ((Q, K.to("meta"), V), {}, ValueError, "^k must be on the device of q"),
    "batches differ": ((Q, K[:1], V), {}, ValueError, "^k must have the batch size of q"),
    "sizes differ": ((Q, K[..., :3], V), {}, ValueError, "^k must have the head size of q"),
    "no size": ((Q[..., :0], K[..., :0], V), {}, ValueError, "^q must have .* a head size of at"),
    "no heads": ((Q[:, :0], K[:, :0], V[:, :0]), {}, ValueError, "^q must have a head at least"),
    "lengths differ": ((Q, K, V[:, :, :5]), {}, ValueError, "^v must have the heads and length"),
    "heads do not divide": (
        (torch.randn(2, 3, 12, 4), K, V),
        {},
        ValueError,
        "^q must have a multiple of k's heads, got 3 and 2",
    ),
    "pattern is a tensor": ((Q, K, V, torch.ones(12, 12)), {}, TypeError, "^pattern must be a pat"),
    "pattern is a class": ((Q, K, V, Causal), {}, TypeError, "^pattern must be a pattern"),
    "weight is a tensor": ((Q, K, V), {"weight": Q}, TypeError, "^weight must be a weight"),
    "weight holds a pattern": ((Q, K, V), {"weight": [Full()]}, TypeError, "^weight must be a wei"),
    "normalizer is text": ((Q, K, V), {"normalizer": "softmax"}, TypeError, "^normalizer must be"),
    "scale is text": ((Q, K, V), {"scale": "1"}, TypeError, "^scale must be a number"),
    "scale is NaN": ((Q, K, V), {"scale": math.nan}, ValueError, "^scale must be finite, got nan"),
    "scale is infinite": ((Q, K, V), {"scale": -math.inf}, ValueError, "^scale must be finite"),
    "scale is a tensor": ((Q, K, V), {"scale": torch.ones(())}, TypeError, "^scale must be a numb"),
    "dropout is 1": (
        (Q, K, V),
        {"dropout": 1.0},
        ValueError,
        "^dropout must be at least 0 and bel",
    ),
    "dropout is negative": ((Q, K, V), {"dropout": -0.1}, ValueError, "^dropout must be at least"),
    "dropout is a bool": ((Q, K, V), {"dropout": True}, TypeError, "^dropout must be a number"),
    "backend unknown": ((Q, K, V), {"backend": "cuda"}, ValueError, "^backend must be one of auto"),
    "backend is None": ((Q, K, V), {"backend": None}, TypeError, "^backend must be one of auto"),
    "padding of floats": (
        (Q, K, V),
        {"key_padding": torch.ones(2, 12)},
        TypeError,
        "^key_padding must be a bool tensor",
    ),
    "padding too short": (
        (Q, K, V),
        {"key_padding": torch.ones(2, 11, dtype=torch.bool)},
        ValueError,
        r"^key_padding must have shape \(2, 12\)",
    ),
    "mask of the wrong shape": (
        (Q, K, V, Mask(torch.ones(1, 1, 12, 13, dtype=torch.bool))),
        {},
        ValueError,
        "^Mask: allowed must",
    ),
    "mask on another device": (
        (Q, K, V, Mask(torch.ones(1, 1, 12, 12, dtype=torch.bool, device="meta"))),
        {},
        ValueError,
        "must be on the device of q",
    ),
    "too few heads": ((Q, K, V, PerHead([Full()])), {}, ValueError, "^PerHead: patterns must hold"),
    "draw too short": ((Q, K, V, Random(1, 4, length=8)), {}, ValueError, "^Random: drawn for len"),
    "ids too few": (
        (Q, K, V, SameDocument(torch.zeros(2, 9, dtype=torch.long))),
        {},
        ValueError,
        "^SameDocument: ids must",
    ),
    "positions outside": (
        (Q, K, V, Global(torch.tensor([0, 12]))),
        {},
        ValueError,
        r"^Global: tokens must be within \[0, 11\], got 12",
    ),
    "positions negative": (
        (Q, K, V, Window(1, 1) | Global(queries=torch.tensor([-1]))),
        {},
        ValueError,
        r"^Global: queries must be within \[0, 11\], got -1",
    ),
    "positions of samples below -1": (
        (Q, K, V, Global(torch.tensor([[0, -1], [-2, 3]]))),
        {},
        ValueError,
        r"^Global: tokens must be within \[-1, 11\], got -2",
    ),
    "mask of globals too short": (
        (Q, K, V, Global(torch.ones(2, 9, dtype=torch.bool))),
        {},
        ValueError,
        "^Global: tokens must",
    ),
    "variance of zero": (
        (Q, K, V),
        {"weight": Bell(torch.zeros(2, 2, 12))},
        ValueError,
        r"^Bell: variance must be above 0, got 0.0 \(48 such of 48\)",
    ),
    "variance of NaN": (
        (Q, K, V),
        {"weight": Bell(torch.tensor([4.0, torch.nan])[:, None])},
        ValueError,
        r"^Bell: variance must be above 0, got nan \(1 such of 2\)",
    ),
    "variance for other rows": (
        (Q, K, V),
        {"weight": Bell(torch.ones(2, 2, 11))},
        ValueError,
        r"^Bell: variance must broadcast to \(B, H, N\) = \(2, 2, 12\)",
    ),
    "span for other heads": (
        (Q, K, V),
        {"weight": Ramp(torch.ones(3), 2.0)},
        ValueError,
        "^Ramp: span must broadcast",
    ),
    "span infinite": (
        (Q, K, V),
        {"weight": Ramp(torch.tensor([1.0, torch.inf]), 2.0)},
        ValueError,
        "^Ramp: span must be finite, got inf",
    ),
    "bias too wide": (
        (Q, K, V),
        {"weight": Bias(torch.zeros(1, 1, 12, 13))},
        ValueError,
        "^Bias: tensor must broadcast",
    ),
    "slopes for other heads": (
        (Q, K, V),
        {"weight": Alibi(torch.ones(5))},
        ValueError,
        "^Alibi: slopes must have shape",
    ),
    "slopes of NaN": (
        (Q, K, V),
        {"weight": Alibi(torch.tensor([1.0, torch.nan]))},
        ValueError,
        "^Alibi: slopes must be finite",
    ),
    "table for other heads": (
        (Q, K, V),
        {"weight": DistanceBias(torch.zeros(3, 5))},
        ValueError,
        "^DistanceBias: table must be for 2 heads",
    ),
    "positions of another size": (
        (Q, K, V),
        {"weight": RelativePosition(torch.zeros(2, 5, 3))},
        ValueError,
        "^RelativePosition: positions must be for 2 heads of size 4",
    ),
    "exempt does not fit": (
        (Q, K, V),
        {"weight": Bell(4.0, threshold=0.5, exempt=PerHead([Full()]))},
        ValueError,
        "^PerHead: patterns must hold",
    ),
    "alpha too large": (
        (Q, K, V),
        {"normalizer": Entmax(torch.tensor([1.5, 2.5]))},
        ValueError,
        r"^normalizer: alpha must be within \[1, 2\], got 2.5",
    ),
    "alpha for other heads": (
        (Q, K, V),
        {"normalizer": Entmax(torch.tensor([1.5, 1.5, 1.5]))},
        ValueError,
        r"^normalizer: alpha must have shape \(2,\)",
    ),
}


@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name: str, backend: str) -> None:
    args, options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        ls.attention(*args, **{"backend": backend, **options})


@pytest.mark.parametrize("name", [name for name in BAD if "backend" not in name])
def test_the_others_refuse_it_too(name: str) -> None:
    args, options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        ls.check(*args, **options)


def test_defaults() -> None:
    q, k, v = inputs()
    y = ls.attention(q, k, v)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(ls.attention(q, k, v, scale=0.5), ls.attention(q, k, v, scale=1 / 2))
    assert not torch.allclose(ls.attention(q, k, v, scale=1.0), want)


def test_grouped_queries_read_their_key_head() -> None:
    q, k, v = torch.randn(2, 6, 9, 4), torch.randn(2, 2, 9, 4), torch.randn(2, 2, 9, 4)
    y = ls.attention(q, k, v, Causal())
    whole = [x.repeat_interleave(3, dim=1) for x in (k, v)]
    torch.testing.assert_close(y, ls.attention(q, *whole, Causal()))


def test_output_has_the_dtype_of_q() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        q, k, v = (x.to(dtype) for x in inputs())
        assert ls.attention(q, k, v, Window(2, 2)).dtype == dtype
        assert ls.attention_map(q, k, Window(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_learned_quantities_keep_their_dtype(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in inputs())
    for own in (torch.float32, torch.float64, torch.bfloat16):
        variance = torch.full((2, 2, 12), 9.0, dtype=own, requires_grad=True)
        alpha = torch.tensor([1.5, 1.25], dtype=own, requires_grad=True)
        y = ls.attention(q, k, v, weight=Bell(variance), normalizer=Entmax(alpha))
        y.sum().backward()
        assert variance.grad is not None and variance.grad.dtype == own
        assert alpha.grad is not None and alpha.grad.dtype == own


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_autocast(backend: ls.functional.Backend) -> None:
    """Inputs take autocast's dtype; a variance that float16 could not hold stays float32."""
    q, k, v = (x.requires_grad_() for x in inputs())
    variance = torch.full((2, 2, 12), 1e6, requires_grad=True)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            y = ls.attention(q, k, v, weight=Bell(variance, threshold=0.5), backend=backend)
        assert y.dtype == dtype and y.isfinite().all()
        y.float().sum().backward()
        # The same as with inputs of that dtype: nothing else is rounded.
        rounded = [x.detach().to(dtype) for x in (q, k, v)]
        bell = Bell(variance.detach(), threshold=0.5)
        assert torch.equal(y, ls.attention(*rounded, weight=bell, backend=backend))
    assert q.grad is not None and q.grad.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = [x.detach().double() for x in (q, k, v)]
        assert ls.attention(*wide, backend=backend).dtype == torch.float64


def test_weights_act_in_turn() -> None:
    """A factor after a bias multiplies it too; the other way round it does not."""
    q, k, v = inputs()
    bias, bell = Bias(torch.randn(1, 1, 12, 12)), Bell(5.0, form="score")
    one, other = (
        ls.attention(q, k, v, weight=order, normalizer=Sparsemax())
        for order in ([bias, bell], [bell, bias])
    )
    assert not torch.allclose(one, other)
    for order in ([bias, bell], [bell, bias]):
        y = ls.attention(q, k, v, weight=order)
        torch.testing.assert_close(y, ls.attention(q, k, v, weight=order, backend="reference"))


def test_cuts_intersect_and_exempt_pairs_stay() -> None:
    q, k, _ = inputs(40, 40)
    wide, narrow = Bell(1e6, max_reach=9), Bell(1e6, max_reach=4, exempt=Global(1))
    a = ls.attention_map(q, k, weight=[wide, narrow])
    assert torch.equal(a != 0, (Window(4, 4) | (Window(9, 9) & Global(1))).dense(40).expand_as(a))


def test_exempt_pairs_are_not_weighted() -> None:
    q, k, _ = inputs(30, 30)
    bell = Bell(4.0, threshold=0.5, exempt=Global(2))
    a = ls.attention_map(q, k, weight=bell)
    row = (q[..., :1, :] @ k.transpose(-1, -2) / 2).softmax(-1)
    torch.testing.assert_close(a[..., :1, :], row)


def test_custom_pattern_runs() -> None:
    class Checkered(Pattern):
        """Every other pair."""

        def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
            return ((i + j) % 2 == 0)[None, None]

    q, k, v = inputs(70, 90)
    for pattern in (Checkered(), Checkered() & Window(9, 9), Checkered() | Global(1)):
        y = ls.attention(q, k, v, pattern)
        torch.testing.assert_close(y, ls.attention(q, k, v, pattern, backend="reference"))


def test_inputs_are_left_alone() -> None:
    q, k, v = inputs()
    before = [x.clone() for x in (q, k, v)]
    variance = torch.rand(2, 2, 12) + 1
    kept = variance.clone()
    ls.attention(q, k, v, Window(3, 3), weight=Bell(variance, threshold=0.5))
    assert all(map(torch.equal, (q, k, v), before)) and torch.equal(variance, kept)
