"""What tasks on text have in common: a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .task import Task
from .tokenizing import readable, save_tokenizer, special_token

__all__ = ["TextTask"]


class TextTask(Task):
    """A task whose tokens are those of a tokenizer of `tokenizers`.

    Attributes:
        tokenizer: of `tokenizers`.
    """

    tokenizer: Any

    def _use(self, tokenizer: Any) -> None:
        """Takes a tokenizer, with its vocabulary and its mark for padding."""
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab_size()
        self.pad = special_token(tokenizer, "pad")

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Tokens as they are in the vocabulary."""
        return readable(self.tokenizer, tokens)

    def save(self, folder: Path) -> list[Path]:
        """Writes the tokenizer."""
        return [save_tokenizer(self.tokenizer, folder)]
