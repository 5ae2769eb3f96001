"""The numbers of `metrics.jsonl` for TensorBoard. Needs tensorboard: `longspan[tensorboard]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .measuring import QUANTILES
from .records import finite

__all__ = ["Board", "need_tensorboard"]

# What says where a line belongs; and the metrics once more, by themselves.
LEFT_OUT = ("step", "stage", "kind", "metrics", "reach")


def need_tensorboard() -> Any:
    """The writer of events, or an error that says how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "tensorboard=True needs tensorboard: pip install 'longspan[tensorboard]'"
        ) from error
    return SummaryWriter


class Board:
    """Events of a run, beside what an interrupted one has written.

    Args:
        folder: of the events.
        step: the last step that counts, that of the checkpoint that a run goes on from. Events
            after it are those of steps that are made again: TensorBoard is told to forget them.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        again = folder.is_dir() and any(folder.iterdir())
        writer = need_tensorboard()
        self._writer = writer(str(folder), purge_step=step + 1 if again else None)

    def write(self, line: dict[str, Any]) -> None:
        """A line of metrics."""
        for name, value in scalars(line):
            self._writer.add_scalar(name, value, line["step"])

    def flush(self) -> None:
        """All until now is in the file."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def scalars(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of metrics by names: `train/loss`, `reach/layer 0/mean`."""
    kind = line["kind"]
    for key, value in finite(line).items():
        if key not in LEFT_OUT and isinstance(value, (int, float)):
            yield f"{kind}/{key}", float(value)
    reach = finite(line.get("reach"))
    if reach is None:
        return
    for layer, own in enumerate(reach["layer"]):
        if own is None:
            continue
        yield f"reach/layer {layer}/mean", own["mean"]
        for share, value in zip(QUANTILES, own["quantiles"], strict=True):
            yield f"reach/layer {layer}/quantile {share:g}", value
    for layer, heads in enumerate(reach["heads"]):
        for head, value in enumerate(heads or ()):
            yield f"reach/layer {layer}/head {head}", value
