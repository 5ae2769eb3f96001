"""What was made from tensors, kept for as long as these live and stay as they are.

All the layers of a model, and their backward passes, are given the same mask of global tokens; what
follows from it alone is made once. A tensor is known as an object, never by its address, and held
by a weak reference: what was made of it goes with it.

A compiled program writes into tensors again without telling, and says by a stamp which of them are
the same: a new tensor that it has made for them as they are. Nothing is kept in a program that is
traced or recorded, in which tensors have no values yet. What follows from numbers alone is made
there as anywhere, `plainly`, and may be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch._subclasses.functional_tensor import disable_functional_mode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

__all__ = ["Remembered", "all_plain", "are_lasting", "lasting", "plainly"]

Made = TypeVar("Made")

PLAIN = (Tensor, nn.Parameter)

# Whether replays of a compiled program write into this tensor again and again, without counting;
# there is no such thing where PyTorch was built without CUDA.
_is_rewritten: Callable[[Tensor], bool] | None = getattr(torch._C, "_is_cached_tensor", None)

# A model has few masks at a time, and each of them few sizes and patterns.
MOST = 32


@contextmanager
def plainly() -> Iterator[None]:
    """Computes as if nobody traced or transformed: tensors that are made here are plain ones with
    values, for every later call. None may come in that are not (`all_plain`). Whoever only watches
    still sees all.
    """
    with (
        _untraced(),
        torch.inference_mode(False),
        torch.no_grad(),
        disable_proxy_modes_tracing(),
        disable_functional_mode(),
        unset_fake_temporarily(),
        temporarily_clear_interpreter_stack(),
    ):
        yield


@contextmanager
def _untraced() -> Iterator[None]:
    """Nothing of this is recorded by `torch.jit.trace`."""
    if not torch._C._is_tracing():
        yield
        return
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)  # type: ignore[attr-defined]


def all_plain(tensors: Iterable[Tensor | None]) -> bool:
    """Are all of these tensors of PyTorch's own, with values, whoever traces or transforms?"""
    return all(
        [
            x is None
            or (
                type(x) in PLAIN
                and not x.is_meta
                and not torch._C._functorch.is_functorch_wrapped_tensor(x)
            )
            for x in tensors
        ]
    )


class _Entry(NamedTuple):
    """What was made, the tensors it was made from, and how these were then."""

    made: Any
    tensors: tuple[ref[Tensor], ...]
    states: tuple[Any, ...]

    def is_of(self, tensors: Sequence[Tensor]) -> bool:
        return all(
            known() is tensor and _unchanged(tensor, state)
            for known, tensor, state in zip(self.tensors, tensors, self.states, strict=True)
        )


class Remembered(Generic[Made]):
    """What one function made from tensors, the last few results; the oldest goes first.

    Safe to ask from several threads: a dict's own steps are whole ones, and none of them waits.
    Two that ask for the same at once may both make it.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def found(
        self,
        make: Callable[[list[Tensor]], Made],
        tensors: Sequence[Tensor],
        rest: Hashable,
        *,
        stamp: Tensor | None = None,
    ) -> Made:
        """What `make` makes from the tensors, from the last time where nothing has changed.

        Args:
            make: is given the tensors, or copies of them, in their order; one that is there twice
                is so there too. Must not depend on anything besides them and `rest`.
            tensors: all on one device.
            rest: what else the result depends on.
            stamp: the tensors are those for which this one was made, whatever they are; None where
                PyTorch's version counters tell of every change, as they do outside of compiled
                programs. Where values can be read without waiting, which is on a CPU, they are
                compared instead.
        """
        if not _have_values(tensors):
            return make(list(tensors))
        known = tensors if stamp is None else (stamp,)
        # Streams of a GPU do not wait for each other, and tensors of inference mode cannot do all
        # that others can.
        where = tensors[0].device, _stream(tensors[0].device), torch.is_inference_mode_enabled()
        key = rest, where, tuple([id(tensor) for tensor in known])
        entry = self._entries.get(key)
        if entry is not None and entry.is_of(known):
            made: Made = entry.made
            return made
        return self._made(make, tensors, known, key)

    def _made(
        self,
        make: Callable[[list[Tensor]], Made],
        tensors: Sequence[Tensor],
        known: Sequence[Tensor],
        key: Hashable,
    ) -> Made:
        # From copies: what is made often holds what it was given, or a view of it, which would keep
        # the tensors alive, and change with them.
        copies = {id(tensor): tensor.detach().clone() for tensor in tensors}
        states = tuple([_state(tensor, copies.get(id(tensor))) for tensor in known])
        made = make([copies[id(tensor)] for tensor in tensors])
        forget = partial(_forget, self._entries, key)
        owners = tuple([ref(tensor, forget) for tensor in known])
        # In two steps, for a new entry to be the last in the order of the dict.
        self._entries.pop(key, None)
        self._entries[key] = _Entry(made, owners, states)
        for oldest in list(self._entries)[:-MOST]:
            self._entries.pop(oldest, None)
        return made


def _forget(entries: dict[Any, Any], key: Hashable, _: object) -> None:
    entries.pop(key, None)


_LASTING: dict[int, ref[Tensor]] = {}


def lasting(*tensors: Tensor | None) -> None:
    """Says that these are given to compiled programs and not made by them, so that PyTorch's
    counters tell of every change: layers that are compiled one by one may know them again.
    """
    for tensor in tensors:
        if tensor is not None and id(tensor) not in _LASTING:
            _LASTING[id(tensor)] = ref(tensor, partial(_forget, _LASTING, id(tensor)))


def are_lasting(tensors: Iterable[Tensor]) -> bool:
    """Whether it was said of all of them."""
    return all([(known := _LASTING.get(id(x))) is not None and known() is x for x in tensors])


def _have_values(tensors: Sequence[Tensor]) -> bool:
    """Do the tensors have values now, and can it be told when these change?"""
    if (
        not tensors
        or torch.compiler.is_compiling()
        or is_in_torch_dispatch_mode()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_tracing()
        or not all([type(tensor) in PLAIN for tensor in tensors])
    ):
        return False
    device = tensors[0].device
    if not all([tensor.device == device for tensor in tensors]):
        return False
    if device.type == "cpu":
        return True
    return (
        device.type == "cuda"
        and not any([tensor.is_inference() for tensor in tensors])
        and not (_is_rewritten is not None and any([_is_rewritten(x) for x in tensors]))
        and not torch.cuda.is_current_stream_capturing()
    )


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _state(tensor: Tensor, copy: Tensor | None) -> Any:
    """What tells a change: the values where they can be read, else what PyTorch counts. Of a stamp
    there is no copy: it does not change.
    """
    return copy if copy is None or tensor.device.type == "cpu" else _counts(tensor)


def _unchanged(tensor: Tensor, state: Any) -> bool:
    if state is None:
        return True
    if isinstance(state, Tensor):
        return tensor.dtype == state.dtype and torch.equal(tensor, state)
    return bool(_counts(tensor) == state)


def _counts(tensor: Tensor) -> tuple[Any, ...]:
    """Its version, and where it lies: another tensor's memory put into it is not counted."""
    return tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
