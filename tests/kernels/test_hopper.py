"""The kernels for Hopper pass the contract, on such a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.functional import again
from longspan.patterns import (
    Causal,
    Full,
    Global,
    Pattern,
    PerHead,
    Window,
)
from longspan.weights import Bell

from ..problems import Built, Case, Size
from .contract import agrees, problem
from .intervals import padded

BF16, FP16 = torch.bfloat16, torch.float16

pytestmark = pytest.mark.usefixtures("interpreted")


def by_both(pattern: Pattern, given: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """The output and the gradients of q, k, v, g by the kernels, and what they should be."""
    found = []
    for backend in ("triton", "reference"):
        own = [x.double() if backend == "reference" else x for x in given]
        leaves = [x.detach().requires_grad_() for x in own[:3]]
        y = ls.attention(*leaves, pattern, backend=backend)
        found.append([y, *torch.autograd.grad(y, leaves, own[3])])
    yield from zip(*found, strict=True)


@dataclass(frozen=True)
class Interval(Case):
    """A case for the kernels here: patterns by themselves, and what they make of memory.

    Attributes:
        window: instead of the named patterns.
        transposed: inputs lie as `(B, N, H, D)`.
        shared: of the output's gradient, one row for all.
        bound: variances from the least to the largest, under a reach that the window has too.
        tokens: which are global, beside the window.
        cut: a bell from which they are exempt, with this threshold; 0 for none.
        where: padding lies, among the keys of the second sample.
    """

    window: tuple[int, int] | None = None
    transposed: bool = False
    shared: bool = False
    bound: bool = False
    tokens: str = ""
    cut: float | None = None
    where: str = ""

    def build(self, dtype: torch.dtype, device: str = "cpu") -> Built:
        built = super().build(dtype, device)
        if self.window is not None:
            built.options["pattern"] = Window(*self.window)
        if self.tokens:
            self._with_tokens(built)
        if self.where:
            built.options["key_padding"] = padded(self.where, self.size.m).to(device)
        if self.transposed:
            for name in ("q", "k", "v"):
                x = built.leaves[name].detach().transpose(1, 2).contiguous().transpose(1, 2)
                built.leaves[name] = x.requires_grad_()
                setattr(built, name, x)
        if self.shared:
            built.grad = built.grad[:1, :1, :1].expand_as(built.grad)
            if dtype == torch.float64:
                # The reference's is written to.
                built.grad = built.grad.contiguous()
        if self.bound:
            assert self.window is not None
            size = self.size
            drawn = 10 ** built.uniform(-12, 12, size.batch, size.heads, size.n)
            # The same numbers in every dtype, so that reaches are.
            variance = built.learned("variance", drawn.float().double())
            most = self.window[0]
            built.options["weight"] = [Bell(variance, threshold=0.5, max_reach=most)]
        return built

    def _with_tokens(self, built: Built) -> None:
        tokens = tokens_of(self.tokens, self.size, built.device)
        if self.cut is None:
            built.options["pattern"] = built.options["pattern"] | tokens
            return
        size = self.size
        drawn = built.uniform(1, 900, size.batch, size.heads, size.n)
        variance = built.learned("variance", drawn.float().double())
        built.options["weight"] = [Bell(variance, threshold=self.cut or None, exempt=tokens)]


def tokens_of(name: str, size: Size, device: str) -> Pattern:
    """Global tokens by name."""
    n, m = size.n, size.m
    if name == "first":
        return Global(5)
    if name == "ends":
        return Global(30) | Global(-50)
    if name == "many":
        return Global(min(n, m) // 4)
    if name == "keys":
        return Global(keys=torch.tensor([0, 7, m // 2, m - 1], device=device))
    if name == "rows":
        return Global(queries=torch.tensor([0, 7, n // 2, n - 1], device=device))
    assert name == "samples"
    # The second sample has fewer, and other tokens fill its places.
    places = torch.arange(0, m, 9).repeat(2, 1)
    places[1] = torch.where(places[1] < m // 2, 3, m - 1)
    return Global(places.to(device))


def sized(head: int, n: int = 333, m: int = 333, groups: int = 1) -> Size:
    return Size(2, 2, groups, n, m, head, head)


@pytest.mark.gpu
class TestOnHopper:
    @pytest.fixture(autouse=True)
    def _hopper(self) -> None:
        from longspan.kernels.triton import hopper

        if not hopper.available(torch.device("cuda")):
            pytest.skip("needs a Hopper GPU")

    def check(self, case: Case, dtype: torch.dtype = BF16) -> None:
        from longspan.kernels.triton import hopper

        built = case.build(dtype, "cuda")
        assert hopper.takes(problem(built.q, built.k, built.v, **built.options))
        assert list(agrees(case, dtype, "triton", "cuda")) == []

    @pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
    @pytest.mark.parametrize("head", [16, 32, 64, 96, 128])
    def test_heads(self, head: int, dtype: torch.dtype) -> None:
        self.check(Case(sized(head), ("full",), weights=("bell",)), dtype)

    @pytest.mark.parametrize(
        "case",
        [
            Case(sized(64), ("window",)),
            Case(sized(64, 100, 459), ("causal",)),
            Case(sized(64, 459, 100), ("full",)),
            Case(sized(64, 459, 100), ("window",), weights=("bell",)),
            Case(sized(64, 333, 459, 4), ("causal",), weights=("bell",)),
            Case(sized(64, groups=4), ("window",), weights=("soft_bell",)),
            Case(sized(64, 100, 459), ("full",), weights=("soft_bell",)),
            Case(sized(64, 100, 459), ("full",), weights=("plain_bell",)),
            Case(sized(64, 1, 333), ("causal",)),
            Case(sized(64, 1, 1), ("full",), weights=("bell",)),
            Interval(sized(64), window=(70, 70), transposed=True),
            Interval(sized(64), weights=("bell",), window=(70, 70), transposed=True, shared=True),
            Interval(sized(64), window=(70, 70), shared=True),
            Interval(sized(64), window=(20, 20), bound=True),
        ],
        ids=str,
    )
    def test_cases(self, case: Case) -> None:
        self.check(case)

    @pytest.mark.parametrize("head", [16, 64, 128])
    @pytest.mark.parametrize("tokens", ["first", "ends", "many", "keys", "rows", "samples"])
    @pytest.mark.parametrize("cut", [None, 0.5, 0.0], ids=["plain", "cut", "soft"])
    def test_global_tokens(self, tokens: str, cut: float | None, head: int) -> None:
        self.check(Interval(sized(head), window=(70, 70), tokens=tokens, cut=cut))

    @pytest.mark.parametrize(
        "case",
        [
            Interval(sized(64, 333, 459), window=(70, 70), tokens="keys"),
            Interval(sized(64, 333, 459), window=(70, 0), tokens="rows"),
            Interval(sized(64, 333, 459, 4), window=(70, 70), tokens="keys", cut=0.5),
            Interval(sized(64, 459, 333), window=(70, 70), tokens="rows"),
            Interval(sized(64, groups=4), window=(70, 70), tokens="ends", transposed=True),
            Interval(sized(64, groups=4), window=(9, 9), tokens="samples", cut=0.5, shared=True),
        ],
        ids=str,
    )
    def test_global_tokens_of_other_shapes(self, case: Case) -> None:
        self.check(case)

    @pytest.mark.parametrize("where", ["behind", "before", "between", "everywhere"])
    @pytest.mark.parametrize(
        "case",
        [
            Interval(sized(64), window=(70, 70)),
            Interval(sized(128, 100, 459), window=(70, 0)),
            Interval(sized(32, 459, 130, 4), window=(200, 200), transposed=True),
            Interval(sized(64), ("full",), weights=("bell",)),
            Interval(sized(16), window=(20, 20), bound=True),
            Interval(sized(64), window=(70, 70), tokens="ends"),
            Interval(sized(32), window=(70, 70), tokens="samples", cut=0.5),
            Interval(sized(64, groups=4), window=(9, 9), tokens="many", cut=0.5),
            Interval(sized(64, 333, 459), window=(70, 70), tokens="keys", cut=0.5),
        ],
        ids=str,
    )
    def test_padding(self, case: Interval, where: str) -> None:
        self.check(replace(case, where=where))

    @pytest.mark.parametrize("where", ["behind", "between"])
    def test_nothing_of_padding_is_read(self, where: str) -> None:
        tokens = Global(torch.tensor([5, 200, 320], device="cuda"))
        real = padded(where, 333).cuda()
        inputs = [torch.randn(2, 2, 333, 64, device="cuda", dtype=BF16) for _ in range(4)]
        variance = torch.rand(2, 2, 333, device="cuda") * 900 + 1
        bell = Bell(variance, threshold=0.5, exempt=tokens)
        found = []
        for fill in (0.0, torch.nan):
            q, *own, grad = (x.clone() for x in inputs)
            for x in own:
                x.masked_fill_(~real[:, None, :, None], fill)
            leaves = [x.requires_grad_() for x in (q, *own)]
            y = ls.attention(*leaves, weight=bell, key_padding=real, backend="triton")
            found.append([y, *torch.autograd.grad(y, leaves, grad)])
        for calm, spoilt in zip(*found, strict=True):
            torch.testing.assert_close(spoilt, calm, rtol=2e-2, atol=2e-2)
        for gradient in found[0][2:]:
            assert not gradient.masked_select(~real[:, None, :, None]).any()

    def test_padding_that_comes_again_and_changes(self) -> None:
        q, k, v = (torch.randn(2, 2, 333, 64, device="cuda", dtype=BF16) for _ in range(3))
        real = padded("behind", 333).cuda()
        for where in ("behind", "behind", "between", "behind"):
            real.copy_(padded(where, 333))
            found = ls.attention(q, k, v, Window(70, 70), key_padding=real, backend="triton")
            own = [x.double() for x in (q, k, v)]
            wanted = ls.attention(
                *own, Window(70, 70), key_padding=padded(where, 333).cuda(), backend="reference"
            )
            torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)

    def test_nan_beside_global_tokens(self) -> None:
        """A NaN of a global key, or row, is everyone's; one of another token is its neighbours'."""
        pattern = Window(30, 30) | Global(torch.tensor([5, 200], device="cuda"))
        inputs = [torch.randn(1, 2, 333, 64, device="cuda", dtype=BF16) for _ in range(4)]
        for name, place in (("q", 100), ("q", 5), ("k", 100), ("v", 100), ("v", 5), ("g", 100)):
            given = [x.clone() for x in inputs]
            given["qkvg".index(name)][0, 1, place, 3] = torch.nan
            for have, wanted in by_both(pattern, given):
                assert torch.equal(have.isfinite(), wanted.isfinite()), (name, place)
                calm = wanted.isfinite()
                torch.testing.assert_close(have.double()[calm], wanted[calm], rtol=2e-2, atol=4e-2)

    @pytest.mark.parametrize("tokens", [False, True])
    def test_a_window_for_each_head(self, tokens: bool) -> None:
        pattern: Pattern = PerHead([Window(30, 30), Window(3, 90), Causal(), Window(30, 30)])
        if tokens:
            pattern = pattern | Global(torch.tensor([5, 200], device="cuda"))
        given = [torch.randn(2, 4, 333, 64, device="cuda", dtype=BF16) for _ in range(4)]
        for have, wanted in by_both(pattern, given):
            torch.testing.assert_close(have.double(), wanted, rtol=2e-2, atol=4e-2)

    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("dtype", [BF16, FP16])
    def test_scores_that_grow_from_tile_to_tile(self, dtype: torch.dtype, sign: int) -> None:
        """In a few rows of every warp: shifts have to follow, and those of other rows not."""
        n = 700
        q, k, v = (torch.randn(1, 2, n, 64, device="cuda") for _ in range(3))
        few = torch.arange(n, device="cuda") % 37 < 5
        q, k = q * 0.1, k * 0.1
        q[..., 0] += 40.0 * sign * few
        k[..., 0] += torch.linspace(0, 60, n, device="cuda")
        for pattern in (
            Full(),
            Window(300, 300),
            Window(64, 64) | Global(keys=torch.tensor([n - 2], device="cuda")),
        ):
            own = [x.to(dtype) for x in (q, k, v)]
            found = ls.attention(*own, pattern, backend="triton")
            wanted = ls.attention(*(x.double() for x in own), pattern, backend="reference")
            torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)

    def test_a_gradient_that_is_one_number(self) -> None:
        q, k, v = (torch.randn(1, 2, 333, 64, device="cuda", dtype=BF16) for _ in range(3))
        leaves = [x.requires_grad_() for x in (q, k, v)]
        y = ls.attention(q, k, v, Window(70, 70), backend="triton")
        found = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
        wanted = torch.autograd.grad(y, leaves, torch.ones_like(y))
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))

    def test_variances_at_any_address(self) -> None:
        """A kernel that was compiled for one that lies well must not read another that does not."""
        q = torch.randn(1, 2, 332, 64, device="cuda", dtype=BF16)
        drawn = torch.rand(1, 2, 332, device="cuda") * 300 + 1
        found = []
        for shift in (0, 1, 2, 3):
            wide = torch.empty(drawn.numel() + 4, device="cuda")
            variance = wide[shift : shift + drawn.numel()].view(drawn.shape)
            variance.copy_(drawn)
            bell = Bell(variance, threshold=0.5)
            found.append(ls.attention(q, q, q, Window(70, 70), weight=bell, backend="triton"))
        assert all(torch.equal(found[0], other) for other in found[1:])

    def test_same_bits_again(self, any_order: None) -> None:
        built = Case(sized(64), ("full",), weights=("bell",)).build(BF16, "cuda")
        first, second = built.run("triton"), built.run("triton")
        assert all(torch.equal(value, second[name]) for name, value in first.items())

    def test_nan_stays_where_it_is_seen(self) -> None:
        pattern = Window(30, 30)
        q, k, v = (torch.randn(1, 2, 333, 64, device="cuda", dtype=BF16) for _ in range(3))
        spoilt = v.clone()
        spoilt[0, 1, 100], spoilt[0, 1, 200, 3] = torch.nan, torch.inf
        calm = ~pattern.dense(333)[0, 0][:, [100, 200]].any(1).cuda()
        leaves = [x.requires_grad_() for x in (q, k, spoilt)]
        y = ls.attention(q, k, spoilt, pattern, backend="triton")
        want = ls.attention(q, k, v, pattern, backend="triton")
        assert torch.equal(y[:, 0], want[:, 0]) and y[0, 1, 70:131].isnan().all()
        torch.testing.assert_close(y[0, 1, calm], want[0, 1, calm], rtol=2e-2, atol=2e-2)
        to_q, to_k, to_v = torch.autograd.grad(y[0, 1, calm].sum(), leaves)
        assert to_q[0, 1, calm].isfinite().all() and to_q[0, 1, calm].any()
        # Of keys that no spoilt row sees.
        far = torch.ones(333, dtype=torch.bool, device="cuda")
        far[40:161] = far[140:261] = False
        assert to_k[0, 1, far].isfinite().all() and to_v[0, 1, far].isfinite().all()

    def test_graphs_are_replayed_on_new_inputs(self) -> None:
        def inputs() -> list[Tensor]:
            q, k, v, grad = (torch.randn(2, 2, 333, 64, device="cuda").to(BF16) for _ in range(4))
            return [q, k, v, torch.rand(2, 2, 333, device="cuda") * 900 + 1, grad]

        def step(*given: Tensor) -> list[Tensor]:
            leaves = [x.detach().requires_grad_() for x in given[:4]]
            bell = Bell(leaves[3], threshold=0.5)
            y = ls.attention(*leaves[:3], Window(70, 70), weight=bell, backend="triton")
            return [y.detach(), *torch.autograd.grad(y, leaves, given[4])]

        kept, side = inputs(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                step(*kept)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step(*kept)
        for _ in range(2):
            new = inputs()
            for to, x in zip(kept, new, strict=True):
                to.copy_(x)
            graph.replay()
            for have, wanted in zip(found, step(*new), strict=True):
                assert torch.equal(have, wanted)

    @pytest.mark.parametrize("learned", [False, True])
    def test_calls_like_one_before(self, learned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are played on new tensors, and give what they would have given."""
        monkeypatch.setattr(again, "_KNOWN", {})
        monkeypatch.setattr(again, "_TRIES", {})

        def step(seed: int) -> list[Tensor]:
            torch.manual_seed(seed)
            q, k, v, grad = (torch.randn(2, 2, 333, 64, device="cuda").to(BF16) for _ in range(4))
            variance = torch.rand(2, 2, 333, device="cuda") * 900 + 1
            leaves = [x.requires_grad_() for x in (q, k, v, variance)[: 3 + learned]]
            bell = Bell(variance, threshold=0.5) if learned else None
            y = ls.attention(q, k, v, Window(70, 70), weight=bell)
            return [y.detach(), *torch.autograd.grad(y, leaves, grad)]

        found = [step(seed) for seed in range(5)]
        (kept,) = again._KNOWN.values()
        assert kept.notes is not None and len(kept.notes.backwards) == 1
        monkeypatch.setattr(again, "known", lambda key: None)
        for seed, have in enumerate(found):
            assert all(torch.equal(a, b) for a, b in zip(have, step(seed), strict=True))

    # torch's compiler itself does what torch warns of.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("head", [64, 256], ids=["hopper", "plain"])
    def test_compiled_programs(self, transposed: bool, head: int) -> None:
        def called(q: Tensor, k: Tensor, v: Tensor, variance: Tensor) -> Tensor:
            bell = Bell(variance, threshold=0.5)
            return ls.attention(q, k, v, Window(70, 70), weight=bell, backend="triton")

        q, k, v = (torch.randn(2, 2, 333, head, device="cuda").to(BF16) for _ in range(3))
        if transposed:
            q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
        variance = torch.rand(2, 2, 333, device="cuda") * 900 + 1
        leaves = [x.requires_grad_() for x in (q, k, v, variance)]
        grad = torch.randn_like(q)
        results = []
        for function in (called, torch.compile(called, fullgraph=True)):
            y = function(*leaves)
            results.append([y, *torch.autograd.grad(y, leaves, grad)])
        for have, wanted in zip(*results, strict=True):
            torch.testing.assert_close(have, wanted)

    def test_inputs_far_apart(self) -> None:
        """Strides that are beyond 2³¹ elements, in tensors that share their memory."""
        apart = 2**31 + 1024
        wide = torch.zeros(apart + 4 * 200 * 64, device="cuda", dtype=BF16)

        def far(place: int) -> Tensor:
            start = place * 200 * 64
            x = wide.as_strided((2, 1, 200, 64), (apart, 64, 64, 1), start)
            x.copy_(torch.randn(2, 1, 200, 64))
            return x

        given = [far(place) for place in range(4)]
        results = []
        for own in (given, [x.contiguous() for x in given]):
            leaves = [x.detach().requires_grad_() for x in own[:3]]
            y = ls.attention(*leaves, Window(70, 70), backend="triton")
            results.append([y, *torch.autograd.grad(y, leaves, own[3])])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))

    def test_outputs_far_apart(self) -> None:
        """More than 2³¹ elements in one output: the last rows are those of a short input."""
        n, tail = 2**31 // 64 + 1000, 300
        x = torch.zeros(1, 1, n, 64, device="cuda", dtype=BF16)
        x[:, :, -tail:] = torch.randn(1, 1, tail, 64)
        y = ls.attention(x, x, x, Window(70, 70), backend="triton")[:, :, -200:]
        short = x[:, :, -tail:].double()
        exact = ls.attention(short, short, short, Window(70, 70), backend="reference")
        torch.testing.assert_close(y.double(), exact[:, :, -200:], rtol=1e-2, atol=1e-2)
