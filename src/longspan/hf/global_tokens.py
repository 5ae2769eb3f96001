"""Global tokens, and the layer's input, on their way to a layer's mechanism.

Models of transformers hand arguments that they do not know down to their attention. What goes with
the arguments belongs to one call: nothing is left for the next, and a layer that is computed again
for its gradient is given the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from ..errors import describe
from ..nn import Attention, Mechanism
from .names import PLACE
from .projections import plain_queries, wants_plain_queries

__all__ = [
    "HANDED",
    "INPUT",
    "TOKENS",
    "WRITES",
    "GlobalTokens",
    "check_global_tokens",
    "check_none_were_given",
    "forget_hooks",
    "give_input",
    "is_watched",
    "set_global_tokens",
    "unsaved",
    "unwatch",
    "waits",
    "watch",
]

GlobalTokens = Callable[..., Tensor]

# Names of the arguments under which they travel.
TOKENS = "global_tokens"
INPUT = "layer_input"
QUERIES = "unturned"

# Under these names a model keeps how its global tokens are found, and modules their hooks.
FINDER = "_longspan_global_tokens"
HOOK = "_longspan_hook"
WAITS = "_longspan_waits"
WATCH = "_longspan_watch"
CALL = "_longspan_call"
# The mark of a layer that lies in a decoder beside an encoder.
WRITES = "_longspan_writes"

# Under this name a model has, for one call, the tokens that the head around it was given and keeps
# to itself.
HANDED = "_longspan_handed"


class Call:
    """What layers know of the call that is under way.

    Attributes:
        given_to: the model that was called with global tokens; None between calls.
    """

    def __init__(self) -> None:
        self.given_to: nn.Module | None = None


class Finder(NamedTuple):
    """How a model finds its global tokens.

    Attributes:
        function: gives them.
        wants: names of the model's arguments that it takes.
        names: of all arguments of the model, in their order.
    """

    function: GlobalTokens
    wants: tuple[str, ...]
    names: tuple[str, ...]


def set_global_tokens(
    model: nn.Module, layers: list[nn.Module], function: GlobalTokens | None
) -> None:
    """Makes a model find the global tokens of every call by a function of its arguments; None
    leaves it as it is.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(
            "use: global_tokens must be a function of the model's input_ids that gives a bool "
            f"tensor (B, N), got {describe(function)}; a mask for one call goes with it: "
            "model(…, global_tokens=mask)"
        )
    reader = _reader(model, layers)
    parameters = inspect.signature(type(reader).forward).parameters
    names = tuple(parameters)[1:]
    if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        raise ValueError(
            f"use: {type(reader).__name__} takes no arguments but its own, so that global_tokens "
            "cannot come to its layers"
        )
    wants = tuple(
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.default is inspect.Parameter.empty and one.kind is not one.VAR_KEYWORD
    )
    unknown = [name for name in wants if name not in names]
    if unknown:
        raise ValueError(
            f"use: global_tokens takes {', '.join(wants)}, and {type(reader).__name__} has no "
            f"argument {', '.join(unknown)}; it has {', '.join(names)}"
        )
    setattr(reader, FINDER, Finder(function, wants, names))
    if not hasattr(reader, HOOK):
        setattr(reader, HOOK, reader.register_forward_pre_hook(_find, with_kwargs=True))
    inside = set(reader.modules())
    for layer in layers:
        if layer in inside:
            setattr(layer, WAITS, True)


def waits(layer: nn.Module) -> bool:
    """Whether the layer's model finds global tokens in every call."""
    return getattr(layer, WAITS, False)


def watch(model: nn.Module, layers: list[nn.Module], writers: set[nn.Module]) -> None:
    """Lets layers know of calls of the model with global tokens, which many a model of transformers
    takes and drops; and those of them that are a decoder's, which have none, that they are.
    """
    held = [part.__dict__[CALL] for part in (model, *layers) if CALL in part.__dict__]
    # A model inside this one may have been given to `use` by itself.
    call = held[0] if held else Call()
    for part in (model, *layers):
        part.__dict__[CALL] = call
    for layer in writers:
        layer.__dict__[WRITES] = True
    if WATCH not in model.__dict__:
        model.__dict__[WATCH] = (
            model.register_forward_pre_hook(_begin, with_kwargs=True),
            model.register_forward_hook(_end, always_call=True),
        )


def is_watched(model: nn.Module) -> bool:
    """Whether `watch` was called, of a model or of one inside it."""
    return any(WATCH in part.__dict__ for part in model.modules())


def unwatch(model: nn.Module) -> None:
    """Undoes `watch`, in a model and what is inside it."""
    for part in model.modules():
        for hook in part.__dict__.pop(WATCH, ()):
            hook.remove()
        part.__dict__.pop(CALL, None)
        part.__dict__.pop(WRITES, None)


def check_none_were_given(layer: nn.Module) -> None:
    """Raises where global tokens were on their way to a layer, and did not come."""
    end = f"does not hand them down to its {type(layer).__name__}"
    if waits(layer):
        raise ValueError(f"longspan: the model found global tokens, and {end}")
    call: Call | None = getattr(layer, CALL, None)
    if call is not None and call.given_to is not None:
        raise ValueError(
            f"longspan: {type(call.given_to).__name__} was given global tokens, and {end}: "
            "tokens that are global in every text are said by the pattern, Window(…) | Global(0)"
        )


def unsaved(input_ids: Tensor) -> NoReturn:
    """In the place of a function that no file can hold."""
    raise ValueError(
        "longspan: this model was saved with a function that finds its global tokens, which is not "
        "in the files: give it again, load(…, global_tokens=…), or give the tokens of this call, "
        "model(…, global_tokens=mask)"
    )


def give_input(layer: nn.Module, mechanism: Mechanism | None) -> None:
    """Lets a layer's attention pass on its input, for a mechanism that may have projections of its
    own, and its queries where rotary positions would turn those that a mechanism reads.
    """
    before = layer.__dict__.pop(HOOK, None)
    if before is not None:
        before.remove()
    if mechanism is None or isinstance(mechanism, Attention):
        return
    wanted = wants_plain_queries(mechanism, layer)
    hook = _pass_input_and_queries if wanted else _pass_input
    setattr(layer, HOOK, layer.register_forward_pre_hook(hook, with_kwargs=True))


def forget_hooks(model: nn.Module) -> None:
    """Undoes all of this, in a model and what is inside it."""
    for part in model.modules():
        hook = part.__dict__.pop(HOOK, None)
        if hook is not None:
            hook.remove()
        part.__dict__.pop(FINDER, None)
        part.__dict__.pop(WAITS, None)
    unwatch(model)


def check_global_tokens(tokens: Any, batch: int, keys: int) -> None:
    """Raises unless these are global tokens for this many keys."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.bool:
        raise TypeError(
            "longspan: global_tokens must be a bool tensor, True for a global token, got "
            f"{describe(tokens)}; turn a mask of numbers into one with .bool()"
        )
    if tokens.shape != (batch, keys):
        raise ValueError(
            f"longspan: global_tokens must be of shape (batch, keys) = {(batch, keys)}, got "
            f"{describe(tokens)}; with a cache they would have to be known of earlier tokens too: "
            "call the model with use_cache=False"
        )


def _reader(model: nn.Module, layers: list[nn.Module]) -> nn.Module:
    """The innermost model that reads tokens and has the layers: whoever calls calls that one."""
    readers = [
        part
        for part in model.modules()
        if hasattr(part, "set_attn_implementation")
        and "input_ids" in inspect.signature(type(part).forward).parameters
        and any(one is layers[0] for one in part.modules())
    ]
    if not readers:
        raise ValueError(f"use: {type(model).__name__} takes no input_ids to find global_tokens by")
    return readers[-1]


def _find(
    reader: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Hook before a model: global tokens become one of its arguments, unless they are already."""
    if kwargs.get(TOKENS) is not None or getattr(reader, HANDED, None) is not None:
        return None
    finder: Finder = getattr(reader, FINDER)
    given = dict(zip(finder.names, args, strict=False)) | kwargs
    if "input_ids" in finder.wants and given.get("input_ids") is None:
        raise ValueError(
            "longspan: global tokens are found by input_ids, and this call has none: give them "
            "with it, model(…, global_tokens=mask)"
        )
    tokens = finder.function(**{name: given.get(name) for name in finder.wants})
    return args, {**kwargs, TOKENS: tokens}


def _begin(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Hook before a model that was given to `use`."""
    call: Call = getattr(model, CALL)
    if call.given_to is None and kwargs.get(TOKENS) is not None:
        call.given_to = model


def _end(model: nn.Module, *unused: Any) -> None:
    """Hook after it, also where the call raised."""
    call: Call = getattr(model, CALL)
    if call.given_to is model:
        call.given_to = None


def _pass_input(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Hook before an attention: its input becomes one of the arguments that it passes on."""
    return args, {**kwargs, INPUT: args[0] if args else kwargs["hidden_states"]}


def _pass_input_and_queries(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same with the layer's queries."""
    args, kwargs = _pass_input(layer, args, kwargs)
    mechanism: Any = getattr(layer, PLACE)
    queries = plain_queries(layer, kwargs[INPUT], mechanism.num_heads)
    return args, {**kwargs, QUERIES: queries}
