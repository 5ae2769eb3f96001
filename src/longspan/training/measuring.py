"""What is written down beside the loss: reaches, pairs, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..memory import resident
from ..nn import LearnedWindow, Mechanism, Setting
from ..nn.global_rows import GlobalRows
from .learner import Learner
from .processes import summed

__all__ = ["COUNTED", "Pairs", "forget_peak", "peak_memory", "reaches", "watched"]

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)

# Pairs are counted for about so many examples: it takes a layout for each of them and each layer.
COUNTED = 16


def reaches(learner: Learner, real: Tensor, source: Tensor | None = None) -> dict[str, Any] | None:
    """Mean and quantiles of the reach in every layer, and its mean in every head, over the real
    tokens of the last batch, None for layers without learned windows; None if none has any.

    Args:
        real: which tokens are; in translation those that the decoder reads.
        source: in translation the same of those that the encoder reads.
    """
    layers: list[dict[str, Any] | None] = []
    heads: list[list[float] | None] = []
    for own in learner.mechanisms():
        if not isinstance(own, LearnedWindow) or own.last_reach is None:
            layers.append(None)
            heads.append(None)
            continue
        mine = real if source is None or own.causal else source
        reach = own.last_reach.transpose(0, 1)[:, mine].float()  # (H, real tokens)
        if reach.numel() == 0:
            return None
        whole = reach.flatten()
        # Of the sorted values: `quantile` takes no more than 16 million.
        order = whole.sort().values
        places = [round(share * (len(order) - 1)) for share in QUANTILES]
        layers.append({"mean": float(whole.mean()), "quantiles": order[places].tolist()})
        heads.append(reach.mean(-1).tolist())
    return {"layer": layers, "heads": heads} if any(layers) else None


@contextmanager
def watched(learner: Learner) -> Iterator[list[tuple[Mechanism, tuple[Any, ...]]]]:
    """A list that fills with the mechanisms of self-attention that are called, in order, and what
    they are called with.
    """
    seen: list[tuple[Mechanism, tuple[Any, ...]]] = []

    def look(mechanism: Any, inputs: tuple[Any, ...]) -> None:
        seen.append((mechanism, inputs))

    hooks = [own.register_forward_pre_hook(look) for own in learner.mechanisms()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


Seen = list[tuple[Mechanism, tuple[Any, ...]]]


@dataclass(slots=True)
class Pairs:
    """How many pairs examples have, over all layers and heads, and how far their tokens reach where
    that is learned; padding has none, and global tokens have no reach.
    """

    total: float = 0.0
    tokens: float = 0.0
    examples: float = 0.0
    reach: float = 0.0
    reaching: float = 0.0

    @torch.no_grad()
    def add(self, seen: Seen, most: int) -> None:
        """Counts the first examples of a batch, at most so many, from what `watched` has seen."""
        counted = 0
        for mechanism, (q, k, v, setting) in seen:
            counted = min(most, q.shape[0])
            for place in range(counted):
                n = _length(setting, place, q.shape[2])
                own = _cut(setting, place, n)
                one = slice(place, place + 1)
                cut = (q[one, :, :n], k[one, :, :n], v[one, :, :n])
                self.total += mechanism.explain(*cut, own).pairs
                if isinstance(mechanism, GlobalRows) and own.global_tokens is not None:
                    # Their rows are computed apart.
                    apart = int(own.global_tokens.sum()) if mechanism.global_projections else 0
                    self.total += apart * n * q.shape[1]
                if isinstance(mechanism, LearnedWindow):
                    self._add_reach(mechanism, own)
                self.tokens += n * q.shape[1]
        self.examples += counted

    def _add_reach(self, mechanism: LearnedWindow, setting: Setting) -> None:
        """Of the one sample that the mechanism was last asked about."""
        reach = mechanism.last_reach if mechanism.soft else mechanism.whole_reach()
        assert reach is not None
        own = reach[0].double()
        if setting.global_tokens is not None:
            own = own[:, ~setting.global_tokens[0]]
        self.reach += float(own.sum())
        self.reaching += own.numel()

    def summed(self, device: torch.device) -> dict[str, float]:
        """The pairs of an example, and of a token in one head, on average over all processes; and
        the mean reach, in whole tokens where it cuts.
        """
        own = [self.total, self.tokens, self.examples, self.reach, self.reaching]
        total, tokens, examples, reach, reaching = summed(own, device)
        found = {"pairs": total / max(examples, 1), "pairs_per_token": total / max(tokens, 1)}
        return found if not reaching else found | {"mean_reach": reach / reaching}


def _length(setting: Setting, place: int, n: int) -> int:
    """How many tokens of a sample are real; padding is on the right."""
    padding = setting.key_padding
    return n if padding is None else int(padding[place].sum())


def _cut(setting: Setting, place: int, n: int) -> Setting:
    """The setting of one sample without its padding."""
    tokens, x, unturned = setting.global_tokens, setting.x, setting.unturned
    return setting._replace(
        x=None if x is None else x[place : place + 1, :n],
        key_padding=None,
        global_tokens=None if tokens is None else tokens[place : place + 1, :n],
        unturned=None if unturned is None else unturned[place : place + 1, :, :n],
    )


def forget_peak(device: torch.device) -> None:
    """Memory that was taken before this, by another run, does not count."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    # Linux alone tells, and not everywhere.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int | None:
    """The most bytes until now: of a GPU's tensors, or of this process; None where nobody tells."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        return resident("VmHWM")
    except OSError:
        return None
