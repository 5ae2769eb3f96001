"""Kinds of tokens, on sentences whose tokens one can name."""

from __future__ import annotations

import re

import pytest

from longspan.training.token_kinds import FUNCTION_WORDS, KINDS, Piece, pieces_of, words_of

TEXT = "The 3 Mayors of Kraków didn't re-elect MAYA's embedding in 1990s."


def places(text: str, pattern: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(pattern, text)]


def test_kinds_of_whole_words() -> None:
    cut = places(TEXT, r"\w+|[^\w\s]")
    found = {
        TEXT[slice(*place)]: own.kind for place, own in zip(cut, pieces_of(TEXT, cut), strict=True)
    }
    assert found == {
        "The": "function word",
        "3": "number",
        "Mayors": "capitalised",
        "of": "function word",
        "Kraków": "capitalised",
        "didn": "function word",
        "'": "punctuation",
        "t": "function word",
        "re": "function word",
        "-": "punctuation",
        "elect": "content word",
        "MAYA": "capitalised",
        "s": "function word",
        "embedding": "content word",
        "in": "function word",
        "1990s": "number",
        ".": "punctuation",
    }
    assert set(found.values()) <= set(KINDS)


def test_pieces_go_on_with_their_words() -> None:
    text = "An embedding of Ada's"
    cut = [(0, 2), (3, 5), (5, 8), (8, 12), (13, 15), (16, 17), (17, 19), (19, 21)]
    assert pieces_of(text, cut) == [
        Piece("function word", "an", False),
        Piece("content word", "embedding", True),
        Piece("continuation", "embedding", True),
        Piece("continuation", "embedding", True),
        Piece("function word", "of", False),
        Piece("capitalised", "ada", True),
        Piece("continuation", "ada", True),
        # An apostrophe and its letter in one token: the letter decides.
        Piece("function word", "s", False),
    ]


def test_a_part_of_a_text_may_begin_within_a_word() -> None:
    assert pieces_of("embedding", [(5, 9)]) == [Piece("continuation", "embedding", True)]


def test_pieces_of_one_letter() -> None:
    """Tokens of bytes share the place of their letter; only the first begins the word."""
    assert [own.kind for own in pieces_of("É 😀", [(0, 1), (0, 1), (2, 3), (2, 3)])] == [
        "capitalised",
        "continuation",
        "punctuation",
        "punctuation",
    ]


def test_nothing_is_punctuation() -> None:
    assert [own.kind for own in pieces_of("a  ", [(1, 1), (1, 3), (3, 3)])] == ["punctuation"] * 3


def test_words_of_a_question() -> None:
    assert words_of("Who's the Mayor of KRAKÓW?") == {"who", "s", "the", "mayor", "of", "kraków"}


@pytest.mark.parametrize("word", ["the", "of", "which", "is", "not", "ll"])
def test_function_words_are_small(word: str) -> None:
    assert word in FUNCTION_WORDS and all(own == own.casefold() for own in FUNCTION_WORDS)
