"""What a weight is: how much a pair that exists counts before it is normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ..errors import broadcasts, describe
from ..fixed_order import spread
from ..kinds import check_fields, register_kind
from ..patterns import Pattern

__all__ = ["Place", "Weight", "check_exempt", "check_per_query", "per_query"]


class Place(NamedTuple):
    """Where a dense weight is computed.

    Attributes:
        offset: j − i of every pair, int64 `(N, M)`.
        q: queries `(B, H, N, D)`.
        meet: gives rows `(B, H, N, D)` · kᵀ, without a gradient for pairs that do not exist.
        meet_at: gives for every pair its row · table[index], of a table `(H|1, L, D)` and an index
            `(N, M)`, without a gradient for pairs that do not exist.
        scale: what the scores were multiplied by.
    """

    offset: Tensor
    q: Tensor
    meet: Callable[[Tensor], Tensor]
    meet_at: Callable[[Tensor, Tensor, Tensor], Tensor]
    scale: float


class Weight:
    """How much a pair that exists counts; may be learned.

    In a list of weights each acts in turn: a bias adds to the scores, a factor multiplies them or
    the probabilities. A new weight writes `fields`, `learned` and the dense methods that it needs.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[tuple[str, ...]] = ()
    exempt: Pattern | None = None

    # The class whose dense form this is: the nearest that says what such a weight does.
    form_of: ClassVar[type[Weight]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_fields(cls, "weight")
        register_kind(cls)
        owner = next(one for one in cls.__mro__ if one is Weight or _acts(one))
        cls.form_of = owner if issubclass(owner, Weight) and owner is not Weight else cls

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        """Raises when the weight does not fit a problem of this size."""

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        """The scores `(B, H, N, M)` after this weight."""
        return scores

    def on_probabilities(self, place: Place) -> Tensor | None:
        """What the probabilities are multiplied by, or None."""
        return None

    def keeps(self) -> Tensor | None:
        """Which pairs the weight's own values leave in existence, bool, or None for all (a bias of
        −inf removes).
        """
        return None

    def values(self) -> tuple[Any, ...]:
        """The constructor's arguments, in the order of `fields`."""
        return tuple(getattr(self, name) for name in self.fields)

    def __repr__(self) -> str:
        shown = (
            f"{name}={describe(value) if isinstance(value, Tensor) else repr(value)}"
            for name, value in zip(self.fields, self.values(), strict=True)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _acts(kind: type) -> bool:
    """Whether a class has a method of its own that says what a weight does."""
    own = [name for name, value in vars(kind).items() if callable(value)]
    return any(name[:1] != "_" and name not in ("check", "values") for name in own)


def check_exempt(name: str, exempt: Any) -> None:
    """Raises unless `exempt` is a pattern or None."""
    if exempt is not None and not isinstance(exempt, Pattern):
        raise TypeError(f"{name} must be a pattern or None, got {describe(exempt)}")


def check_per_query(name: str, value: float | Tensor, batch: int, heads: int, n: int) -> None:
    """Raises unless a per-query quantity has a shape that broadcasts to `(B, H, N)`."""
    if not isinstance(value, Tensor):
        return
    shape = (1,) * (3 - value.dim()) + tuple(value.shape)
    if not (
        broadcasts(shape[0], batch) and broadcasts(shape[1], heads) and broadcasts(shape[2], n)
    ):
        raise ValueError(
            f"{name} must broadcast to (B, H, N) = ({batch}, {heads}, {n}), got {describe(value)}"
        )


def per_query(value: float | Tensor, like: Tensor) -> Tensor:
    """A per-query quantity as `(B, H, N, 1)`, in the dtype and for the rows of `like`, `(B, H, N,
    D)`.
    """
    if not isinstance(value, Tensor):
        return like.new_full((1, 1, 1, 1), value)
    whole = spread(value.to(like.dtype), tuple(like.shape[:3]))
    return whole[..., None]
