"""Any fixed combination of a pattern, weights and a normaliser, as a mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import describe
from ..functional.checks import weights_as_tuple
from ..functional.encoding import Meaning, decode, encode
from ..functional.observed import transformed
from ..normalizers import Normalizer, Softmax
from ..patterns import Full, Pattern
from ..weights import Weight
from .causality import is_causal, keys_remembered
from .mechanism import Asked, Mechanism, Setting

__all__ = ["Attention"]


class Attention(Mechanism):
    """`longspan.attention` with a pattern, weights and a normaliser that stay.

        s = q·kᵀ / √D, then every weight in turn;  p = normaliser(s);  y = p · v

    Without arguments it is the attention of Vaswani et al. 2017, "Attention Is All You Need"
    (arXiv 1706.03762). Every pair is scored as there; the arguments choose what differs.

    Tensors inside the arguments become the module's own. Learned ones that are an `nn.Parameter`
    train with it (`weight_slopes`, `normalizer_alpha`, …; `weight0_…` and so on in a list of
    weights); all others are buffers. They move with the module and are in its state dict.

    Args:
        pattern: which pairs exist; None is `Full()`.
        weight: how much a pair counts: a weight, or a list of them that act in turn.
        normalizer: scores to probabilities; None is `Softmax()`.
    """

    def __init__(
        self,
        pattern: Pattern | None = None,
        *,
        weight: Weight | Sequence[Weight] | None = None,
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__()
        if pattern is not None and not isinstance(pattern, Pattern):
            raise TypeError(
                "Attention: pattern must be a pattern (longspan.patterns) or None, got "
                f"{describe(pattern)}"
            )
        if normalizer is not None and not isinstance(normalizer, Normalizer):
            raise TypeError(
                "Attention: normalizer must be a normalizer (longspan.normalizers) or None, got "
                f"{describe(normalizer)}"
            )
        given = Meaning(
            Full() if pattern is None else pattern,
            weights_as_tuple(weight),
            Softmax() if normalizer is None else normalizer,
        )
        self._given = given
        self._parts = encode(given)
        self._learned_names = list(_learned_names(given))
        for name, value in zip(self._learned_names, self._parts.learned, strict=True):
            self._own(name, value)
        self._fixed_names = [f"fixed{i}" for i in range(len(self._parts.fixed))]
        for name, value in zip(self._fixed_names, self._parts.fixed, strict=True):
            self.register_buffer(name, value)

    def _own(self, name: str, value: Tensor) -> None:
        if isinstance(value, nn.Parameter):
            self.register_parameter(name, value)
        elif value.requires_grad:
            raise ValueError(
                f"Attention: {name} needs a gradient but is not an nn.Parameter: wrap it in one, "
                "or, if it is computed from others, call longspan.attention with it in a module of "
                "your own"
            )
        else:
            self.register_buffer(name, value)

    @property
    def meaning(self) -> Meaning:
        """Pattern, weights and normaliser, with the module's tensors as they are now."""
        learned = [getattr(self, name) for name in self._learned_names]
        fixed = [getattr(self, name) for name in self._fixed_names]
        before = (*self._parts.learned, *self._parts.fixed)
        if all(now is old for now, old in zip((*learned, *fixed), before, strict=True)):
            # The objects stay, and so does what is known of them.
            return self._given
        parts = self._parts._replace(learned=learned, fixed=fixed)
        given = decode(*parts)
        # Moved, or loaded; or lent for a call, by torch.func, which has them back afterwards.
        if not transformed() and all(own.is_leaf for own in learned):
            self._parts, self._given = parts, given
        return given

    @property
    def settings(self) -> dict[str, Any]:
        parts = encode(self.meaning)
        tensors = [
            {
                "learned": place < len(parts.learned),
                "trained": isinstance(tensor, nn.Parameter),
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
            }
            for place, tensor in enumerate((*parts.learned, *parts.fixed))
        ]
        return {
            "text": parts.text,
            "ints": list(parts.ints),
            "floats": list(parts.floats),
            "tensors": tensors,
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Attention:
        """What `settings` described, with empty tensors: a state dict fills them."""
        learned: list[Tensor] = []
        fixed: list[Tensor] = []
        for own in settings["tensors"]:
            empty = torch.zeros(own["shape"], dtype=getattr(torch, own["dtype"]))
            made = nn.Parameter(empty) if own["trained"] else empty
            (learned if own["learned"] else fixed).append(made)
        given = decode(settings["text"], learned, fixed, settings["ints"], settings["floats"])
        return cls(given.pattern, weight=given.weights or None, normalizer=given.normalizer)

    @property
    def causal(self) -> bool:
        return is_causal(self._given.pattern)

    @property
    def remembers(self) -> int | None:
        return keys_remembered(self._given.pattern, self._given.weights)

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        if setting.global_tokens is not None:
            raise ValueError(
                "Attention: its pattern is fixed and takes no global_tokens: make it with "
                "Global(…) in the pattern, or use SlidingWindow, whose global tokens come with the "
                "call"
            )
        return Asked(*self.meaning)

    def extra_repr(self) -> str:
        given = self._given
        shown = [repr(given.pattern)]
        shown += [f"weight={', '.join(map(repr, given.weights))}"] if given.weights else []
        shown += [] if isinstance(given.normalizer, Softmax) else [f"normalizer={given.normalizer}"]
        return ", ".join(shown)


def _learned_names(meaning: Meaning) -> Iterator[str]:
    """A name for every learned tensor, in the order in which `encode` finds them."""
    one = len(meaning.weights) == 1
    owners: list[tuple[str, Weight | Normalizer]] = [
        ("weight" if one else f"weight{index}", weight)
        for index, weight in enumerate(meaning.weights)
    ]
    for prefix, owner in (*owners, ("normalizer", meaning.normalizer)):
        for field in owner.fields:
            if field in owner.learned and isinstance(getattr(owner, field), Tensor):
                yield f"{prefix}_{field}"
