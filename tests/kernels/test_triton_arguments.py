"""What the Triton kernels are given."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from longspan.functional.attention import prepared
from longspan.functional.problems import problem_of
from longspan.patterns import Global, Mask, Pattern, SameDocument, Window

pytestmark = pytest.mark.usefixtures("interpreted")

PATTERNS: dict[str, tuple[Pattern, int]] = {
    "one tile of a list": (Mask(torch.tensor([[[[True]]], [[[False]]]]).expand(2, 1, 9, 9)), 9),
    "one global token": (Window(2, 2) | Global(torch.tensor([[3], [5]])), 9),
    "one token": (SameDocument(torch.tensor([[1], [2]])), 1),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_stride_is_a_constant(name: str) -> None:
    from longspan.kernels.triton.arguments import walk_arguments

    pattern, n = PATTERNS[name]
    q = torch.zeros(2, 1, n, 16)
    call = prepared(q, q, q, pattern)
    layout = problem_of(call.q, call.k, call.v, call.meaning, call.settings).open_layout
    for walk in layout.walks:
        own = walk_arguments(walk, 1, q.device)
        assert own.rows.order_batch != 1
        for part in own.parts:
            strides = part._asdict()
            names = [name for name in strides if name.endswith(("_batch", "_head"))]
            assert len(names) == 8
            assert 1 not in [strides[name] for name in names], strides
            for ids in part.documents:
                assert 1 not in (ids.rows_batch, ids.keys_batch)
