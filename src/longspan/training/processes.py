"""Numbers and small objects of all processes, without pickle."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import distributed as dist

__all__ = [
    "first_process",
    "gathered",
    "part",
    "process_count",
    "process_number",
    "started_together",
    "summed",
    "wait",
]


def process_count() -> int:
    there = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if there else 1


def process_number() -> int:
    there = dist.is_available() and dist.is_initialized()
    return dist.get_rank() if there else 0


def first_process() -> bool:
    """Whether this is the one that speaks, even before processes know one another."""
    return int(os.environ.get("RANK", "0")) == 0


def started_together() -> bool:
    """Whether a launcher has started several processes, even before they know one another."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def summed(values: list[float], device: torch.device) -> list[float]:
    """Each value summed over all processes, in float64."""
    if process_count() == 1:
        return values
    whole = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(whole)
    return whole.tolist()


def gathered(value: Any, device: torch.device) -> list[Any]:
    """What every process has, as JSON can hold it, in the order of their numbers."""
    if process_count() == 1:
        return [value]
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(process_count())]
    dist.all_gather(sizes, torch.tensor([len(text)], device=device))
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: len(text)] = text
    texts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(texts, padded)
    return [
        json.loads(bytes(own[: int(size)].tolist())) for own, size in zip(texts, sizes, strict=True)
    ]


def part() -> None:
    """Ends what processes that were started together have in common, once all of them are here:
    none leaves while another still talks to it.
    """
    wait()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def wait() -> None:
    """Until every process is here."""
    if process_count() > 1:
        dist.barrier()
