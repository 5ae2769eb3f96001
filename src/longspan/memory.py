"""How much memory a call takes at its peak, beyond what was there before it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import torch

__all__ = ["peak_growth", "resident"]


def peak_growth(call: Callable[[], object], device: torch.device) -> int | None:
    """Bytes by which a call grows memory, at its peak; None where that cannot be told.

    On a GPU, what PyTorch has allocated there. Elsewhere the resident memory of this process,
    whatever took it, which Linux alone tells; what was freed before is given back to the system
    first, as far as the C library can.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if sys.platform != "linux":
        call()
        return None
    gc.collect()
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = resident("VmRSS")
        call()
        return resident("VmHWM") - before
    except OSError:
        return None


def resident(field: str) -> int:
    """A field of this process in bytes: VmRSS is what it has resident, VmHWM the most it had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
