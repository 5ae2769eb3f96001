"""Where a run was: weights, optimiser, random states and the place in the data, without pickle.

A checkpoint is a folder that was written to the side and renamed. The one before it is removed only
after that, so that there is always one that is whole.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..nn.storing import Pair
from ..writing import ASIDE
from .learner import Learner
from .optim import AnyOptimizer
from .processes import gathered, process_count, process_number
from .records import whole_folder
from .saving import FILES as MODEL
from .saving import describe_learner
from .sharding import like, whole, whole_state

__all__ = ["latest", "restore", "save", "state_of"]

OPTIMIZER = Pair("optimizer.safetensors", "optimizer.json", 1, "a checkpoint")
STATE = "state.json"


def save(
    run: Path,
    learner: Learner,
    optimizer: AnyOptimizer,
    place: dict[str, Any],
    device: torch.device,
) -> None:
    """Writes a checkpoint; all processes call it, and the first one writes.

    Args:
        run: the run's folder.
        place: where the run is, as JSON can hold it; `step` counts over all stages.
    """
    states = gathered(random_state(device), device)
    first = process_number() == 0
    weights = whole_state(learner, keep=first)
    tensors, about = _flattened(optimizer, keep=first)
    if not first:
        return
    folder = run / "checkpoints"
    path = folder / f"step-{place['step']:09d}"
    with whole_folder(path) as aside:
        MODEL.write(aside, weights, describe_learner(learner))
        OPTIMIZER.write(aside, tensors, about)
        content = {"place": place, "random": states}
        (aside / STATE).write_text(json.dumps(content) + "\n", encoding="utf-8")
    for other in folder.iterdir():
        if other != path and not other.name.startswith(ASIDE):
            shutil.rmtree(other)


def latest(run: Path) -> Path | None:
    """The last checkpoint that is whole, if there is one."""
    found = sorted((run / "checkpoints").glob("step-*"))
    return found[-1] if found else None


def state_of(path: Path) -> dict[str, Any]:
    """The place of a checkpoint."""
    place: dict[str, Any] = _state(path)["place"]
    return place


def _state(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
        if not {"place", "random"} <= set(content):
            raise ValueError(f"only {', '.join(content) or 'nothing'} is there")
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(
            f"{path / STATE} is missing or not whole: it was changed, and the run cannot go on; "
            "begin anew with --fresh"
        ) from error
    return content


def restore(path: Path, learner: Learner, optimizer: AnyOptimizer, device: torch.device) -> None:
    """Weights, optimiser and random states as they were."""
    states = _state(path)["random"]
    if len(states) != process_count():
        raise ValueError(
            f"{path} was written by {len(states)} processes, and this run has {process_count()}; "
            "go on with as many"
        )
    weights = MODEL.read(path, MODEL.describe("resume", path))
    own = learner.state_dict()
    learner.load_state_dict({name: like(value, own[name]) for name, value in weights.items()})
    description = OPTIMIZER.describe("resume", path)
    _fill(optimizer, OPTIMIZER.read(path, description), description)
    set_random_state(states[process_number()], device)


def _flattened(optimizer: AnyOptimizer, *, keep: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimiser as tensors by name, in one piece, and the rest; processes that do
    not keep them help to gather.
    """
    content = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, state in content["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                one = whole(value)
                if keep:
                    tensors[f"{parameter}.{name}"] = one if one is value else one.cpu()
            else:
                numbers[f"{parameter}.{name}"] = value
    return tensors, {"groups": content["param_groups"], "numbers": numbers}


def _fill(optimizer: AnyOptimizer, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    state: dict[int, dict[str, Any]] = {}
    weights = [own for group in optimizer.param_groups for own in group["params"]]
    for key, value in (*tensors.items(), *description["numbers"].items()):
        parameter, _, name = key.partition(".")
        number = int(parameter)
        if isinstance(value, Tensor) and number < len(weights):
            value = like(value, weights[number])
        state.setdefault(number, {})[name] = value
    groups = description["groups"]
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        # JSON has lists only.
        for name in ("betas", "ns_coefficients"):
            if name in group:
                group[name] = tuple(group[name])
        if len(group["params"]) != len(own["params"]):
            raise ValueError("the checkpoint's optimiser is of another model")
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of all that draws: Python, NumPy, PyTorch, and a GPU."""
    import numpy as np

    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, keys.tolist(), int(position), int(has_gauss), float(cached)],  # type: ignore[union-attr]
        "torch": _text(torch.get_rng_state()),
    }
    if device.type == "cuda":
        found["cuda"] = _text(torch.cuda.get_rng_state(device))
    return found


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    import numpy as np

    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_bytes(state["torch"]))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(_bytes(state["cuda"]), device)


def _text(state: Tensor) -> str:
    return base64.b64encode(bytes(state.tolist())).decode()


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
