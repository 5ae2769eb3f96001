"""What a model is given at once, and what it should say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["NOT_COUNTED", "Batch", "padded", "real_of"]

# In the place of a target: nothing is asked of this token. Anything below 0 is read so.
NOT_COUNTED = -100

# The targets that say how many things are asked; others, such as an answer's end, go with them.
COUNTED = ("tokens", "tags", "classes", "start")


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Examples side by side, padded on the right to the longest.

    Attributes:
        tokens: int64 `(B, N)`. In translation, what the decoder reads.
        real: bool `(B, N)`, False where a row is padded.
        targets: what is asked, by the task's objective; `NOT_COUNTED` where nothing is.
            `"next"` and `"masked"`: `tokens` `(B, N)`, the token to name at each place (the next
            one is already in its place); `"translation"` the same, of the decoder.
            `"spans"`: `start` and `end` `(B,)`, the answer's first and last token, both 0 (the
            first token) where there is none; and bool `allowed` `(B, N)`, where answers may lie.
            `"classes"`: `classes` `(B,)`. `"tags"`: `tags` `(B, N)`.
        numbers: which examples these are.
        types: int64 `(B, N)`, 0 and 1 for the first and second text of an example.
        global_tokens: bool `(B, N)`, the tokens that see all and are seen by all.
        source: in translation, what the encoder reads: `tokens` and `real`.
    """

    tokens: Tensor
    real: Tensor
    targets: dict[str, Tensor]
    numbers: list[int]
    types: Tensor | None = None
    global_tokens: Tensor | None = None
    source: dict[str, Tensor] | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[Tensor],
        targets: dict[str, Sequence[Tensor]],
        *,
        pad: int,
        numbers: Sequence[int],
    ) -> Batch:
        """Rows with a target for every token, padded on the right."""
        return cls(
            tokens=padded(rows, pad),
            real=real_of(rows),
            targets={name: padded(own, NOT_COUNTED) for name, own in targets.items()},
            numbers=list(numbers),
        )

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> Batch:
        """The same on a device."""
        return self._each(lambda t: t.to(device, non_blocking=non_blocking))

    def pin(self) -> Batch:
        """The same in memory from which a GPU copies while the CPU goes on."""
        return self._each(lambda t: t.pin_memory())

    def widened(self, multiple: int, longest: int) -> Batch:
        """The same with rows of a multiple of so many tokens, or of `longest`, which none has more
        than.
        """
        n = self.tokens.shape[1]
        more = min(-n % multiple, longest - n)
        if more <= 0:
            return self
        return replace(
            self,
            tokens=F.pad(self.tokens, (0, more)),
            real=F.pad(self.real, (0, more)),
            targets={
                # Others, such as an answer's begin, are of an example, not of its tokens.
                name: F.pad(own, (0, more), value=0 if own.dtype == torch.bool else NOT_COUNTED)
                if own.dim() == 2
                else own
                for name, own in self.targets.items()
            },
            types=None if self.types is None else F.pad(self.types, (0, more)),
            global_tokens=None
            if self.global_tokens is None
            else F.pad(self.global_tokens, (0, more)),
        )

    def target_count(self) -> int:
        """How many tokens, or examples, the loss is a sum over."""
        name = next(name for name in COUNTED if name in self.targets)
        return int((self.targets[name] >= 0).sum())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        def changed(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: change(tensor) for name, tensor in value.items()}
            return change(value) if isinstance(value, Tensor) else value

        return Batch(**{f.name: changed(getattr(self, f.name)) for f in fields(self)})


def padded(rows: Sequence[Tensor], value: int | bool) -> Tensor:
    """Rows of different lengths as one tensor; `value` on the right of the short ones."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)


def real_of(rows: Sequence[Tensor]) -> Tensor:
    """Where `padded` has the rows' own values, bool `(B, N)`."""
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(int(lengths.max())) < lengths[:, None]
