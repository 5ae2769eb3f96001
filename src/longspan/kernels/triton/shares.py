"""The network of the learned window: every token's share r = exp(Uᵀ tanh(W q)), for a W and a U of
every head, and its gradients.

Products are as exact as in float32, and yet the tensor cores': a float32 is the sum of three
bfloat16, and products of parts that matter are added up in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import vectors
from .call import power_of_2
from .launching import launch
from .window import LARGEST_EXPONENT

__all__ = ["share_gradients", "shares_of"]

LARGEST = tl.constexpr(LARGEST_EXPONENT)

# How many bfloat16 an input is the sum of.
PARTS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}

# Programs at most, forward and backward: a backward leaves a matrix for each.
FORWARD, BACKWARD, BACKWARD_WIDE = 1024, 512, 256


@triton.jit
def _parts(x, PART: tl.constexpr):  # type: ignore[no-untyped-def]
    """A float32 as a sum of three bfloat16, largest first."""
    high = x.to(tl.bfloat16)
    rest = x - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return high.to(PART), middle.to(PART), low.to(PART)


@triton.jit
def _multiplied(  # type: ignore[no-untyped-def]
    a, b, acc, A: tl.constexpr, LEAST: tl.constexpr
):
    """Adds the product of two sums of parts, those of the smallest first: A parts of the first, and
    pairs of parts up to LEAST.
    """
    if LEAST >= 2:
        if A >= 3:
            acc = tl.dot(a[2], b[0], acc, input_precision="ieee")
        if A >= 2:
            acc = tl.dot(a[1], b[1], acc, input_precision="ieee")
        acc = tl.dot(a[0], b[2], acc, input_precision="ieee")
    if A >= 2:
        acc = tl.dot(a[1], b[0], acc, input_precision="ieee")
    acc = tl.dot(a[0], b[1], acc, input_precision="ieee")
    return tl.dot(a[0], b[0], acc, input_precision="ieee")


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """In float32, to two units in the last place, also near 0, where 1 − 2 / (e²ˣ + 1) loses all
    digits: there it is the polynomial of Cephes' tanhf.
    """
    size = tl.abs(x)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    square = x * x
    near = -5.70498872745e-3 * square + 2.06390887954e-2
    near = near * square - 5.37397155531e-2
    near = near * square + 1.33314422036e-1
    near = near * square - 3.33332819422e-1
    near = near * square * x + x
    return tl.where(size < 0.625, near, tl.where(x < 0.0, -far, far))


@triton.jit
def _places(x, head, row, n, PD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where vectors of a head lie, whose rows are those of all samples, one after the other."""
    start = head.to(tl.int64) * x.head
    start += (row // n).to(tl.int64) * x.batch + (row % n).to(tl.int64) * x.row
    return x.data + start[:, None] + tl.arange(0, PD)[None, :]


@triton.jit
def _query_parts(query, A: tl.constexpr, PART: tl.constexpr):  # type: ignore[no-untyped-def]
    if A == 1:
        whole = query.to(PART)
        return whole, whole, whole
    return _parts(query.to(tl.float32), PART)


@triton.jit
def _matrix(w, head, D: tl.constexpr, PD: tl.constexpr):  # type: ignore[no-untyped-def]
    channel = tl.arange(0, PD)
    there = (channel < D)[:, None] & (channel < D)[None, :]
    place = head * D * D + channel[:, None] * D + channel[None, :]
    return tl.load(w + place, mask=there, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["n", "rows", "steps"])
def shares(  # type: ignore[no-untyped-def]
    q, w, u, found, n, rows, steps, heads,
    A: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, BM: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Shares `(B, H, N)`: a program for some tiles of a head's rows."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    channel = tl.arange(0, PD)
    matrix = _parts(_matrix(w, head, D, PD), PART)
    own = tl.load(u + head * D + channel, mask=channel < D, other=0.0).to(tl.float32)
    for step in range(steps):
        row = (chunk * steps + step) * BM + tl.arange(0, BM)
        live = row < rows
        there = live[:, None] & (channel < D)[None, :]
        query = tl.load(_places(q, head, row, n, PD), mask=there, other=0.0)
        inner = tl.zeros([BM, PD], tl.float32)
        hidden = _tanh(_multiplied(_query_parts(query, A, PART), matrix, inner, A, 2))
        z = tl.sum(hidden * own[None, :], 1)
        z = tl.where(z < -LARGEST, -LARGEST, tl.where(z > LARGEST, LARGEST, z))
        # The GPU's own exponential in float32 is off by more the larger z is.
        share = tl.exp(z.to(tl.float64)).to(tl.float32)
        place = ((row // n).to(tl.int64) * heads + head) * n + row % n
        tl.store(found + place, share, mask=live)


@triton.jit(do_not_specialize=["n", "rows", "steps"])
def share_sums(  # type: ignore[no-untyped-def]
    q, w, u, share, grad, to_q, sums, width, n, rows, steps, heads,
    A: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, BM: tl.constexpr, PART: tl.constexpr,
    TO_Q: tl.constexpr, TO_W: tl.constexpr, TO_U: tl.constexpr,
):  # fmt: skip
    """The gradients of `shares`: that of q, and each program's part of those of w and u."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    channel = tl.arange(0, PD)
    matrix = _parts(_matrix(w, head, D, PD), PART)
    own = tl.load(u + head * D + channel, mask=channel < D, other=0.0).to(tl.float32)
    of_w = tl.zeros([PD, PD], tl.float32)
    of_u = tl.zeros([PD], tl.float32)
    for step in range(steps):
        row = (chunk * steps + step) * BM + tl.arange(0, BM)
        live = row < rows
        there = live[:, None] & (channel < D)[None, :]
        query = tl.load(_places(q, head, row, n, PD), mask=there, other=0.0)
        parts = _query_parts(query, A, PART)
        hidden = _tanh(_multiplied(parts, matrix, tl.zeros([BM, PD], tl.float32), A, 2))
        at = ((row // n).to(tl.int64) * heads + head) * n + row % n
        g = tl.load(grad + at, mask=live, other=0.0) * tl.load(share + at, mask=live, other=0.0)
        if TO_U:
            of_u += tl.sum(hidden * g[:, None], 0)
        if TO_Q or TO_W:
            inner = _parts(g[:, None] * own[None, :] * (1.0 - hidden * hidden), PART)
            if TO_W:
                turned = tl.trans(parts[0]), tl.trans(parts[1]), tl.trans(parts[2])
                of_w = _multiplied(turned, inner, of_w, A, 2)
            if TO_Q:
                back = tl.trans(matrix[0]), tl.trans(matrix[1]), tl.trans(matrix[2])
                # What is rounded to half precision afterwards has digits enough without the rest.
                LEAST: tl.constexpr = 2 if A == 3 else 1
                found = tl.zeros([BM, PD], tl.float32)
                found = _multiplied(inner, back, found, 3, LEAST)
                place = _places(to_q, head, row, n, PD)
                tl.store(place, found.to(place.dtype.element_ty), mask=there)
    # Of every program first the matrices of all heads, then their vectors.
    slot = sums + chunk.to(tl.int64) * width
    if TO_W:
        whole = (channel < D)[:, None] & (channel < D)[None, :]
        place = slot + head * D * D + channel[:, None] * D + channel[None, :]
        tl.store(place, of_w, mask=whole)
    if TO_U:
        place = slot + width - (heads - head) * D + channel
        tl.store(place, of_u, mask=channel < D)


def shares_of(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """r, float32 `(B, H, N)`, from q `(B, H, N, D)`, w `(H, D, D)` and u `(H, D)`."""
    batch, heads, n, _ = q.shape
    found = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    made = _constants(q)
    chunks, steps = _chunks(batch * n, heads, made["BM"], FORWARD)
    launch(
        shares,
        (chunks, heads),
        (vectors(q), w.contiguous(), u.contiguous(), found, n, batch * n, steps, heads),
        made,
        num_warps=8 if made["PD"] > 64 else 4,
        num_stages=1,
    )
    return found


def share_gradients(
    q: Tensor, w: Tensor, u: Tensor, share: Tensor, grad: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of q, and, one after the other and flat, those of w and u in float32: each if it
    is wanted.
    """
    batch, heads, n, size = q.shape
    to_q, to_w, to_u = wanted
    made = _constants(q)
    most = BACKWARD if made["PD"] <= 64 else BACKWARD_WIDE
    chunks, steps = _chunks(batch * n, heads, made["BM"], most)
    width = heads * size * (size * to_w + to_u)
    found = torch.empty_like(q) if to_q else None
    sums = torch.empty((chunks, width), dtype=torch.float32, device=q.device)
    arguments = (
        *(vectors(q), w.contiguous(), u.contiguous(), share, grad.contiguous()),
        *(vectors(q if found is None else found), sums if width else share),
        *(width, n, batch * n, steps, heads),
    )
    # Both ways at once, wide heads would not fit into the registers.
    apart = made["PD"] > 64 and to_q and (to_w or to_u)
    for to in ((to_q, False, False), (False, to_w, to_u)) if apart else (wanted,):
        launch(
            share_sums,
            (chunks, heads),
            arguments,
            {**made, "TO_Q": to[0], "TO_W": to[1], "TO_U": to[2]},
            num_warps=8 if made["PD"] > 64 else 4,
            num_stages=1,
        )
    return found, sums.sum(0) if width else None


def _constants(q: Tensor) -> dict[str, Any]:
    padded = max(16, power_of_2(q.shape[3]))
    return {
        "A": PARTS[q.dtype],
        "D": q.shape[3],
        "PD": padded,
        "BM": 64,
        # The interpreter cannot multiply bfloat16.
        "PART": tl.bfloat16 if q.is_cuda else tl.float32,
    }


def _chunks(rows: int, heads: int, block: int, most: int) -> tuple[int, int]:
    """Programs for a head's rows, and tiles for each of them."""
    tiles = -(-rows // block)
    steps = -(-tiles // max(1, most // heads))
    return -(-tiles // steps), steps
