"""What a pattern or mechanism does to a pretrained model: to its outputs, speed and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import need_int
from ..memory import peak_growth
from ..nn.modes import evaluating
from ..patterns.drawing import INK, check_suffix, new_figure, save_figure, svg_of
from . import mpnet, t5
from .attention import mechanism_of
from .global_tokens import give_input, is_watched, unwatch
from .inputs import inputs_of
from .layers import BEFORE, Choice, attention_layers, turn, use
from .names import PLACE

__all__ = ["Check", "Cost", "LogitDrift", "check"]

# Tokens whose logits are compared at once: a vocabulary of all of them is large.
AT_ONCE = 512

GREY = "#8a94a0"


class Cost(NamedTuple):
    """What a forward pass takes.

    Attributes:
        tokens_per_second: real tokens, over all texts.
        peak: bytes beyond the model and its inputs, in the largest batch; None where that cannot be
            told.
    """

    tokens_per_second: float
    peak: int | None


class LogitDrift(NamedTuple):
    """How far the answers of a model's head moved.

    Attributes:
        error: ‖after − before‖ / ‖before‖ of all logits.
        divergence: mean of KL(before ‖ after), in nats.
        agreement: share of answers whose largest logit is the same.
    """

    error: float
    divergence: float
    agreement: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Check:
    """A model before and after a change of its attention.

    Attributes:
        cosine: of the last hidden state of each real token before and after, float64 `(tokens,)`.
        position: of these tokens in their texts, int64 `(tokens,)`.
        error: ‖after − before‖ / ‖before‖ of all these states.
        logits: None for a model without a head.
        before: what it took.
        after: what it takes.
    """

    cosine: Tensor
    position: Tensor
    error: float
    logits: LogitDrift | None
    before: Cost
    after: Cost

    @property
    def faster(self) -> float:
        """How many times faster it is."""
        return self.after.tokens_per_second / self.before.tokens_per_second

    def __str__(self) -> str:
        rows = [
            (
                "tokens a second",
                f"{self.before.tokens_per_second:,.0f}",
                f"{self.after.tokens_per_second:,.0f}",
                f"× {self.faster:.2f}",
            )
        ]
        if self.before.peak is not None and self.after.peak is not None:
            was, now = (f"{peak / 2**20:,.0f} MiB" for peak in (self.before.peak, self.after.peak))
            share = self.after.peak / self.before.peak if self.before.peak else float("nan")
            rows.append(("peak memory", was, now, f"× {share:.2f}"))
        lines = [f"{self.cosine.numel():,} tokens".ljust(18) + f"{'before':>12}{'after':>12}"]
        lines += [f"{what:<18}{was:>12}{now:>12}{ratio:>10}" for what, was, now, ratio in rows]
        low, middle = (float(self.cosine.quantile(share)) for share in (0.05, 0.5))
        lines.append(
            f"last hidden states: relative error {self.error:.4f}, cosine {middle:.4f} in the "
            f"middle, above {low:.4f} for 95 %"
        )
        if self.logits is not None:
            lines.append(
                f"logits: relative error {self.logits.error:.4f}, KL {self.logits.divergence:.4f} "
                f"nats, the same answer for {self.logits.agreement:.1%}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Check(tokens={self.cosine.numel()}, error={self.error:.4g}, "
            f"faster={self.faster:.3g}, logits={self.logits})"
        )

    def save_picture(self, path: str | Path) -> None:
        """Draws how alike the hidden states are along the text, and speed and memory beside it."""
        check_suffix(path)
        save_figure(self._figure(), path)

    def _repr_svg_(self) -> str | None:
        return svg_of(self._figure)

    def _figure(self) -> Any:
        peaks = [cost.peak for cost in (self.before, self.after)]
        known = all(peak is not None for peak in peaks)
        figure = new_figure(9.0 if known else 7.0, 2.8)
        figure.set_layout_engine("constrained")
        axes = figure.subplots(1, 3 if known else 2, width_ratios=[3, 1, 1][: 3 if known else 2])
        self._draw_drift(axes[0])
        speeds = [cost.tokens_per_second for cost in (self.before, self.after)]
        _draw_bars(axes[1], "tokens a second", speeds)
        if known:
            _draw_bars(axes[2], "peak memory, MiB", [(peak or 0) / 2**20 for peak in peaks])
        return figure

    def _draw_drift(self, axis: Any) -> None:
        last = int(self.position.max()) + 1
        width = max(1, -(-last // 64))
        places, middles, lows, highs = [], [], [], []
        for start in range(0, last, width):
            own = self.cosine[(self.position >= start) & (self.position < start + width)]
            if own.numel():
                low, middle, high = own.quantile(own.new_tensor([0.1, 0.5, 0.9])).tolist()
                places.append(start + width / 2)
                middles.append(middle)
                lows.append(low)
                highs.append(high)
        axis.fill_between(places, lows, highs, color=INK, alpha=0.2, linewidth=0)
        axis.plot(places, middles, color=INK, linewidth=1.4)
        axis.set_title("hidden states before and after: cosine", fontsize=9)
        axis.set_xlabel("position in the text; shaded: 8 of 10 tokens", fontsize=8)
        axis.set_xlim(0, last)
        axis.set_ylim(top=1.0)
        axis.grid(alpha=0.25)
        _plain(axis)


def _draw_bars(axis: Any, title: str, values: list[float]) -> None:
    drawn = axis.bar(["before", "after"], values, color=[GREY, INK], width=0.6)
    axis.bar_label(drawn, [f"{value:,.0f}" for value in values], fontsize=8, padding=2)
    axis.set_title(title, fontsize=9)
    axis.margins(y=0.15)
    _plain(axis)


def _plain(axis: Any) -> None:
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


@torch.no_grad()
def check(
    model: Any,
    mechanism: Choice | Callable[[int], Choice | None],
    texts: Iterable[Any],
    *,
    layers: Iterable[int] | None = None,
    tokenizer: Callable[..., Any] | None = None,
    repeats: int = 3,
) -> Check:
    """Runs a model as it is and with another attention, on the same texts, and changes nothing.

    Both run in evaluation, by turns, batch after batch. Memory on a GPU is what PyTorch allocates
    there; on Linux otherwise, how much the resident memory of this process grows, whatever takes
    it, so that nothing else should run in the process meanwhile.

    Args:
        model: as `use` takes it.
        mechanism: as `use` takes it.
        texts: inputs as a tokenizer gives them, with `input_ids` and, for padding, an
            `attention_mask`; or tensors of token ids; or strings, with `tokenizer`.
        layers: numbers of layers to change; None is all.
        tokenizer: for strings, each of which is a batch.
        repeats: how often each batch is timed, after a pass that is not; the median counts.
    """
    need_int("check: repeats", repeats, at_least=1)
    device = next(model.parameters()).device
    batches = [inputs_of("check: texts", text, tokenizer, device) for text in texts]
    if not batches:
        raise ValueError("check: texts must hold at least one text, got none")
    with _as_it_was(model) as (before, after, put):
        use(model, mechanism, layers)
        after.note(model)
        sides = (before, after)
        found = [_compared(model, batch, sides, put) for batch in batches]
        seconds: list[list[list[float]]] = [[[] for _ in batches] for _ in sides]
        for _ in range(repeats):
            for place, batch in enumerate(batches):
                for side, state in enumerate(sides):
                    put(state)
                    seconds[side][place].append(_timed(model, batch, device))
        largest = max(batches, key=lambda batch: batch["input_ids"].numel())
        peaks = []
        for state in sides:
            put(state)
            peaks.append(peak_growth(lambda: model(**largest), device))
    cosine, position, error, logits = _gathered(found)
    tokens = cosine.numel()
    costs = [
        Cost(tokens / sum(statistics.median(own) for own in side), peak)
        for side, peak in zip(seconds, peaks, strict=True)
    ]
    return Check(cosine, position, error, logits, *costs)


class _State:
    """All that `use` changes in a model."""

    def note(self, model: Any) -> None:
        self.held = [(layer, layer._modules.get(PLACE)) for layer in attention_layers(model)]
        self.implementation = model.config._attn_implementation
        self.marks = [
            (part, part.__dict__[BEFORE]) for part in model.modules() if BEFORE in part.__dict__
        ]


@contextmanager
def _as_it_was(model: Any) -> Iterator[tuple[_State, _State, Callable[[_State], None]]]:
    """The model's state, room for another, and what puts either there; the first is there again at
    the end, whatever happens, and so is its mode.
    """
    before, after = _State(), _State()
    before.note(model)
    attached = [own for own in (mpnet, t5) if own.is_attached(model)]
    watched = is_watched(model)

    def put(state: _State) -> None:
        for layer, mechanism in state.held:
            layer._modules.pop(PLACE, None)
            if mechanism is not None:
                layer.add_module(PLACE, mechanism)
            give_input(layer, mechanism_of(layer))
        if model.config._attn_implementation != state.implementation:
            turn(model, state.implementation)
        for part in model.modules():
            part.__dict__.pop(BEFORE, None)
        for part, mark in state.marks:
            part.__dict__[BEFORE] = mark

    with evaluating(model):
        try:
            yield before, after, put
        finally:
            put(before)
            for own in (mpnet, t5):
                if own not in attached:
                    own.detach(model)
            if not watched:
                unwatch(model)


class _Compared(NamedTuple):
    """What one batch adds."""

    cosine: Tensor
    position: Tensor
    squares: Tensor  # of the difference, and of what was before
    logits: Tensor | None  # the same two, divergences, agreements, answers


def _compared(
    model: Any,
    batch: dict[str, Tensor],
    sides: tuple[_State, _State],
    put: Callable[[_State], None],
) -> _Compared:
    states, logits = [], []
    for state in sides:
        put(state)
        hidden, out = _hidden(model, batch)
        states.append(hidden)
        logits.append(out)
    real = batch.get("attention_mask")
    real = torch.ones_like(batch["input_ids"]) if real is None else real
    real = real.bool()
    was, now = (state[real].double() for state in states)
    position = torch.arange(real.shape[1], device=real.device).expand(real.shape)[real]
    squares = torch.stack([(now - was).square().sum(), was.square().sum()])
    cosine = nn.functional.cosine_similarity(was, now, dim=-1)
    drift = None
    if logits[0] is not None and logits[1] is not None:
        own = [_answers(x, real, batch) for x in (logits[0], logits[1])]
        drift = _logit_sums(own[0], own[1]).cpu()
    return _Compared(cosine.cpu(), position.cpu(), squares.cpu(), drift)


def _answers(logits: Tensor, real: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """A head of tokens answers for each of them, that of a decoder for those that it writes, and a
    head of texts once.
    """
    if logits.dim() != 3:
        return logits
    if "decoder_input_ids" not in batch:
        return logits[real]
    asked = batch.get("decoder_attention_mask")
    return logits.flatten(0, 1) if asked is None else logits[asked.bool()]


def _hidden(model: Any, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """The last hidden states of the model inside the head, or of its encoder, and the logits if
    there are some.
    """
    kept: list[Any] = []
    both = getattr(model.config, "is_encoder_decoder", False) and hasattr(
        model.base_model, "encoder"
    )
    inside: nn.Module = model.base_model.encoder if both else model.base_model
    handle = inside.register_forward_hook(lambda module, args, out: kept.append(out))
    try:
        out = model(**batch)
    finally:
        handle.remove()
    if not kept:
        # Called in its parts (OPT): what the model says of itself.
        kept.append([model(**batch, output_hidden_states=True).hidden_states[-1]])
    logits = getattr(out, "logits", None)
    return kept[-1][0], logits if isinstance(logits, Tensor) and logits.dim() > 1 else None


def _logit_sums(was: Tensor, now: Tensor) -> Tensor:
    sums = torch.zeros(5, dtype=torch.float64, device=was.device)
    for a, b in zip(was.split(AT_ONCE), now.split(AT_ONCE), strict=True):
        a, b = a.double(), b.double()
        p = a.log_softmax(-1)
        divergence = (p.exp() * (p - b.log_softmax(-1))).sum()
        agreed = (a.argmax(-1) == b.argmax(-1)).sum()
        own = (
            (b - a).square().sum(),
            a.square().sum(),
            divergence,
            agreed,
            agreed.new_tensor(len(a)),
        )
        sums += torch.stack([value.double() for value in own])
    return sums


def _gathered(found: list[_Compared]) -> tuple[Tensor, Tensor, float, LogitDrift | None]:
    cosine = torch.cat([one.cosine for one in found])
    position = torch.cat([one.position for one in found])
    squares = torch.stack([one.squares for one in found]).sum(0)
    sums = [one.logits for one in found if one.logits is not None]
    drift = None
    if sums:
        moved, size, divergence, agreed, answers = torch.stack(sums).sum(0).tolist()
        drift = LogitDrift((moved / size) ** 0.5, divergence / answers, agreed / answers)
    return cosine, position, float((squares[0] / squares[1]).sqrt()), drift


def _timed(model: Any, batch: dict[str, Tensor], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    model(**batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
