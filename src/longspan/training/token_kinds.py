"""What kind of token each piece of a text is: a word that stands for something, a word that joins
others, a number, a name, a mark between words, or the rest of a word that was begun before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["FUNCTION_WORDS", "KINDS", "Piece", "pieces_of", "words_of"]

KINDS = (
    "question",
    "mark",
    "punctuation",
    "number",
    "capitalised",
    "function word",
    "content word",
    "continuation",
)

WORD = re.compile(r"[^\W_]+")

# English words that hold sentences together, and what is left of them behind an apostrophe.
_WORDS = """
    a an the this that these those each every either neither some any no all both few many more most
    much other another such same own several
    i me my mine myself you your yours yourself he him his himself she her hers herself it its
    itself we us our ours ourselves they them their theirs themselves one
    who whom whose which what where when why how whether
    and or but nor so yet if because as than though although while since until unless
    of in on at by for with about against between into through during before after above below to
    from up down out off over under within without upon among along across behind beyond near per
    toward towards via
    am is are was were be been being have has had having do does did doing done will would shall
    should can could may might must ought
    not only just also too very then there here again further once ever never however thus
    s t d m o y ll re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn
    shouldn
    """
FUNCTION_WORDS = frozenset(_WORDS.split())


class Piece(NamedTuple):
    """A token of a text.

    Attributes:
        kind: one of `KINDS` from "punctuation" on.
        word: the word that it is in, casefolded and whole; empty where it is in none.
        telling: whether that word says what the text is about: a number, a name, or any other that
            is no function word.
    """

    kind: str
    word: str
    telling: bool


def words_of(text: str) -> set[str]:
    """All words of a text, casefolded."""
    return {found.group().casefold() for found in WORD.finditer(text)}


def pieces_of(text: str, places: Sequence[tuple[int, int]]) -> list[Piece]:
    """The tokens of a text one after the other.

    A word is what letters and digits stand together in, in the text itself, so that a tokenizer
    that knows no capitals hides none. A token in which there is no word is punctuation; one that
    does not begin its word is a continuation. Then the word decides: one with a digit is a number,
    one of `FUNCTION_WORDS` is one of these wherever in a sentence it stands, another with a capital
    at its begin is capitalised, and all others are content words.

    Args:
        places: the first character of each token, and the one after its last.
    """
    words = list(WORD.finditer(text))
    ends = [word.end() for word in words]
    found = []
    before = 0
    for begin, end in places:
        next_word = bisect_right(ends, begin)
        word = words[next_word] if next_word < len(words) else None
        if word is None or word.start() >= end:
            found.append(Piece("punctuation", "", False))
        else:
            # Pieces of one letter, which bytes can be, have the place of the whole letter.
            goes_on = word.start() < begin or word.start() < before
            kind = _kind(word.group())
            telling = kind != "function word"
            found.append(
                Piece("continuation" if goes_on else kind, word.group().casefold(), telling)
            )
        before = max(before, end)
    return found


def _kind(word: str) -> str:
    if any(letter.isdigit() for letter in word):
        return "number"
    if word.casefold() in FUNCTION_WORDS:
        return "function word"
    return "capitalised" if word[0].isupper() else "content word"
