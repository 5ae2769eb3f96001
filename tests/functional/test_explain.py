"""Explanations say what would happen; checks say what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

import longspan as ls
from longspan.normalizers import Entmax
from longspan.patterns import Causal, Full, Global, Mask, Window
from longspan.weights import Bell


def inputs(n: int, m: int | None = None) -> list[torch.Tensor]:
    return [torch.randn(2, 3, size, 8) for size in (n, m or n, m or n)]


@pytest.mark.parametrize(
    "pattern", [Full(), Causal(), Window(10, 3), Window(10, 3, 4) | Global(2)], ids=str
)
@pytest.mark.parametrize(("n", "m"), [(150, 150), (70, 200)])
def test_counts(pattern: ls.patterns.Pattern, n: int, m: int) -> None:
    found = ls.explain(*inputs(n, m), pattern, backend="torch")
    assert found.pairs == 6 * pattern.pairs(n, m)
    assert found.all_pairs == 6 * n * m
    assert found.pairs <= found.tiles * 64 * 64
    assert found.backend == "torch" and found.refusals == {"torch": []}
    assert found.flops == found.tiles * 64 * 64 * 2 * 16
    assert found.dense_bytes == 4 * found.all_pairs


def test_learned_reach_is_counted() -> None:
    q, k, v = inputs(100)
    variance = torch.rand(2, 3, 100) * 90 + 1
    bell = Bell(variance, threshold=0.5, exempt=Global(1))
    a = ls.attention_map(q, k, weight=bell)
    assert ls.explain(q, k, v, weight=bell).pairs == int((a != 0).sum())


def test_padding_is_counted() -> None:
    padding = torch.rand(2, 60) < 0.5
    found = ls.explain(*inputs(60), Full(), key_padding=padding)
    assert found.pairs == int(padding.sum()) * 3 * 60


def test_text_tells_it() -> None:
    text = str(ls.explain(*inputs(100), Window(5, 5) | Global(1), backend="torch"))
    for word in ("backend   torch", "pairs", "tiles", "flops", "bytes", "compiled"):
        assert word in text
    assert "dense score matrix" in text


def test_notes_say_what_needed_tiles() -> None:
    pattern = Mask(torch.rand(1, 1, 100, 100) < 0.5) | Window(3, 3)
    for normalizer in (None, Entmax(1.5)):
        found = ls.explain(*inputs(100), pattern, normalizer=normalizer)
        assert found.pairs == 6 * pattern.pairs(100)


def test_reference_is_explained_too() -> None:
    found = ls.explain(*inputs(40), Window(1, 1), backend="reference")
    assert found.backend == "reference" and found.flops == 6 * 40 * 40 * 2 * 16


def test_tokens_may_be_fake() -> None:
    """Shapes are all that is looked at of them; whatever counts pairs needs values."""
    q, k, v = inputs(70)
    mask = torch.rand(2, 70) < 0.1
    wanted = ls.explain(q, k, v, Window(3, 3) | Global(mask))
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in (q, k, v)]
        assert ls.explain(*fake, Window(3, 3) | Global(mask)) == wanted
        with pytest.raises(ValueError, match=r"must have values.*bool tensor .*\(2, 70\)"):
            ls.explain(*fake, Global(mode.from_tensor(mask)))
        padding = mode.from_tensor(mask)
        with pytest.raises(ValueError, match="key_padding must have values"):
            ls.explain(*fake, key_padding=padding)
    with pytest.raises(ValueError, match="q must be on the device"):
        ls.explain(*[x.to("meta") for x in (q, k, v)])


def test_check_passes_what_is_right() -> None:
    q, k, v = inputs(20)
    padding = torch.ones(2, 20, dtype=torch.bool)
    padding[:, 15:] = False
    k[:, :, 15:] = torch.nan
    ls.check(q, k, v, Window(3, 3), weight=Bell(4.0), key_padding=padding)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_check_finds_nan(name: str) -> None:
    tensors = dict(zip("qkv", inputs(20), strict=True))
    tensors[name][1, 2, 7, 3] = torch.nan
    with pytest.raises(
        ValueError, match=rf"^{name} must not hold NaN, .* sample 1, head 2, position 7"
    ):
        ls.check(**tensors)
