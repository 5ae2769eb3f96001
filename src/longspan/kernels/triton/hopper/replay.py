"""Calls like one before: the same launches with other addresses.

What a call launches follows from shapes, strides and numbers alone. The second call of a kind is
noted down, and from the third on nothing is worked out again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...problem import BellReach, BellTerm, Problem, SameReach
from .. import configs
from ..arguments import captured
from .driver import Launch, Place, Unknown
from .launching import Recording, recorded

__all__ = ["Tape", "play", "record"]

MOST_TAPES = 256
# Of memory that a call shares out among what it needs for itself.
ALIGNED = 256

# None for a kind of call that cannot be played.
_TAPES: dict[Hashable, Tape | None] = {}


class Tape:
    """The launches of a call.

    Args:
        recording: what it launched and made.
        inputs: tensors that it read.
        returned: tensors that it made and gave back.
        kept: what has to live as long as the tape.
    """

    def __init__(
        self,
        recording: Recording,
        inputs: Sequence[Tensor],
        returned: Sequence[Tensor],
        kept: object = None,
    ) -> None:
        if not recording.whole:
            raise Unknown("it does more than launch kernels")
        self.device = inputs[0].device
        self.kept = kept
        self.returned = [(x.shape, x.stride(), x.dtype) for x in returned]
        places: dict[int, Place] = {}
        for number, x in enumerate(returned):
            places[_storage(x)] = Place(len(inputs) + number, 0)
        blob, end = Place(len(inputs) + len(returned), 0), 0
        for x in recording.made:
            if _storage(x) not in places:
                places[_storage(x)] = blob._replace(offset=end)
                end += -(-x.numel() * x.element_size() // ALIGNED) * ALIGNED
        self.bytes = end

        def place_of(x: Tensor) -> Place | None:
            for number, given in enumerate(inputs):
                if x is given:
                    return Place(number, 0)
            found = places.get(_storage(x))
            if found is None:
                return None
            inside = int(x.storage_offset()) * x.element_size()
            return found._replace(offset=found.offset + inside)

        self.launches = [Launch(*started, place_of) for started in recording.launches]

    def play(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Computes it again for other inputs."""
        device = self.device
        made = [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in self.returned
        ]
        addresses = [x.data_ptr() for x in inputs]
        addresses += [x.data_ptr() for x in made]
        if self.bytes:
            own = torch.empty(self.bytes, dtype=torch.uint8, device=device)
            addresses.append(own.data_ptr())
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        for launch in self.launches:
            launch(stream, addresses)
        return made


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def key_of(problem: Problem, inputs: Sequence[Tensor], more: Hashable) -> Hashable | None:
    """All that the launches of a call depend on; None for one that may not be played."""
    q, k, v = inputs[:3]
    walks = problem.open_layout.walks
    if problem.dropout or len(walks) != 1 or walks[0].unpadded is not None or configs.overridden():
        return None
    weights: list[Hashable] = []
    for term in problem.terms:
        if not isinstance(term, BellTerm):
            return None
        weights.append((term.number, term.form, term.given.shape))
    for reach in problem.reaches:
        if isinstance(reach, BellReach):
            weights.append((reach.number, reach.threshold, reach.most))
        elif isinstance(reach, SameReach):
            weights.append((reach.number, reach.tokens))
        else:
            return None
    names = [id(x) for x in inputs]
    return (
        more, id(walks[0]), q.device, q.dtype, q.shape, k.shape, v.shape, problem.scale,
        *[x.stride() for x in inputs],
        *[x.data_ptr() & 15 for x in inputs],
        # Which of them are one.
        *map(names.index, names),
        *weights,
    )  # fmt: skip


def play(key: Hashable | None, inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """What such a call gives, if one is known."""
    tape = None if key is None else _TAPES.get(key)
    return None if tape is None else tape.play(inputs)


def record(
    key: Hashable | None, problem: Problem, inputs: Sequence[Tensor], call: Any
) -> tuple[Tensor, ...]:
    """Makes a call, and notes it down if one with the same layout was there before.

    Args:
        call: gives the tensors that it makes for its caller.
    """
    if key is None or key in _TAPES or captured(problem.q.device):
        return call()
    walk = problem.open_layout.walks[0]
    if not walk.plan.get("hopper again"):
        # The layout of many calls, or of this one alone?
        walk.plan["hopper again"] = True
        return call()
    with recorded() as recording:
        returned = call()
    if len(_TAPES) >= MOST_TAPES:
        _TAPES.clear()
    try:
        _TAPES[key] = Tape(recording, inputs, returned, walk)
    except Unknown:
        _TAPES[key] = None
    return returned
