"""What a pattern is, and how two of them combine.

A pattern says which (query, key) pairs exist. Its one defining method is `contains(i, j, n, m)`;
everything else (`dense`, `pairs`, `hops`, `draw`) follows from it. `a | b` has the pairs of either,
`a & b` those of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import describe, need_int
from ..kinds import check_fields, register_kind
from .drawing import draw_text, figure_of, save_picture, svg_of
from .paths import Hops, hops_of

__all__ = ["LARGEST", "AllOf", "AnyOf", "Full", "Pattern", "PerHead", "need_count"]

PAIRS_AT_ONCE = 1 << 24

# Of a pattern's numbers: the product of two such, and a position more, is still an int64.
LARGEST = 2**31 - 1

# A notebook shows a pattern on as many tokens: the first number with this share of pairs at most.
SIZES = (32, 64, 128, 256, 512, 1024)
MOST_SHOWN = 0.4


class Pattern:
    """Which (query, key) pairs exist.

    Positions are those of the keys, 0 … m−1; with n queries, query row r sits at position i = r + m
    − n. Patterns are values: do not change one after making it. A tensor inside may change between
    calls, by operations that PyTorch counts (`Tensor._version`).

    A new pattern writes `fields` (the names of its constructor's arguments, kept as attributes) and
    `contains`.
    """

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_fields(cls, "pattern")
        register_kind(cls)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        """Tells for each query position and key position whether the pair exists.

        Args:
            i: query positions, int64, any shape that broadcasts with `j`.
            j: key positions, int64.
            n: how many queries there are.
            m: how many keys there are.

        Returns:
            bool `(B|1, H|1, *broadcast(i, j))`, on the device of `i`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define contains(i, j, n, m)")

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        """Raises when the pattern does not fit a problem of this size."""

    def dense(self, n: int, m: int | None = None, *, device: torch.device | None = None) -> Tensor:
        """The pattern as a bool mask `(B|1, H|1, n, m)`: its meaning, whole."""
        need_int("n", n, at_least=0)
        m = n if m is None else m
        need_int("m", m, at_least=0)
        device = self.device if device is None else device
        i = torch.arange(m - n, m, device=device)[:, None]
        j = torch.arange(m, device=device)[None, :]
        return self.contains(i, j, n, m)

    def pairs(self, n: int, m: int | None = None) -> int:
        """How many pairs exist, over the samples and heads that the pattern itself tells apart."""
        need_int("n", n, at_least=0)
        m = n if m is None else m
        need_int("m", m, at_least=0)
        rows = torch.arange(m - n, m, device=self.device)
        j = torch.arange(m, device=self.device)[None, :]
        total = 0
        for part in rows.split(max(1, PAIRS_AT_ONCE // max(m, 1))):
            total += int(self.contains(part[:, None], j, n, m).sum())
        return total

    def hops(self, n: int) -> Hops:
        """How many layers of this pattern pass word from token to token: see `Hops`."""
        return hops_of(self.dense(n))

    def draw(
        self, n: int = 32, m: int | None = None, *, path: str | Path | None = None, title: str = ""
    ) -> str:
        """The pattern as text for a terminal; with `path`, also saved as a picture (.png, .svg)."""
        mask = self.dense(n, m)
        if path is not None:
            save_picture(mask, path, title or repr(self))
        return draw_text(mask)

    @property
    def device(self) -> torch.device:
        """Where the pattern's tensors are; the CPU when it has none."""
        return next((t.device for t in self.tensors()), torch.device("cpu"))

    def heads_apart(self) -> int:
        """How many heads the pattern tells apart; 1 when all of them have the same pairs."""
        return 1

    def of_head(self, head: int) -> Pattern:
        """What head `head` has of this pattern."""
        return self if self.heads_apart() == 1 else OneHead(self, head)

    def values(self) -> tuple[Any, ...]:
        """The constructor's arguments, in the order of `fields`."""
        return tuple([getattr(self, name) for name in self.fields])

    def children(self) -> Sequence[Pattern]:
        """The patterns that this one is made of."""
        return ()

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor inside."""
        yield from _tensors_in(self.values())
        for child in self.children():
            yield from child.tensors()

    def has_tensors(self) -> bool:
        """Is there any tensor inside?"""
        return next(self.tensors(), None) is not None

    def __or__(self, other: Pattern) -> Pattern:
        return union(self, other) if isinstance(other, Pattern) else NotImplemented

    def __and__(self, other: Pattern) -> Pattern:
        return intersection(self, other) if isinstance(other, Pattern) else NotImplemented

    def __bool__(self) -> bool:
        # `a and b` would be b.
        raise TypeError("a pattern is neither true nor false: join two by & or |, not and or or")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and same(self, other)

    def __hash__(self) -> int:
        plain = tuple([v for v in self.values() if not isinstance(v, (Tensor, Pattern))])
        try:
            return hash((type(self), plain))
        except TypeError:  # a pattern from elsewhere may have lists among its values
            return hash((type(self), _shown(plain)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_shown, self.values()))})"

    def _repr_svg_(self) -> str | None:
        """What a notebook shows, beside the text: the pattern on as many tokens as tell its shape.
        None where tensors say how many there are, which may be long, or on a GPU.
        """
        mask = None if self.has_tensors() else _telling(self)
        return None if mask is None else svg_of(lambda: figure_of(mask, repr(self)))


def _telling(pattern: Pattern) -> Tensor | None:
    """The mask on as few tokens as leave most pairs out, if any number does; otherwise on the
    fewest. None for a pattern that was made for fewer.
    """
    masks = []
    # Heads have a panel each.
    for n in SIZES if pattern.heads_apart() == 1 else SIZES[:2]:
        try:
            masks.append(pattern.dense(n))
        except ValueError:
            break
        if masks[-1].float().mean() <= MOST_SHOWN:
            return masks[-1]
    return masks[0] if masks else None


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """A tensor, or those of a tuple or list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors_in(part)


def _shown(value: Any) -> str:
    """A value on one line, with tensors by dtype and shape."""
    if isinstance(value, Tensor):
        return describe(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


class Full(Pattern):
    """Every pair exists.

    ```
    ■ ■ ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■
    ```
    """

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        shape = torch.broadcast_shapes(i.shape, j.shape)
        return torch.ones((1, 1, *shape), dtype=torch.bool, device=i.device)


def same_rank(i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Both with as many dims, so that an index by either stays beside samples and heads."""
    rank = max(i.dim(), j.dim())
    i = i.reshape((1,) * (rank - i.dim()) + tuple(i.shape))
    return i, j.reshape((1,) * (rank - j.dim()) + tuple(j.shape))


def need_count(name: str, value: Any, *, at_least: int | None = None, most: str = "") -> None:
    """Raises unless `value` is a whole number of tokens or blocks, neither too small nor larger
    than computing takes; `most` says what to give instead of that.
    """
    need_int(name, value, at_least=at_least)
    # What a traced program does not know yet is checked when it runs.
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST}{most}, got {value}")


class OneHead(Pattern):
    """What one head has of a pattern that tells heads apart."""

    fields = ("pattern", "head")

    def __init__(self, pattern: Pattern, head: int) -> None:
        self.pattern = pattern
        self.head = head

    def children(self) -> Sequence[Pattern]:
        return (self.pattern,)

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        self.pattern.check(batch, self.pattern.heads_apart(), n, m)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.pattern.contains(i, j, n, m)[:, self.head : self.head + 1]


class _Combination(Pattern):
    """Patterns joined by one operator; flat, and without a pattern that another one makes idle."""

    fields = ("patterns",)
    symbol: ClassVar[str]

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = _as_patterns(type(self).__name__, patterns)
        apart = [p for p in self.patterns if p.heads_apart() != 1]
        for pattern in apart[1:]:
            _need_as_many_heads(apart[0], pattern)

    def children(self) -> Sequence[Pattern]:
        return self.patterns

    def heads_apart(self) -> int:
        return max([p.heads_apart() for p in self.patterns])

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        for pattern in self.patterns:
            pattern.check(batch, heads, n, m)

    def of_head(self, head: int) -> Pattern:
        return type(self)([p.of_head(head) for p in self.patterns])

    def __repr__(self) -> str:
        shown = (f"({p!r})" if isinstance(p, _Combination) else repr(p) for p in self.patterns)
        return f" {self.symbol} ".join(shown)


class AnyOf(_Combination):
    """`a | b`: the pairs of any of the patterns."""

    symbol = "|"

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return reduce(torch.logical_or, (p.contains(i, j, n, m) for p in self.patterns))


class AllOf(_Combination):
    """`a & b`: the pairs that are in all of the patterns."""

    symbol = "&"

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return reduce(torch.logical_and, (p.contains(i, j, n, m) for p in self.patterns))


class PerHead(Pattern):
    """Head h uses the h-th pattern. Distributes over `|` and `&`; one inside another raises.

    Args:
        patterns: one pattern for each query head.
    """

    fields = ("patterns",)

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = _as_patterns("PerHead", patterns)
        for head, pattern in enumerate(self.patterns):
            if isinstance(pattern, PerHead):
                raise ValueError("PerHead: a PerHead cannot be inside another; give one flat list")
            if pattern.heads_apart() != 1:
                raise ValueError(
                    "PerHead: patterns must be of one head each, "
                    f"got one of {pattern.heads_apart()} heads for head {head}: {pattern!r}"
                )

    def children(self) -> Sequence[Pattern]:
        return self.patterns

    def heads_apart(self) -> int:
        return len(self.patterns)

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        if len(self.patterns) != heads:
            raise ValueError(
                f"PerHead: patterns must hold one pattern a head, "
                f"got {len(self.patterns)} for {heads} heads"
            )
        for pattern in self.patterns:
            pattern.check(batch, 1, n, m)

    def of_head(self, head: int) -> Pattern:
        return self.patterns[head]

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        heads = [p.contains(i, j, n, m) for p in self.patterns]
        for pattern, own in zip(self.patterns, heads, strict=True):
            need_one_head(pattern, own.shape[1])
        sizes = [h.shape[0] for h in heads]
        batch = 0 if 0 in sizes else max(sizes)
        return torch.cat([h.expand(batch, *h.shape[1:]) for h in heads], dim=1)


def need_one_head(pattern: Pattern, heads: int) -> None:
    """Raises when what was found to be of one head, by its own word, has pairs of several."""
    if heads != 1:
        raise ValueError(
            f"PerHead: {pattern!r} is for one head, but contains() gave pairs of {heads} heads; "
            "a pattern that tells heads apart must say how many in heads_apart()"
        )


def _need_as_many_heads(a: Pattern, b: Pattern) -> None:
    if a.heads_apart() != b.heads_apart():
        raise ValueError(
            f"{a!r} and {b!r} must have as many heads, or one side the same for all, "
            f"got {a.heads_apart()} and {b.heads_apart()}"
        )


def _as_patterns(name: str, patterns: Any) -> tuple[Pattern, ...]:
    if not isinstance(patterns, (list, tuple)):
        raise TypeError(f"{name}: patterns must be a list of patterns, got {describe(patterns)}")
    for pattern in patterns:
        if not isinstance(pattern, Pattern):
            raise TypeError(f"{name}: patterns must hold patterns, got {describe(pattern)}")
    if len(patterns) == 0:
        raise ValueError(f"{name}: patterns must hold at least one pattern, got none")
    return tuple(patterns)


def same(a: Any, b: Any) -> bool:
    """Are two values the same pattern? Tensors are the same only when they are one object."""
    if a is b:
        return True
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return False
    if isinstance(a, Pattern):
        return type(a) is type(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    """`a == b` of what is no pattern, tensor or list; an array would compare its entries."""
    try:
        return bool(a == b)
    except ValueError:
        raise TypeError(
            f"two patterns cannot be compared by {describe(a)}, which is neither equal nor not: "
            "keep it as a tensor or a tuple"
        ) from None


def union(a: Pattern, b: Pattern) -> Pattern:
    """`a | b`."""
    apart = _over_heads(union, a, b)
    return _combine(AnyOf, AllOf, a, b) if apart is None else apart


def intersection(a: Pattern, b: Pattern) -> Pattern:
    """`a & b`."""
    apart = _over_heads(intersection, a, b)
    return _combine(AllOf, AnyOf, a, b) if apart is None else apart


def _over_heads(operator: Any, a: Pattern, b: Pattern) -> PerHead | None:
    if not isinstance(a, PerHead) and not isinstance(b, PerHead):
        return None
    for one, other in ((a, b), (b, a)):
        # A `PerHead` of one pattern is for one head, not for all.
        if isinstance(one, PerHead) and (isinstance(other, PerHead) or other.heads_apart() != 1):
            _need_as_many_heads(one, other)
    heads = max(a.heads_apart(), b.heads_apart())
    return PerHead([operator(a.of_head(head), b.of_head(head)) for head in range(heads)])


def _combine(node: type[_Combination], dual: type[_Combination], a: Pattern, b: Pattern) -> Pattern:
    """Joins two patterns, flat, and drops what is idle: a ∘ a = a, and a ∘ (a • b) = a for the dual
    •.

    `Full` decides a union and is idle in an intersection.
    """
    terms: list[Pattern] = []
    for pattern in (a, b):
        for term in pattern.patterns if isinstance(pattern, node) else (pattern,):
            if isinstance(term, Full):
                if node is AnyOf:
                    return term
                continue
            terms.append(term)
    kept: list[Pattern] = []
    for index, term in enumerate(terms):
        inner = term.patterns if isinstance(term, dual) else ()
        idle = any(same(term, earlier) for earlier in terms[:index]) or any(
            same(other, part)
            for position, other in enumerate(terms)
            if position != index
            for part in inner
        )
        if not idle:
            kept.append(term)
    if len(kept) == 0:
        return Full()
    return kept[0] if len(kept) == 1 else node(kept)
