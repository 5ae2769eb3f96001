"""What a call would do, and whether its tensors hold what they should: nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ..errors import describe
from ..kernels import cpu
from ..kernels.problem import Problem
from ..layout import TILE, pairs, tiles_touched
from ..normalizers import Normalizer
from ..patterns import Pattern
from ..remembering import all_plain, plainly
from ..weights import Weight
from .attention import Call, prepared
from .bare import bared
from .checks import check_values
from .dispatch import Backend, dense_pays, refusals
from .problems import has_term, problem_of

__all__ = ["Explanation", "check", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a call would do; `print` it.

    Attributes:
        backend: the one that runs the call; None when none takes it.
        refusals: for each backend that was asked, why it does not take the call; empty when it
            does.
        pairs: (query, key) pairs that exist, over all samples and heads.
        all_pairs: how many there would be without a pattern: B·H·N·M.
        tiles: tiles of 64 × 64 pairs that are touched: the cost.
        walks: passes over query rows; rows that are in two of them are merged.
        flops: of the forward's matrix products over the touched tiles.
        backward_flops: of the backward's.
        bytes: the least that the forward has to read and write.
        dense_bytes: what one dense matrix of float32 scores would take.
        notes: what the layout had to do.
        instructions: sets of vector instructions that the compiled part can use here; empty when it
            was not built.
    """

    backend: str | None
    refusals: dict[str, list[str]]
    pairs: int
    all_pairs: int
    tiles: int
    walks: int
    flops: int
    backward_flops: int
    bytes: int
    dense_bytes: int
    notes: tuple[str, ...]
    instructions: tuple[str, ...]

    def __str__(self) -> str:
        share = self.pairs / max(self.all_pairs, 1)
        filled = self.pairs / max(self.tiles * TILE * TILE, 1)
        lines = [f"backend   {self.backend or 'none takes this call'}"]
        lines += [
            f"          {name} refused: {reason}"
            for name, reasons in self.refusals.items()
            for reason in reasons
        ]
        lines += [
            f"pairs     {self.pairs:,} of {self.all_pairs:,} ({share:.2%})",
            f"tiles     {self.tiles:,} of {TILE} × {TILE}, {filled:.0%} filled, "
            f"in {_count(self.walks, 'walk')}",
            f"flops     {_short(self.flops)} forward, {_short(self.backward_flops)} backward",
            f"bytes     {_short(self.bytes)}B in and out; "
            f"a dense score matrix would be {_short(self.dense_bytes)}B",
        ]
        lines += [f"note      {note}" for note in self.notes]
        lines += [f"compiled  {', '.join(self.instructions) or 'no: pure PyTorch only'}"]
        return "\n".join(lines)


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None = None,
    *,
    weight: Weight | Sequence[Weight] | None = None,
    normalizer: Normalizer | None = None,
    scale: float | None = None,
    key_padding: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> Explanation:
    """Which backend would run this call, which refused and why, and what it costs. Waits for a GPU.

    Arguments as for `attention`. Of q, k and v nothing but shapes is looked at: fake tensors will
    do.
    """
    call = prepared(
        q,
        k,
        v,
        pattern,
        weight=weight,
        normalizer=normalizer,
        scale=scale,
        key_padding=key_padding,
        dropout=dropout,
        backend=backend,
    )
    known = tuple(own for own in call.meaning.weights if has_term(own))
    if backend in ("auto", "reference") and known != call.meaning.weights:
        # What a weight of somebody's own does is known to the reference alone; it cuts nothing.
        meaning = call.meaning._replace(weights=known)
        call, backend = Call(call.q, call.k, call.v, meaning, call.settings), "reference"
    with _with_values(call):
        problem = problem_of(call.q, call.k, call.v, call.meaning, call.settings)
        return _explained(problem, backend)


def _with_values(call: Call) -> AbstractContextManager[None]:
    """Where pairs can be counted: outside of whatever traces or transforms, as nothing of this has
    a place in a program. Raises where there are no values to count by.
    """
    if call.q.is_meta:
        raise ValueError("explain: q must be on the device that will run the call, got meta")
    _, learned, fixed = bared(call.meaning)
    tensors = [*learned, *fixed, call.settings.key_padding]
    if all_plain(tensors):
        return plainly()
    for x in tensors:
        if isinstance(x, FakeTensor):
            raise ValueError(
                "explain: the tensors of pattern, weight, normalizer and key_padding must have "
                f"values, by which pairs are counted, got {describe(x)} that is fake"
            )
    return torch.no_grad()


def _explained(problem: Problem, backend: str) -> Explanation:
    q, k, v, layout = problem.q, problem.k, problem.v, problem.layout
    notes = layout.notes
    if backend == "auto" and dense_pays(q, k):
        backend = "reference"
        notes = (*notes, "so short a call is faster dense")
    batch, heads, n, d = q.shape
    own, size = v.shape[3], q.element_size()
    if backend == "reference":
        refused: dict[str, list[str]] = {}
        chosen: str | None = backend
    else:
        refused = {
            name: reasons
            for name, reasons in refusals(problem).items()
            if backend in ("auto", name)
        }
        chosen = next((name for name, reasons in refused.items() if not reasons), None)
    everything = batch * heads * n * layout.m
    tiles = tiles_touched(layout, batch, heads)
    each = 2 * (everything if backend == "reference" else tiles * TILE * TILE)
    return Explanation(
        chosen,
        refused,
        pairs(layout, batch, heads),
        everything,
        tiles,
        len(layout.walks),
        each * (d + own),
        each * (3 * d + 2 * own),
        size * (q.numel() + k.numel() + v.numel() + batch * heads * n * own),
        4 * everything,
        notes,
        tuple(cpu.instruction_sets()) if cpu.available() else (),
    )


def check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None = None,
    *,
    weight: Weight | Sequence[Weight] | None = None,
    normalizer: Normalizer | None = None,
    scale: float | None = None,
    key_padding: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> None:
    """Raises when something is wrong with a call, the values of its tensors included. Waits for a
    GPU.

    `attention` itself looks at values on the CPU only, and never at those of q, k and v: here NaN
    in a query, or in a key or value that is not padding, raises too. Arguments as for `attention`.
    """
    call = prepared(
        q,
        k,
        v,
        pattern,
        weight=weight,
        normalizer=normalizer,
        scale=scale,
        key_padding=key_padding,
        dropout=dropout,
        backend=backend,
    )
    check_values(call.meaning, q.shape[2], k.shape[2])
    _check_numbers(call)


def _check_numbers(call: Call) -> None:
    padding = call.settings.key_padding
    for name, x in (("q", call.q), ("k", call.k), ("v", call.v)):
        bad = x.isnan().any(-1)
        if name != "q" and padding is not None:
            bad &= padding[:, None]
        if bool(bad.any()):
            b, h, position = bad.nonzero()[0].tolist()
            raise ValueError(
                f"{name} must not hold NaN, got it in {int(bad.sum())} of {bad.numel()} vectors, "
                f"first at sample {b}, head {h}, position {position}"
            )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} P"
