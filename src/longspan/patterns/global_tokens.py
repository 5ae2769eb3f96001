"""Global tokens: they see everything, and everything sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import INTEGER_DTYPES, broadcasts, describe, need_bool
from .base import Pattern, need_count, same_rank

__all__ = ["Global"]


class Global(Pattern):
    """The pair (i, j) exists when i (rows) or j (columns) is a global token.

    ```
    ■ ■ ■ ■ ■ ■
    ■ · · · · ·
    ■ · · · · ·      Global(1)
    ■ · · · · ·
    ■ · · · · ·
    ■ · · · · ·
    ```

    Args:
        tokens: which tokens are global: an int (the first n; the last n when negative), positions
            (int tensor `(G,)`, or `(B, G)` for each sample its own, in which −1 names no token, for
            samples that have fewer), or a mask (bool `(B, M)` or `(M,)`, True = global).
        rows: a global token sees every key.
        columns: a global token is seen by every query.
        queries: for cross-attention, instead of `tokens`: the global queries alone, counted in
            query rows 0 … N−1.
        keys: for cross-attention, instead of `tokens`: the global keys alone.
    """

    fields = ("tokens", "rows", "columns", "queries", "keys")

    def __init__(
        self,
        tokens: int | Tensor | None = None,
        rows: bool = True,
        columns: bool = True,
        *,
        queries: int | Tensor | None = None,
        keys: int | Tensor | None = None,
    ) -> None:
        need_bool("Global: rows", rows)
        need_bool("Global: columns", columns)
        if (tokens is None) == (queries is None and keys is None):
            raise ValueError("Global: give either tokens, or queries and/or keys")
        if not rows and not columns:
            raise ValueError("Global: rows and columns are both False, so no pair could exist")
        for name, value in (("tokens", tokens), ("queries", queries), ("keys", keys)):
            if value is not None:
                _check_tokens(f"Global: {name}", value)
        self.tokens = tokens
        self.rows = rows
        self.columns = columns
        self.queries = queries
        self.keys = keys

    def named(self, n: int, m: int) -> Iterator[tuple[str, Tensor, int]]:
        """The tensors that name tokens: which they are, themselves, and of how many tokens."""
        for name, value, size in (
            ("tokens", self.tokens, m),
            ("queries", self.queries, n),
            ("keys", self.keys, m),
        ):
            if isinstance(value, Tensor):
                yield f"Global: {name}", value, size

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        for name, value, size in self.named(n, m):
            if value.dim() == 2 and not broadcasts(value.shape[0], batch):
                raise ValueError(f"{name} must be for a batch of {batch}, got {describe(value)}")
            _check_size(name, value, size)

    @property
    def count(self) -> int | None:
        """At most how many tokens one side names, or None when only their values tell."""
        counts = []
        for value in (self.tokens, self.queries, self.keys):
            if isinstance(value, Tensor):
                counts.append(None if value.dtype == torch.bool else value.shape[-1])
            elif value is not None:
                counts.append(abs(value))
        known = [c for c in counts if c is not None]
        return max(known) if len(known) == len(counts) else None

    def global_rows(self, n: int, m: int, device: torch.device) -> Tensor | None:
        """Which query rows see everything: bool `(B|1, n)`, or None when rows are not global."""
        if self.queries is not None:
            return _members(self.queries, n, device)
        if self.tokens is None or not self.rows:
            return None
        members = _members(self.tokens, m, device)
        if n <= m:
            return members[:, m - n :]
        before = torch.zeros(members.shape[0], n - m, dtype=torch.bool, device=device)
        return torch.cat([before, members], dim=1)

    def global_columns(self, n: int, m: int, device: torch.device) -> Tensor | None:
        """Which keys everything sees: bool `(B|1, m)`, or None when columns are not global."""
        if self.keys is not None:
            return _members(self.keys, m, device)
        if self.tokens is None or not self.columns:
            return None
        return _members(self.tokens, m, device)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        for name, value, size in self.named(n, m):
            _check_size(name, value, size)
        i, j = same_rank(i, j)
        shape = torch.broadcast_shapes(i.shape, j.shape)
        inside = torch.zeros((1, *shape), dtype=torch.bool, device=i.device)
        rows = self.global_rows(n, m, i.device)
        if rows is not None and n > 0:
            inside = inside | rows[:, (i - (m - n)).clamp(0, n - 1)]
        columns = self.global_columns(n, m, i.device)
        if columns is not None and m > 0:
            inside = inside | columns[:, j.clamp(0, m - 1)]
        return inside[:, None]

    def __repr__(self) -> str:
        shown = [] if self.tokens is None else [_shown(self.tokens)]
        shown += [f"{name}=False" for name in ("rows", "columns") if not getattr(self, name)]
        for name in ("queries", "keys"):
            value = getattr(self, name)
            shown += [] if value is None else [f"{name}={_shown(value)}"]
        return f"Global({', '.join(shown)})"


def _shown(value: int | Tensor) -> str:
    return describe(value) if isinstance(value, Tensor) else repr(value)


def _check_tokens(name: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        raise TypeError(
            f"{name} must be an int or a tensor, got {describe(value)}; positions are "
            f"torch.tensor({list(value)!r}), one for all layers and calls"
        )
    if not isinstance(value, Tensor):
        need_count(name, value)
    elif value.dtype != torch.bool and value.dtype not in INTEGER_DTYPES:
        raise TypeError(
            f"{name} must be positions (an int tensor) or a mask (a bool tensor), "
            f"got {describe(value)}"
        )
    elif value.dim() not in (1, 2):
        raise ValueError(f"{name} must have shape (G,), (B, G) or (B, M), got {describe(value)}")


def _check_size(name: str, value: Tensor, size: int) -> None:
    if value.dtype == torch.bool and value.shape[-1] != size:
        raise ValueError(
            f"{name} must cover {size} positions when it is a mask, got {describe(value)}"
        )


def _members(tokens: int | Tensor, size: int, device: torch.device) -> Tensor:
    """Tokens in any form as bool `(B|1, size)`; positions that do not exist name nothing."""
    if not isinstance(tokens, Tensor):
        place = torch.arange(size, device=device)
        return (place < tokens if tokens >= 0 else place >= size + tokens)[None]
    tokens = tokens if tokens.dim() == 2 else tokens[None]
    if tokens.dtype == torch.bool:
        return tokens
    # A size that their own dtype cannot hold would wrap round.
    tokens = tokens.long()
    slot = torch.where((tokens >= 0) & (tokens < size), tokens, size)
    members = torch.zeros(tokens.shape[0], size + 1, dtype=torch.bool, device=tokens.device)
    return members.scatter(1, slot, torch.ones_like(slot, dtype=torch.bool))[:, :size]
