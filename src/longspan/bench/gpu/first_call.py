"""The process in which a first call is timed: prints seconds by pass as a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from ...functional import attention
from ...measure import Size
from ...patterns import Pattern, Window
from ...weights import Bell, Weight
from .contenders import inputs
from .draws import THRESHOLD, variances
from .rows.patterns import first_tokens
from .rows.windows import REACH

__all__ = ["first_call"]

SIZE = Size(batch=1, heads=4, length=1024, dtype=torch.bfloat16)


def first_call(kind: str, device: torch.device, backend: str) -> dict[str, float]:
    """Times the first forward and the first backward, on inputs that are already there."""
    q, k, v = inputs(SIZE, device)
    pattern: Pattern | None = None
    weight: Weight | None = None
    leaves = [q, k, v]
    if kind == "learned reach":
        variance = variances("independent", SIZE, device)
        weight = Bell(variance, threshold=THRESHOLD)
        leaves.append(variance)
    elif kind == "window":
        pattern = Window(REACH, REACH)
    else:
        pattern = first_tokens(SIZE, device)
    grad = torch.ones_like(q)
    _wait(device)
    begin = time.perf_counter()
    named: Any = backend
    out = attention(q, k, v, pattern, weight=weight, backend=named)
    _wait(device)
    middle = time.perf_counter()
    torch.autograd.grad(out, leaves, grad)
    _wait(device)
    return {"forward": middle - begin, "backward": time.perf_counter() - middle}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    kind, device, backend = json.loads(sys.argv[1])
    print(json.dumps(first_call(kind, torch.device(device), backend)))
