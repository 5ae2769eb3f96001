"""The contract that every backend passes, in every dtype: one suite, inherited."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import longspan as ls
from longspan.functional.attention import prepared
from longspan.functional.problems import dense_problem, problem_of
from longspan.kernels import reference
from longspan.kernels.philox import keep
from longspan.kernels.problem import Problem
from longspan.normalizers import Entmax, Softmax, Sparsemax
from longspan.patterns import Causal, Global, Mask, Pattern, Window
from longspan.weights import Bell, Bias, DistanceBias

from ..problems import NORMALIZERS, PATTERNS, WEIGHTS, Built, Case, Size, cases

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def problem(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, **options: Any) -> Problem:
    """What a call asks of a backend."""
    call = prepared(q, k, v, pattern, **options)
    return problem_of(q, k, v, call.meaning, call.settings)


def exact(case: Case, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """What the float64 reference says of inputs that were rounded to the dtype."""
    built, rounded = case.build(torch.float64, device), case.build(dtype, device)
    with torch.no_grad():
        for name, leaf in built.leaves.items():
            leaf.copy_(rounded.leaves[name].double())
        built.grad.copy_(rounded.grad.double())
    return built.run("reference")


def eager(built: Built) -> dict[str, Tensor]:
    """Plain dense PyTorch in the inputs' own dtype: the error that a backend may have is measured
    on it.
    """
    torch.manual_seed(built.case.seed)
    call = prepared(built.q, built.k, built.v, **built.options)
    problem = dense_problem(call.q, call.k, call.meaning, call.settings)
    p, _ = reference.probabilities(call.q, call.k, problem)
    if call.settings.dropout > 0:
        seed = torch.randint(2**63 - 1, (1,), device=built.device)
        batch, heads, n, m = p.shape
        b, h = torch.arange(batch)[:, None, None, None], torch.arange(heads)[:, None, None]
        i, j = torch.arange(m - n, m)[:, None], torch.arange(m)
        kept = keep(seed, call.settings.dropout, *(x.to(built.device) for x in (b, h, i, j)))
        p = torch.where(kept, p, 0) / (1 - call.settings.dropout)
    v = call.v.repeat_interleave(p.shape[1] // call.v.shape[1], dim=1)
    y = p.to(v.dtype) @ v
    leaves = list(built.leaves.values())
    grads = torch.autograd.grad(y, leaves, built.grad, allow_unused=True)
    found = {"output": y.detach()}
    for (name, leaf), grad in zip(built.leaves.items(), grads, strict=True):
        found[name] = torch.zeros_like(leaf) if grad is None else grad
    return found


def perturbed(built: Built, seed: int) -> Built:
    """The same problem with every number of its inputs changed by at most one ulp."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for leaf in built.leaves.values():
            noise = torch.rand(leaf.shape, generator=source) * 2 - 1
            leaf.mul_(1 + torch.finfo(leaf.dtype).eps * noise.to(leaf))
    return built


def spoilt(built: Built, value: float) -> Built:
    """The same problem with a value wherever no pair reads: in keys and values that no query sees,
    in queries without keys, and in the gradients of their outputs.
    """
    call = prepared(built.q, built.k, built.v, **built.options)
    asked = dense_problem(call.q, call.k, call.meaning, call.settings)
    exists = asked.exists.expand(*built.q.shape[:3], built.k.shape[2])
    for weight in asked.weights:
        kept = weight.keeps()
        exists = exists if kept is None else exists & kept
    seen = exists.any(2).unflatten(1, (built.k.shape[1], -1)).any(2)
    with torch.no_grad():
        for x, read in (
            (built.k, seen),
            (built.v, seen),
            (built.q, exists.any(3)),
            (built.grad, exists.any(3)),
        ):
            x.masked_fill_(~read[..., None], value)
    return built


def agrees(
    case: Case, dtype: torch.dtype, backend: str, device: str, unseen: float | None = None
) -> Iterator[str]:
    """Names what of a case is farther from the float64 reference than it may be; the backend may be
    given inputs that are `spoilt`.

    The bound is twice the error of eager PyTorch (three times for gradients) and one ulp of the
    largest entry; of 1, the size of the inputs, where entries cancel to less. In float32 eager
    PyTorch also computes with inputs that are off by one ulp: gradients of entmax jump where a pair
    joins the support, and one lucky run says little about such a problem. The float64 reference
    has no better one to measure it by: there the bound is one ulp for every term of a row's sums.
    """
    want = exact(case, dtype, device)
    given = case.build(dtype, device)
    have = (given if unseen is None else spoilt(given, unseen)).run(backend)
    plain = [eager(case.build(dtype, device))]
    if dtype == torch.float32:
        plain += [eager(perturbed(case.build(dtype, device), seed)) for seed in (1, 2)]
    for name, true in want.items():
        assert have[name].dtype == plain[0][name].dtype, name
        assert have[name].shape == true.shape, name
        error = (have[name].double() - true).abs().max().item()
        # Where eager PyTorch overflows, nothing is asked for but that we do not.
        errors = torch.stack([(p[name].double() - true).abs().max() for p in plain])
        allowed = errors.nan_to_num(torch.inf).max().item()
        ulp = torch.finfo(dtype).eps * max(1.0, true.abs().max().item())
        if dtype == torch.float64:
            ulp *= case.size.n + case.size.m
        bound = (2 if name == "output" else 3) * allowed + ulp
        if not (error <= bound and math.isfinite(error)):
            yield f"{name}: error {error:.3g}, eager {allowed:.3g}, ulp {ulp:.3g}"


class BackendContract:
    """What must hold of a backend. A backend's test class sets `backend` and `device`."""

    backend: ClassVar[str]
    device: ClassVar[str] = "cpu"

    def attention(self, *inputs: Tensor, **options: object) -> Tensor:
        return ls.attention(*inputs, backend=self.backend, **options)  # type: ignore[arg-type]

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, dtype=dtype).to(self.device).requires_grad_()

    def refused(self, case: Case, dtype: torch.dtype) -> bool:
        """Does the backend leave the case to others?"""
        return False

    def check(self, case: Case, dtype: torch.dtype, unseen: float | None = None) -> None:
        if self.refused(case, dtype):
            return
        assert list(agrees(case, dtype, self.backend, self.device, unseen)) == []

    # --- answers ---

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_every_pattern(self, pattern: str, dtype: torch.dtype) -> None:
        self.check(Case(Size(n=130, m=130), patterns=(pattern,), padding=True), dtype)
        self.check(Case(Size(n=70, m=150), patterns=(pattern, "global"), normalizer="1.5"), dtype)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("normalizer", NORMALIZERS)
    @pytest.mark.parametrize("weight", WEIGHTS)
    def test_every_weight(self, weight: str, normalizer: str, dtype: torch.dtype) -> None:
        size = Size(n=90, m=90)
        self.check(
            Case(size, ("window", "global"), weights=(weight,), normalizer=normalizer), dtype
        )

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @given(case=cases())
    @settings(max_examples=60)
    def test_random_problems(self, dtype: torch.dtype, case: Case) -> None:
        self.check(case, dtype)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize(
        "size",
        [
            Size(n=1, m=1, d=1, dv=1),
            Size(n=1, m=200),
            Size(n=200, m=1),
            Size(n=64, m=64, d=64, dv=64),
            Size(n=63, m=129, d=1),
            Size(n=257, m=100, dv=1),
            Size(batch=1, key_heads=1, groups=4, n=65, m=65),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("normalizer", ["softmax", "1.5"])
    def test_sizes(self, size: Size, normalizer: str, dtype: torch.dtype) -> None:
        case = Case(size, ("window", "global"), weights=("bell",), normalizer=normalizer)
        self.check(case, dtype)
        self.check(replace(case, patterns=("causal",), weights=(), strided=True), dtype)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("normalizer", ["softmax", "1.5"])
    def test_rows_of_one_pair(self, normalizer: str, dtype: torch.dtype) -> None:
        size = Size(n=200, m=1, d=4, dv=4)
        for dropout in (0.0, 0.3):
            self.check(Case(size, ("full",), normalizer=normalizer, dropout=dropout), dtype)

    def test_long_rows_split_over_buffers(self) -> None:
        size = Size(batch=1, key_heads=1, n=40, m=9000, d=16, dv=16)
        self.check(Case(size, ("full",)), torch.float32)
        self.check(Case(size, ("full",), weights=("exempt_bell",), normalizer="1.5"), torch.float32)

    @pytest.mark.parametrize("weights", [(), ("key_bias",), ("relative",)], ids=str)
    def test_sums_over_many_rows(self, weights: tuple[str, ...]) -> None:
        size = Size(batch=1, key_heads=1, n=6000, m=40, d=16, dv=16)
        self.check(Case(size, ("full",), weights=weights), torch.float32)

    def test_sums_over_the_rows_of_a_window(self) -> None:
        size = Size(batch=1, key_heads=1, n=1500, m=1500, d=16, dv=16)
        self.check(Case(size, ("window", "global")), torch.float32)
        self.check(Case(size, ("window",), weights=("relative",), seed=1), torch.float32)

    def check_scores(self, steep: float, normalizer: str, dtype: torch.dtype) -> None:
        size = Size(batch=1, key_heads=1, n=70, m=70)
        case = Case(size, ("full",), normalizer=normalizer, steep=steep)
        self.check(case, dtype)
        self.check(replace(case, patterns=("window",), padding=True), dtype)
        self.check(replace(case, weights=("alibi",)), dtype)

    @pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float64), ids=str)
    @pytest.mark.parametrize("normalizer", NORMALIZERS)
    @pytest.mark.parametrize("steep", [1e5, 1e10, 1e20])
    def test_scores_far_apart(self, steep: float, normalizer: str, dtype: torch.dtype) -> None:
        self.check_scores(steep, normalizer, dtype)

    def test_sums_to_one(self) -> None:
        q, k = self.normal(2, 2, 300, 16), self.normal(2, 2, 300, 16)
        ones = torch.ones(2, 2, 300, 1, device=self.device)
        for normalizer in (Softmax(), Sparsemax(), Entmax(1.5), Entmax(1.2)):
            y = self.attention(
                q, k, ones, pattern=Window(90, 90) | Global(2), normalizer=normalizer
            )
            assert (y - 1).abs().max() <= 1e-6, normalizer

    # --- empty rows, biases that remove, NaN ---

    @pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax(), Entmax(1.3)], ids=str)
    def test_rows_without_pairs_give_zero(self, normalizer: ls.normalizers.Normalizer) -> None:
        q, k, v = (self.normal(1, 2, n, 4) for n in (90, 70, 70))
        y = self.attention(q, k, v, pattern=Causal() & Window(5, 5), normalizer=normalizer)
        assert (y[:, :, :20] == 0).all() and (y[:, :, 20:] != 0).any()
        y.sum().backward()
        assert q.grad is not None and k.grad is not None and v.grad is not None
        assert (q.grad[:, :, :20] == 0).all()
        assert q.grad.isfinite().all() and k.grad.isfinite().all() and v.grad.isfinite().all()

    def test_no_pairs_at_all(self) -> None:
        q, k, v = (self.normal(2, 2, 33, 4) for _ in range(3))
        padding = torch.zeros(2, 33, dtype=torch.bool, device=self.device)
        y = self.attention(q, k, v, pattern=Window(3, 3) | Global(1), key_padding=padding)
        assert (y == 0).all()
        assert all((g == 0).all() for g in torch.autograd.grad(y.sum(), (q, k, v)))

    @pytest.mark.parametrize("length", [0, 5])
    def test_nothing_to_do(self, length: int) -> None:
        q, k, v = self.normal(2, 2, length, 4), self.normal(2, 2, 0, 4), self.normal(2, 2, 0, 3)
        y = self.attention(q, k, v)
        assert y.shape == (2, 2, length, 3) and (y == 0).all()
        empty = torch.empty(0, 2, 5, 4, device=self.device)
        assert self.attention(empty, empty, empty, pattern=Window(1, 1)).shape == (0, 2, 5, 4)
        learned = self.normal(1, 1, 5, 5), self.normal(1, 1, 1, 5), self.normal(2, 9)
        weights = [Bias(learned[0]), Bias(learned[1]), DistanceBias(learned[2])]
        empty.requires_grad_()
        y = self.attention(empty, empty, empty, pattern=Window(1, 1), weight=weights)
        assert all((g == 0).all() for g in torch.autograd.grad(y.sum(), learned))

    @pytest.mark.parametrize("lowest", [-torch.inf, torch.finfo(torch.float32).min])
    def test_lowest_bias_is_no_pair(self, lowest: float) -> None:
        q, k, v = (self.normal(1, 1, 20, 4) for _ in range(3))
        allowed = torch.rand(1, 1, 20, 20, device=self.device) < 0.4
        allowed[..., 3, :] = False
        bias = Bias(torch.where(allowed, 0.0, lowest))
        y, want = (
            self.attention(q, k, v, weight=bias),
            self.attention(q, k, v, pattern=Mask(allowed)),
        )
        torch.testing.assert_close(y, want)
        assert (y[:, :, 3] == 0).all()

    @pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
    @pytest.mark.parametrize("variance", [1e-3, 1e-6, 1e-9, 1e-18, 1e-30])
    def test_keys_far_out_on_a_bell(self, variance: float, dtype: torch.dtype) -> None:
        n, real = 100, 60
        if self.refused(Case(Size(1, 2, n=n, m=n)), dtype):
            return
        q, k, v = (self.normal(1, 2, n, 8, dtype=dtype) for _ in range(3))
        grad = torch.randn(1, 2, n, 8).to(self.device, dtype)
        widths = (variance * (1 + torch.rand(1, 2, n))).to(self.device).requires_grad_()
        padding = (torch.arange(n) < real).to(self.device)[None]
        y = self.attention(q, k, v, weight=Bell(widths), key_padding=padding)
        # The next key has all of a row, its own where it is not padding.
        next_key = torch.arange(n).clamp(max=real - 1).to(self.device)
        assert torch.equal(y, v[:, :, next_key])
        to_q, to_k, to_v, to_widths = torch.autograd.grad(y, (q, k, v, widths), grad)
        assert all((x == 0).all() for x in (to_q, to_k, to_widths))
        want = torch.zeros_like(v, dtype=torch.float64).index_add_(2, next_key, grad.double())
        error = (to_v.double() - want).abs().max().item()
        assert error <= 8 * torch.finfo(dtype).eps * want.abs().max().item()

    @pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
    def test_rows_that_a_bias_puts_far_down(self, dtype: torch.dtype) -> None:
        if self.refused(Case(Size(1, 2, n=70, m=70)), dtype):
            return
        for low in (-1e6, -1e9, -1e12):
            q, k, v = (self.normal(1, 2, 70, 8, dtype=dtype) for _ in range(3))
            bias = torch.zeros(1, 1, 70, 70, device=self.device)
            bias[..., 20:40, :] = low
            y = self.attention(q, k, v, weight=Bias(bias))
            assert y.isfinite().all() and (y.abs() <= v.abs().max() * 1.01).all()
            for found in torch.autograd.grad(y, (q, k, v), torch.randn_like(y)):
                assert found.isfinite().all() and found.abs().max() < 1e3

    @pytest.mark.parametrize("pattern", [Window(3, 3), Window(3, 3) | Global(1)], ids=str)
    @pytest.mark.parametrize("normalizer", [Softmax(), Entmax(1.5)], ids=str)
    def test_nan_stays_where_it_is_seen(
        self, pattern: ls.patterns.Pattern, normalizer: ls.normalizers.Normalizer
    ) -> None:
        n, bad = 150, 70
        sees = pattern.dense(n)[0, 0, :, bad]
        for place in "qkv":
            q, k, v = (torch.randn(1, 2, n, 4, device=self.device) for _ in range(3))
            {"q": q, "k": k, "v": v}[place][0, 1, bad] = torch.nan
            q, k, v = (x.requires_grad_() for x in (q, k, v))
            y = self.attention(q, k, v, pattern=pattern, normalizer=normalizer)
            touched = y.isnan().any(-1).cpu()
            assert not touched[0, 0].any(), place
            want = torch.arange(n) == bad if place == "q" else sees
            assert torch.equal(touched[0, 1], want), place
            calm = ~touched[0, 1]
            to_q, to_k, to_v = torch.autograd.grad(y[0, 1, calm].sum(), (q, k, v))
            unseen = ~pattern.dense(n)[0, 0, touched[0, 1]].any(0)
            assert to_q[0, 1, calm].isfinite().all(), place
            assert to_k[0, 1, unseen].isfinite().all() and to_v[0, 1, unseen].isfinite().all(), (
                place
            )

    def test_unseen_nan_never_leaks(self) -> None:
        q, k, v = (torch.randn(2, 1, 80, 4, device=self.device) for _ in range(3))
        padding = torch.ones(2, 80, dtype=torch.bool, device=self.device)
        padding[:, 60:] = False
        k[:, :, 60:], v[:, :, 60:] = torch.nan, torch.inf
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        y = self.attention(q, k, v, pattern=Window(9, 9) | Global(2), key_padding=padding)
        assert y.isfinite().all()
        to_q, to_k, to_v = torch.autograd.grad(y.sum(), (q, k, v))
        assert to_q.isfinite().all() and to_v.isfinite().all()
        assert to_k.isfinite().all() and (to_k[:, :, 60:] == 0).all()

    def test_unseen_nan_never_reaches_a_bias(self) -> None:
        q, k, v = (torch.randn(2, 1, 80, 4, device=self.device) for _ in range(3))
        padding = torch.ones(2, 80, dtype=torch.bool, device=self.device)
        padding[:, 60:] = False
        k[:, :, 60:], v[:, :, 60:] = torch.nan, torch.inf
        shapes = [(80, 80), (1, 80), (80, 1), (1, 1)]
        biases = [self.normal(1, 1, *shape) for shape in shapes]
        tables = [self.normal(1, 9), self.normal(1, 201)]
        weights = [Bias(x) for x in biases] + [DistanceBias(x) for x in tables]
        y = self.attention(
            q, k, v, pattern=Window(9, 9) | Global(2), weight=weights, key_padding=padding
        )
        to_biases = torch.autograd.grad(y.sum(), biases + tables)
        assert all(x.isfinite().all() for x in to_biases)
        assert all((x[..., 60:] == 0).all() for x in to_biases[:2])
        assert all((x != 0).any() for x in to_biases)

    @pytest.mark.parametrize("weight", WEIGHTS)
    def test_what_no_pair_reads_changes_nothing(self, weight: str) -> None:
        """Neither an output nor any gradient."""
        size = Size(batch=1, key_heads=1, n=36, m=20)
        case = Case(size, ("window",), weights=(weight,), padding=True)
        self.check(case, torch.float32, torch.nan)
        self.check(replace(case, normalizer="1.5"), torch.float32, -torch.inf)
        # What comes before a bell that multiplies scores is in the gradient of its variance.
        before = replace(case, patterns=("left",), weights=(weight, "head_bell"))
        self.check(before, torch.float32, torch.inf)

    # --- gradients, dropout, determinism ---

    @pytest.mark.parametrize("form", ["bias", "score", "weight"])
    def test_bells_at_their_narrowest(self, form: Any) -> None:
        """Below it a variance changes nothing, and has no gradient, normalised or not."""
        q, k, v = (self.normal(1, 2, 6, 4) for _ in range(3))
        variance = torch.full((1, 2, 6), 1e-13, device=self.device, requires_grad=True)
        y = self.attention(q, k, v, weight=Bell(variance, form=form, normalized=True))
        (found,) = torch.autograd.grad(y.sum(), variance)
        assert (found == 0).all()

    def test_double_backward_raises(self) -> None:
        q, k, v = (self.normal(1, 1, 10, 4) for _ in range(3))
        y = self.attention(q, k, v, pattern=Window(2, 2))
        (g,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
        with pytest.raises(RuntimeError):
            torch.autograd.grad(g.sum(), q)

    def test_only_wanted_gradients(self) -> None:
        q, k, v = (self.normal(1, 2, 50, 4) for _ in range(3))
        variance = torch.full((1, 2, 50), 9.0, device=self.device)
        for wanted in (q, k, v):
            inputs = [x if x is wanted else x.detach() for x in (q, k, v)]
            y = self.attention(*inputs, weight=Bell(variance, threshold=0.5))
            assert torch.autograd.grad(y.sum(), wanted)[0].shape == wanted.shape

    def test_dropout_is_drawn_from_the_generator(self) -> None:
        q, k, v = (self.normal(1, 2, 200, 8) for _ in range(3))
        outputs = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            outputs.append(
                self.attention(q, k, v, pattern=Window(30, 30) | Global(1), dropout=0.25)
            )
        assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
        torch.manual_seed(1)
        want = ls.attention(q, k, v, Window(30, 30) | Global(1), dropout=0.25, backend="reference")
        torch.testing.assert_close(outputs[0], want, atol=1e-5, rtol=1e-5)

    def test_dropout_drops_its_share(self) -> None:
        q = torch.zeros(2, 2, 400, 4, device=self.device)
        ones = torch.ones(2, 2, 400, 1, device=self.device)
        y = self.attention(q, q, ones, dropout=0.3)
        # A mean of 400 draws a row, of 640,000 in all.
        assert abs(y.mean().item() - 1) < 5e-3 and y.std() > 0.01

    @pytest.mark.parametrize(
        "case",
        [
            Case(Size(n=300, m=300), ("window", "global"), weights=("bell",), dropout=0.1),
            Case(Size(n=300, m=300, groups=2), ("full",), weights=("distance", "alibi")),
            Case(Size(n=200, m=300), ("random", "global"), weights=("ramp",), normalizer="learned"),
            Case(Size(n=100, m=150), ("dilated", "left"), weights=("shared_bias", "distance")),
            Case(Size(n=150, m=150), ("full",), weights=("row_bias", "key_bias", "long_distance")),
            Case(Size(n=100, m=100), ("causal",), weights=("relative", "bias")),
            Case(Size(1, 1, n=300, m=300), ("full",), weights=("head_bell", "alibi")),
            Case(Size(1, 1, n=1, m=70_000), ("full",), weights=("alibi",)),
            Case(Size(1, 1, n=1, m=70_000), ("full",), weights=("alibi",), normalizer="1.3"),
        ],
        ids=str,
    )
    def test_same_bits_again(self, any_order: None, case: Case) -> None:
        if self.refused(case, torch.float32):
            return
        built = case.build(torch.float32, self.device)
        runs = [built.run(self.backend)]
        threads = torch.get_num_threads()
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                runs.append(built.run(self.backend))
        finally:
            torch.set_num_threads(threads)
        for other in runs[1:]:
            for name, value in runs[0].items():
                assert torch.equal(value, other[name]), name
