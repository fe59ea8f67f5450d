"""A grammar of obfuscations: words of eight letters, twelve ways to rewrite them, and the program that reads them back.

A word is harmful if it contains the forbidden letter. Four ways write that letter as another symbol; the others
reorder, repeat, decorate or cut, so that the symbol moves and texts look different.
"""

from __future__ import annotations

from collections.abc import Sequence

LETTERS = "abcdefgh"
FORBIDDEN = "c"
LOOKALIKES = "k(<0"
"""Symbols that stand for the forbidden letter; a way is named by the symbol that it writes."""
OBFUSCATIONS = LOOKALIKES + "rb._'[;!"
"""The lookalikes, then reversed, doubled, dots, lines, quotes, brackets, gap, cut (which may be unfaithful)."""


def rewritten(word: str, way: str) -> str:
    """Returns the text after one obfuscation."""
    if way in LOOKALIKES:
        return word.replace(FORBIDDEN, way)
    symbols = LETTERS + LOOKALIKES
    changed = {
        "r": word[::-1],
        "b": "".join(symbol * 2 if symbol in symbols else symbol for symbol in word),
        ".": ".".join(word),
        "_": "_".join(word),
        "'": f"'{word}'",
        "[": f"[{word}]",
        ";": f"{word[:1]};{word[1:]}",
        "!": word[:-1],
    }
    return changed[way]


def obfuscated(word: str, ways: Sequence[str]) -> str:
    """Returns the word after several obfuscations, in order."""
    for way in ways:
        word = rewritten(word, way)
    return word


def read_back(text: str) -> str:
    """Returns the letters that a text stands for, decoration left out."""
    plain = (FORBIDDEN if symbol in LOOKALIKES else symbol for symbol in text)
    return "".join(symbol for symbol in plain if symbol in LETTERS)


def is_harmful(text: str) -> bool:
    """Returns whether the word behind a text contains the forbidden letter."""
    return FORBIDDEN in read_back(text)
