"""What a model is for: heads over the last vectors."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .activations import activation_of
from .dropout import Dropout

__all__ = ["Classification", "LanguageModelling", "MaskedTokens", "SpanAnswers", "Tagging"]


class LanguageModelling(nn.Module):
    """Scores of every token of the vocabulary; the matrix is the embedding's own.

    For causal and masked language modelling, and for translation.
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.bias = nn.Parameter(embedding.weight.new_zeros(embedding.num_embeddings))

    def forward(self, x: Tensor) -> Tensor:
        """`(…, vocab)` for `(…, width)`."""
        return F.linear(x, self.embedding.weight, self.bias)


class MaskedTokens(LanguageModelling):
    """Scores of every token of the vocabulary, from a vector that one more matrix makes (BERT's
    head).
    """

    def __init__(
        self, embedding: nn.Embedding, *, activation: str = "gelu", norm_eps: float = 1e-5
    ) -> None:
        super().__init__(embedding)
        width = embedding.embedding_dim
        self.before = nn.Sequential(
            nn.Linear(width, width), activation_of(activation), nn.LayerNorm(width, norm_eps)
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(…, vocab)` for `(…, width)`."""
        return super().forward(self.before(x))


class SpanAnswers(nn.Module):
    """For every token the score that an answer begins there, and that it ends there."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, 2)

    def forward(self, x: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Two `(B, N)` for `(B, N, width)`; −inf where bool `allowed` `(B, N)` is False."""
        found = self.scores(x)
        if allowed is not None:
            found = found.masked_fill(~allowed[..., None], float("-inf"))
        begin, end = found.unbind(-1)
        return begin, end


class Tagging(nn.Module):
    """Scores of every tag, for every token."""

    def __init__(self, width: int, tags: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.scores = nn.Linear(width, tags)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, N, tags)` for `(B, N, width)`."""
        found: Tensor = self.scores(self.dropout(x))
        return found


class Classification(nn.Module):
    """Scores of every class, from the first token's vector (BERT's pooler)."""

    def __init__(
        self, width: int, classes: int, dropout: float = 0.0, *, activation: str = "tanh"
    ) -> None:
        super().__init__()
        self.pooled = nn.Linear(width, width)
        self.activation = activation_of(activation)
        self.dropout = Dropout(dropout)
        self.scores = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, classes)` for `(B, N, width)`."""
        found: Tensor = self.scores(self.dropout(self.activation(self.pooled(x[:, 0]))))
        return found
