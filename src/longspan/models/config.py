"""The sizes of a transformer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import describe, need_bool, need_int, need_number
from .activations import ACTIVATIONS

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
        norm_eps: what layer norms add to a variance.
        embedding_norm: a layer norm of the embedding too, as BERT has.
        types: kinds that an encoder's tokens are of, such as a question's and a text's (BERT's
            segments), each with a vector of its own; 0 for none.
        activation: between the two matrices of a block: `"gelu"`, `"gelu_tanh"`, which is gelu's
            approximation by tanh, `"relu"` or `"tanh"`.
        dropout: share of activations that goes in training.
        attention_dropout: share of attention's weights that does; None for as many.
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
    norm_eps: float = 1e-5
    embedding_norm: bool = False
    types: int = 0
    activation: Literal["gelu", "gelu_tanh", "relu", "tanh"] = "gelu"
    dropout: float = 0.0
    attention_dropout: float | None = None

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
        need_int("Config: types", self.types, at_least=0)
        need_bool("Config: embedding_norm", self.embedding_norm)
        for name, known in (
            ("positions", POSITIONS),
            ("norm", NORMS),
            ("activation", ACTIVATIONS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"Config: {name} must be one of {', '.join(known)}, got "
                    f"{describe(getattr(self, name))}"
                )
        need_number("Config: norm_eps", self.norm_eps)
        if self.norm_eps <= 0:
            raise ValueError(f"Config: norm_eps must be above 0, got {self.norm_eps}")
        for name in ("dropout", "attention_dropout"):
            share = getattr(self, name)
            if share is None and name == "attention_dropout":
                continue
            need_number(f"Config: {name}", share)
            if not 0 <= share < 1:
                raise ValueError(f"Config: {name} must be at least 0 and below 1, got {share}")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
