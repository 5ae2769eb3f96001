"""Writing on: greedily, by chance, or with several beams, one token at a time from a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import need_int, need_number, need_tensor
from .cache import Cache

__all__ = ["Sampling", "beam_search", "generate"]

# Scores of the next token `(B, vocab)`, given new tokens `(B, N)` and a cache of those before.
NextScores = Callable[[Tensor, Cache], Tensor]


class Sampling(NamedTuple):
    """How to draw a token.

    Attributes:
        temperature: scores are divided by it; 0 takes the likeliest.
        top_k: only so many of the likeliest; None for all.
        top_p: only the likeliest that together have this probability; None for all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def check(self) -> None:
        """Raises when nothing could be drawn so."""
        need_number("generate: temperature", self.temperature)
        if not self.temperature >= 0:
            raise ValueError(f"generate: temperature must be at least 0, got {self.temperature}")
        if self.top_k is not None:
            need_int("generate: top_k", self.top_k, at_least=1)
        if self.top_p is not None:
            need_number("generate: top_p", self.top_p)
            if not 0 < self.top_p <= 1:
                raise ValueError(f"generate: top_p must be above 0 and at most 1, got {self.top_p}")

    def draw(self, scores: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One token for each sample, `(B,)`, from scores `(B, vocab)`."""
        if self.temperature == 0:
            return scores.argmax(-1)
        scores = scores.float()
        # The largest is 0 then, however small the temperature; at 0 it would be 0/0.
        coldest = torch.finfo(scores.dtype).tiny
        scores = (scores - scores.amax(-1, keepdim=True)) / max(self.temperature, coldest)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, -1).values[:, -1:]
            scores = scores.masked_fill(scores < least, float("-inf"))
        if self.top_p is not None:
            ordered, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
            # The first token over the edge is still taken.
            beyond = ordered.cumsum(-1) - ordered >= self.top_p
            scores = scores.masked_fill(beyond.scatter(-1, order, beyond), float("-inf"))
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]


def _check(name: str, tokens: Tensor, steps: int) -> None:
    need_int(f"{name}: steps", steps, at_least=1)
    need_tensor(f"{name}: tokens", tokens, "int", (2,))
    if tokens.shape[1] < 1:
        raise ValueError(
            f"{name}: tokens must be (batch, length) with at least one token, got "
            f"{tuple(tokens.shape)}"
        )


@torch.no_grad()
def generate(
    next_scores: NextScores,
    cache: Cache,
    tokens: Tensor,
    steps: int,
    *,
    sampling: Sampling = Sampling(temperature=0.0),  # noqa: B008 (a constant)
    end: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Tokens `(B, N + steps)`: those given, and what follows; fewer steps if all samples have ended
    before.

    Args:
        next_scores: the model.
        cache: empty; it keeps what the model remembers.
        tokens: the beginnings, `(B, N)`.
        steps: how many tokens to write.
        sampling: how to choose them; the default takes the likeliest.
        end: a token after which a sample only repeats it.
        generator: of the draws.
    """
    _check("generate", tokens, steps)
    sampling.check()
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    found, new = [tokens], tokens
    for _ in range(steps):
        chosen = sampling.draw(next_scores(new, cache), generator)
        if end is not None:
            chosen = torch.where(done, end, chosen)
            done = done | (chosen == end)
        new = chosen[:, None]
        found.append(new)
        if end is not None and bool(done.all()):
            break
    return torch.cat(found, 1)


@torch.no_grad()
def beam_search(
    next_scores: NextScores,
    cache: Cache,
    tokens: Tensor,
    steps: int,
    *,
    beams: int = 4,
    end: int | None = None,
    length_penalty: float = 1.0,
) -> Tensor:
    """The likeliest continuation of each sample that `beams` of them at a time find,
    `(B, N + steps)`; after its end a sequence repeats `end`. Fewer steps if all have ended before.

    Args:
        next_scores, cache, tokens, steps, end: as for `generate`.
        beams: sequences that are followed for every sample.
        length_penalty: log-probabilities are divided by the written length to this power.
    """
    _check("beam_search", tokens, steps)
    need_int("beam_search: beams", beams, at_least=1)
    batch, vocab = len(tokens), 0
    found = tokens.repeat_interleave(beams, 0)
    total = tokens.new_full((batch, beams), float("-inf"), dtype=torch.float32)
    total[:, 0] = 0.0
    length = torch.zeros(batch, beams, device=tokens.device)
    done = torch.zeros(batch, beams, dtype=torch.bool, device=tokens.device)
    new = found
    for _ in range(steps):
        scores = next_scores(new, cache).float().log_softmax(-1)
        vocab = scores.shape[-1]
        scores = scores.view(batch, beams, vocab)
        if end is not None:
            # A finished sequence goes on with its end, at no cost.
            stay = torch.full((vocab,), float("-inf"), device=tokens.device)
            stay[end] = 0.0
            scores = torch.where(done[..., None], stay, scores)
        together = total[..., None] + scores
        longer = length[..., None] + (~done)[..., None]
        ranked = together / longer.clamp(min=1) ** length_penalty
        best = ranked.flatten(1).topk(beams, -1).indices
        parent, chosen = best // vocab, best % vocab
        total = together.flatten(1).gather(1, best)
        length = longer.expand_as(together).flatten(1).gather(1, best)
        done = done.gather(1, parent)
        if end is not None:
            done = done | (chosen == end)
        samples = (torch.arange(batch, device=tokens.device)[:, None] * beams + parent).flatten()
        cache.select(samples)
        new = chosen.reshape(-1, 1)
        found = torch.cat([found[samples], new], 1)
        if bool(done.all()):
            break
    best = (total / length.clamp(min=1) ** length_penalty).argmax(-1)
    return found.view(batch, beams, found.shape[1])[torch.arange(batch, device=tokens.device), best]
