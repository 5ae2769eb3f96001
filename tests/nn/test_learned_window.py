"""The learned window against its formula, its budgets, and what it must never see."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from longspan.nn import LearnedWindow, Setting, pool_budgets
from longspan.nn.reach_budget import ReachBudget
from longspan.weights import reach_of, variance_of

EMBED, HEADS, DIM = 12, 3, 4


def window(**options: Any) -> LearnedWindow:
    torch.manual_seed(1)
    made = LearnedWindow(EMBED, HEADS, **{"mean_reach": 5, "max_reach": 12, **options})
    with torch.no_grad():
        made.U_d.normal_(std=1.5)
    return made


def inputs(batch: int = 2, n: int = 30, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(batch, HEADS, n, DIM, dtype=dtype) for _ in range(3)]


@torch.no_grad()
def naive(made: LearnedWindow, q: Tensor, k: Tensor, v: Tensor, setting: Setting) -> Tensor:
    """From the formulas, one sample, head, query and key at a time; the factor by bisection."""
    batch, heads, n, _ = q.shape
    out = torch.zeros_like(q)
    for b in range(batch):
        real = [True] * n if setting.key_padding is None else setting.key_padding[b].tolist()
        tokens = setting.global_tokens
        whole = [False] * n if tokens is None else tokens[b].tolist()
        networks = heads * (2 if made.sided else 1)
        share = torch.zeros(networks, n, dtype=torch.float64)
        for h in range(networks):
            for i in range(n):
                read = q[b, h % heads, i] if setting.x is None else setting.x[b, i]
                read = torch.ones_like(read) if made.shared == "tokens" else read
                hidden = torch.tanh(read.double() @ made.W_p[h].double())
                share[h, i] = float(hidden @ made.U_d[h].double())
                share[h, i] += 0.0 if made.b_d is None else float(made.b_d[h])
        if made.shared == "heads":
            share[:] = sum(share[h] for h in range(heads)) / heads
        share = share.exp()
        counted = [i for i in range(n) if real[i] and not whole[i]]
        asked = share[:, counted]
        low, high = 0.0, made.max_reach / float(asked.min())
        for _ in range(100):
            middle = (low + high) / 2
            mean = float((middle * asked).clamp(max=made.max_reach).mean())
            low, high = (middle, high) if mean < made.mean_reach else (low, middle)
        for h in range(heads):
            for i in range(n):
                scores, bells, seen = [], [], []
                for j in range(n):
                    side = heads if made.sided and j > i else 0
                    reach = low * float(share[h + side, i])
                    variance = reach**2 / (-2 * math.log(made.threshold))
                    cut = made.max_reach if made.soft else min(int(reach + 1e-3), made.max_reach)
                    exempt = whole[i] or whole[j]
                    if not real[j] or (abs(i - j) > cut and not exempt):
                        continue
                    score = float(q[b, h, i].double() @ k[b, h, j].double()) / math.sqrt(DIM)
                    log = 0.0 if exempt else -((i - j) ** 2) / (2 * variance)
                    if made.normalized and not exempt:
                        log -= math.log(2 * math.pi * variance) / 2
                    bell = math.exp(log)
                    kinds = {"bias": score + log, "score": score * bell, "weight": score}
                    scores.append(kinds[made.form])
                    bells.append(bell if made.form == "weight" else 1.0)
                    seen.append(j)
                weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
                weights *= torch.tensor(bells)
                out[b, h, i] = (weights[:, None] * v[b, h, seen].double()).sum(0)
    return out


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
def test_formula(soft: bool, tokens: bool) -> None:
    made = window(soft=soft)
    q, k, v = inputs()
    real = torch.ones(2, 30, dtype=torch.bool)
    real[1, 22:] = False
    whole = torch.zeros(2, 30, dtype=torch.bool)
    whole[0, :3] = True
    setting = Setting(key_padding=real, global_tokens=whole if tokens else None)
    found, expected = made(q, k, v, setting), naive(made, q, k, v, setting)
    torch.testing.assert_close(found[0], expected[0], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(found[1, :, :22], expected[1, :, :22], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("reads", ["query", "stream"])
@pytest.mark.parametrize("form", ["bias", "score", "weight"])
@pytest.mark.parametrize("tokens", [False, True])
def test_sides_apart(tokens: bool, form: Any, reads: Any) -> None:
    made, (q, k, v) = window(sided=True, form=form, reads=reads, soft=reads == "stream"), inputs()
    real = torch.ones(2, 30, dtype=torch.bool)
    real[1, 22:] = False
    whole = torch.zeros(2, 30, dtype=torch.bool)
    whole[0, :3] = True
    x = torch.randn(2, 30, EMBED) if reads == "stream" else None
    setting = Setting(key_padding=real, global_tokens=whole if tokens else None, x=x)
    found, expected = made(q, k, v, setting), naive(made, q, k, v, setting)
    torch.testing.assert_close(found[0], expected[0], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(found[1, :, :22], expected[1, :, :22], atol=2e-6, rtol=1e-5)
    assert made.last_sides is not None and made.last_reach is not None
    assert made.last_sides.shape == (2, 2, HEADS, 30)
    assert torch.equal(made.last_sides.mean(1), made.last_reach)
    assert (made.last_sides[:, 0] != made.last_sides[:, 1]).any()
    found.sum().backward()
    assert made.U_d.grad is not None and (made.U_d.grad != 0).any(-1).all()
    again = LearnedWindow(**made.settings)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(q, k, v, setting), found)


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
def test_sides_have_one_budget(budget: Any) -> None:
    made, n = window(budget=budget, sided=True, biased=True, spread=4.0), 25
    real = torch.ones(2, 30, dtype=torch.bool)
    real[:, n:] = False
    made(*inputs(), Setting(key_padding=real))
    assert made.last_sides is not None
    own = made.last_sides.double()[..., :n]
    i = torch.arange(n)
    for sides, pairs in zip(own, made.whole_reach()[..., :n].double(), strict=True):
        if budget == "reach":
            assert float(sides.mean()) == pytest.approx(5, rel=1e-6)
            assert 4 <= float(pairs.mean()) <= 5
        elif budget == "variance":
            mean = float(variance_of(sides, 0.5).mean())
            assert mean == pytest.approx(variance_of(5.0, 0.5), rel=1e-6)
        else:
            fixed = (i.clamp(max=5) + (n - 1 - i).clamp(max=5)).sum() * HEADS
            left, right = torch.minimum(sides[0], i), torch.minimum(sides[1], n - 1 - i)
            assert float((left + right).sum()) == pytest.approx(float(fixed), rel=1e-6)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("form", ["bias", "score", "weight"])
def test_forms_of_the_bell(form: Any, normalized: bool) -> None:
    made, (q, k, v) = window(form=form, normalized=normalized), inputs(1, 14)
    whole = torch.zeros(1, 14, dtype=torch.bool)
    whole[0, 0] = True
    setting = Setting(global_tokens=whole)
    expected = naive(made, q, k, v, setting)
    torch.testing.assert_close(made(q, k, v, setting), expected, atol=2e-6, rtol=1e-5)
    assert made.settings["form"] == form and made.settings["normalized"] == normalized


@pytest.mark.parametrize("shared", ["tokens", "heads"])
def test_reaches_that_are_shared(shared: Any) -> None:
    made, (q, k, v) = window(shared=shared), inputs()
    torch.testing.assert_close(made(q, k, v), naive(made, q, k, v, Setting()), atol=2e-6, rtol=1e-5)
    reach = made.last_reach
    assert reach is not None
    first = reach[:, :, :1] if shared == "tokens" else reach[:, :1]
    assert torch.equal(reach, first.expand_as(reach))
    assert reach.unique().numel() > 1
    assert made.settings["shared"] == shared and "shared=" in repr(made)


@pytest.mark.parametrize("shared", [None, "tokens"])
@pytest.mark.parametrize("reads", ["query", "stream"])
def test_networks_of_other_kinds(reads: Any, shared: Any) -> None:
    made, (q, k, v) = window(reads=reads, biased=True, spread=8.0, shared=shared), inputs()
    setting = Setting(x=torch.randn(2, 30, EMBED) if reads == "stream" else None)
    expected = naive(made, q, k, v, setting)
    torch.testing.assert_close(made(q, k, v, setting), expected, atol=2e-6, rtol=1e-5)
    again = LearnedWindow(**made.settings)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(q, k, v, setting), made(q, k, v, setting))
    for name in ("biased=True", "spread=8", *(["reads='stream'"] if reads == "stream" else [])):
        assert name in repr(made)


@pytest.mark.parametrize("free", [False, True])
def test_heads_that_begin_apart(free: bool) -> None:
    more: dict[str, Any] = {"budget": None, "initial_variance": 9.0} if free else {"mean_reach": 5}
    made = LearnedWindow(EMBED, HEADS, max_reach=400, biased=True, spread=16.0, **more)
    reach = made.reaches(torch.randn(1, HEADS, 7, DIM))[0].mean(1).detach()
    torch.testing.assert_close(reach[1:] / reach[:-1], torch.full((2,), 4.0))
    mean = made.start_reach if free else 5.0
    assert float(reach.mean()) == pytest.approx(mean, rel=1e-5)


def test_a_network_is_taken_whole() -> None:
    made = window(biased=True, spread=4.0)
    other = window(biased=True)
    other.load_reach(made)
    for name, own in other.network.items():
        assert torch.equal(own, made.network[name]) and not own.requires_grad
    assert list(other.network) == ["W_p", "U_d", "b_d"] and list(window().network) == ["W_p", "U_d"]
    with pytest.raises(ValueError, match="the source has no b_d"):
        other.load_reach(window())
    with pytest.raises(ValueError, match="must have reads='stream'"):
        window(reads="stream").load_reach(window())


def test_layers_with_one_budget() -> None:
    """A layer whose tokens ask for more gets more, and the mean over layers is the budget."""
    layers = [window(pooled=True, biased=True, mean_reach=4, max_reach=50) for _ in range(2)]
    with torch.no_grad():
        for layer, asks in zip(layers, (0.0, math.log(3.0)), strict=True):
            layer.U_d.zero_()
            layer.b_d.fill_(asks)  # type: ignore[union-attr]
    pool_budgets(layers)
    given = inputs()
    for _ in range(120):
        for layer in layers:
            layer(*given)
    means = [float(layer.eval().reaches(given[0]).detach().mean()) for layer in layers]
    # Each call moves the factor by a twentieth towards its own layer's.
    assert means == pytest.approx([2.0, 6.0], rel=0.02)
    again = deepcopy(nn.ModuleList(layers))
    assert again[1]._pool[0] is again[0] and layers[1]._pool[0] is layers[0]
    apart = [window(pooled=True), window()]
    pool_budgets(apart)
    assert apart[1]._pool[0] is apart[1]


def test_the_stream_has_to_be_given() -> None:
    with pytest.raises(ValueError, match=r"needs the layer's input.*Setting\(x"):
        window(reads="stream")(*inputs())


@pytest.mark.parametrize("shared", [None, "tokens"])
def test_a_stream_of_another_width(shared: Any) -> None:
    """As where heads · head_dim is not the width of the layer."""
    made, (q, k, v) = window(reads="stream", stream_dim=20, shared=shared), inputs()
    setting = Setting(x=torch.randn(2, 30, 20))
    expected = naive(made, q, k, v, setting)
    torch.testing.assert_close(made(q, k, v, setting), expected, atol=2e-6, rtol=1e-5)
    assert made.settings["stream_dim"] == 20 and "stream_dim=20" in repr(made)
    assert window(reads="stream").settings["stream_dim"] is None
    again = LearnedWindow(**made.settings)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(q, k, v, setting), made(q, k, v, setting))


@pytest.mark.parametrize("shared", [None, "tokens"])
def test_a_stream_of_the_wrong_width(shared: Any) -> None:
    told = "x must have 12 channels.* got 20: make it with stream_dim=20"
    with pytest.raises(ValueError, match=told):
        window(reads="stream", shared=shared)(*inputs(), Setting(x=torch.randn(2, 30, 20)))


@pytest.mark.parametrize("options", [{"causal": True}, {"pooled": True, "sided": True}])
def test_explaining_a_call_changes_nothing_in_training(options: dict[str, Any]) -> None:
    """Not even those that are made again for their gradient, nor does asking for reaches."""
    found = []
    for explained in (False, True):
        made, given, gradients = window(**options), inputs(), []
        for _ in range(3):
            x = [own.clone().requires_grad_() for own in given]
            y = checkpoint(made, *x, use_reentrant=False)
            if explained:
                made.explain(*(own[:, :, :9] for own in given))
                made.reaches(given[0][:, :, :9])
            y.square().sum().backward()
            gradients += [own.grad for own in x]
        found.append([*gradients, made.factor, made.W_p.grad, made.U_d.grad])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("shared", [None, "tokens", "heads"])
@pytest.mark.parametrize("reads", ["query", "stream"])
def test_gradients_reach_everything(reads: Any, shared: Any) -> None:
    made = window(shared=shared, reads=reads, biased=shared != "heads").double()
    q, k, v = (x.requires_grad_() for x in inputs(1, 9, torch.float64))
    x = torch.randn(1, 9, EMBED, dtype=torch.float64, requires_grad=True)
    made(q, k, v, Setting(x=x)).square().sum().backward()
    assert (x.grad is not None and shared != "tokens") == (reads == "stream" and shared != "tokens")
    for leaf in (q, k, v, *made.network.values()):
        assert leaf.grad is not None
        assert leaf.grad.abs().sum() > 0


def test_starts_uniform() -> None:
    made = LearnedWindow(EMBED, HEADS, mean_reach=5, max_reach=12)
    made(*inputs())
    assert made.last_reach is not None
    torch.testing.assert_close(made.last_reach, torch.full((2, HEADS, 30), 5.0))


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
def test_budgets_are_exact_for_every_sample(budget: Any) -> None:
    made = window(budget=budget)
    real = torch.ones(2, 30, dtype=torch.bool)
    real[0, 25:] = False
    made(*inputs(), Setting(key_padding=real))
    assert made.last_reach is not None
    reach = made.last_reach.double()
    for b, n in enumerate((25, 30)):
        own = reach[b, :, :n]
        if budget == "reach":
            assert float(own.mean()) == pytest.approx(5, rel=1e-6)
        elif budget == "variance":
            mean = float(variance_of(own, 0.5).mean())
            assert mean == pytest.approx(variance_of(5.0, 0.5), rel=1e-6)
        else:
            i = torch.arange(n)
            fixed = (i.clamp(max=5) + (n - 1 - i).clamp(max=5) + 1).sum() * HEADS
            left, right = torch.minimum(own, i), torch.minimum(own, n - 1 - i)
            assert float((left + right + 1).sum()) == pytest.approx(float(fixed), rel=1e-6)
            whole = made.whole_reach()[b, :, :n]
            pairs = torch.minimum(whole, i) + torch.minimum(whole, n - 1 - i) + 1
            assert int(fixed) - 2 * HEADS * n <= int(pairs.sum()) <= int(fixed)


def test_free_window_starts_where_it_is_told() -> None:
    made = LearnedWindow(EMBED, HEADS, max_reach=12, budget=None, initial_variance=3.0)
    made(*inputs())
    assert made.last_reach is not None
    torch.testing.assert_close(
        variance_of(made.last_reach, 0.5), torch.full((2, HEADS, 30), 3.0), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs", None])
def test_no_reach_is_so_short_that_it_has_no_gradient(budget: Any) -> None:
    start = 3.0 if budget is None else None
    made = LearnedWindow(
        EMBED, HEADS, mean_reach=5, max_reach=12, soft=True, budget=budget, initial_variance=start
    )
    with torch.no_grad():
        made.W_p.normal_(std=100.0)
        made.U_d.normal_(std=1000.0)
    q, k, v = (x.requires_grad_() for x in inputs())
    real = (torch.arange(30) < 20).expand(2, 30)
    y = made(q, k, v, Setting(key_padding=real))
    assert made.last_reach is not None
    assert float(made.last_reach.min()) == pytest.approx(1e-6)
    found = torch.autograd.grad(y, [q, k, v, *made.parameters()], torch.randn_like(y))
    assert y.isfinite().all() and all(x.isfinite().all() for x in found)


def test_global_rows_take_no_part_in_the_budget() -> None:
    made = window()
    whole = torch.zeros(2, 30, dtype=torch.bool)
    whole[:, :4] = True
    made(*inputs(), Setting(global_tokens=whole))
    assert made.last_reach is not None
    assert float(made.last_reach[:, :, 4:].mean()) == pytest.approx(5, rel=1e-6)


@pytest.mark.parametrize("budget", ["reach", "pairs"])
def test_a_budget_may_change_between_steps(budget: Any) -> None:
    made, other = window(budget=budget, mean_reach=9), window(budget=budget, mean_reach=3)
    other.load_state_dict(made.state_dict())
    made.mean_reach = 3.0
    made(*inputs())
    other(*inputs())
    assert made.last_reach is not None and other.last_reach is not None
    assert torch.equal(made.last_reach, other.last_reach)
    assert made.settings == other.settings


def test_samples_do_not_know_one_another() -> None:
    made, (q, k, v) = window(), inputs(3)
    together = made(q, k, v)
    for b in range(3):
        alone = made(q[b : b + 1], k[b : b + 1], v[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-6, rtol=1e-6)


def test_padding_changes_nothing() -> None:
    made, (q, k, v) = window(), inputs()
    longer = [torch.cat([x, torch.full_like(x[:, :, :7], 9.0)], 2) for x in (q, k, v)]
    real = torch.ones(2, 37, dtype=torch.bool)
    real[:, 30:] = False
    found = made(*longer, Setting(key_padding=real))[:, :, :30]
    torch.testing.assert_close(found, made(q, k, v), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_causal_never_looks_ahead(training: bool) -> None:
    made, (q, k, v) = window(causal=True).train(training), inputs()
    factor = made.factor.clone()
    before = made(q, k, v)[:, :, :20]
    made.factor.copy_(factor)
    for x in (q, k, v):
        x[:, :, 20:].normal_()
    assert torch.equal(made(q, k, v)[:, :, :20], before)


def test_causal_factor_follows_training_and_stands_in_evaluation() -> None:
    made, (q, k, v) = window(causal=True), inputs()
    for _ in range(200):
        made(q, k, v)
    assert made.last_reach is not None
    assert float(made.last_reach.mean()) == pytest.approx(5, rel=0.02)
    factor = made.eval().factor.clone()
    made(q, k, v)
    assert torch.equal(made.factor, factor)


@pytest.mark.parametrize("budget", ["reach", "variance"])
def test_causal_budget_is_met_over_samples_that_differ(budget: Any) -> None:
    made = window(causal=True, budget=budget, max_reach=1000)
    q, k, v = inputs(4)
    q = q * torch.tensor([0.1, 1.0, 2.0, 4.0])[:, None, None, None]
    own = ReachBudget(budget, 5.0, 1000, 1.0, causal=True, sided=False)
    factors = own.factors(made.shares(q), Setting())
    # Of the samples' own, the largest is several times as large as the smallest.
    assert factors.max() > 2 * factors.min()
    for _ in range(300):
        made(q, k, v)
    assert made.last_reach is not None
    power = 2 if budget == "variance" else 1
    mean = float(made.last_reach.double().pow(power).mean()) ** (1 / power)
    assert mean == pytest.approx(5, rel=1e-3)


@pytest.mark.filterwarnings("ignore:.*lru_cache.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_causal_factor_follows_in_a_compiled_program() -> None:
    torch._dynamo.reset()
    made, (q, k, v) = window(causal=True), inputs()
    wanted = deepcopy(made)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    start = made.factor.clone()
    for _ in range(2):
        compiled(q, k, v)
        wanted(q, k, v)
    torch.testing.assert_close(made.factor, wanted.factor)
    assert not torch.equal(made.factor, start)


def test_load_reach_is_bit_equal_and_frozen() -> None:
    source = window()
    made = LearnedWindow(EMBED, HEADS, mean_reach=9, max_reach=20, threshold=0.6)
    made.load_reach(source)
    for name in ("W_p", "U_d"):
        own = getattr(made, name)
        assert torch.equal(own, getattr(source, name))
        assert not own.requires_grad
    made(*inputs())
    assert made.last_reach is not None
    assert float(made.last_reach.mean()) == pytest.approx(9, rel=1e-6)


def test_load_reach_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="the heads differ"):
        window().load_reach(LearnedWindow(EMBED, 2))
    with pytest.raises(ValueError, match="has no W_p"):
        window().load_reach({"U_d": torch.zeros(HEADS, DIM)})


def test_cuts_where_it_says() -> None:
    made, (q, k, v) = window(), inputs(1)
    made(q, k, v)
    whole = made.whole_reach()
    assert made.last_reach is not None
    assert torch.equal(whole, (made.last_reach + 1e-3).floor().int())
    assert reach_of(variance_of(5.0, 0.5), 0.5) == 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mean_reach": 13}, "at most max_reach"),
        ({"budget": "flops"}, "budget must be"),
        ({"shared": "layers"}, "shared must be"),
        ({"pooled": True, "budget": None, "initial_variance": 1.0}, "pooled is of a budget"),
        ({"reads": "keys"}, "reads must be 'query' or 'stream', got str 'keys'"),
        ({"spread": 2.0}, "give biased=True"),
        ({"spread": 0.0, "biased": True}, "spread must be above 0"),
        ({"shared": "heads", "biased": True}, "leave out biased"),
        ({"sided": True, "causal": True}, "a causal window has one side"),
        ({"sided": True, "shared": "heads"}, "leave out sided, or shared"),
        ({"sided": True, "normalized": True}, "leave out normalized"),
        ({"form": "both"}, "form must be one of bias, score, weight"),
        ({"budget": None}, "initial_variance"),
        ({"initial_variance": 1.0}, "initial_variance"),
        ({"num_heads": 5}, "multiple of num_heads"),
        ({"threshold": 1.5}, "LearnedWindow: threshold must be between 0 and 1, got 1.5"),
        ({"threshold": 0.0}, "LearnedWindow: threshold must be between 0 and 1, got 0.0"),
        ({"stream_dim": 20}, "stream_dim is the width of what reads='stream' reads"),
        ({"stream_dim": 0, "reads": "stream"}, "stream_dim must be at least 1"),
    ],
)
def test_errors(options: dict[str, Any], told: str) -> None:
    arguments = {"embed_dim": EMBED, "num_heads": HEADS, "mean_reach": 5, "max_reach": 12}
    with pytest.raises(ValueError, match=told):
        LearnedWindow(**{**arguments, **options})


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
@pytest.mark.parametrize("nothing", ["one token", "all global", "all padded"])
def test_nothing_to_share_out(budget: Any, nothing: str) -> None:
    """Beside a sample that has something; the first is what its values say, and its gradient is
    there.
    """
    made, (q, k, v) = window(budget=budget), inputs()
    q.requires_grad_()
    marked = torch.zeros(2, q.shape[2], dtype=torch.bool)
    marked[0] = True
    if nothing == "all global":
        setting = Setting(global_tokens=marked)
    else:
        real = ~marked
        real[0, 0] = nothing == "one token"
        setting = Setting(key_padding=real)
    y = made(q, k, v, setting)
    y.sum().backward()
    assert bool(y.isfinite().all()) and q.grad is not None and bool(q.grad.isfinite().all())
    if nothing == "one token":
        torch.testing.assert_close(y[0, :, 0], v[0, :, 0])
    torch.testing.assert_close(y[1:], made(q[1:], k[1:], v[1:]))


@pytest.mark.parametrize("n", [9, 1024, 1025, 2048])
def test_products_in_pieces_are_the_same(n: int) -> None:
    from longspan.nn.reach_network import PIECE, _products_in_pieces

    source = torch.Generator().manual_seed(0)
    x = torch.randn(2, n, 3, 4, generator=source, dtype=torch.float64).transpose(1, 2)
    matrices = torch.randn(3, 4, 4, generator=source, dtype=torch.float64)
    grad = torch.randn(2, 3, n, 4, generator=source, dtype=torch.float64)

    def all_of(products: Any, dtype: torch.dtype) -> list[Tensor]:
        leaves = [own.to(dtype).requires_grad_() for own in (x, matrices)]
        y = products(*leaves)
        return [y, *torch.autograd.grad(y, leaves, grad.to(dtype))]

    want = all_of(lambda x, w: torch.einsum("bhnd,hde->bhne", x, w), torch.float64)
    have = all_of(lambda x, w: _products_in_pieces(x, w, -(-n // PIECE)), torch.float32)
    for own, right in zip(have, want, strict=True):
        assert (own.double() - right).abs().max() < 1e-5 * right.abs().max()


def test_texts_too_short_for_their_budget_do_not_move_the_factor() -> None:
    made = window(causal=True, budget="pairs", mean_reach=12, max_reach=20)
    start = made.factor.clone()
    made(*inputs(n=10))
    assert torch.equal(made.factor, start)
    made(*inputs(n=30))
    assert not torch.equal(made.factor, start)


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
def test_samples_without_tokens_do_not_move_the_factor(budget: Any) -> None:
    # Beside three that are as it is, or empty: products of matrices of one size have one rounding.
    factors = []
    for empty in (False, True):
        made, given = window(causal=True, budget=budget), inputs(1)
        real = torch.ones(4, 30, dtype=torch.bool)
        real[1:] = not empty
        for _ in range(5):
            made(*(x.repeat(4, 1, 1, 1) for x in given), Setting(key_padding=real))
        factors.append(float(made.factor))
    assert factors[0] == pytest.approx(factors[1], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_factor_stays_exact_in_half_precision(dtype: torch.dtype) -> None:
    made = window(causal=True).to(dtype)
    assert made.W_p.dtype == dtype and made.factor.dtype == torch.float64
    before = made.factor.clone()
    made(*(x.to(dtype) for x in inputs()))
    assert not torch.equal(made.factor, before)


def test_pooled_windows_are_saved_with_the_one_factor() -> None:
    layers = nn.ModuleList([window(pooled=True) for _ in range(3)])
    pool_budgets(layers)  # type: ignore[arg-type]
    for layer in layers:
        layer(*inputs())
    state = layers.state_dict()
    assert len({float(state[f"{n}.factor"]) for n in range(3)}) == 1
    again = nn.ModuleList([window(pooled=True) for _ in range(3)])
    pool_budgets(again)  # type: ignore[arg-type]
    again.load_state_dict(state)
    assert torch.equal(again[0].factor, layers[0].factor)  # type: ignore[arg-type]
    # One that is taken out, and copied, takes the estimate with it.
    alone = window(pooled=True)
    alone.load_state_dict(deepcopy(layers[2]).state_dict())
    assert torch.equal(alone.factor, layers[0].factor)  # type: ignore[arg-type]


def test_a_network_that_does_not_fit_is_not_taken() -> None:
    with pytest.raises(ValueError, match="would drop its b_d"):
        window().load_reach(window(biased=True))
    with pytest.raises(ValueError, match="must have sided=False"):
        window().load_reach(window(sided=True))


def test_rotary_positions_do_not_change_the_reach() -> None:
    made, (q, k, v) = window(), inputs()
    made(q, k, v)
    wanted = made.last_reach
    made(q.flip(-1), k, v, Setting(unturned=q))
    assert wanted is not None and torch.equal(made.last_reach, wanted)  # type: ignore[arg-type]
