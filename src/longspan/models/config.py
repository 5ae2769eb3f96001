"""The sizes of a transformer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import describe, need_int, need_number

__all__ = ["Config"]

POSITIONS = ("learned", "sinusoidal", "rotary")
NORMS = ("pre", "post")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Sizes and choices of a transformer.

    Attributes:
        vocab: tokens that it knows.
        width: channels of a token.
        layers: blocks, in each of encoder and decoder.
        heads: of attention.
        key_heads: heads of keys and values; None for as many.
        hidden: channels between the two matrices of a block; None for 4 · width.
        length: the most positions; learned positions end there.
        positions: `"learned"`, `"sinusoidal"` or `"rotary"`.
        norm: layer norms before each part of a block (`"pre"`) or after it (`"post"`).
        dropout: share of activations, and of attention's weights, that goes in training.
    """

    vocab: int
    width: int = 256
    layers: int = 4
    heads: int = 4
    key_heads: int | None = None
    hidden: int | None = None
    length: int = 512
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    norm: Literal["pre", "post"] = "pre"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "layers", "heads", "length"):
            need_int(f"Config: {name}", getattr(self, name), at_least=1)
        for name in ("key_heads", "hidden"):
            if getattr(self, name) is not None:
                need_int(f"Config: {name}", getattr(self, name), at_least=1)
        if self.width % self.heads:
            raise ValueError(
                f"Config: width must be a multiple of heads, got {self.width} and {self.heads}"
            )
        for name, known in (("positions", POSITIONS), ("norm", NORMS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"Config: {name} must be one of {', '.join(known)}, got "
                    f"{describe(getattr(self, name))}"
                )
        need_number("Config: dropout", self.dropout)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"Config: dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
