"""Several documents packed into one sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import broadcasts, describe, need_tensor
from .base import Pattern, same_rank

__all__ = ["SameDocument"]


class SameDocument(Pattern):
    """The pair (i, j) exists when the document ids of i and j are equal.

    ```
    ■ ■ · · · ·
    ■ ■ · · · ·
    · · ■ ■ ■ ·      ids = 0 0 1 1 1 2
    · · ■ ■ ■ ·
    · · ■ ■ ■ ·
    · · · · · ■
    ```

    Documents that lie together cost what they hold; ids in any other order are exact too.

    Args:
        ids: the document of every key, int `(B, M)` or `(M,)`.
        query_ids: for cross-attention, the document of every query row, int `(B, N)` or `(N,)`.
            None: the ids at the queries' positions.
    """

    fields = ("ids", "query_ids")

    def __init__(self, ids: Tensor, query_ids: Tensor | None = None) -> None:
        need_tensor("SameDocument: ids", ids, "int", (1, 2))
        if query_ids is not None:
            need_tensor("SameDocument: query_ids", query_ids, "int", (1, 2))
        self.ids = ids
        self.query_ids = query_ids

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        for name, value, size in (("ids", self.ids, m), ("query_ids", self.query_ids, n)):
            if value is None:
                continue
            if value.shape[-1] != size or (
                value.dim() == 2 and not broadcasts(value.shape[0], batch)
            ):
                raise ValueError(
                    f"SameDocument: {name} must have shape ({batch}, {size}), got {describe(value)}"
                )

    def sides(self, n: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids of the query rows `(B|1, n)`, whether each row has one `(n,)`, ids of the keys `(B|1,
        m)`.
        """
        keys = self.ids if self.ids.dim() == 2 else self.ids[None]
        if self.query_ids is not None:
            rows = self.query_ids if self.query_ids.dim() == 2 else self.query_ids[None]
            return rows.long(), torch.ones(n, dtype=torch.bool, device=rows.device), keys.long()
        place = torch.arange(m - n, m, device=keys.device)
        rows = keys[:, place.clamp(min=0)] if m > 0 else keys.new_zeros(1, n)
        return rows.long(), place >= 0, keys.long()

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        given = [x for x in (self.ids, self.query_ids) if x is not None and x.dim() == 2]
        sizes = [x.shape[0] for x in given]
        self.check(0 if 0 in sizes else max(sizes, default=1), 1, n, m)
        rows, known, keys = (x.to(i.device) for x in self.sides(n, m))
        if n == 0 or m == 0:
            shape = torch.broadcast_shapes(i.shape, j.shape)
            return torch.zeros((1, 1, *shape), dtype=torch.bool, device=i.device)
        i, j = same_rank(i, j)
        row = (i - (m - n)).clamp(0, n - 1)
        return ((rows[:, row] == keys[:, j.clamp(0, m - 1)]) & known[row])[:, None]
