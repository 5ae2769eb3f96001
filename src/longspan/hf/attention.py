"""The attention that models of transformers call."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import describe
from ..functional.attention import attention
from ..functional.encoding import Meaning
from ..nn import Attention, Mechanism, Setting
from ..nn.causality import by_distance, is_causal
from ..normalizers import Softmax
from ..patterns import Causal, Full, Global, Pattern
from ..weights import Bias, Weight
from . import t5
from .global_tokens import WRITES, check_global_tokens, check_none_were_given
from .names import EAGER, PLACE
from .sight import Sight

__all__ = ["attend", "mechanism_of", "writes_for_an_encoder"]

PLAIN = Meaning(Full(), (), Softmax())

# Arguments that would change the answer, and that are not computed here.
REFUSED = {
    "softcap": "a softcap on the scores",
    "s_aux": "attention sinks",
    "head_mask": "a mask of heads",
    "position_bias": "a position bias beside the mask, of a kind that is not known here",
    "block_indices": "the blocks of keys that it selected for each query",
    "indices": "the keys that it selected for each query",
}

# Scale their queries before they turn them, and call their scale 1.
SCALED_BEFORE = ("EsmSelfAttention", "EvollaSaProtSelfAttention")


def mechanism_of(layer: nn.Module) -> Mechanism | None:
    """The mechanism that a layer computes by."""
    held: Any = getattr(layer, PLACE, None)
    if held is None or isinstance(held, Mechanism):
        return held
    # PEFT wraps what it trains and keeps; its attributes are those of the one that is active.
    found: Mechanism = held.asks.__self__
    return found


def writes_for_an_encoder(layer: nn.Module) -> bool:
    """Whether a layer is of a decoder beside an encoder: global tokens are of the text that is
    read.
    """
    config = getattr(layer, "config", None)
    beside = getattr(config, "is_encoder_decoder", False) or t5.is_attention(layer)
    return bool(getattr(layer, WRITES, beside and getattr(layer, "is_decoder", False)))


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Sight | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    weights: tuple[Weight, ...] = (),
    global_tokens: Tensor | None = None,
    layer_input: Tensor | None = None,
    unturned: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer, in the form that transformers calls it.

    Args:
        module: the layer's attention; its mechanism, if `use` gave it one, computes.
        query: `(B, H, N, D)`.
        key: `(B, Hk, M, D)`.
        value: `(B, Hk, M, Dv)`.
        attention_mask: what `sight_of` made, or a mask of four dims of the user's own: bool, True
            for a pair that exists, or float, added to the scores. Such a mask says everything: a
            causal model adds nothing to it.
        dropout: share of the probabilities to drop.
        scaling: of the scores; None is 1/√D.
        is_causal: for a layer without a mask; None is what the module says of itself.
        weights: what the model adds to its scores besides the mask.
        global_tokens: bool `(B, M)`, for a layer with a pattern or mechanism of its own.
        layer_input: `(B, N, E)`, for a mechanism with projections of its own.
        unturned: the queries before rotary positions, for a mechanism that reads them.
        others: all else that a model passes on; raises where it would change the answer.

    Returns:
        `(B, N, H, Dv)`, and None in the place of the weights.
    """
    if t5.is_attention(module) and others.get("position_bias") is not None:
        weights = (*weights, t5.bias_of(others.pop("position_bias")))
    _refuse(module, attention_mask, others)
    batch, heads, n, _ = query.shape
    sight, biases = _seen(module, attention_mask, (batch, heads, n, key.shape[2]), is_causal)
    sight = _fitted(sight, n, key.shape[2])
    _refuse_packing(sight, biases, others)
    mechanism = mechanism_of(module)
    if mechanism is not None and not sight.aligned:
        raise ValueError(
            f"longspan: {type(module).__name__} has a pattern or mechanism of its own, which has "
            "to know where the queries are, and the cache is larger than what it holds: use a "
            "DynamicCache"
        )
    if mechanism is None or writes_for_an_encoder(module):
        global_tokens = None
    elif global_tokens is not None:
        check_global_tokens(global_tokens, batch, key.shape[2])
    else:
        check_none_were_given(module)
    if mechanism is None or isinstance(mechanism, Attention):
        meaning = PLAIN if mechanism is None else _with_global(mechanism.meaning, global_tokens)
        y = attention(
            query,
            key,
            value,
            _joined(meaning.pattern, sight),
            weight=(*weights, *meaning.weights, *biases),
            normalizer=meaning.normalizer,
            scale=scaling,
            key_padding=sight.padding,
            dropout=dropout,
        )
    else:
        done = _scaled_before(module, query.shape[-1]) if scaling == 1 else None
        if done is not None:
            # A mechanism may have rows of projections of its own, which nobody has scaled: all its
            # queries come to it as they were projected, and the scale beside them.
            query, scaling = query / done, done
        setting = Setting(
            x=layer_input,
            key_padding=sight.padding,
            global_tokens=global_tokens,
            dropout=dropout,
            weights=(*weights, *biases),
            unturned=unturned,
            within=_within(mechanism, sight),
            scale=scaling,
        )
        y = mechanism(query, key, value, setting)
    return y.transpose(1, 2).contiguous(), None


def _scaled_before(module: nn.Module, channels: int) -> float | None:
    """What a layer that hands on a scale of 1 has multiplied its queries by (Whisper, OPT, ESM);
    None for one that does not scale at all (T5, Granite), whose own scale is 1 too.
    """
    if any(kind.__name__ in SCALED_BEFORE for kind in type(module).__mro__):
        return float(channels**-0.5)
    own = getattr(module, "scaling", None)
    return own if isinstance(own, float) and own != 1 else None


def _fitted(sight: Sight, n: int, m: int) -> Sight:
    """What is seen, if it is told for so many queries and keys; or if everything is seen, however
    many they are (PEFT puts keys of its own before those of the text).
    """
    if (n, m) == sight.shape[2:]:
        return sight
    if isinstance(sight.pattern, Full) and sight.padding is None:
        return Sight((*sight.shape[:2], n, m), aligned=sight.aligned)
    raise ValueError(
        f"longspan: attention_mask is for {sight.shape[2]} queries and {sight.shape[3]} keys, "
        f"got {n} and {m}"
    )


def _with_global(meaning: Meaning, tokens: Tensor | None) -> Meaning:
    """The same with tokens that see everything and that everything sees: no weight cuts or weighs
    their pairs.
    """
    if tokens is None:
        return meaning
    everywhere = Global(tokens)
    whole = isinstance(meaning.pattern, Full)
    return meaning._replace(
        pattern=meaning.pattern if whole else meaning.pattern | everywhere,
        weights=tuple(_exempting(own, everywhere) for own in meaning.weights),
    )


def _exempting(weight: Weight, pattern: Pattern) -> Weight:
    """A weight that leaves the pairs of a pattern alone, if it is one that can."""
    if "exempt" not in weight.fields:
        return weight
    found = copy(weight)
    found.exempt = pattern if weight.exempt is None else weight.exempt | pattern
    return found


def _refuse(module: nn.Module, mask: Sight | Tensor | None, others: dict[str, Any]) -> None:
    for name, what in REFUSED.items():
        if others.get(name) is not None:
            raise NotImplementedError(
                f"longspan: {type(module).__name__} wants {what} ({name}), which is not computed "
                f"here; {EAGER}"
            )
    if mask is None and others.get("sliding_window") is not None:
        raise NotImplementedError(
            f"longspan: {type(module).__name__} wants a sliding_window but made no mask with it; "
            f"{EAGER}"
        )
    config = getattr(module, "config", None)
    if (
        others.get("output_attentions")
        or getattr(config, "output_attentions", False)
        or _collects_weights()
    ):
        raise NotImplementedError(
            "longspan: output_attentions is not given, for the weights of all pairs are never "
            f"there at once; longspan.attention_map shows those of one call; or {EAGER}"
        )


def _collects_weights() -> bool:
    """Whether the model's caller asked for weights. Some layers keep that from their attention, and
    the caller would get an empty tuple.
    """
    from transformers.utils import output_capturing

    collector = getattr(output_capturing, "_active_collector", None)
    if torch.compiler.is_compiling() and not getattr(collector, "compiling", False):
        # A layer that is compiled by itself: what its model was asked for cannot be traced.
        return False
    collected = None if collector is None else collector.get()
    return collected is not None and any(name.endswith("attentions") for name in collected)


def _seen(
    module: nn.Module,
    mask: Sight | Tensor | None,
    sizes: tuple[int, int, int, int],
    causal: bool | None,
) -> tuple[Sight, tuple[Bias, ...]]:
    """What the queries see, and what the mask adds to their scores."""
    batch, _, n, m = sizes
    shape = (batch, 1, n, m)
    if isinstance(mask, Sight):
        return mask, ()
    if mask is None:
        if causal is None:
            causal = getattr(module, "is_causal", True)
        return Sight(shape, right=0 if causal else None), ()
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        raise TypeError(
            "longspan: attention_mask must be a tensor of four dims by the time it comes to a "
            f"layer, got {describe(mask)}"
        )
    if any(have not in (1, want) for have, want in zip(mask.shape, sizes, strict=True)):
        raise ValueError(
            f"longspan: attention_mask must broadcast to (batch, heads, queries, keys) = {sizes}, "
            f"got {describe(mask)}"
        )
    if mask.dtype == torch.bool:
        return Sight(shape, allowed=mask.expand(-1, -1, n, m)), ()
    if mask.is_floating_point():
        return Sight(shape), (Bias(mask),)
    raise TypeError(
        "longspan: an attention_mask of four dims must be bool, True for a pair that exists, or "
        f"float, added to the scores, got {describe(mask)}; turn 0 and 1 into bool with .bool()"
    )


def _refuse_packing(sight: Sight, biases: tuple[Bias, ...], others: dict[str, Any]) -> None:
    """Several texts in one row have to be told apart by somebody."""
    ends = others.get("cu_seq_lens_q")
    told = sight.documents is not None or sight.allowed is not None or bool(biases)
    if ends is not None and not told and ends.numel() > 1 + sight.shape[0]:
        raise ValueError(
            "longspan: cu_seq_lens_q tells of several texts in one row, and the mask does not: "
            "give position_ids that start again with every text, and no attention_mask"
        )


def _joined(pattern: Pattern, sight: Sight) -> Pattern:
    """A layer's pattern within what its model lets it see."""
    seen = sight.pattern
    if isinstance(pattern, Full):
        return seen
    if sight.first_key and not by_distance(pattern):
        raise ValueError(
            f"longspan: {pattern} speaks of places in the text, and the cache has forgotten its "
            f"first {sight.first_key} tokens: use patterns of distances (Window, Causal, Strided)"
        )
    if isinstance(seen, Full) or (isinstance(seen, Causal) and is_causal(pattern)):
        return pattern
    return pattern & seen


def _within(mechanism: Mechanism, sight: Sight) -> Pattern | None:
    """The pairs that a model lets exist beside a mechanism's own; None where these are among them
    anyway.
    """
    seen = sight.pattern
    if is_causal(seen) and not mechanism.causal:
        raise ValueError(
            f"longspan: {type(mechanism).__name__} looks ahead, and this call is causal; make it "
            "with causal=True"
        )
    return None if isinstance(seen, (Full, Causal)) else seen
