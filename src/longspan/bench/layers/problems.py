"""What is measured, by name, and where."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from ..problem import Problem
from .attention_layers import bigbird_layer, longformer_layer
from .encoders import encoder
from .readers import reader

__all__ = ["PROBLEMS", "Device", "Entrant"]

Device = Literal["cpu", "cuda"]


class Entrant(NamedTuple):
    """A problem that can be made.

    Attributes:
        device: where it is worth measuring.
        make: takes whether only a quick look is wanted, and how many layers an encoder has.
    """

    device: Device
    make: Callable[[bool, int], Problem]


def _on_cpu(length: int, target: float) -> Entrant:
    return Entrant("cpu", lambda quick, layers: encoder(length, target, layers=layers, quick=quick))


# How a GPU computes all of them.
COMPILED: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16, "compiler": "inductor"}


def _on_gpu(length: int, target: float) -> Entrant:
    compiled = partial(encoder, length, target, **COMPILED)
    return Entrant("cuda", lambda quick, layers: compiled(layers=layers, quick=quick))


def _read_on_gpu(length: int, target: float) -> Entrant:
    compiled = partial(reader, length, target, **COMPILED)
    return Entrant("cuda", lambda quick, layers: compiled(quick=quick))


PROBLEMS: dict[str, Entrant] = {
    "longformer": Entrant("cpu", lambda quick, layers: longformer_layer(quick)),
    "bigbird": Entrant("cpu", lambda quick, layers: bigbird_layer(quick)),
    "encoder-4096": _on_cpu(4096, 1.9),
    "encoder-8192": _on_cpu(8192, 3.0),
    "encoder-16384": _on_gpu(16384, 3.0),
    "encoder-32768": _on_gpu(32768, 5.0),
    "reader-4096": _read_on_gpu(4096, 1.7),
    "reader-16384": _read_on_gpu(16384, 4.5),
}
