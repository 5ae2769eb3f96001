"""Relative positions inside the score: Transformer-XL's four terms."""

from __future__ import annotations

from torch import Tensor

from ..errors import broadcasts, describe, need_tensor
from ..fixed_order import spread
from .base import Place, Weight
from .biases import table_index, table_right

__all__ = ["RelativePosition"]


class RelativePosition(Weight):
    """Adds scale·(q_i·r_{j−i} + u·k_j + v·r_{j−i}): with q_i·k_j, Transformer-XL's four terms.

    Args:
        positions: r, the projected encodings W_kR·R of the offsets −(L−1−right) … right, float
            `(H|1, L, D)`; offsets past an end take the end's. Gets a gradient, as u and v do.
        content_bias: u, float `(H|1, D)`, or None for no such term.
        position_bias: v, float `(H|1, D)`, or None for no such term.
        right: the offset of the last row; None puts offset 0 in the middle of an odd L. A causal
            model has right=0.

    Reference:
        Dai et al. 2019, "Transformer-XL" (arXiv 1901.02860), section 3.3. They index by i − j; we
        by j − i.
    """

    fields = ("positions", "content_bias", "position_bias", "right")
    learned = ("positions", "content_bias", "position_bias")

    def __init__(
        self,
        positions: Tensor,
        content_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
        *,
        right: int | None = None,
    ) -> None:
        need_tensor("RelativePosition: positions", positions, "float", (3,))
        for name, value in (("content_bias", content_bias), ("position_bias", position_bias)):
            if value is not None:
                need_tensor(f"RelativePosition: {name}", value, "float", (2,))
        self.positions = positions
        self.content_bias = content_bias
        self.position_bias = position_bias
        self.right = table_right("RelativePosition", positions.shape[1], right)

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        for name in self.learned:
            value = getattr(self, name)
            if value is not None and (
                not broadcasts(value.shape[0], heads) or value.shape[-1] != d
            ):
                raise ValueError(
                    f"RelativePosition: {name} must be for {heads} heads of size {d}, "
                    f"got {describe(value)}"
                )

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        dtype = scores.dtype
        rows = place.q
        if self.position_bias is not None:
            rows = rows + spread(self.position_bias.to(dtype)[:, None], rows.shape)
        index = table_index(place.offset, self.positions.shape[1], self.right)
        added = place.meet_at(rows, self.positions.to(dtype), index)
        if self.content_bias is not None:
            added = added + place.meet(spread(self.content_bias.to(dtype)[:, None], rows.shape))
        return scores + place.scale * added
