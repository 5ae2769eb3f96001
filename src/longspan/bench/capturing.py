"""CUDA graphs of calls, which leave out what Python does before a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["captured"]


def captured(call: Callable[[], object], stream: torch.cuda.Stream) -> Any:
    """A graph of a call that has compiled whatever it compiles, replayed once.

    Args:
        call: what to capture; all that it reads is to stay where it is.
        stream: the current one, and not the default one, which cannot be captured.
    """
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    graph.replay()
    torch.cuda.synchronize()
    return graph
