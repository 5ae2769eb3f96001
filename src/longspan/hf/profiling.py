"""How far a pretrained model looks: the mass of its attention by distance, without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import need_number
from ..nn.modes import evaluating
from ..patterns.drawing import check_suffix, new_figure, save_figure, svg_of
from .inputs import inputs_of
from .layers import turn

__all__ = ["Profile", "profile"]

# Of a curve in a picture.
POINTS = 40


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Profile:
    """Attention's mass by distance.

    Attributes:
        mass: share of the attention of a layer's head at each distance |i − j|, float64
            `(layers, heads, distances)`; each head's sums to 1.
        tokens: how many real queries were looked at.
    """

    mass: Tensor
    tokens: int

    def covered(self, reach: Tensor | float) -> Tensor:
        """Share of the mass within a reach, a number or `(layers, heads)`."""
        inside = self.mass.cumsum(-1)
        wanted = torch.as_tensor(reach).clamp(0, inside.shape[-1] - 1).long()
        return inside.gather(-1, wanted.expand(inside.shape[:2])[..., None])[..., 0]

    def reach(self, share: float) -> Tensor:
        """The smallest reach within which each head has this share of its mass, int64 `(layers,
        heads)`.
        """
        need_number("Profile.reach: share", share)
        if not 0 < share <= 1:
            raise ValueError(f"Profile.reach: share must be above 0 and at most 1, got {share}")
        # Sums of shares may end a rounding error below 1.
        short = self.mass.cumsum(-1) < share - 1e-12
        return short.sum(-1).clamp(max=self.mass.shape[-1] - 1)

    def windows(self, mean_reach: float) -> Tensor:
        """A reach for every head, int64 `(layers, heads)`, with this mean or a little less, that
        loses the least mass: each next token goes to the head that gains most from it.
        """
        need_number("Profile.windows: mean_reach", mean_reach)
        layers, heads, distances = self.mass.shape
        budget = int(mean_reach * layers * heads)
        if not 0 <= mean_reach <= distances - 1:
            raise ValueError(
                f"Profile.windows: mean_reach must be from 0 to {distances - 1}, the longest text, "
                f"got {mean_reach}"
            )
        # What a head has gained up to a reach, as its best straight line from below: gains that
        # only come with a longer reach are shared over the way there.
        gains = _falling(self.mass[..., 1:].reshape(layers * heads, distances - 1))
        order = gains.flatten().argsort(descending=True, stable=True)[:budget]
        return torch.bincount(order // (distances - 1), minlength=layers * heads).view(
            layers, heads
        )

    def __str__(self) -> str:
        lines = [f"attention's mass over {self.tokens} tokens: reach that holds 50, 90, 99 %"]
        for layer in range(self.mass.shape[0]):
            shown = [
                "/".join(str(int(self.reach(s)[layer, head])) for s in (0.5, 0.9, 0.99))
                for head in range(self.mass.shape[1])
            ]
            lines.append(f"layer {layer}: {'  '.join(shown)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        layers, heads, distances = self.mass.shape
        return f"Profile({layers=}, {heads=}, {distances=}, tokens={self.tokens})"

    def save_picture(self, path: str | Path) -> None:
        """Draws what share of its mass each head has within each distance, a panel a layer."""
        check_suffix(path)
        save_figure(self._figure(), path)

    def _repr_svg_(self) -> str | None:
        return svg_of(self._figure)

    def _figure(self) -> Any:
        layers, heads, distances = self.mass.shape
        columns = min(4, layers)
        rows = -(-layers // columns)
        figure = new_figure(3 * columns, 2.4 * rows)
        figure.set_layout_engine("constrained")
        inside = self.mass.cumsum(-1)
        # Places that a logarithmic axis tells apart: a picture of long texts stays small.
        places = torch.logspace(0, math.log10(distances), POINTS).round().long().unique() - 1
        for layer in range(layers):
            axis = figure.add_subplot(rows, columns, layer + 1)
            for head in range(heads):
                shares = inside[layer, head, places].tolist()
                axis.plot((places + 1).tolist(), shares, linewidth=0.9)
            axis.set(xscale="log", ylim=(0, 1.02), xlim=(1, distances))
            axis.set_title(f"layer {layer}", fontsize=9)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.25)
        figure.supxlabel("tokens away, itself at 1", fontsize=9)
        figure.supylabel("share of attention within", fontsize=9)
        return figure


def _falling(gains: Tensor) -> Tensor:
    """Gains `(rows, distances)` that never rise: the slopes of the smallest concave curve above
    their running sums.
    """
    found = torch.zeros_like(gains)
    for row, own in enumerate(gains.tolist()):
        # Pools of neighbours with one mean each, of which none is above the one before it.
        pools: list[tuple[float, int]] = []
        for gain in own:
            total, count = gain, 1
            while pools and pools[-1][0] / pools[-1][1] < total / count:
                before, length = pools.pop()
                total, count = total + before, count + length
            pools.append((total, count))
        found[row] = torch.tensor([total / count for total, count in pools for _ in range(count)])
    return found


@torch.no_grad()
def profile(
    model: Any, batches: Iterable[Any], *, tokenizer: Callable[..., Any] | None = None
) -> Profile:
    """Looks at a Hugging Face model's own attention on some texts, and changes nothing.

    Args:
        model: any that can give its attentions (`output_attentions`); it runs with its eager
            attention meanwhile, which takes N² memory: a few texts of a few hundred to a few
            thousand tokens are enough. Of a model of an encoder and a decoder, the encoder is
            looked at.
        batches: inputs as a tokenizer gives them, with `input_ids` and, for padding, an
            `attention_mask`; or tensors of token ids; or strings, with `tokenizer`.
        tokenizer: for strings, each of which is a batch.
    """
    before = getattr(model.config, "_attn_implementation", None)
    device = next(model.parameters()).device
    sums: Tensor | None = None
    tokens = 0
    with evaluating(model):
        try:
            turn(model, "eager")
            for batch in batches:
                inputs = inputs_of("profile: batches", batch, tokenizer, device)
                out = model(**inputs, output_attentions=True, return_dict=True)
                found = out.encoder_attentions if "encoder_attentions" in out else out.attentions
                real = inputs.get("attention_mask")
                real = torch.ones_like(inputs["input_ids"]) if real is None else real
                own = torch.stack([_by_distance(weights, real.bool()) for weights in found])
                sums = own if sums is None else _added(sums, own)
                tokens += int(real.sum())
        finally:
            if before is not None:
                turn(model, before)
    if sums is None:
        raise ValueError("profile: batches must hold at least one text, got none")
    return Profile((sums / sums.sum(-1, keepdim=True)).cpu(), tokens)


def _by_distance(weights: Tensor, real: Tensor) -> Tensor:
    """Sums of attention weights `(B, H, N, N)` of real queries by distance, `(H, N)`."""
    _, heads, n, _ = weights.shape
    place = torch.arange(n, device=weights.device)
    distance = (place[:, None] - place).abs().flatten()
    own = (weights.double() * real[:, None, :, None]).sum(0).flatten(1)
    return torch.zeros(heads, n, dtype=torch.float64, device=weights.device).index_add_(
        1, distance, own
    )


def _added(a: Tensor, b: Tensor) -> Tensor:
    """Sums of two lengths, the shorter one filled up with 0."""
    if a.shape[-1] < b.shape[-1]:
        a, b = b, a
    a[..., : b.shape[-1]] += b
    return a
