"""Who is timed on a GPU, and how a contender's passes are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...functional import attention
from ...measure import Size
from ...patterns import Pattern
from ...weights import Weight
from .floor import Card
from .records import Entry, Figure, Taken
from .timing import Call, Failure, Stopwatch

__all__ = [
    "OURS",
    "Bench",
    "Variant",
    "Work",
    "compared",
    "gradient_of",
    "inputs",
    "ours",
    "ratios",
]

OURS = "longspan"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where rows run, and how much of them.

    Attributes:
        watch: times calls.
        device: of all tensors.
        card: its rates; None when they are not known.
        backend: of longspan's calls; a named one never falls back.
        peers: whether to time them too.
        quick: small inputs, to see that all of it works.
        compiled: whether FlexAttention is compiled, as its users do; it is slow otherwise.
    """

    watch: Stopwatch
    device: torch.device
    card: Card | None = None
    backend: str = "triton"
    peers: bool = True
    quick: bool = False
    compiled: bool = True

    def size(
        self, *, batch: int = 4, heads: int = 16, length: int = 4096, head_dim: int = 64
    ) -> Size:
        """A size in bfloat16; a small one for a quick look."""
        if self.quick:
            batch, heads, length = 1, 2, min(length, 1024)
        return Size(
            batch=batch, heads=heads, length=length, head_dim=head_dim, dtype=torch.bfloat16
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A call, ready to run.

    Attributes:
        attend: the forward pass, given what `mask` made.
        leaves: what a backward pass gives gradients to.
        mask: makes what the call has to have beforehand; None when there is nothing.
        remade: whether `mask` belongs to every step, since what it depends on learns.
    """

    attend: Callable[[Any], Tensor | Sequence[Tensor]]
    leaves: tuple[Tensor, ...]
    mask: Callable[[], Any] | None = None
    remade: bool = False

    def calls(self) -> dict[str, Call]:
        """The passes by name, each made ready when its turn comes.

        The forward runs with gradients wanted, as in training.
        """
        found: dict[str, Call] = {}
        mask = self.mask
        if mask is not None:
            found["mask"] = lambda: mask
        found["forward"] = self._forward
        found["backward"] = self._backward
        found["step"] = self._step
        return found

    def made(self) -> Any:
        """What the call has to have beforehand."""
        return None if self.mask is None else self.mask()

    def _forward(self) -> Callable[[], object]:
        made = self.made()
        return lambda: self.attend(made)

    def _backward(self) -> Callable[[], object]:
        out = self.attend(self.made())
        grad = gradient_of(out)
        return lambda: torch.autograd.grad(out, self.leaves, grad, retain_graph=True)

    def _step(self) -> Callable[[], object]:
        made = self.made()
        grad = gradient_of(self.attend(made))

        def step() -> None:
            out = self.attend(self.made() if self.remade else made)
            torch.autograd.grad(out, self.leaves, grad)

        return step


def gradient_of(out: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """A gradient for each output of a call."""
    return [torch.randn_like(x) for x in ([out] if isinstance(out, Tensor) else out)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to make a contender's call: of several, the fastest counts, pass by pass.

    Attributes:
        name: of the way; empty where there is only one.
        make: makes the call.
        passes: to time; all that the row asks for when None.
        note: what a reader has to know of it.
    """

    name: str
    make: Callable[[], Work]
    passes: tuple[str, ...] | None = None
    note: str = ""


def inputs(size: Size, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that want gradients, drawn on the device."""
    source = torch.Generator(device).manual_seed(0)
    shape = (size.batch, size.heads, size.length, size.head_dim)
    q, k, v = (torch.randn(shape, generator=source, device=device).to(size.dtype) for _ in range(3))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def ours(
    bench: Bench,
    size: Size,
    pattern: Pattern | None = None,
    weight: Callable[[], Weight] | None = None,
    dropout: float = 0.0,
    key_padding: Tensor | None = None,
) -> list[Variant]:
    """longspan's own call, with gradients to q, k, v and whatever of the weight learns."""

    def make() -> Work:
        q, k, v = inputs(size, bench.device)
        given = None if weight is None else weight()
        learned = [] if given is None else [getattr(given, name) for name in given.learned]

        def attend(_: Any) -> Tensor:
            backend: Any = bench.backend
            return attention(
                q, k, v, pattern, weight=given, dropout=dropout, key_padding=key_padding,
                backend=backend,
            )  # fmt: skip

        return Work(attend=attend, leaves=(q, k, v, *learned))

    return [Variant(name="", make=make)]


def compared(
    bench: Bench,
    contenders: Mapping[str, Sequence[Variant]],
    passes: Iterable[str] = ("forward", "backward"),
    *,
    capture: bool = True,
) -> list[Entry]:
    """Times contenders: pass after pass, all of them and all their variants in turn."""
    works: dict[tuple[str, str], Mapping[str, Call]] = {}
    failed: dict[str, dict[str, str]] = {name: {} for name in contenders}
    for name, variants in contenders.items():
        for variant in variants:
            try:
                calls = variant.make().calls()
            except Exception as error:  # as in a race: the others can still be timed
                failed[name][variant.name] = Failure.of(error).reason
                continue
            asked = calls if variant.passes is None else variant.passes
            works[name, variant.name] = {which: calls[which] for which in asked}
    best: dict[str, dict[str, tuple[Taken, str]]] = {name: {} for name in contenders}
    for which in passes:
        racing = {f"{n}|{v}": calls[which] for (n, v), calls in works.items() if which in calls}
        for key, taken in bench.watch.race(racing, capture=capture).items():
            name, variant_name = key.split("|")
            if isinstance(taken, Failure):
                failed[name].setdefault(variant_name, f"{which}: {taken.reason}")
                continue
            known = best[name].get(which)
            if known is None or taken.median < known[0].median:
                best[name][which] = taken, variant_name
        bench.watch.free()
    return [
        _entry(name, best[name], failed[name], [v.note for v in variants if v.note])
        for name, variants in contenders.items()
    ]


def _entry(
    name: str, best: dict[str, tuple[Taken, str]], failed: dict[str, str], known: list[str]
) -> Entry:
    reasons = [f"{variant}: {why}" if variant else why for variant, why in failed.items()]
    if not best:
        return Entry(name=name, missing="; ".join(reasons) or "nothing to time")
    chosen: dict[str, list[str]] = {}
    for which, (_, variant) in best.items():
        chosen.setdefault(variant, []).append(which)
    notes = [f"{', '.join(which)}: {variant}" for variant, which in chosen.items() if variant]
    passes = {which: taken for which, (taken, _) in best.items()}
    return Entry(name=name, passes=passes, note="; ".join(notes + known + reasons))


def ratios(
    entries: Iterable[Entry],
    peer: str,
    targets: Mapping[str, float | tuple[float, float]],
    passes: Iterable[str] = ("forward", "backward"),
    *,
    own: str = OURS,
) -> list[Figure]:
    """How many times faster longspan is than a peer, pass by pass.

    Args:
        entries: of a row.
        peer: its name.
        targets: by pass, alone or with a stretch.
        passes: to compare.
        own: the entry to compare, where there are several of longspan's.
    """
    by_name = {entry.name: entry for entry in entries}
    if peer not in by_name:
        return []
    theirs, mine = by_name[peer], by_name[own]
    who = "" if own == OURS else f"{own}: "
    found = []
    for which in passes:
        asked = targets.get(which)
        target, stretch = asked if isinstance(asked, tuple) else (asked, None)
        a, b = theirs.passes.get(which), mine.passes.get(which)
        missing = theirs.missing or mine.missing or "not measured"
        found.append(
            Figure(
                what=f"{who}{which}, faster than {peer}",
                unit="×",
                value=None if a is None or b is None else a.median / b.median,
                target=target,
                stretch=stretch,
                note=missing if a is None or b is None else _unlike(a, b),
            )
        )
    return found


def _unlike(a: Taken, b: Taken) -> str:
    return "" if a.how == b.how else f"theirs: {a.how}, ours: {b.how}"
