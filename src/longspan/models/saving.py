"""Models in files: weights as safetensors, everything else as JSON; no pickle anywhere."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.describing import described, mechanism_from
from .config import Config
from .language_model import LanguageModel, Translator
from .transformer import Decoder, Encoder, EncoderDecoder

__all__ = ["load", "save"]

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
FORMAT = 1

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
    weights, again = _once(model.state_dict())
    description = {
        "format": FORMAT,
        "kind": kind.__name__,
        "config": config.as_dict(),
        "mechanisms": [
            [described(own) for own in model.get_submodule(path).mechanisms]  # type: ignore[union-attr]
            for path in STACKS[kind]
        ],
        "same": again,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving") as aside:
        _safetensors().save_file(weights, Path(aside) / WEIGHTS)
        text = json.dumps(description, indent=2) + "\n"
        (Path(aside) / DESCRIPTION).write_text(text, encoding="utf-8")
        for name in (WEIGHTS, DESCRIPTION):
            (Path(aside) / name).replace(folder / name)


def load(folder: str | Path) -> nn.Module:
    """The model that `save` wrote, in evaluation mode, on the CPU."""
    folder = Path(folder)
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"load: {folder} has no {DESCRIPTION}: is it a saved model?")
    description = json.loads(path.read_text(encoding="utf-8"))
    if description.get("format") != FORMAT:
        raise ValueError(
            f"load: {path} is of format {description.get('format')!r}, this version reads {FORMAT}"
        )
    kinds = {kind.__name__: kind for kind in STACKS}
    kind = kinds.get(description["kind"])
    if kind is None:
        raise ValueError(f"load: {path} has a model of kind {description['kind']!r}")
    stacks = [[mechanism_from(own) for own in stack] for stack in description["mechanisms"]]
    model = kind(Config(**description["config"]), *stacks)
    weights = _safetensors().load_file(folder / WEIGHTS)
    weights |= {name: weights[first] for name, first in description["same"].items()}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"load: {folder / WEIGHTS} does not fit its description: {error}"
        ) from None
    return model.eval()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError("models in files need safetensors: pip install safetensors") from error
    return safetensors.torch


def _once(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A state dict in which a tensor that has several names has the first one alone, and for the
    other names that one.
    """
    first: dict[tuple[int, torch.Size], str] = {}
    found, again = {}, {}
    for name, tensor in state.items():
        known = first.setdefault((tensor.data_ptr(), tensor.shape), name)
        if tensor.numel() and known != name:
            again[name] = known
        else:
            found[name] = tensor.contiguous()
    return found, again
