from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from longspan.bench.gpu.contenders import inputs
from longspan.bench.gpu.masks import mask_of, reach_mask
from longspan.bench.gpu.peers import _reach_of, flex_learned, flex_pattern
from longspan.bench.gpu.rows.patterns import bigbird_pattern, first_tokens, scattered_tokens
from longspan.functional import attention
from longspan.measure import Size
from longspan.patterns import BlockWindow, Global, Pattern, Random, Strided, Window
from longspan.weights import Bell, reach_of

from .fakes import bench

CPU = torch.device("cpu")

pytestmark = [
    pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning"),
    # FlexAttention says that it is slow when it is not compiled.
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROW_SIZE = Size(length=704)

PATTERNS: list[Pattern] = [
    Window(5, 5),
    Window(7, 2),
    Window(None, 3),
    BlockWindow(16, 1, 2),
    Global(3),
    Global(-4),
    Global(torch.tensor([0, 17, 63])),
    Random(2, 16, length=100),
    Window(4, 4) | Global(2) | Global(-2) | Random(1, 8, seed=3),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_a_mask_function_has_the_pairs_of_its_pattern(pattern: Pattern) -> None:
    n = 90
    mask = create_mask(mask_of(pattern, n, CPU), 1, 1, n, n, device="cpu")
    assert torch.equal(mask, pattern.dense(n))


@pytest.mark.parametrize("make", [first_tokens, scattered_tokens, bigbird_pattern])
def test_the_masks_of_the_rows_have_the_pairs_of_their_patterns(make: object) -> None:
    pattern = make(ROW_SIZE, CPU)  # type: ignore[operator]
    n = ROW_SIZE.length
    mask = create_mask(mask_of(pattern, n, CPU), 1, 1, n, n, device="cpu")
    assert torch.equal(mask, pattern.dense(n))
    assert 0 < mask.sum() < mask.numel()


def test_a_pattern_without_a_mask_function_is_refused() -> None:
    for pattern in (Strided(4), Window(2, 2, 3), Window(1, 1) | Strided(4)):
        with pytest.raises(ValueError, match=r"there is no mask function for"):
            mask_of(pattern, 16, CPU)


def test_the_mask_of_a_reach_is_that_of_its_bell() -> None:
    variance = 1 + 300 * torch.rand(2, 3, 70)
    assert torch.equal(_reach_of(variance), reach_of(variance, 0.5))
    reach = reach_of(variance, 0.5)
    mask = create_mask(reach_mask(reach), 2, 3, 70, 70, device="cpu")
    at = torch.arange(70)
    assert torch.equal(mask, (at[:, None] - at).abs() <= reach[..., None])


SIZE = Size(batch=1, heads=2, length=160, head_dim=16)


@pytest.mark.usefixtures("flex_on_cpu")
def test_flex_attention_with_a_mask_computes_the_same() -> None:
    pattern = Window(9, 9) | Global(3)
    for variant in flex_pattern(bench(), SIZE, pattern):
        work = variant.make()
        assert work.mask is not None
        out = work.attend(work.mask())
        torch.testing.assert_close(out, attention(*inputs(SIZE, CPU), pattern))


@pytest.mark.usefixtures("flex_on_cpu")
def test_flex_attention_with_a_bell_computes_the_same_and_its_gradients() -> None:
    def variance() -> torch.Tensor:
        source = torch.Generator().manual_seed(5)
        return (20 + 200 * torch.rand(1, 2, 160, generator=source)).requires_grad_()

    work = flex_learned(bench(), SIZE, variance)[0].make()
    assert work.mask is not None and work.remade
    out = work.attend(work.mask())
    q, k, v = inputs(SIZE, CPU)
    own = variance()
    ours = attention(q, k, v, weight=Bell(own, threshold=0.5))
    torch.testing.assert_close(out, ours)
    assert isinstance(out, torch.Tensor)
    theirs = torch.autograd.grad(out, work.leaves, torch.ones_like(out))
    mine = torch.autograd.grad(ours, (q, k, v, own), torch.ones_like(ours))
    for a, b in zip(theirs, mine, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
