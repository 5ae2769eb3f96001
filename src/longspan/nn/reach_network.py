"""The network of the learned window: what every token and head asks for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.window import LARGEST_EXPONENT, takes_network, window_shares

__all__ = ["shares_of_queries", "shares_of_stream"]

# Tokens whose products with a head's matrix are computed as one.
PIECE = 1024


def shares_of_queries(q: Tensor, w: Tensor, u: Tensor, shared: str | None) -> Tensor:
    """r = exp(uᵀ tanh(w q)), float32 `(B, H, N)`, from q `(B, H, N, D)`, w `(H, D, D)` and u
    `(H, D)`; or, `shared`, from ones in place of q, or from the mean of all heads' exponents. An
    exponent beyond ±60 counts as that.
    """
    if shared is None and takes_network(q, w, u):
        return window_shares(q, w, u)
    with _without_autocast(q):
        seen = q.new_ones(1, *q.shape[1:2], 1, *q.shape[3:]) if shared == "tokens" else q
        return _exponential(_products(seen, w.float()), u, shared).expand(q.shape[:3])


def shares_of_stream(x: Tensor, w: Tensor, u: Tensor, shared: str | None) -> Tensor:
    """The same from the layer's input x `(B, N, E)`, with w `(H, E, D)`."""
    heads, width, size = w.shape
    with _without_autocast(x):
        seen = x.new_ones(1, 1, width) if shared == "tokens" else x
        all_heads = w.float().transpose(0, 1).reshape(width, heads * size)
        inner = (seen.float() @ all_heads).unflatten(-1, (heads, size)).transpose(1, 2)
        return _exponential(inner, u, shared).expand(x.shape[0], heads, x.shape[1])


def _without_autocast(x: Tensor) -> torch.autocast:
    """The meta device has no autocast that could be turned off."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)


def _exponential(inner: Tensor, u: Tensor, shared: str | None) -> Tensor:
    z = torch.einsum("bhne,he->bhn", torch.tanh(inner), u.float())
    z = z.mean(1, keepdim=True) if shared == "heads" else z
    return z.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()


def _products(x: Tensor, matrices: Tensor) -> Tensor:
    """Each head's vectors by its matrix: `(B, H, N, D)` by `(H, D, E)`, in float32.

    On a GPU a long sequence goes in pieces, as if they were samples. In one piece the gradient of a
    matrix is a product with two short sides and one long one, which is left to a few of its
    multiprocessors: at 16,384 tokens it took longer than the attention.
    """
    # The device first: a traced program keeps what is asked of a length, and is for no other then.
    if not x.is_cuda or x.shape[2] <= PIECE:
        return torch.einsum("bhnd,hde->bhne", x.float(), matrices)
    return _products_in_pieces(x, matrices, -(-x.shape[2] // PIECE))


def _products_in_pieces(x: Tensor, matrices: Tensor, pieces: int) -> Tensor:
    heads, n = x.shape[1:3]
    x = x.to(torch.float32, memory_format=torch.contiguous_format)
    if n % PIECE:
        x = F.pad(x, (0, 0, 0, -n % PIECE))
    whole = x.unflatten(2, (pieces, PIECE))
    found = whole @ matrices[:, None].expand(heads, pieces, *matrices.shape[1:])
    return found.flatten(2, 3)[:, :, :n]
