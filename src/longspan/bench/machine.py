"""Where a benchmark ran: machine, versions, threads, and how memory is allocated."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ..kernels import cpu
from ..measure import child_environment

__all__ = ["PEERS", "is_warm", "load", "processors", "setting", "warm_allocator"]

PEERS = ("local-attention", "transformers", "entmax", "performer-pytorch")

# glibc maps every buffer above 32 MiB afresh and gives it back when it is freed, so that each call
# pays for the zeroing of its pages again: local-attention takes 1.9 times as long, Longformer 2.4.
# A training loop that reuses its memory does not pay that. With these, nor does the benchmark.
WARM = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}


def is_warm() -> bool:
    """Whether this process was started with freed memory kept (or glibc is not there to tell)."""
    return platform.libc_ver()[0] != "glibc" or all(name in os.environ for name in WARM)


def warm_allocator(arguments: list[str]) -> None:
    """Starts `longspan` anew in place of this process, with freed memory kept, unless it is kept.

    glibc reads these settings when a process starts, hence the new start.
    """
    if not is_warm():
        command = [sys.executable, "-m", "longspan", *arguments]
        os.execve(sys.executable, command, child_environment() | WARM)


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """Processes that wanted to run in the last minute; above the threads used, others were busy."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def setting(threads: int) -> dict[str, Any]:
    """What a reader needs to compare figures with those of another run."""
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "processors": processors(),
        "instructions": cpu.instruction_sets() if cpu.available() else [],
        "threads": threads,
        "clock": "process CPU time" if threads == 1 else "wall time",
        "load before": load(),
        "allocator": {name: os.environ[name] for name in WARM if name in os.environ},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "torch": torch.__version__,
        "versions": {name: _version(name) for name in ("longspan", *PEERS)},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
