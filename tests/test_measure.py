from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from longspan.measure import Case, Size, counts_of, peak_memory, times_of
from longspan.patterns import Causal, Full, PerHead, Strided, Window
from longspan.weights import Bell, variance_of

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")

SMALL = Size(batch=2, heads=2, length=70, head_dim=8)


def test_inputs_are_the_same_every_time_and_want_gradients() -> None:
    first, second = SMALL.inputs(), SMALL.inputs()
    for a, b in zip(first, second, strict=True):
        assert a.shape == (2, 2, 70, 8)
        assert a.is_leaf and a.requires_grad
        assert torch.equal(a, b)
    assert not torch.equal(first[0], first[1])


def test_counts_pairs_over_samples_and_heads() -> None:
    window = counts_of(Case(name="", pattern=Window(3, 0)), SMALL)
    assert window.pairs == 4 * Window(3, 0).pairs(70)
    assert window.share == window.pairs / (4 * 70 * 70)
    assert window.tiles is not None and window.tiles > 0
    mixed = counts_of(Case(name="", pattern=PerHead([Causal(), Strided(7)])), SMALL)
    assert mixed.pairs == 2 * (Causal().pairs(70) + Strided(7).pairs(70))


def test_counts_pairs_within_a_reach() -> None:
    bell = Bell(variance_of(5, 0.5), threshold=0.5)
    case = Case(name="", pattern=Causal(), weight=bell)
    assert counts_of(case, SMALL).pairs == 4 * Window(5, 0).pairs(70)


def test_dense_attention_counts_no_tiles() -> None:
    counts = counts_of(Case(name="", pattern=Causal(), by="sdpa"), SMALL)
    assert counts.pairs == 4 * 70 * 71 // 2
    assert counts.tiles is None


@pytest.mark.parametrize("pattern", [Full(), Causal()])
def test_both_ways_compute_the_same(pattern: Full | Causal) -> None:
    inputs = SMALL.inputs()
    ours = Case(name="", pattern=pattern).forward(*inputs)
    theirs = Case(name="", pattern=pattern, by="sdpa").forward(*inputs)
    torch.testing.assert_close(ours, theirs)


def test_dense_attention_measures_no_other_pattern() -> None:
    with pytest.raises(ValueError, match="w: by='sdpa' takes Full"):
        Case(name="w", pattern=Window(1, 1), by="sdpa")
    with pytest.raises(ValueError, match="no weight"):
        Case(name="b", pattern=Full(), weight=Bell(3.0), by="sdpa")


def test_times_are_taken_at_least_once() -> None:
    times = times_of(Case(name="", pattern=Window(3, 3)), SMALL, repeats=3, enough=1e-9)
    assert times.forward > 0 and times.both > 0


def three_cases(size: Size) -> list[Case]:
    variance = variance_of(torch.full((1, size.heads, size.length), 8.0), 0.5).requires_grad_()
    return [
        Case(name="dense", pattern=Full(), by="sdpa"),
        Case(name="learned", pattern=Full(), weight=Bell(variance, threshold=0.5)),
        Case(name="three heads", pattern=PerHead([Full()] * 3)),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_memory_is_more_than_the_results_and_less_than_a_matrix(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the other process finds this module.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    size = Size(length=2048)
    peaks = peak_memory(three_cases, size)
    tensor = 4 * 2048 * 64 * 4
    matrix = 4 * 2048 * 2048 * 4
    # The output and three gradients, but never every pair twice, which neither way keeps.
    for peak in (next(peaks), next(peaks)):
        assert peak is not None and 4 * tensor <= peak < 2 * matrix
    with pytest.raises(RuntimeError, match="ended at 'three heads'"):
        next(peaks)
    assert "one pattern a head" in capfd.readouterr().err
