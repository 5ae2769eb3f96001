"""Models of transformers beside encoders that were loaded from them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from longspan.models import Encoder

VOCAB = 40

Loader = Callable[[Any], Encoder]


def uneven(made: Any) -> Any:
    """Large weights, so that attention is far from even, biases and norms among them."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, own in made.named_parameters():
            drawn = torch.randn(own.shape, generator=generator)
            norm = own.dim() == 1 and name.endswith("weight")
            own.copy_(1 + 0.3 * drawn if norm else 0.3 * drawn)
    return made


def tokens(batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(3, VOCAB, (batch, length), generator=generator)


def real_tokens(batch: int, length: int, missing: int) -> Tensor:
    """True for real tokens; the last sample has fewer."""
    real = torch.ones(batch, length, dtype=torch.bool)
    real[-1, length - missing :] = False
    return real


def close(found: Tensor, wanted: Tensor, name: str = "", atol: float = 1e-4) -> None:
    """To 1e-4, of the largest entry where that is above 1."""
    scale = max(1.0, float(wanted.detach().abs().max()))
    torch.testing.assert_close(
        found / scale, wanted / scale, atol=atol, rtol=0, msg=lambda text: f"{name}: {text}"
    )


def agree(
    theirs: Any,
    ours: Encoder,
    load: Loader,
    real: Tensor,
    their_call: Any,
    our_call: Any,
    atol: float = 1e-4,
) -> None:
    """Vectors of real tokens, gradients of what goes into the first layer, and of every weight.

    Loading copies weights, so that gradients which are loaded as if they were weights are in the
    places of ours.
    """
    entries: list[Tensor] = []

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        entries.append(output)

    hooks = [
        theirs.embeddings.register_forward_hook(keep),
        ours.dropout.register_forward_hook(keep),
    ]
    wanted, found = their_call(), our_call()
    for hook in hooks:
        hook.remove()
    close(found[real], wanted[real], "vectors", atol)
    weight = torch.randn(wanted[real].shape, generator=torch.Generator().manual_seed(7))
    (wanted[real] * weight).sum().backward()
    (found[real] * weight).sum().backward()
    first, second = (entry.grad for entry in entries)
    close(second[real], first[real], "embedded tokens", atol)
    assert float(first[real].abs().max()) > 1e-2

    gradients = deepcopy(theirs)
    for own, source in zip(gradients.parameters(), theirs.parameters(), strict=True):
        own.data = torch.zeros_like(own) if source.grad is None else source.grad
    expected = dict(load(gradients).named_parameters())
    compared = 0
    for name, own in ours.named_parameters():
        if own.grad is None:
            assert not expected[name].any(), name
            continue
        close(own.grad, expected[name].detach(), name, atol)
        compared += 1
    assert compared > 30
