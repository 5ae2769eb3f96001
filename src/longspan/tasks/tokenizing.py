"""Tokenizers of Hugging Face's `tokenizers`: from a file, or learned from the text at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import need_int
from ..nn.storing import aside
from .progress import progress
from .reading import path_of
from .token_files import Ragged, RaggedWriter, cached, hash_of

__all__ = [
    "AT_ONCE",
    "MARKS",
    "Cache",
    "encoded",
    "learn_pieces",
    "learn_tokenizer",
    "load_tokenizer",
    "readable",
    "save_tokenizer",
    "special_token",
    "token_rows",
    "token_rows_now",
    "tokenizer_file",
    "tokenizer_of",
]

Cache = str | Path | None

# The marks of a tokenizer that is learned; the first one pads.
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# What each mark is called in the tokenizers that are about.
SPECIAL = {
    "pad": ("[PAD]", "<pad>"),
    "first": ("[CLS]", "<s>", "<cls>"),
    "between": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}

# So many texts go to the tokenizer at once: enough for its threads, little enough for memory.
AT_ONCE = 2048

# Letters of a text without words that subwords are learned from at a time.
PART = 64


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a `tokenizer.json`, or of a folder that has one (a checkpoint's)."""
    file = tokenizer_file(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"tokenizer: there is no file {file}; name a tokenizer.json, or a folder with one such "
            "as that of a Hugging Face checkpoint"
        )
    try:
        tokenizer = _tokenizers().Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"tokenizer: {file} is not a file of tokenizers: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_file(path: str | Path) -> Path:
    """Where `load_tokenizer` looks."""
    path = path_of("tokenizer", path)
    return path / "tokenizer.json" if path.is_dir() else path


def save_tokenizer(tokenizer: Any, folder: Path) -> Path:
    """Writes a tokenizer as `load_tokenizer` reads it, to the side and renamed; gives its path."""
    with aside(folder) as place:
        _write(tokenizer, place)
    return folder / "tokenizer.json"


def _write(tokenizer: Any, folder: Path) -> None:
    # Not by its own `save`, whose errors do not say what is wrong with the disk.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")


def tokenizer_of(
    path: str | Path | None,
    texts: Sequence[str],
    vocabulary: int,
    *,
    cache: Cache,
    lowercase: bool = True,
) -> Any:
    """The tokenizer that a user names; without a name, one learned from texts, once."""
    if path is not None:
        return load_tokenizer(path)

    def make(folder: Path) -> None:
        learned = learn_tokenizer(texts, vocabulary, lowercase=lowercase)
        _write(learned, folder)

    key = {"texts": hash_of(texts), "vocabulary": vocabulary, "lowercase": lowercase}
    return load_tokenizer(cached("tokenizer", key, make, cache=cache))


def learn_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    *,
    special: Sequence[str] = MARKS,
    lowercase: bool = True,
) -> Any:
    """A byte-level BPE of at most so many tokens: no text is unknown to it, and the same text
    always gives the same one.
    """
    tokenizers = _tokenizers()
    need_int("vocabulary", vocabulary)
    least = 256 + len(special)
    if vocabulary < least:
        raise ValueError(
            f"vocabulary must be at least {least} (all bytes and {len(special)} marks), "
            f"got {vocabulary}"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def learn_pieces(texts: Sequence[str], vocabulary: int, *, letters: str, cache: Cache) -> Path:
    """The folder of a BPE over texts that have no words and are written in these letters, such as
    DNA; learned once.
    """
    tokenizers = _tokenizers()
    need_int("vocabulary", vocabulary)
    if vocabulary < len(letters) + len(MARKS):
        raise ValueError(
            f"vocabulary must be at least {len(letters) + len(MARKS)} (all letters and "
            f"{len(MARKS)} marks), got {vocabulary}"
        )

    def make(folder: Path) -> None:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(MARKS),
            initial_alphabet=sorted(letters),
            show_progress=False,
        )
        # The learner looks for the best pair in whole words, which a genome's would be long.
        parts = (t[n : n + PART] for t in texts for n in range(0, len(t), PART))
        tokenizer.train_from_iterator(parts, trainer)
        _write(tokenizer, folder)

    key = {"texts": hash_of(texts), "vocabulary": vocabulary, "letters": letters}
    return cached("tokenizer", key, make, cache=cache)


def special_token(tokenizer: Any, what: str) -> int:
    """The id of a mark, by what it is for: `"pad"`, `"first"`, `"between"` or `"mask"`."""
    for name in SPECIAL[what]:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise ValueError(f"tokenizer: it has none of {', '.join(SPECIAL[what])}, which the task needs")


def encoded(tokenizer: Any, texts: Sequence[str], title: str) -> Iterator[Any]:
    """Texts as the tokenizer gives them, without marks, with offsets, many at once."""
    with progress(title, len(texts)) as advance:
        for begin in range(0, len(texts), AT_ONCE):
            some = texts[begin : begin + AT_ONCE]
            yield from tokenizer.encode_batch(list(some), add_special_tokens=False)
            advance(len(some))


def token_rows(tokenizer: Any, texts: Sequence[str], title: str, *, cache: Cache) -> Ragged:
    """The tokens of each text, without marks; made once, mapped into memory."""

    def make(folder: Path) -> None:
        with RaggedWriter(folder, "tokens") as rows:
            for found in encoded(tokenizer, texts, title):
                rows.add(found.ids)

    key = {"texts": hash_of(texts), "tokenizer": hash_of([tokenizer.to_str()])}
    return Ragged.read(cached("tokens", key, make, cache=cache), "tokens")


def token_rows_now(tokenizer: Any, texts: Sequence[str]) -> list[Tensor]:
    """The same in memory, for new input."""
    found = encoded(tokenizer, texts, "tokenising")
    return [torch.tensor(own.ids, dtype=torch.int32) for own in found]


def readable(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """Tokens as they are in the vocabulary, with blanks for the marks that stand for them."""
    found = [tokenizer.id_to_token(int(token)) or "" for token in tokens]
    return [text.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n") for text in found]


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.processors
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError("tasks on text need tokenizers: pip install 'longspan[train]'") from error
    return tokenizers
