"""The learned window: every token and head decides how far to look."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import describe, need_bool
from ..functional.observed import transformed
from ..functional.window import LONGEST, SHORTEST
from ..patterns import Causal, Full, Pattern, Window
from ..weights import Bell, reach_of, variance_of
from ..weights.bell import FORMS
from .global_rows import GlobalRows
from .learned_options import check_budget, check_network, check_reach, check_sides
from .mechanism import NO_SETTING, Asked, Mechanism, Setting
from .reach_budget import ReachBudget
from .reach_network import shares_of_queries, shares_of_stream
from .running import Standing, recomputing

__all__ = ["LearnedWindow", "pool_budgets"]


class LearnedWindow(GlobalRows):
    """A bell curve around every token, whose width a small network reads from the query.

        z = U_dᵀ tanh(W_p q),   r = exp(z),   reach = min(c·r, max_reach)
        variance = (c·r)² / (−2 ln threshold)

    for every token and head, with a W_p and a U_d for each head. The network gives *shares* r of a
    budget. c is one number for a sample and layer: the one that meets the budget exactly, over all
    heads and real queries. So what was learned with one budget serves with any other. All reaches
    start equal, because U_d starts at 0. A `biased` network also has a number for each head,
    z = U_dᵀ tanh(W_p q) + b_d. Without a budget (`budget=None`) shares are those of the variance:
    it is `initial_variance`·r, and the reach grows with √r.

    The bell weighs the scores (`longspan.weights.Bell`). Pairs beyond the reach do not exist,
    unless the window is `soft`. Global tokens are exempt from both, and their own rows do not count
    in the budget. With `global_projections` these have projections of their own, as in Longformer
    (`SlidingWindow` has the formula).

    A causal window may not look ahead, but the budget of a sequence depends on all of it. There c
    is a buffer: a running estimate, which is updated after each batch in training and stands still
    in evaluation. The budget is then met on average. Several processes (torch.distributed) share
    one estimate, and have to train together.

    Calls whose backward pass is still to come share one c, and the first call after them takes the
    new estimate. So gradient checkpointing computes calls again with the c they had. This needs
    `use_reentrant=False` (otherwise each call has to be followed by its backward pass before the
    next), and nothing may be compiled: a compiled program does not know that it is computed again.

    Differs from the two unpublished reports of 2022 that it grows from: they fixed the mean
    variance and capped it afterwards, so that the real mean reach fell short (108 of 128).
    `budget="variance"` meets theirs with the cap counted in.

    Args:
        embed_dim: channels of the layer.
        num_heads: heads that they are split into.
        mean_reach: tokens to each side, on average.
        max_reach: at most.
        threshold: where the bell is cut, between 0 and 1.
        budget: `"reach"` fixes the mean of the real-valued reach; `"variance"` that of the
            variance; `"pairs"` the number of pairs, as many as a fixed window of `mean_reach` has
            with these real tokens and these ends (from below: reaches are cut to whole tokens);
            None nothing.
        initial_variance: where a free window (`budget=None`) starts.
        causal: no token looks ahead.
        soft: pairs are weighed but none is cut, up to `max_reach`: the first of two stages.
        shared: `"heads"`: a token has one reach for all heads, from the mean of their z.
            `"tokens"`: a head has one for all tokens, its network's answer to ones in place of a
            query. None: each token and head has its own.
        pooled: the layers of a model have one budget together (`pool_budgets`): one may look far
            where others do not. Their c is one estimate that follows the batches, as a causal
            window's.
        reads: what the network reads: `"query"`, each head its own, or `"stream"`, the input of the
            layer.
        stream_dim: channels of that input; None is `embed_dim`. They differ in layers whose heads
            together are wider or narrower than their input.
        biased: z has a learned number for each head, whatever its tokens ask for.
        spread: at the start the last head reaches `spread` times as far as the first, and heads
            between are spaced geometrically; of a biased network.
        sided: a token may look farther to one side than to the other: each head has a network for
            its left and one for its right, with one budget for both.
        form: how the bell weighs pairs, and
        normalized: whether it is divided by √(2π·variance): see `longspan.weights.Bell`.
        global_projections: rows of global tokens have projections of their own. They need the
            layer's input, and start as copies of its projections. Not of a causal window.
        most_global: no sample has more global tokens than this, padded ones not counted. A mask
            does not say how many it marks: a GPU, which is not waited for, looks for as many as
            there are tokens unless it is told. More of them raise on a CPU, and give NaN in their
            rows elsewhere.

    Attributes:
        last_reach: the real-valued reach `(B, H, N)` of the last call, or of the one that was last
            explained, without gradient; of a sided window the mean of both sides, which are
            `last_sides`, `(B, 2, H, N)`.

    Reference:
        Grown from Yang et al. 2018, "Modeling Localness for Self-Attention Networks" (EMNLP), whose
        predicted centre is fixed here at the token itself.
    """

    # What a reach network may consist of.
    NETWORK = ("W_p", "U_d", "b_d")

    factor: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        mean_reach: float = 128,
        max_reach: int = 256,
        threshold: float = 0.5,
        budget: Literal["reach", "variance", "pairs"] | None = "reach",
        initial_variance: float | None = None,
        causal: bool = False,
        soft: bool = False,
        shared: Literal["tokens", "heads"] | None = None,
        pooled: bool = False,
        reads: Literal["query", "stream"] = "query",
        stream_dim: int | None = None,
        biased: bool = False,
        spread: float = 1.0,
        sided: bool = False,
        form: Literal["bias", "score", "weight"] = "bias",
        normalized: bool = False,
        global_projections: bool = False,
        most_global: int | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, global_projections=global_projections, most_global=most_global
        )
        check_budget(budget, mean_reach, max_reach, threshold, initial_variance, pooled)
        check_network(reads, stream_dim, biased, spread, shared)
        check_sides(sided, causal, shared, normalized)
        need_bool("LearnedWindow: causal", causal)
        need_bool("LearnedWindow: soft", soft)
        need_bool("LearnedWindow: normalized", normalized)
        if causal and global_projections:
            raise ValueError(
                "LearnedWindow: rows with global_projections see all tokens, and a causal window "
                "may not look ahead: leave one of the two out"
            )
        if form not in FORMS:
            raise ValueError(
                f"LearnedWindow: form must be one of {', '.join(FORMS)}, got {describe(form)}"
            )
        self.mean_reach, self.max_reach = float(mean_reach), max_reach
        self.threshold, self.budget, self.soft = threshold, budget, soft
        self.is_causal, self.initial_variance = causal, initial_variance
        self.shared, self.pooled = shared, pooled
        self.reads, self.stream_dim = reads, stream_dim
        self.biased, self.spread = biased, float(spread)
        self.form, self.normalized, self.sided = form, normalized, sided
        start = self.start_reach
        seen = self.head_dim
        if reads == "stream":
            seen = embed_dim if stream_dim is None else stream_dim
        # Of a sided window, those of all heads for the left, and then for the right.
        networks = num_heads * (2 if sided else 1)
        self.W_p = nn.Parameter(torch.empty(networks, seen, self.head_dim))
        self.U_d = nn.Parameter(torch.zeros(networks, self.head_dim))
        self.b_d = nn.Parameter(self._first_bias()) if biased else None
        for own in self.W_p:
            nn.init.xavier_uniform_(own)
        # What shares are multiplied by where a sequence must not be looked at as a whole.
        # With a dim: compiled programs forget what they write into a float64 without one.
        self.register_buffer("factor", torch.tensor([start], dtype=torch.float64))
        # Whose factor it is: a list, or it would be a part of this one.
        self._pool = [self]
        self._standing = Standing()
        self._last_factor: Tensor | None = None
        self._last_shares: Tensor | None = None
        self.last_reach: Tensor | None = None
        self.last_sides: Tensor | None = None

    def _apply(self, fn: Any, recurse: bool = True) -> LearnedWindow:
        """In half precision the factor would stand still: what a step adds would be rounded off."""
        before = self.factor
        super()._apply(fn, recurse)
        if self.factor.dtype != before.dtype:
            self.factor = before.to(self.factor.device)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.factor.copy_(self._pool[0].factor)
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *others)
        if f"{prefix}factor" in state_dict:
            self.factor = self.factor.double()
            self._pool[0].factor.copy_(self.factor)
            self._standing = Standing()

    @property
    def causal(self) -> bool:
        return self.is_causal

    @property
    def start_reach(self) -> float:
        """How far a token looks whose share is 1, before anything is learned."""
        if self.initial_variance is None:
            return self.mean_reach
        return float(variance_of(1.0, self.threshold) ** -0.5 * self.initial_variance**0.5)

    @property
    def follows(self) -> bool:
        """Whether c is an estimate that follows the batches of training."""
        return (self.is_causal or self.pooled) and self.budget is not None

    @property
    def _budget(self) -> ReachBudget | None:
        """Made when it is asked for: `mean_reach` and `max_reach` may be changed in training."""
        if self.budget is None:
            return None
        check_reach(self.mean_reach, self.max_reach)
        return ReachBudget(
            self.budget, self.mean_reach, self.max_reach, self.start_reach, self.is_causal,
            self.sided,
        )  # fmt: skip

    @property
    def remembers(self) -> int:
        return self.max_reach + 1

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "embed_dim": self.num_heads * self.head_dim,
            "num_heads": self.num_heads,
            "mean_reach": self.mean_reach,
            "max_reach": self.max_reach,
            "threshold": self.threshold,
            "budget": self.budget,
            "initial_variance": self.initial_variance,
            "causal": self.is_causal,
            "soft": self.soft,
            "shared": self.shared,
            "pooled": self.pooled,
            "reads": self.reads,
            "stream_dim": self.stream_dim,
            "biased": self.biased,
            "spread": self.spread,
            "sided": self.sided,
            "form": self.form,
            "normalized": self.normalized,
            "global_projections": self.global_projections,
            "most_global": self.most_global,
        }

    @property
    def network(self) -> dict[str, nn.Parameter]:
        """What the reach is learned by, by name."""
        found = {name: getattr(self, name) for name in self.NETWORK}
        return {name: own for name, own in found.items() if own is not None}

    def _first_bias(self) -> Tensor:
        """Heads that look farther and farther, 1 on average."""
        steps = torch.linspace(0, 1, self.num_heads, dtype=torch.float64)
        reach = self.spread**steps
        # A free window's reach is the root of its share.
        power = 2 if self.budget is None else 1
        found = (power * (reach / reach.mean()).log()).float()
        return found.repeat(2) if self.sided else found

    def shares(self, q: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        """r = exp(U_dᵀ tanh(W_p q) + b_d), float32 `(B, H, N)`; of a sided window `(B, 2·H, N)`."""
        if q.shape[1] != self.num_heads:
            raise ValueError(
                f"LearnedWindow: q must have {self.num_heads} heads, got {describe(q)}"
            )
        if self.reads == "query":
            # Turned by its position, a query would ask for another reach in another place.
            seen = q if setting.unturned is None else setting.unturned
            seen = torch.cat((seen, seen), 1) if self.sided else seen
            found = shares_of_queries(seen, self.W_p, self.U_d, self.shared)
        else:
            found = shares_of_stream(self._stream(setting), self.W_p, self.U_d, self.shared)
        return found if self.b_d is None else found * self.b_d.float().exp()[:, None]

    def _stream(self, setting: Setting) -> Tensor:
        """The layer's input, checked."""
        x, width = setting.x, self.W_p.shape[1]
        if x is None:
            raise ValueError(
                "LearnedWindow: reads='stream' needs the layer's input: call it with "
                "Setting(x=…), as MultiheadAttention does"
            )
        if x.shape[-1] != width:
            raise ValueError(
                f"LearnedWindow: x must have {width} channels, which reads='stream' reads, got "
                f"{x.shape[-1]}: make it with stream_dim={x.shape[-1]}"
            )
        return x

    def reaches(self, q: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        """The real-valued reach c·r of every token and head, at least 10⁻⁶, before the cap, as
        `shares`.
        """
        shares = self.shares(q, setting)
        budget = self._met_by_kernels(shares)
        if budget is None:
            return self._multiplied(shares, setting)
        return budget.multiplied(shares, setting).widths

    def _widths(self, q: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        """The variance of every token's bell, and its reach, capped and without gradient."""
        shares = self.shares(q, setting)
        if self.follows and not transformed():
            self._last_shares = shares.detach()
        budget = self._met_by_kernels(shares)
        if budget is None:
            reach = self._multiplied(shares, setting)
            return variance_of(reach, self.threshold), reach.detach().clamp(max=self.max_reach)
        found = budget.multiplied(shares, setting, width=-2 * math.log(self.threshold))
        return found.widths, found.reach

    def _met_by_kernels(self, shares: Tensor) -> ReachBudget | None:
        """The budget, if a GPU finds its factors, and multiplies."""
        budget = self._budget
        takes = budget is not None and not self.follows and budget.by_kernels(shares)
        return budget if takes else None

    def _multiplied(self, shares: Tensor, setting: Setting) -> Tensor:
        budget = self._budget
        if budget is None:
            found = self.start_reach * shares.sqrt()
        elif self.follows:
            # Kept, it is one of the things that a compiled program gives. Otherwise the program's
            # backward pass would read it anew from the estimate, which has moved on by then.
            self._last_factor = self._standing_factor()
            found = self._last_factor * shares.double()
        else:
            factors = budget.factors(shares, setting)
            found = factors[:, None, None] * shares.double()
        return found.clamp(max=LONGEST).float().clamp(min=SHORTEST)

    def _standing_factor(self) -> Tensor:
        """The factor of a call that is made now."""
        estimate = self._pool[0].factor
        if self.training or recomputing():
            return self._standing.now(estimate)
        return estimate.clone()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        y = super().forward(q, k, v, setting)
        if self.follows and not recomputing():
            assert self._last_factor is not None
            self._standing.used(self._last_factor, y if self.training else None)
            if self.training:
                self._follow(setting)
        return y

    def _follow(self, setting: Setting) -> None:
        """Moves the running factor towards that of the last call, for those after it."""
        budget, factor = self._budget, self._pool[0].factor
        assert budget is not None and self._last_shares is not None
        factor.copy_(budget.followed(factor, self._last_shares, setting))

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        variance, reach = self._widths(q, setting)
        pattern: Pattern = Causal() if self.is_causal else Full()
        exempt = self._global(setting)
        # An exported program has no module to leave it with, and a transform's tensors are nobody's
        # afterwards.
        if not (torch.compiler.is_exporting() or transformed()):
            self._note(reach)
        if not self.sided:
            return Asked(pattern, (self._bell(variance, exempt),))
        left, right = variance.chunk(2, 1)
        return Asked(
            pattern,
            (
                self._bell(left, _either(exempt, Window(0, self.max_reach))),
                self._bell(right, _either(exempt, Window(self.max_reach, 0))),
            ),
        )

    def _note(self, reach: Tensor) -> None:
        """Keeps the reaches of a call, to be looked at."""
        self.last_reach = reach
        if self.sided:
            self.last_sides = reach.unflatten(1, (2, self.num_heads))
            self.last_reach = self.last_sides.mean(1)

    def _bell(self, variance: Tensor, exempt: Pattern | None) -> Bell:
        return Bell(
            variance,
            threshold=None if self.soft else self.threshold,
            max_reach=self.max_reach,
            exempt=exempt,
            form=self.form,
            normalized=self.normalized,
        )

    def load_reach(self, source: LearnedWindow | dict[str, Tensor]) -> None:
        """Takes the network of another window, bit by bit, and freezes it: the second stage.

        Budget, threshold and length may differ; heads, what they read and what they share may not.
        The network's shares are of variances where there is no budget, and of reaches under one:
        from one to the other a reach twice as far is four times as far, or the other way round.
        """
        own = source.state_dict() if isinstance(source, LearnedWindow) else source
        if "b_d" in own and self.b_d is None:
            raise ValueError(
                "load_reach: the source is biased, and this window would drop its b_d: make it "
                "with biased=True"
            )
        if isinstance(source, LearnedWindow):
            self.need_alike("load_reach: the source", source.settings)
        for name, mine in self.network.items():
            if name not in own:
                raise ValueError(f"load_reach: the source has no {name}, only {sorted(own)}")
            if own[name].shape != mine.shape:
                raise ValueError(
                    f"load_reach: {name} must be of shape {tuple(mine.shape)}, got "
                    f"{tuple(own[name].shape)}: the heads differ, or what they read"
                )
            with torch.no_grad():
                mine.copy_(own[name])
            mine.requires_grad_(False)

    def need_alike(self, whose: str, settings: dict[str, Any]) -> None:
        """Raises unless the network of a window with these settings means here what it does
        there.
        """
        for name in ("reads", "sided", "shared"):
            mine = getattr(self, name)
            if settings.get(name, mine) != mine:
                raise ValueError(
                    f"{whose} must have {name}={mine!r} as this window has, got {settings[name]!r}"
                )

    def whole_reach(self) -> Tensor:
        """The reach of the last call in whole tokens, as the pairs were cut, int32 `(B, H, N)`; of
        a sided window the mean of both sides, float32.
        """
        if self.last_reach is None:
            raise RuntimeError("LearnedWindow: there has been no call yet")
        reach = self.last_reach if self.last_sides is None else self.last_sides
        found = reach_of(variance_of(reach, self.threshold), self.threshold)
        return found if self.last_sides is None else found.float().mean(1)

    def extra_repr(self) -> str:
        return (
            f"heads={self.num_heads}, mean_reach={self.mean_reach:g}, max_reach={self.max_reach}, "
            f"threshold={self.threshold}, budget={self.budget!r}, causal={self.is_causal}, "
            f"soft={self.soft}"
            + ("" if self.shared is None else f", shared={self.shared!r}")
            + (", pooled=True" if self.pooled else "")
            + ("" if self.reads == "query" else f", reads={self.reads!r}")
            + ("" if self.stream_dim is None else f", stream_dim={self.stream_dim}")
            + (f", biased=True, spread={self.spread:g}" if self.biased else "")
            + (", sided=True" if self.sided else "")
            + (", global_projections=True" if self.global_projections else "")
        )


def pool_budgets(mechanisms: Iterable[Mechanism]) -> None:
    """Gives the pooled windows among a model's mechanisms one budget. `models` do it by themselves.

    Each moves the one factor towards its own, in turn, so that it becomes that of their mean.
    """
    windows = [own for own in mechanisms if isinstance(own, LearnedWindow) and own.pooled]
    if windows:
        # It may have followed batches with a window that is no longer among them.
        windows[0].factor.copy_(windows[0]._pool[0].factor)
    for window in windows:
        window._pool = windows[:1]


def _either(a: Pattern | None, b: Pattern) -> Pattern:
    return b if a is None else a | b
