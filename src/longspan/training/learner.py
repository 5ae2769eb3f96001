"""A model and its head as one module, whose call is the loss."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..models import Encoder
from ..models.block import Block
from ..nn import Attention, BigBird, LearnedWindow, Mechanism, MultiheadAttention, Setting
from ..tasks import Batch
from .objectives import Objective, config_of

__all__ = ["Learner", "on_device"]

# On a GPU padded rows are a multiple of so many tokens long.
EVEN = 16

# What `torch.compile` hands blocks to.
COMPILER = "inductor"

# Of which kind the model is for whose blocks programs were compiled last.
_last_kind: list[Hashable] = []

# What a program holds as it is.
CONSTANTS = (bool, int, float, str, tuple, torch.dtype, type(None))


class Learner(nn.Module):
    """A body, a head, and what they learn.

    Its call gives the sum of the loss over a batch, so that whatever wraps a module (several
    processes) wraps all of it.

    Attributes:
        in_bf16: whether matrix products are in bfloat16; weights and the loss are float32.
    """

    def __init__(self, body: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.body = body
        self.in_bf16 = False
        head = objective.head(body)
        self.head: nn.Module = nn.Identity() if head is None else head
        self.objective = objective
        for mechanism in self.mechanisms():
            if not _takes_global(mechanism):
                mechanism.register_forward_pre_hook(_without_global)

    def forward(self, batch: Batch, padded: bool = True) -> Tensor:
        with self.autocast():
            scores = self.objective.scores(self, batch, padded)
        return self.objective.loss_of(scores, batch)

    def autocast(self) -> torch.autocast:
        kind = next(self.parameters()).device.type
        return torch.autocast(kind, torch.bfloat16, enabled=self.in_bf16)

    def vectors(self, batch: Batch, padded: bool = True) -> Tensor:
        """`(B, N, width)` of an encoder.

        Args:
            padded: whether some tokens are not real; without, a mask need not be looked at.
        """
        body = self.body
        assert isinstance(body, Encoder)
        found: Tensor = body(
            batch.tokens,
            key_padding=batch.real if padded else None,
            global_tokens=batch.global_tokens,
            types=batch.types if body.config.types else None,
        )
        return found

    @property
    def longest(self) -> int:
        """The most tokens that a row may have."""
        return config_of(self.body).length

    def blocks(self) -> Iterator[Block]:
        return (own for own in self.body.modules() if isinstance(own, Block))

    def mechanisms(self) -> list[Mechanism]:
        """Those of self-attention, layer by layer."""
        return [block.attention.mechanism for block in self.blocks()]

    def layers(self) -> list[MultiheadAttention]:
        return [block.attention for block in self.blocks()]

    def change_blocks(self, *, compiled: bool, recomputed: bool) -> None:
        """How blocks run in training: compiled, or computed again in the backward pass, or both."""
        if compiled and recomputed and any(map(_follows, self.mechanisms())):
            raise ValueError(
                "compiled and checkpointing: a causal or pooled LearnedWindow does not know in a "
                "compiled block that it is computed again; leave one of the two out"
            )
        if compiled:
            self._compile_blocks()
        if recomputed:
            self._recompute_blocks()

    def _compile_blocks(self) -> None:
        """All of them and all lengths in one graph.

        What was compiled for a model of the same kind, in the stage or the run before, serves this
        one. Otherwise it is forgotten: PyTorch gives up on a function that it has compiled for too
        many models.
        """
        kind = self._kind()
        if _last_kind != [kind]:
            torch._dynamo.reset()
            _last_kind[:] = [kind]
        for block in self.blocks():
            own: Any = block
            fast = torch.compile(block.forward, backend=COMPILER, dynamic=True)
            own.forward = partial(_compiled, block, block.forward, fast)

    def _kind(self) -> Hashable:
        """What programs of the blocks depend on, besides tensors: all constants in their parts, and
        what learns.
        """
        parts = [part for block in self.blocks() for part in block.modules()]
        return (
            COMPILER,
            self.in_bf16,
            tuple([(type(part), *_constants_of(part)) for part in parts]),
            tuple([own.requires_grad for block in self.blocks() for own in block.parameters()]),
        )

    def _recompute_blocks(self) -> None:
        """They keep nothing for the backward pass."""
        for block in self.blocks():
            own: Any = block
            own.forward = partial(_recomputed, block, block.forward)


def _constants_of(part: nn.Module) -> Iterator[Hashable]:
    if isinstance(part, Mechanism):
        try:
            yield repr(part.settings)
        except NotImplementedError:
            yield object()  # Nobody knows what one of somebody's own depends on.
    for name, value in vars(part).items():
        if isinstance(value, CONSTANTS) and name != "training":
            # A tuple may hold anything.
            yield name, repr(value)


def _compiled(block: Block, plain: Any, fast: Any, *inputs: Any) -> Any:
    # Hooks that are there for a while are not in what was compiled.
    return fast(*inputs) if _learns(block) and not block._forward_hooks else plain(*inputs)


def _recomputed(block: Block, forward: Any, *inputs: Any) -> Any:
    if not _learns(block):
        return forward(*inputs)
    return checkpoint(forward, *inputs, use_reentrant=False)


def _learns(block: Block) -> bool:
    """Whether a call is one of training: evaluation is neither compiled nor computed again."""
    return block.training and torch.is_grad_enabled()


def _follows(mechanism: Mechanism) -> bool:
    """Whether a call changes what the next one does."""
    return isinstance(mechanism, LearnedWindow) and mechanism.follows


def _takes_global(mechanism: Mechanism) -> bool:
    if isinstance(mechanism, Attention) or mechanism.causal:
        return False
    return not isinstance(mechanism, BigBird) or mechanism.tokens == "extra"


def _without_global(mechanism: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A mechanism whose pairs are fixed is not told of global tokens."""
    return tuple(
        own._replace(global_tokens=None) if isinstance(own, Setting) else own for own in inputs
    )


def on_device(batch: Batch, device: torch.device, longest: int | None = None) -> tuple[Batch, bool]:
    """A batch where it is wanted, and whether it has padding, which is asked for before.

    Args:
        longest: the most tokens of a row: then a GPU gets rows that are padded at all with lengths
            that come again. For a length of a new kind kernels are compiled, and the first calls of
            a shape take longer than those after them.
    """
    padded = not bool(batch.real.all())
    if device.type == "cuda":
        if padded and longest is not None:
            batch = batch.widened(EVEN, longest)
        batch = batch.pin()
    return batch.to(device, non_blocking=True), padded
