"""Neighbouring blocks, random blocks and global tokens: Big Bird's attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import describe, need_int
from ..patterns import BlockWindow, Global, Pattern, PerHead, Random
from .mechanism import NO_SETTING, Asked, Mechanism, Setting

__all__ = ["BigBird"]

TOKENS = ("internal", "extra")


class BigBird(Mechanism):
    """Every block sees its neighbours and a few random blocks; global tokens see and are seen by
    all.

        y_i = softmax(q_i · k_jᵀ / √D) v_j      over all j with |⌊j/block⌋ − ⌊i/block⌋| ≤ window/2,
                                                or ⌊j/block⌋ drawn for ⌊i/block⌋, or i or j global

    The paper has two forms. `tokens="internal"` (ITC) makes the first and the last `global_blocks`
    · `block` real tokens of each sample global. `tokens="extra"` (ETC) takes global tokens from the
    call, which the model has put into the sequence, and draws no random blocks unless asked to.

    It is the same function in training and in evaluation and at every length up to `length`: random
    blocks are drawn once, for `length` positions, and the draw is the buffer `table`, in the state
    dict. A shorter input uses a part of it. Another draw comes with `load_state_dict` or with a new
    module; one that is written into the buffer itself is not followed. Padding at the end changes
    no real token's output. Blocks are counted from position 0, so padding at the start would shift
    them.

    Differs from the paper: one draw for all heads, unless `table` has one for each; the last global
    tokens are counted from the sample's end, where the paper's length is a multiple of the block.
    ETC's relative positions and its loss on global tokens are a model's matter. Hugging Face's code
    differs more: random blocks depend on the input's length; in evaluation every one of them is
    block 0, which the softmax then counts 1 + drawn times; inputs of up to (5 + 2·drawn)·block
    tokens, 704 by default, get full attention, and a model that has once switched to it stays
    there. `longspan.hf.from_bigbird` loads its checkpoints.

    Args:
        length: the most positions it will see.
        block: tokens a block.
        window: blocks in the window, an odd number.
        drawn: random blocks for each query block; None is 3, or 0 with extra tokens. With `table`
            it is as wide as that.
        seed: of the draw; give each layer another.
        table: the draw itself, int `(query blocks, drawn)`, or `(heads, query blocks, drawn)` with
            one for each head; a negative entry for an empty place.
        global_blocks: blocks at each end that are global; None is 1, or 0 with extra tokens.
        tokens: `"internal"` or `"extra"`: where global tokens come from.

    Reference:
        Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences" (arXiv 2007.14062).
    """

    table: Tensor | None

    def __init__(
        self,
        length: int,
        *,
        block: int = 64,
        window: int = 3,
        drawn: int | None = None,
        seed: int = 0,
        table: Tensor | Sequence[Any] | None = None,
        global_blocks: int | None = None,
        tokens: Literal["internal", "extra"] = "internal",
    ) -> None:
        super().__init__()
        need_int("BigBird: length", length, at_least=1)
        need_int("BigBird: block", block, at_least=1)
        need_int("BigBird: window", window, at_least=1)
        need_int("BigBird: seed", seed)
        if window % 2 == 0:
            raise ValueError(f"BigBird: window must be an odd number of blocks, got {window}")
        if tokens not in TOKENS:
            raise ValueError(f"BigBird: tokens must be one of {TOKENS}, got {describe(tokens)}")
        if tokens == "extra" and global_blocks:
            raise ValueError(
                "BigBird: global_blocks are of tokens='internal'; extra tokens come with the call, "
                f"got {global_blocks}"
            )
        internal = tokens == "internal"
        global_blocks = int(internal) if global_blocks is None else global_blocks
        need_int("BigBird: global_blocks", global_blocks, at_least=0)
        self.length, self.block, self.side = length, block, window // 2
        self.tokens, self.global_size = tokens, global_blocks * block
        if table is None:
            drawn = (3 if internal else 0) if drawn is None else drawn
            need_int("BigBird: drawn", drawn, at_least=0)
            found = torch.tensor(
                self._draw(drawn, seed, global_blocks), dtype=torch.int64, device="cpu"
            )
        else:
            found = self._checked(table, drawn)
        if found.dim() == 3:
            self.num_heads = len(found)
        # The pattern holds the numbers themselves: reading a buffer would wait for a GPU.
        self._set_patterns(found)
        own = found.to(torch.get_default_device())
        self.register_buffer("table", own if found.numel() else None)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "length": self.length,
            "block": self.block,
            "window": 2 * self.side + 1,
            "table": None if self.table is None else self.table.tolist(),
            "drawn": 0 if self.table is None else None,
            "global_blocks": self.global_size // self.block,
            "tokens": self.tokens,
        }

    def _draw(self, drawn: int, seed: int, ends: int) -> list[list[int]]:
        """For each query block its key blocks, −1 where there were too few to draw from."""
        if drawn == 0:
            return []
        source = Random(drawn, self.block, seed, self.length, beyond=self.side, ends=ends)
        return _filled(source.table_for(self.length), drawn)

    def _checked(self, table: Tensor | Sequence[Any], drawn: int | None) -> Tensor:
        """A draw that was given, of all heads or of each, with rows of one width."""
        heads = _by_head(table)
        given = [Random(1, self.block, table=own).table or () for own in heads or [table]]
        width = max((len(row) for own in given for row in own), default=0)
        blocks = -(-self.length // self.block)
        for own in given:
            if len(own) != blocks:
                raise ValueError(
                    f"BigBird: table must have a row for each of the {blocks} blocks of length "
                    f"{self.length}, got {len(own)}"
                )
        if drawn is not None and drawn != width:
            raise ValueError(
                f"BigBird: table has {width} blocks in a row, but drawn is {drawn}; leave drawn out"
            )
        largest = max((key for own in given for row in own for key in row), default=-1)
        if largest >= blocks:
            raise ValueError(
                f"BigBird: table must hold key blocks below {blocks}, or negative numbers for "
                f"empty places, got {largest}"
            )
        filled = torch.tensor(
            [_filled(own, width) for own in given], dtype=torch.int64, device="cpu"
        )
        return filled if heads else filled[0]

    def _set_patterns(self, table: Tensor) -> None:
        """Makes what is the same in every call, once: a pattern seen before is quicker to lay
        out.
        """
        pattern: Pattern = BlockWindow(self.block, self.side, self.side)
        if table.numel():
            pattern = pattern | self._random(table)
        size = self.global_size
        self._blocks = pattern
        self._unpadded = pattern | Global(size) | Global(-size) if size else pattern

    def _random(self, table: Tensor) -> Pattern:
        if table.dim() == 3:
            return PerHead([self._random(own) for own in table])
        return Random(table.shape[1], self.block, length=self.length, table=table)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.table is not None and not self.table.is_meta:
            self._set_patterns(self.table)

    @property
    def causal(self) -> bool:
        return False

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        if m > self.length:
            raise ValueError(
                f"BigBird: length is {self.length}, but the input has {m} positions; make it with "
                f"length={m} or more"
            )
        return Asked(self.pattern(setting))

    def pattern(self, setting: Setting = NO_SETTING) -> Pattern:
        """Which pairs exist in a call with this setting."""
        if self.tokens == "extra":
            if setting.global_tokens is None:
                raise ValueError(
                    "BigBird: with tokens='extra' every call needs global_tokens, a bool tensor "
                    "(B, M), all False where there are none"
                )
            return self._blocks | Global(setting.global_tokens)
        if setting.global_tokens is not None:
            raise ValueError(
                "BigBird: with tokens='internal' the global tokens are those at both ends; make it "
                "with tokens='extra' to give global_tokens"
            )
        size = self.global_size
        if setting.key_padding is None or size == 0:
            return self._unpadded
        real = setting.key_padding
        after = real.flip(-1).cumsum(-1).flip(-1)
        return self._blocks | Global(real & ((real.cumsum(-1) <= size) | (after <= size)))

    def extra_repr(self) -> str:
        drawn = 0 if self.table is None else self.table.shape[-1]
        return (
            f"length={self.length}, block={self.block}, window={2 * self.side + 1}, "
            f"drawn={drawn}, tokens={self.tokens!r}, global_tokens={self.global_size} a side"
        )


def _by_head(table: Tensor | Sequence[Any]) -> Sequence[Any] | None:
    """The tables of all heads, where each has its own."""
    if isinstance(table, Tensor):
        return list(table) if table.dim() == 3 else None
    deep = isinstance(table, (list, tuple)) and any(
        isinstance(row, (list, tuple)) and any(isinstance(one, (list, tuple)) for one in row)
        for row in table
    )
    return table if deep else None


def _filled(rows: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    """Rows of one width, with empty places at their ends."""
    return [[*row, *[-1] * (width - len(row))] for row in rows]
