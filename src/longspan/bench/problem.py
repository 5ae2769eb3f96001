"""A problem: who takes part, and what is asked of the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..measure import Size
from .contenders import Contender
from .floor import best_rate
from .records import Figure, Outcome

__all__ = ["Problem", "Results", "size_of"]

Two = tuple[float | None, float | None]


def size_of(quick: bool, *, length: int = 4096, heads: int = 12, head_dim: int = 64) -> Size:
    """The size that all problems share, float32; a small one for a quick look."""
    if quick:
        return Size(heads=2, length=max(length // 8, 256), head_dim=head_dim)
    return Size(heads=heads, length=length, head_dim=head_dim)


class Results:
    """What the contenders of a problem did, by name."""

    def __init__(self, problem: str, outcomes: Iterable[Outcome]) -> None:
        self.problem = problem
        self.outcomes = {outcome.name: outcome for outcome in outcomes}

    def __getitem__(self, name: str) -> Outcome:
        return self.outcomes[name]

    def rate(self, group: str = "") -> float:
        """Flops a second of the best matrix product that took turns in a group."""
        return best_rate(o for name, o in self.outcomes.items() if name.endswith(group))

    def ratio(self, name: str, other: str) -> Two:
        """How many times as long a contender took as another."""
        a, b = self[name], self[other]
        return _divided(a, b, "forward"), _divided(a, b, "both")

    def figure(
        self,
        what: str,
        unit: str,
        values: Two,
        targets: Two = (None, None),
        *,
        at_least: bool = False,
        note: str = "",
        of: Iterable[str] = (),
    ) -> Figure:
        """A line of the table.

        Args:
            what: is compared with what.
            unit: of the values.
            values: forward, and forward and backward.
            targets: the same.
            at_least: whether the targets are lower limits.
            note: what a reader has to know.
            of: the contenders compared; when one did not run, the line says why instead.
        """
        missing = next((self[name].missing for name in of if self[name].missing), "")
        return Figure(
            problem=self.problem,
            what=what,
            unit=unit,
            values=(None, None) if missing else values,
            targets=targets,
            at_least=at_least,
            note=missing or note,
        )


def _divided(a: Outcome, b: Outcome, which: str) -> float | None:
    above, below = getattr(a, which), getattr(b, which)
    return None if above is None or below is None else above.median / below.median


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something to measure.

    Attributes:
        name: for `--only`.
        title: in one line.
        ours: what longspan runs.
        peers: what it is measured beside; matrix products too, where the floor is asked for.
        judge: from what was measured to the lines of the table.
        wall: timed by the clock on the wall, whatever the number of threads.
        memory: measures peak memory in a fresh process instead of time.
    """

    name: str
    title: str
    ours: tuple[Contender, ...]
    peers: tuple[Contender, ...] = ()
    judge: Callable[[Results], list[Figure]]
    wall: bool = False
    memory: bool = False

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All that take part."""
        return self.ours + self.peers
