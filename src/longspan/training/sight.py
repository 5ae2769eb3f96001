"""Which tokens a token sees in a layer, and how much it looks at each of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import attention
from ..functional.reach import integer_reach
from ..nn import LearnedWindow, Mechanism, Setting
from ..patterns import Pattern

__all__ = ["Sight", "looks_at", "sight_of"]


class Sight(NamedTuple):
    """What some tokens see in one head: for each of them, in order, the first and the last token,
    and how far it reaches.
    """

    low: list[int]
    high: list[int]
    reach: list[float]


def sight_of(
    mechanism: Mechanism, q: Tensor, m: int, setting: Setting, rows: Tensor | None = None
) -> list[Sight]:
    """What tokens of the first text of a batch see, head by head.

    A global token sees all. What is seen because it is global widens nobody's interval, and every
    token is told of itself, whatever it sees.

    Args:
        q: queries, as many as there are keys.
        m: how many keys there are.
        rows: which tokens are asked for; None for all.
    """
    n, heads = q.shape[2], q.shape[1]
    at = torch.arange(n, device=q.device) if rows is None else rows.to(q.device)
    whole = torch.zeros(n, dtype=torch.bool, device=q.device)
    if setting.global_tokens is not None:
        whole = setting.global_tokens[0]
    exists = _exists(mechanism, q, m, setting, at)
    reach = mechanism.last_reach if isinstance(mechanism, LearnedWindow) else None
    found = []
    for head in range(heads):
        own = exists[0, min(head, exists.shape[1] - 1)] & ~whole[None, :]
        own = own | (at[:, None] == torch.arange(m, device=q.device))
        own[whole[at]] = True
        low = own.int().argmax(-1)
        high = m - 1 - own.flip(-1).int().argmax(-1)
        far = torch.maximum(at - low, high - at).float() if reach is None else reach[0, head, at]
        found.append(Sight(low.tolist(), high.tolist(), far.tolist()))
    return found


def looks_at(
    mechanism: Mechanism, q: Tensor, k: Tensor, v: Tensor, setting: Setting, rows: list[int]
) -> Tensor:
    """How much tokens of the first text of a batch look at each token, float32
    `(H, len(rows), M)`: the probabilities, before dropout.

    Of y = a·v, row i of a is the gradient of one channel of y_i with respect to that of v. So no
    matrix of all pairs is made, whatever the length.
    """
    times = q.shape[1] // k.shape[1]
    q, k, v = (t[:1].detach().float() for t in (q, k, v))
    k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    first = _of_the_first(setting)
    asked = mechanism.asks(q, k.shape[2], first)
    with torch.enable_grad(), torch.autocast(q.device.type, enabled=False):
        v.requires_grad_()
        y = attention(
            q,
            k,
            v,
            asked.pattern,
            weight=(*first.weights, *asked.weight) or None,
            normalizer=asked.normalizer,
            key_padding=first.key_padding,
        )
        found = []
        for row in rows:
            (grad,) = torch.autograd.grad(y[0, :, row, 0].sum(), v, retain_graph=True)
            found.append(grad[0, :, :, 0])
    return torch.stack(found, 1)


def _of_the_first(setting: Setting) -> Setting:
    def cut(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[:1].detach()

    return setting._replace(
        x=cut(setting.x),
        key_padding=cut(setting.key_padding),
        global_tokens=cut(setting.global_tokens),
        unturned=cut(setting.unturned),
    )


def _exists(mechanism: Mechanism, q: Tensor, m: int, setting: Setting, at: Tensor) -> Tensor:
    """Which pairs of the queries at these places exist, bool `(1, H|1, len(at), M)`."""
    asked = mechanism.asks(q, m, setting)
    n = q.shape[2]
    exists = _rows(asked.pattern, at, n, m)
    distance = (torch.arange(m, device=q.device) - at[:, None]).abs()
    for weight in asked.weight:
        reach = integer_reach(weight, q.device)
        if reach is None:
            continue
        within = distance <= reach.expand(*reach.shape[:2], n)[:, :, at, None]
        if weight.exempt is not None:
            within = within | _rows(weight.exempt, at, n, m)
        exists = exists & within
    if setting.key_padding is not None:
        exists = exists & setting.key_padding[:, None, None]
    return exists


def _rows(pattern: Pattern, at: Tensor, n: int, m: int) -> Tensor:
    """These rows of a pattern, `(1, H|1, len(at), M)`."""
    return pattern.contains(at[:, None], torch.arange(m, device=at.device)[None, :], n, m)
