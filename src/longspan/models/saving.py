"""Models in files: weights as safetensors, everything else as JSON; no pickle anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..nn.describing import described, mechanism_from
from ..nn.storing import Pair, aside, share
from .config import Config
from .language_model import LanguageModel, Translator
from .transformer import Decoder, Encoder, EncoderDecoder

__all__ = ["load", "save"]

FILES = Pair("model.safetensors", "model.json", 1, "a saved model")

# For each model the paths to its stacks, in the order in which it takes their mechanisms.
STACKS: dict[type[nn.Module], tuple[str, ...]] = {
    Encoder: ("",),
    Decoder: ("",),
    EncoderDecoder: ("encoder", "decoder"),
    LanguageModel: ("decoder",),
    Translator: ("body.encoder", "body.decoder"),
}


def save(model: nn.Module, folder: str | Path) -> None:
    """Writes a model of `longspan.models` into a folder: `model.safetensors` and `model.json`.

    Both are written to the side and renamed, so that a folder never has half a model.
    """
    kind = type(model)
    if kind not in STACKS:
        known = ", ".join(sorted(own.__name__ for own in STACKS))
        raise TypeError(f"save: model must be one of {known}, got {kind.__name__}")
    config: Any = model.config
    description = {
        "kind": kind.__name__,
        "config": config.as_dict(),
        "mechanisms": [
            [described(own) for own in model.get_submodule(path).mechanisms]  # type: ignore[union-attr]
            for path in STACKS[kind]
        ],
    }
    with aside(Path(folder)) as place:
        FILES.write(place, model.state_dict(), description)


def load(folder: str | Path) -> nn.Module:
    """The model that `save` wrote, in the dtypes that it had, in evaluation mode, on the CPU.
    A parameter that several layers had together is theirs together again.
    """
    folder = Path(folder)
    description, path = FILES.describe("load", folder), folder / FILES.description
    kinds = {kind.__name__: kind for kind in STACKS}
    kind = kinds.get(description["kind"])
    if kind is None:
        raise ValueError(f"load: {path} has a model of kind {description['kind']!r}")
    stacks = [[mechanism_from(own) for own in stack] for stack in description["mechanisms"]]
    model = kind(Config(**description["config"]), *stacks)
    tensors = FILES.read(folder, description)
    _take_dtypes(model, tensors)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"load: {folder / FILES.tensors} does not fit its description: {error}"
        ) from None
    share(model, description["same"])
    return model.eval()


def _take_dtypes(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Weights are copied into those of the model: they would become its float32."""
    for name, own in (*model.named_parameters(), *model.named_buffers()):
        if name in tensors:
            own.data = own.data.to(tensors[name].dtype)
