"""Mechanisms in files: beside a model of transformers, or by themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..nn import Mechanism
from ..nn.describing import described, mechanism_from
from ..nn.storing import Pair, aside
from .attention import mechanism_of
from .global_tokens import GlobalTokens, give_input, set_global_tokens, unsaved, waits
from .layers import attention_layers, fitting, put
from .names import PLACE
from .projections import start_projections

__all__ = ["load", "load_adapter", "save", "save_adapter"]

# What transformers looks for when it loads weights: one file, or parts of it and which has what.
WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")

FILES = Pair("longspan.safetensors", "longspan.json", 1, "what hf.save or hf.save_adapter wrote")

# In the place of a mechanism's kind: the layer has that of another layer, not a copy.
SAME = "same"

# Sizes of a model that its mechanisms have to fit, by their names in a config.
SIZES = ("hidden_size", "num_attention_heads")


def save(model: nn.Module, folder: str | Path) -> None:
    """Writes a model of transformers and its mechanisms into a folder.

    The model's own files are those of its `save_pretrained`, without the mechanisms, so that plain
    transformers loads it as any other; `longspan.json` and `longspan.safetensors` beside them are
    what `save_adapter` writes. All are written to the side and renamed. A function that finds
    global tokens is not in the files.
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"save: model must be a PreTrainedModel of transformers, got {type(model).__name__}; "
            "a model of PEFT is saved by its own save_pretrained, and save_adapter beside it"
        )
    own = {n: t for n, t in model.state_dict().items() if PLACE not in n.split(".")}
    folder = Path(folder)
    with aside(folder) as place:
        model.save_pretrained(place, state_dict=own)
        _write(model, place)
        new = {path.name for path in place.iterdir()}
        # Weights that an earlier model left would be taken for this one's.
        there = {path for path in folder.iterdir() if WEIGHTS.fullmatch(path.name)}
        stale = [path for path in there if path.name not in new]
    for path in stale:
        path.unlink()


def load(
    folder: str | Path,
    cls: Any = None,
    *,
    global_tokens: GlobalTokens | None = None,
    **options: Any,
) -> Any:
    """The model that `save` wrote, with its mechanisms, in evaluation mode.

    Args:
        folder: where it is.
        cls: the class whose `from_pretrained` makes the model, such as
            `AutoModelForSequenceClassification`; None is the one that was saved.
        global_tokens: as in `use`.
        options: go to `from_pretrained`, such as `dtype` and `device_map`.
    """
    folder = Path(folder)
    if _is_checkpoint(folder):
        raise ValueError(
            f"load: {folder} was written by save_pretrained or a Trainer: make the model by "
            "from_pretrained, call use as before training, and load_state_dict the weights"
        )
    FILES.describe("load", folder)
    if cls is None:
        cls = _saved_class(folder)
    model = cls.from_pretrained(folder, **options)
    load_adapter(model, folder, global_tokens=global_tokens)
    return model


def _is_checkpoint(folder: Path) -> bool:
    """Whether transformers wrote it, which knows nothing of mechanisms."""
    return (folder / "config.json").is_file() and not (folder / FILES.description).is_file()


def save_adapter(model: nn.Module, folder: str | Path) -> None:
    """Writes the mechanisms of a model alone, to be put onto another copy of it: `longspan.json`
    says what every layer has, `longspan.safetensors` has the tensors.
    """
    with aside(Path(folder)) as place:
        _write(model, place)


def load_adapter(
    model: nn.Module, folder: str | Path, *, global_tokens: GlobalTokens | None = None
) -> None:
    """Puts the mechanisms that `save` or `save_adapter` wrote into the layers of a model, in place.

    The model may have another head. Layers that had no mechanism compute their own attention, by
    longspan, as they did.

    Args:
        model: one of the size of that which was saved.
        folder: where the files are.
        global_tokens: as in `use`.

    Raises:
        ValueError: for a model of another size, and for files of another format.
    """
    folder = Path(folder)
    description = FILES.describe("load_adapter", folder)
    found = attention_layers(model)
    _check_sizes(model, found, description, folder)
    tensors = FILES.read(folder, description)
    made: dict[int, Mechanism] = {}
    for number, own in enumerate(description["mechanisms"]):
        if own is not None and own["kind"] == SAME:
            made[number] = made[own["layer"]]
        elif own is not None:
            where = f"layer {number} of {type(model).__name__}"
            made[number] = fitting(mechanism_from(own), found[number], where)
            _fill(made[number], found[number], f"{number}.", tensors, folder)
    if global_tokens is None and description["global_tokens"]:
        global_tokens = unsaved
    set_global_tokens(model, found, global_tokens)
    for number, layer in enumerate(found):
        if number not in made and hasattr(layer, PLACE):
            delattr(layer, PLACE)
            give_input(layer, None)
    put(model, found, made)


def _write(model: nn.Module, place: Path) -> None:
    found = attention_layers(model)
    held = [mechanism_of(layer) for layer in found]
    if all(own is None for own in held):
        raise ValueError(
            f"save: {type(model).__name__} has no mechanism of longspan; `use` puts them there"
        )
    tensors: dict[str, Tensor] = {}
    said: list[dict[str, Any] | None] = []
    for number, own in enumerate(held):
        first = next(i for i, one in enumerate(held) if one is own)
        if own is None or first == number:
            said.append(None if own is None else described(own))
            state = {} if own is None else own.state_dict()
            tensors |= {f"{number}.{name}": tensor for name, tensor in state.items()}
        else:
            said.append({"kind": SAME, "layer": first})
    description = {
        "model_type": getattr(model.config, "model_type", None),
        "sizes": _sizes(model),
        "mechanisms": said,
        "global_tokens": any(map(waits, found)),
    }
    FILES.write(place, tensors, description)


def _sizes(model: nn.Module) -> dict[str, int]:
    return {name: getattr(model.config, name) for name in SIZES if hasattr(model.config, name)}


def _check_sizes(
    model: nn.Module, found: list[nn.Module], description: dict[str, Any], folder: Path
) -> None:
    have = {"layers": len(found), **_sizes(model)}
    want = {"layers": len(description["mechanisms"]), **description["sizes"]}
    differ = [name for name in want if name in have and have[name] != want[name]]
    if differ:
        raise ValueError(
            f"load_adapter: {folder} is for a model ({description['model_type']}) with "
            + ", ".join(f"{name} {want[name]}" for name in differ)
            + f", and {type(model).__name__} has "
            + ", ".join(str(have[name]) for name in differ)
        )


def _fill(
    made: Mechanism, layer: nn.Module, prefix: str, tensors: dict[str, Tensor], folder: Path
) -> None:
    """Gives a mechanism its tensors, in the dtypes in which they were saved."""
    # Projections are shaped as the layer's are.
    start_projections(made, layer)
    own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    try:
        made.load_state_dict(own, assign=True)
    except RuntimeError as error:
        raise ValueError(
            f"load_adapter: {folder / FILES.tensors} does not fit its description: {error}"
        ) from None
    for part in made.modules():
        if isinstance(part, nn.Linear):
            # It takes the layer's input, which has the layer's dtype.
            part.to(next(layer.parameters()).dtype)


def _saved_class(folder: Path) -> Any:
    """The class of transformers that a config names."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    names = config.architectures or ["none"]
    found = getattr(transformers, names[0], None)
    if found is None:
        raise ValueError(
            f"load: transformers has no {names[0]}, which {folder} was saved from; give its class, "
            "load(folder, cls)"
        )
    return found
