"""Calls like one before: the same launches with other addresses.

What a call launches follows from its layout, shapes, strides and numbers alone. The second call of
a kind is noted down, and from the third on nothing is worked out again. Notes are kept with the
layout, and go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from ...likeness import alike
from ...problem import BellReach, BellTerm, Problem, SameReach
from .. import configs
from ..arguments import captured
from ..driver import Launch, Place
from ..launching import Recording, recorded
from ..parameters import Unknown

__all__ = ["Tape", "noted", "played"]

# Of one layout: calls of other sizes of batches, dtypes, and strides.
MOST_TAPES = 64
# Of memory that a call shares out among what it needs for itself.
ALIGNED = 256


class Tape:
    """The launches of a call.

    Args:
        recording: what it launched and made.
        inputs: tensors that it read.
        returned: tensors that it made and gave back.
    """

    def __init__(
        self, recording: Recording, inputs: Sequence[Tensor], returned: Sequence[Tensor]
    ) -> None:
        if not recording.whole:
            raise Unknown("it does more than launch kernels")
        self.device = inputs[0].device
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

    def holds(self) -> bool:
        """Would the call launch the same now?"""
        return not configs.overridden()

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
        stream, at = torch._C._cuda_getCurrentRawStream(device.index), tuple(addresses)
        for launch in self.launches:
            launch(stream, at)
        return made


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


# By kind of call; None for a kind that cannot be played.
Tapes = dict[Hashable, Tape | None]


def tapes_of(problem: Problem) -> Tapes | None:
    """The notes on calls with a problem's layout; None where none are taken."""
    walks = problem.open_layout.walks
    # Padding is another layout in every call.
    if problem.dropout or len(walks) != 1 or walks[0].unpadded is not None or configs.overridden():
        return None
    plan = walks[0].plan
    tapes: Tapes | None = plan.get("hopper tapes")
    if tapes is None and not captured(problem.q.device):
        # The layout of many calls, or of this one alone? Notes are taken when it comes again.
        plan["hopper tapes"] = {}
    return tapes


def key_of(problem: Problem, inputs: Sequence[Tensor], more: Hashable) -> Hashable | None:
    """All that the launches of a call depend on besides its layout; None for one that may not be
    played.
    """
    q, k, v = inputs[:3]
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
    return (
        more, q.device, q.dtype, q.shape, k.shape, v.shape, problem.scale, alike(inputs), *weights,
    )  # fmt: skip


def played(
    problem: Problem,
    inputs: Sequence[Tensor],
    more: Hashable,
    call: Callable[[], Sequence[Tensor] | None],
) -> Sequence[Tensor] | None:
    """What a call gives: played, where one like it is known, or made, and then noted down.

    Args:
        inputs: all tensors that it reads and that are not its layout's; q, k and v first.
        more: what tells it from other calls with such inputs.
        call: makes it; None when it cannot be made.
    """
    tapes = tapes_of(problem)
    key = None if tapes is None else key_of(problem, inputs, more)
    if tapes is None or key is None:
        return call()
    tape = tapes.get(key)
    if tape is not None:
        return tape.play(inputs)
    if key in tapes or captured(problem.q.device):
        return call()
    with recorded() as recording:
        returned = call()
    if returned is None:
        return None
    if len(tapes) >= MOST_TAPES:
        tapes.clear()
    try:
        tapes[key] = Tape(recording, inputs, returned)
    except Unknown:
        tapes[key] = None
    return returned


def noted(problem: Problem, inputs: Sequence[Tensor], more: Hashable) -> Tape | None:
    """The notes on a call, if there are any; arguments as for `played`."""
    tapes = tapes_of(problem)
    key = None if tapes is None else key_of(problem, inputs, more)
    return None if tapes is None or key is None else tapes.get(key)
