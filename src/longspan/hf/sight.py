"""What a model lets its queries see, read from the functions that transformers makes masks of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import describe
from ..patterns import Causal, Full, Mask, Pattern, SameDocument, Window
from .names import EAGER

__all__ = ["Sight", "sight_of"]

# Where a model does with its mask what is done with a tensor.
BY_ITSELF = (
    "longspan: this model works on its mask by itself, as by adding it to its scores or joining it "
    f"to another one, and not by transformers' AttentionInterface alone: {EAGER}; MPNet, loaded "
    "so, then goes with longspan.hf.use(model, pattern)"
)


@dataclass(frozen=True)
class Sight:
    """Which keys exist for which queries, without a tensor of all pairs where a rule will do.

    Goes from a model to its layers in the place of a mask. What is asked of a mask on the way, by
    `generate` and by what moves it between devices, it answers: `shape`, `ndim`, `to` and
    `contiguous`.

    Attributes:
        shape: `(B, 1, N, M)`, that of the mask in whose place it is.
        left: keys further back than this are not seen; None for no bound.
        right: likewise ahead; 0 is causal.
        documents: int `(B, M)`; tokens see those of their own document.
        padding: bool `(B, M)`, True for a real key.
        allowed: bool `(B, 1, N, M)`, all pairs, where no rule says it; then it says everything.
        first_key: position in the text of the first key; not 0 once a cache forgets.
        aligned: the last query sits at the last key. Not so in a cache that is larger than what it
            holds.
        pattern: all of it as a pattern, but for padding, which is none. Made once, for all layers
            to share.
    """

    shape: tuple[int, int, int, int]
    left: int | None = None
    right: int | None = None
    documents: Tensor | None = None
    padding: Tensor | None = None
    allowed: Tensor | None = None
    first_key: int = 0
    aligned: bool = True
    pattern: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", self._as_pattern())

    @property
    def ndim(self) -> int:
        return 4

    def to(self, *args: Any, **kwargs: Any) -> Sight:
        moved = {
            name: value.to(*args, **kwargs)
            for name in ("documents", "padding", "allowed")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    def contiguous(self) -> Sight:
        return self

    @classmethod
    def __torch_function__(cls, *unused: Any) -> NoReturn:
        """Of every function of tensors that is given one, as `torch.cat` is by T5Gemma 2."""
        raise NotImplementedError(BY_ITSELF)

    def __radd__(self, scores: object) -> NoReturn:
        """What a model does that computes its own attention, and has to be told so."""
        raise NotImplementedError(BY_ITSELF)

    def __getitem__(self, place: object) -> NoReturn:
        raise NotImplementedError(BY_ITSELF)

    def __getattr__(self, name: str) -> NoReturn:
        asked = f"Sight has no {name}"
        raise AttributeError(f"{asked}. {BY_ITSELF}" if hasattr(Tensor, name) else asked)

    def _as_pattern(self) -> Pattern:
        if self.allowed is not None:
            return Mask(self.allowed)
        found: Pattern
        if self.left is not None:
            found = Window(self.left, self.right)
        elif self.right == 0:
            found = Causal()
        else:
            found = Full() if self.right is None else Window(None, self.right)
        if self.documents is None:
            return found
        within = SameDocument(self.documents)
        return within if isinstance(found, Full) else found & within


def sight_of(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | Sight | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **unused: Any,
) -> Sight:
    """Reads what transformers asks its mask functions for; registered as one of them.

    Causality, windows, and packed documents are found by their rules. Any other rule becomes a
    tensor of all pairs, made by transformers itself.
    """
    from transformers import masking_utils

    if isinstance(attention_mask, Sight):
        # Made in advance, as `generate` does for caches of a fixed size.
        return attention_mask
    if attention_mask is not None and attention_mask.dim() != 2:
        raise ValueError(
            "longspan: attention_mask must have two dims (batch, keys), or four (batch, heads, "
            f"queries, keys), got {describe(attention_mask)}"
        )
    if mask_function is None:
        mask_function = masking_utils.causal_mask_function
    shape = (batch_size, 1, q_length, kv_length)
    aligned = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    rules = None if use_vmap else _rules(mask_function)
    if rules == {}:
        # Everything is seen, wherever it sits: queries of one text, and keys of another.
        padding = _padding(attention_mask, kv_length, kv_offset)
        return Sight(shape, padding=padding, first_key=kv_offset, aligned=aligned)
    if rules is None or not aligned or ("documents" in rules and q_length != kv_length):
        allowed = masking_utils.sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        return Sight(shape, allowed=allowed, first_key=kv_offset, aligned=aligned)
    padding = _padding(attention_mask, kv_length, kv_offset)
    return Sight(shape, padding=padding, first_key=kv_offset, **rules)


def _padding(mask: Tensor | None, keys: int, first: int) -> Tensor | None:
    """Of the keys that are there; past its end a mask has none, as transformers has it."""
    if mask is None:
        return None
    mask = mask.bool()[:, first : first + keys]
    return torch.nn.functional.pad(mask, (0, keys - mask.shape[1]))


def _rules(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Bounds and documents that a mask function stands for; None where one of its parts is unknown.

    The functions are closures. What one of them means is known by its code, which all closures of
    one maker share.
    """
    from transformers import masking_utils as made

    looks_back = _code(made.sliding_window_overlay(1))
    looks_around = _code(made.sliding_window_bidirectional_overlay(1))
    packed = _code(made.packed_sequence_mask_function(torch.zeros(1, 1)))
    rules: dict[str, Any] = {}

    def narrow(side: str, bound: int) -> None:
        rules[side] = min(bound, rules.get(side, bound))

    for part in _parts(function, _code(made.and_masks(made.causal_mask_function))):
        code, held = _code(part), _held(part)
        if part is made.causal_mask_function:
            narrow("right", 0)
        elif part is made.bidirectional_mask_function:
            continue
        elif not held:
            return None
        elif code is looks_back:
            # Their window counts the query itself.
            # A window of 0, of a config whose layers do not use it, is such a mask too.
            if held["sliding_window"] < 1:
                return None
            narrow("left", held["sliding_window"] - 1)
        elif code is looks_around:
            narrow("left", held["sliding_window"])
            narrow("right", held["sliding_window"])
        elif code is packed and "documents" not in rules:
            rules["documents"] = held["packed_sequence_mask"]
        else:
            return None
    return rules


def _parts(function: Callable[..., Any], joined: object) -> Iterator[Callable[..., Any]]:
    """The functions that all have to agree."""
    held = _held(function) if _code(function) is joined else {}
    if held:
        for part in held["mask_functions"]:
            yield from _parts(part, joined)
    else:
        yield function


def _code(function: Callable[..., Any]) -> object:
    return getattr(function, "__code__", None)


def _held(function: Callable[..., Any]) -> dict[str, Any]:
    """What a closure holds, by name; nothing of one that is made while `torch.compile` traces, for
    that has no cells yet.
    """
    names = getattr(_code(function), "co_freevars", ())
    try:
        cells = function.__closure__ or ()
    except AttributeError:
        return {}
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
