"""Attention written from its formula with plain loops: the second opinion on every mechanism."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Sees = Callable[[int, int, int, int], bool]


def attend(q: Tensor, k: Tensor, v: Tensor, sees: Sees) -> Tensor:
    """softmax(q·kᵀ/√D)·v over the pairs for which `sees(sample, head, query, key)`, with as many
    queries as keys.
    """
    batch, heads, n, size = q.shape
    group = heads // k.shape[1]
    samples = []
    for b in range(batch):
        rows = []
        for h in range(heads):
            own_k, own_v = k[b, h // group], v[b, h // group]
            for i in range(n):
                keys = [j for j in range(k.shape[2]) if sees(b, h, i, j)]
                if not keys:
                    rows.append(torch.zeros_like(own_v[0]) + 0 * q[b, h, i].sum())
                    continue
                scores = torch.stack([q[b, h, i] @ own_k[j] for j in keys]) / size**0.5
                p = scores.exp() / scores.exp().sum()
                rows.append(sum(p[at] * own_v[j] for at, j in enumerate(keys)))
        samples.append(torch.stack(rows).reshape(heads, n, -1))
    return torch.stack(samples)


def split(x: Tensor, size: int) -> Tensor:
    """`(B, N, heads · size)` as `(B, heads, N, size)`."""
    return torch.stack(x.split(size, dim=-1), dim=1)


def join(y: Tensor) -> Tensor:
    """`(B, heads, N, size)` as `(B, N, heads · size)`."""
    return torch.cat(list(y.unbind(1)), dim=-1)


def gradients(y: Tensor, x: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """Of a fixed mixture of the outputs, to the input and to every parameter by its name."""
    mixture = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).sin()
    named = dict(module.named_parameters())
    leaves = [x, *named.values()]
    found = torch.autograd.grad(y, leaves, mixture, allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip({"x": x, **named}.items(), found, strict=True)
    }


def real_tokens(*lengths: int, n: int) -> Tensor:
    """Padding at the end: bool `(B, n)`, True for the first so many tokens of each sample."""
    return torch.arange(n)[None] < torch.tensor(lengths)[:, None]
