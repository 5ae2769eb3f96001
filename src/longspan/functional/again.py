"""Calls like one before, on a GPU: what they launch is known, and nothing is worked out again.

Checking a call's arguments, stating its problem and finding its layout takes Python longer than the
kernels of a short call take. A backend that keeps notes on what a call launched can play them with
other tensors; all that they depend on is the key under which they are found here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..kernels import triton
from ..kernels.likeness import alike
from ..normalizers import Softmax
from ..weights import Bell
from .bare import Bare, bared
from .dispatch import choose
from .encoding import Meaning
from .observed import PLAIN, observed
from .problems import Settings, problem_of

__all__ = ["Kept", "Notes", "key_of", "known", "note", "note_backward"]

# Of calls with patterns without tensors; a tape of such a call holds on to little memory.
MOST_KNOWN = 256
# Notes are there from a call's second time on; where there are none after some more, or always
# others are needed, nobody asks again.
MOST_TRIES = 8


class Tape(Protocol):
    """What a backend launched for a call."""

    def holds(self) -> bool:
        """Would it launch the same now?"""

    def play(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Computes it for other inputs."""


class Notes:
    """How calls of one kind are played: the forward, and backwards by what their inputs look
    like.
    """

    def __init__(self, forward: Tape) -> None:
        self.forward = forward
        self.backwards: dict[Hashable, Tape] = {}
        self.tries = 0

    def backward(self, inputs: Sequence[Tensor]) -> list[Tensor] | None:
        """Gradients, of the bell's variance too, if there is one; None where there are no notes.

        Args:
            inputs: q, k, v, the output, the limits, the output's gradient, and the variance.
        """
        tape = self.backwards.get(alike(inputs))
        return tape.play(inputs) if tape is not None and tape.holds() else None


class Kept(NamedTuple):
    """What a backward needs besides tensors; `learned` is how many of those are."""

    bare: Bare
    learned: int
    scale: float
    dropout: float
    backend: str
    notes: Notes | None = None


_KNOWN: dict[Hashable, Kept] = {}
_TRIES: dict[Hashable, int] = {}


def _on_current_gpu(x: Tensor) -> bool:
    return x.is_cuda and x.device.index == torch.cuda.current_device()


def key_of(
    q: Any, k: Any, v: Any, pattern: Any, weight: Any, normalizer: Any, scale: Any,
    key_padding: Any, dropout: Any, backend: Any,
) -> tuple[Hashable, tuple[Tensor, ...]] | None:  # fmt: skip
    """All that a call's launches depend on, and the tensors of its weight; None for one of which no
    notes are taken. Arguments as for `attention`, not checked yet.
    """
    if torch.compiler.is_compiling() or key_padding is not None:
        return None
    if type(q) not in PLAIN or type(k) not in PLAIN or type(v) not in PLAIN:
        return None
    if not _on_current_gpu(q):
        return None
    learned: tuple[Tensor, ...] = ()
    about: Hashable = None
    if type(weight) is Bell:
        width = weight.variance
        if not isinstance(width, Tensor) or type(width) not in PLAIN:
            return None
        if width.dtype != torch.float32 or width.dim() != 3:
            return None
        if weight.normalized:
            # Of a variance below the least one `passes` has more to say than the kernels.
            return None
        about = (
            weight.threshold, weight.max_reach, weight.exempt, weight.form, width.shape,
            width.device,
        )  # fmt: skip
        learned = (width,)
    elif weight is not None:
        return None
    if (
        type(dropout) not in (float, int)
        or dropout != 0
        or not (normalizer is None or type(normalizer) is Softmax)
        or not (scale is None or type(scale) is float)
        or backend not in ("auto", "triton")
        or (torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") != q.dtype)
        or observed()
    ):
        return None
    memory = alike((q, k, v, *learned))
    if any(memory.misaligned):
        return None
    key = (
        pattern, about, scale, backend, q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape,
        q.device, k.device, v.device, memory,
    )  # fmt: skip
    return key, learned


def known(key: Hashable) -> Kept | None:
    """What is known of calls of this kind, with notes."""
    kept = _KNOWN.get(key)
    if kept is None or kept.notes is None or not kept.notes.forward.holds():
        return None
    return kept


def note(
    key: Hashable, q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings,
    backend: str,
) -> None:  # fmt: skip
    """After a call: remembers the backend's notes on it, if it has any by now."""
    parts = [meaning.pattern, *[w.exempt for w in meaning.weights]]
    if any([part is not None and part.has_tensors() for part in parts]):
        return
    tries = _TRIES.get(key, 0)
    if tries >= MOST_TRIES:
        return
    if len(_TRIES) >= MOST_KNOWN:
        _TRIES.clear()
        _KNOWN.clear()
    _TRIES[key] = tries + 1
    bare, learned, _ = bared(meaning)
    tape = _tape(q, k, v, meaning, settings, backend, (q, k, v, *learned), "forward")
    if tape is not None:
        kept = Kept(bare, len(learned), settings.scale, settings.dropout, backend, Notes(tape))
        _KNOWN[key] = kept


def note_backward(
    notes: Notes, inputs: Sequence[Tensor], meaning: Meaning, settings: Settings, backend: str
) -> None:
    """After a backward that was not played: remembers the backend's notes on it."""
    memory = alike(inputs)
    if notes.tries >= MOST_TRIES or any(memory.misaligned):
        return
    notes.tries += 1
    q, k, v = inputs[:3]
    tape = _tape(q, k, v, meaning, settings, backend, inputs, "backward")
    if tape is not None:
        notes.backwards[memory] = tape


def _tape(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str,
    inputs: Sequence[Tensor], which: str,
) -> Tape | None:  # fmt: skip
    problem = problem_of(q, k, v, meaning, settings)
    _, module = choose(problem, backend)
    return triton.noted(problem, inputs, which) if module is triton else None
