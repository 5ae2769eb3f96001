"""Which problems the kernels for Hopper take. No GPU is asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.kernels import triton as triton_backend
from longspan.patterns import (
    Causal,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    SameDocument,
    Strided,
    Window,
)
from longspan.weights import Alibi, Bell, Weight

from .contract import problem

BF16, FP16 = torch.bfloat16, torch.float16

pytestmark = pytest.mark.usefixtures("interpreted")


def half(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.skipif(not triton_backend.available(), reason="needs triton")
class TestTakes:
    """Which problems are theirs. The device is not asked for: others are asked before it."""

    def takes(self, *inputs: Tensor, pattern: Pattern = Window(9, 9), **options: Any) -> bool:  # noqa: B008
        from longspan.kernels.triton.hopper.launch import takes

        if not inputs:
            inputs = (half(1, 2, 40, 32),) * 3
        return takes(problem(*inputs, pattern, **options))

    @pytest.mark.parametrize("dtype", [BF16, FP16])
    @pytest.mark.parametrize("head", [16, 24, 64, 96, 128])
    def test_heads_and_half_precisions(self, head: int, dtype: torch.dtype) -> None:
        assert self.takes(*(half(1, 2, 40, head, dtype=dtype),) * 3)

    @pytest.mark.parametrize("pattern", [Full(), Causal(), Window(3, 0), Causal() & Window(4, 4)])
    def test_patterns_of_one_interval(self, pattern: Pattern) -> None:
        assert self.takes(pattern=pattern)
        assert self.takes(half(2, 4, 30, 32), *(half(2, 2, 90, 32),) * 2, pattern=pattern)
        assert self.takes(half(2, 4, 90, 32), *(half(2, 2, 30, 32),) * 2, pattern=pattern)

    def test_a_window_for_each_head(self) -> None:
        heads = PerHead([Window(3, 3), Window(9, 0)])
        assert self.takes(pattern=heads) and self.takes(pattern=heads | Global(2))
        assert not self.takes(pattern=PerHead([Window(3, 3), Window(9, 9) | Global(2)]))

    def test_documents_that_lie_together(self) -> None:
        together, apart = torch.arange(40)[None] // 10, torch.arange(40)[None] % 3
        assert self.takes(pattern=SameDocument(together))
        assert not self.takes(pattern=SameDocument(apart))

    @pytest.mark.parametrize(
        "weight",
        [
            Bell(40.0),
            Bell(40.0, threshold=0.5),
            Bell(torch.ones(1, 2, 40), threshold=0.5),
            Bell(torch.ones(1, 2, 40), max_reach=5),
            Bell(torch.ones(2, 1), threshold=0.5, normalized=True),
        ],
        ids=str,
    )
    def test_bells(self, weight: Weight) -> None:
        assert self.takes(weight=weight)

    def test_bells_that_cut_nothing_need_a_row_s_own_key(self) -> None:
        more_rows, variance = (half(1, 4, 90, 32), *(half(1, 2, 30, 32),) * 2), torch.ones(1, 4, 90)
        assert self.takes(*more_rows, weight=Bell(variance, threshold=0.5))
        assert not self.takes(*more_rows, weight=Bell(variance))

    def test_layouts_of_heads_and_lengths(self) -> None:
        """A projection's `(B, N, H, D)`, also as a part of a larger one."""
        x = half(2, 40, 3, 2, 32).permute(2, 0, 3, 1, 4)
        assert not x[0].is_contiguous() and self.takes(*x)

    def test_refuses_other_numbers(self) -> None:
        assert not self.takes(*(torch.zeros(1, 2, 40, 32),) * 3)
        assert not self.takes(dropout=0.1)
        assert not self.takes(scale=-1.0)

    @pytest.mark.parametrize("head", [8, 20, 136, 256])
    def test_refuses_other_heads(self, head: int) -> None:
        assert not self.takes(*(half(1, 2, 40, head),) * 3)

    def test_refuses_values_of_another_head(self) -> None:
        assert not self.takes(*(half(1, 2, 40, 32),) * 2, half(1, 2, 40, 64))

    def test_refuses_what_tma_cannot_read(self) -> None:
        good = half(1, 2, 40, 32)
        shifted = half(1 * 2 * 40 * 32 + 1)[1:].view(1, 2, 40, 32)
        padded = half(1, 2, 40, 33)[..., :32]
        turned = half(1, 2, 32, 40).transpose(2, 3)
        for bad in (shifted, padded, turned):
            for place in range(3):
                inputs = [good] * 3
                inputs[place] = bad
                assert not self.takes(*inputs)

    @pytest.mark.parametrize(
        "pattern",
        [
            Window(3, 3) | Global(11),
            Window(3, 3, dilation=2) | Global(1),
            Window(3, 0) | (Causal() & Global(1)),
            Window(3, 3, dilation=2),
            Strided(4),
            Mask(torch.rand(1, 1, 40, 40) < 0.5),
        ],
        ids=str,
    )
    def test_refuses_other_patterns(self, pattern: Pattern) -> None:
        assert not self.takes(pattern=pattern)

    @pytest.mark.parametrize(
        "pattern",
        [
            Window(3, 3) | Global(1),
            Window(3, 0) | Global(2) | Global(-2),
            Window(3, 3) | Global(torch.tensor([3, 17])),
            Window(3, 3) | Global(keys=2),
            Window(3, 3) | Global(2, columns=False),
        ],
        ids=str,
    )
    def test_few_global_tokens(self, pattern: Pattern) -> None:
        assert self.takes(pattern=pattern)
        assert self.takes(weight=Bell(40.0, threshold=0.5, exempt=Global(1)), pattern=Full())

    def test_bells_leave_global_pairs_alone(self) -> None:
        pattern = Window(3, 3) | Global(2)
        assert self.takes(weight=Bell(40.0, exempt=Global(2)), pattern=pattern)
        assert not self.takes(weight=Bell(40.0), pattern=pattern)
        assert not self.takes(weight=Bell(40.0, exempt=Global(1)), pattern=pattern)

    def test_padding(self) -> None:
        """Not under soft bells: rows of padding may have no key but such as are far out on them."""
        real, variance = (torch.arange(40) < 30)[None], torch.ones(1, 2, 40)
        assert self.takes(key_padding=real)
        assert self.takes(key_padding=real, pattern=Window(3, 3) | Global(2))
        assert self.takes(key_padding=real, weight=Bell(variance, threshold=0.5))
        assert not self.takes(key_padding=real, weight=Bell(variance))
        assert not self.takes(key_padding=real, weight=Bell(variance, max_reach=5))

    @pytest.mark.parametrize(
        "weight",
        [
            Bell(40.0, form="score"),
            Bell(40.0, form="weight"),
            Alibi(torch.ones(2)),
            [Bell(40.0), Bell(50.0)],
        ],
        ids=str,
    )
    def test_refuses_other_weights(self, weight: Any) -> None:
        assert not self.takes(weight=weight)

    def test_nothing_to_do_is_for_others(self) -> None:
        assert not self.takes(*(half(0, 2, 40, 32),) * 3)
        assert not self.takes(half(1, 2, 40, 32), *(half(1, 2, 0, 32),) * 2)

    def test_asks_for_the_device(self) -> None:
        from longspan.kernels.triton import hopper

        x = half(1, 2, 40, 32)
        assert not hopper.takes(problem(x, x, x, Window(9, 9)))
        assert not hopper.available(torch.device("cpu"))
