"""The peers compute what longspan computes. Runs where they are installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from longspan.bench import peers
from longspan.bench.contenders import NOT_INSTALLED, Unavailable, Work, installed
from longspan.functional import attention, entmax, entmax15
from longspan.measure import Size
from longspan.patterns import Window

pytestmark = [
    pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SIZE = Size(heads=2, length=256, head_dim=8)


def made(make: Callable[[Size], Work], size: Size = SIZE) -> Work:
    try:
        return make(size)
    except Unavailable as error:
        pytest.skip(str(error))


def window(size: Size) -> Tensor:
    return attention(*size.inputs(), Window(32, 32))


def test_a_peer_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(Unavailable, match="pip install 'longspan") as raised:
        installed("longspan_has_no_such_peer")
    assert str(raised.value) == NOT_INSTALLED


def test_local_attention_has_the_same_window() -> None:
    work = made(peers.local_attention(32))
    torch.testing.assert_close(work.forward(), window(SIZE))
    work.with_gradients()()


def test_longformer_has_the_same_window() -> None:
    work = made(peers.hugging_face_longformer(32))
    ours = window(SIZE).transpose(1, 2).reshape(1, 256, 16)
    torch.testing.assert_close(work.forward(), ours)
    work.with_gradients()()


def test_bigbird_is_the_same_without_its_dense_map() -> None:
    size = Size(heads=2, length=1024, head_dim=8)
    plain, dense = (made(peers.hugging_face_bigbird(dense_map=is_), size) for is_ in (False, True))
    torch.testing.assert_close(plain.forward(), dense.forward())
    plain.with_gradients()()


def test_performer_runs() -> None:
    work = made(peers.performer)
    found = work.forward()
    assert isinstance(found, Tensor) and found.shape == (1, 2, 256, 8)


def test_the_entmax_library_agrees() -> None:
    scores, alpha = torch.randn(3, 5, 64), torch.tensor([1.2, 1.5, 1.8]).view(3, 1, 1)
    try:
        theirs = peers.entmax15_library(scores)(), peers.entmax_library(scores, alpha)()
    except Unavailable as error:
        pytest.skip(str(error))
    torch.testing.assert_close(entmax15(scores), theirs[0])
    torch.testing.assert_close(entmax(scores, alpha), theirs[1], rtol=1e-4, atol=1e-5)
