"""What tasks on text, and readers of new text, have in common: a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .inputs import InputReader
from .reading import source_of
from .task import Task
from .token_files import hash_of
from .tokenizing import (
    load_tokenizer,
    readable,
    save_tokenizer,
    special_token,
    tokenizer_file,
)

__all__ = ["TextReader", "TextTask"]


@dataclass(frozen=True)
class TextReader(InputReader):
    """A reader of texts, whose tokenizer lies in a file beside it.

    Attributes:
        tokenizer: of `tokenizers`.
    """

    tokenizer: Any

    def settings(self) -> dict[str, Any]:
        """Its fields but the tokenizer."""
        return {name: own for name, own in super().settings().items() if name != "tokenizer"}

    def save(self, folder: Path) -> list[Path]:
        """Writes the tokenizer, too."""
        return [save_tokenizer(self.tokenizer, folder), *super().save(folder)]

    @classmethod
    def read(cls, folder: Path, **more: Any) -> Self:
        """The one that `save` wrote, with its tokenizer."""
        return super().read(folder, tokenizer=load_tokenizer(folder), **more)


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

    def describe(self) -> dict[str, Any]:
        """With a hash of all tokens, whose numbers a model has learned, and the file of a tokenizer
        that was named.
        """
        named = self.settings.get("tokenizer")
        more = {} if named is None else {"tokenizer": source_of(tokenizer_file(named))._asdict()}
        return {**super().describe(), "tokens": self._tokens_hash(), **more}

    @classmethod
    def measured_on(
        cls, description: Mapping[str, Any], dev: str | Path, saved: Path
    ) -> dict[str, Any]:
        """With the tokenizer that was saved: one that is learned from what is not measured on would
        be another.
        """
        other = super().measured_on(description, dev, saved)
        settings = {**other["settings"], "tokenizer": str(tokenizer_file(saved))}
        return {name: own for name, own in other.items() if name != "tokenizer"} | {
            "settings": settings
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], *, cache: str | Path | None = None
    ) -> Self:
        """The task as it was described; raises when a file or the tokenizer is another."""
        task = super().from_description(description, cache=cache)
        now = task.describe()
        was, file = (own.get("tokenizer", {}) for own in (description, now))
        if was and was["sha256"] != file["sha256"]:
            what = f"{file['path']} is another"
        elif description.get("tokens", now["tokens"]) != now["tokens"]:
            what = "it has other tokens"
        else:
            return task
        raise ValueError(
            f"{cls.name}: the tokenizer changed since this was described: {what}; put it back, or "
            "start anew"
        )

    def _tokens_hash(self) -> str:
        """Not of the tokenizer's file, which another version of tokenizers may write in another
        way.
        """
        tokens = self.tokenizer.get_vocab()
        return hash_of(sorted(tokens, key=tokens.__getitem__))

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Tokens as they are in the vocabulary."""
        return readable(self.tokenizer, tokens)

    def save(self, folder: Path) -> list[Path]:
        """Writes the tokenizer, and how new input is read."""
        return super().save(folder) or [save_tokenizer(self.tokenizer, folder)]
