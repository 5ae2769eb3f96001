"""Patterns and mechanisms in the layers of a model of transformers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, TypeVar

from torch import nn

from ..errors import describe, need_int
from ..nn import Attention, LearnedWindow, Mechanism, pool_budgets
from ..patterns import Pattern, Window
from . import mpnet, t5
from .attention import mechanism_of, writes_for_an_encoder
from .global_tokens import GlobalTokens, forget_hooks, give_input, set_global_tokens, watch
from .names import NAME, PLACE
from .projections import knows_queries, refuse_norms, start_projections, wants_plain_queries
from .register import register

__all__ = ["attention_layers", "fitting", "put", "restore", "turn", "use"]

Choice = Pattern | Mechanism

# What the model computed its attention by before, for `restore`.
BEFORE = "_longspan_before"

# What layers call the channels of a head.
HEAD_SIZES = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim")


M = TypeVar("M", bound=nn.Module)


def use(
    model: M,
    mechanism: Choice | Callable[[int], Choice | None],
    layers: Iterable[int] | None = None,
    *,
    global_tokens: GlobalTokens | None = None,
) -> M:
    """Puts a pattern or a mechanism into the attention of a model's layers, in place.

    Weights of the model stay as they are. A mechanism becomes a part of its layer's attention, so
    that it trains, moves and is saved with the model. What the model asks for itself still holds:
    padding, causality, windows of its config, masks. Layers that are left out compute their own
    attention, by longspan. A second call changes the layers that it names.

    Global tokens come with a call, as `model(…, global_tokens=mask)`, bool `(B, N)`, or are found
    in every call by a function, which needs nothing of whoever calls the model. A pattern becomes
    `pattern | Global(mask)`; a mechanism has its own use for them. The projections of a
    `SlidingWindow` start as copies of the layer's, unless they were set before.

    Args:
        model: any model whose attention goes through transformers' `AttentionInterface`: BERT,
            RoBERTa, DistilBERT, ModernBERT, GPT-2, Llama, BART, T5 and most newer ones; and MPNet.
            Biases by distance (MPNet, T5) stay.
        mechanism: a pattern; or a mechanism, of which every layer gets a copy of its own; or a
            function that takes the number of a layer, from 0, and gives either, or None to leave
            the layer as it is.
        layers: numbers of layers; None is all. A model of an encoder and a decoder counts those of
            the encoder first, and None is the encoder's: it is the one that reads long texts.
        global_tokens: a function that gives the global tokens of a call, bool `(B, N)`. It takes
            the model's `input_ids`, and whatever else its arguments are called by: `lambda
            input_ids, token_type_ids: token_type_ids == 0`. It holds for all layers, but for a
            decoder's that has an encoder. None leaves what an earlier call gave.

    Returns:
        The model.

    Raises:
        ValueError: for a pattern or mechanism that looks ahead in a causal model, and for a
            `SlidingWindow` whose projections would be copies of a layer's that normalises what it
            projects.
    """
    found = attention_layers(model)
    made: dict[int, Mechanism] = {}
    for number in _chosen(layers, found, model):
        given: Any = mechanism
        if not isinstance(mechanism, (Pattern, Mechanism)) and callable(mechanism):
            given = mechanism(number)
            if given is None:
                continue
        elif isinstance(mechanism, Mechanism):
            given = deepcopy(mechanism)
        made[number] = fitting(given, found[number], f"layer {number} of {type(model).__name__}")
    for number, one in made.items():
        refuse_norms(one, found[number], f"layer {number} of {type(model).__name__}")
        if not start_projections(one, found[number]):
            raise ValueError(
                f"use: {type(one).__name__} starts from copies of the layer's projections, and "
                f"those of {type(found[number]).__name__} have names that are not known here: "
                "call its copy_projections(q, k, v) first, or make it with "
                "global_projections=False"
            )
    set_global_tokens(model, found, global_tokens)
    put(model, found, made)
    return model


def put(model: nn.Module, found: list[nn.Module], made: dict[int, Mechanism]) -> None:
    """Gives layers their mechanisms, which fit."""
    _switch(model)
    for number, one in made.items():
        layer = found[number]
        own = next(layer.parameters())
        for part in one.modules():
            if isinstance(part, nn.Linear):
                # It takes the layer's input, which has the layer's dtype.
                part.to(own.dtype)
        layer.add_module(PLACE, one.to(own.device).train(layer.training))
        give_input(layer, one)
    watch(model, found, _writers(model, found))
    pool_budgets(own for own in map(mechanism_of, found) if own is not None)


def restore(model: nn.Module) -> None:
    """Undoes what `use` did: the model computes its attention as before, bit by bit."""
    before = getattr(model, BEFORE, None)
    if before is None:
        raise ValueError(f"restore: {type(model).__name__} has nothing of `use` to undo")
    for layer in attention_layers(model):
        if hasattr(layer, PLACE):
            delattr(layer, PLACE)
    forget_hooks(model)
    turn(model, before)
    mpnet.detach(model)
    t5.detach(model)
    # A model inside this one may have been given to `use` by itself.
    for part in model.modules():
        part.__dict__.pop(BEFORE, None)


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The self-attention modules of a model that can be reached, first layer first; those of an
    encoder before those of its decoder.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise TypeError(f"use: model must be a PreTrainedModel of transformers, got {type(model)}")
    found = [
        module
        for name, module in model.named_modules()
        if (_asks_the_interface(module) or mpnet.is_attention(module))
        and not _is_cross_attention(name, module)
    ]
    if not found:
        raise ValueError(
            f"use: no layer of {type(model).__name__} goes through transformers' "
            f"AttentionInterface, by which longspan would reach it{_loaded_by(model.config)}"
        )
    for layer in found:
        if hasattr(layer, "has_relative_attention_bias") and not t5.is_attention(layer):
            raise ValueError(
                f"use: {type(layer).__name__} adds a bias by distance to its scores, of a kind "
                "that is not known here; those of T5, mT5, UMT5 and MPNet are"
            )
    writers = _writers(model, found)
    # An encoder and a decoder belong together, also where each has a config of its own.
    both = getattr(model.config, "is_encoder_decoder", False)
    alike = [layer for layer in found if not both or layer not in writers]
    if len({id(getattr(layer, "config", None)) for layer in alike}) > 1:
        raise ValueError(
            f"use: {type(model).__name__} has several models inside: give one of them, such as "
            "model.language_model"
        )
    return sorted(found, key=writers.__contains__)


def _writers(model: nn.Module, layers: list[nn.Module]) -> set[nn.Module]:
    """Those of the layers that lie in a decoder beside an encoder. The decoder of a model that was
    put together of two may be one that knows of no encoder.
    """
    sides = dict(_sides(model))
    return {own for own in layers if sides.get(own, writes_for_an_encoder(own))}


def _sides(model: nn.Module) -> Iterator[tuple[nn.Module, bool]]:
    """The parts of a model of an encoder and a decoder, and whether they are the decoder's."""
    if not getattr(model.config, "is_encoder_decoder", False):
        return
    for name, part in model.named_modules():
        # A BERT that writes has an encoder inside the decoder: the outermost name counts.
        sides = [own for own in name.split(".") if own.endswith(("encoder", "decoder"))]
        if sides:
            yield part, sides[0].endswith("decoder")


def _loaded_by(config: Any) -> str:
    loaders = {"longformer": "from_longformer", "big_bird": "from_bigbird"}
    loader = loaders.get(getattr(config, "model_type", ""))
    return "" if loader is None else f"; longspan.hf.{loader} makes an encoder of its weights"


def _asks_the_interface(module: nn.Module) -> bool:
    """Whether the module's forward looks an attention function up."""
    forward = inspect.unwrap(type(module).forward)
    code = getattr(forward, "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _is_cross_attention(name: str, module: nn.Module) -> bool:
    called = (name.rpartition(".")[2] + type(module).__name__).lower()
    return bool(getattr(module, "is_cross_attention", False)) or any(
        word in called for word in ("cross", "encoder_attn", "encdec")
    )


def _chosen(layers: Iterable[int] | None, found: list[nn.Module], model: nn.Module) -> list[int]:
    count = len(found)
    if layers is None:
        writers = _writers(model, found)
        reading = [number for number, own in enumerate(found) if own not in writers]
        if not reading and not all(writes for _, writes in _sides(model)):
            raise ValueError(
                f"use: the encoder of {type(model).__name__} does not go through transformers' "
                "AttentionInterface, by which longspan would reach it; name layers of its decoder "
                f"by layers=range({count})"
            )
        return reading or list(range(count))
    if not isinstance(layers, Iterable):
        raise TypeError(f"use: layers must be numbers, such as [0, 1], got {describe(layers)}")
    chosen = list(layers)
    for number in chosen:
        need_int("use: layers", number, at_least=0)
        if number >= count:
            raise ValueError(f"use: layers are 0 … {count - 1}, got {number}")
    return chosen


def fitting(given: Any, layer: nn.Module, where: str) -> Mechanism:
    """The mechanism that a layer is to hold, if it may."""
    if not isinstance(given, (Pattern, Mechanism)):
        raise TypeError(
            "use: mechanism must be a pattern (longspan.patterns), a mechanism (longspan.nn) or a "
            f"function that gives one for the number of a layer, got {describe(given)}"
        )
    made = Attention(given) if isinstance(given, Pattern) else given
    config = getattr(layer, "config", None)
    if (
        getattr(layer, "is_causal", False)
        and getattr(config, "is_causal", True)
        and not made.causal
    ):
        name = repr(given) if isinstance(given, Pattern) else type(given).__name__
        raise ValueError(f"use: {where} is causal, and {name} looks ahead; {_instead(given)}")
    owners = [(layer, "num_heads"), (layer, "num_attention_heads"), (config, "num_attention_heads")]
    heads = next((getattr(*one) for one in owners if hasattr(*one)), None)
    own = getattr(made, "num_heads", None)
    if None not in (heads, own) and own != heads:
        raise ValueError(f"use: {where} has {heads} heads, and the mechanism is for {own}")
    size = next((getattr(layer, name) for name in HEAD_SIZES if hasattr(layer, name)), None)
    mine = getattr(made, "head_dim", None)
    if heads is not None and isinstance(size, int) and mine not in (None, size):
        raise ValueError(
            f"use: {where} has heads of {size} channels, and those of the mechanism have {mine}: "
            f"make it with embed_dim={size * heads}"
        )
    _check_queries(made, layer, where)
    return made


def _check_queries(made: Mechanism, layer: nn.Module, where: str) -> None:
    """Raises where a reach would be read from queries that are turned by their positions."""
    if not isinstance(made, LearnedWindow) or not wants_plain_queries(made, layer):
        return
    if not knows_queries(layer, made.num_heads * made.head_dim):
        raise ValueError(
            f"use: {where} turns its queries by their positions, and how it makes them is not "
            "known here: make LearnedWindow with reads='stream', which reads the layer's input"
        )


def _instead(given: Choice) -> str:
    if isinstance(given, Window):
        return f"use {Window(given.left, 0, given.dilation)}"
    if isinstance(given, Pattern):
        return "use Causal() & pattern"
    if "causal" in inspect.signature(type(given)).parameters:
        return "make it with causal=True"
    return "take SlidingWindow or LearnedWindow with causal=True"


def _switch(model: nn.Module) -> None:
    """Turns the model to longspan, and notes what it was turned to."""
    register()
    config: Any = model.config
    if not hasattr(model, BEFORE):
        setattr(model, BEFORE, config._attn_implementation)
    mpnet.attach(model)
    t5.attach(model)
    turn(model, NAME)
    if config._attn_implementation != NAME:
        delattr(model, BEFORE)
        raise ValueError(
            f"use: transformers does not let {type(model).__name__} change its attention"
        )


def turn(model: nn.Module, implementation: str) -> None:
    """Sets by what a model computes its attention."""
    switch: Any = model
    if mpnet.is_attached(model):
        # transformers lets only those change that go through its interface.
        switch.config._attn_implementation = implementation
    else:
        switch.set_attn_implementation(implementation)
