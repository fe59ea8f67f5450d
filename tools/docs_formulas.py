"""Typesets the formulas of docstrings as HTML: variables slanted, Greek as Greek, indices below, powers above.

    A_i <- (R_i - mean R)^2      A<sub>i</sub> ← (R<sub>i</sub> − mean R)<sup>2</sup>

Formulas stay plain text in the source, where people read them; words among them stay words. The result needs no script
and no font of its own, and wraps on a narrow screen.
"""

from __future__ import annotations

import re
from html import escape

LATIN = (
    "alpha", "beta", "gamma", "delta", "epsilon", "eps", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi",
    "Psi", "Omega",
)  # fmt: skip
GREEK = dict(zip(LATIN, "αβγδεεζηθκλμνξπρστφχψωΓΔΘΛΣΦΨΩ", strict=True))
LARGE = {"sum": "∑", "prod": "∏", "sqrt": "√", "infinity": "∞"}
SIGNS = {"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "~": "∼", "...": "…"}
MINUS, PRIME, STAR = "−", "′", "<sup>∗</sup>"
ARTICLE = re.compile(r"[aA] [a-z]{2,}(?![a-z(_^])")
"""The word a, and not the variable: before a longer word that is no function."""
TOKEN = re.compile(
    r"`(?P<code>[^`]+)`|(?P<whole>stop_gradient)|(?P<power>1e-?\d+)|(?P<genitive>'s\b)|(?P<sign><-|->|<=|>=|!=|\.\.\.|~)"
    r"|(?P<word>[A-Za-z]+(?:-[A-Za-z]{2,})*)|(?P<prime>'+)|(?P<star>(?<=[A-Za-z0-9)])\*(?=[\s_,;)|(]|$))"
    r"|(?P<times> \* )|(?P<minus>-)|(?P<script>[_^])|(?P<other>.)",
    re.S,
)
SIMPLE = re.compile(r"[<>]?[A-Za-z0-9*]+(?:,[A-Za-z0-9])*|-\d+(?:\.\d+)?|[+*]")
"""An index or power without brackets: i, old, ik, 0, <t, -1."""
SMALL = {"in", "to", "of", "or", "at"}
"""Words of two letters that are words in an index too."""
CLOSING = {"(": ")", "{": "}"}


def formula(text: str) -> str:
    """Returns a formula, possibly of several lines, as a block of HTML."""
    lines = [f"<span>{typeset(line.strip())}</span>" for line in text.strip("\n").split("\n")]
    return f'<div class="formula" markdown="0">{"".join(lines)}</div>'


def typeset(text: str, in_script: bool = False) -> str:
    """Returns one line of a formula as HTML; in an index or power, ij are two variables."""
    done, place = [], 0
    while place < len(text):
        found = TOKEN.match(text, place)
        assert found, "any character is a token"
        kind, word = str(found.lastgroup), found[found.lastgroup or 0]
        place = found.end()
        if kind == "script":
            inner, place = script_of(text, place)
            tag = "sub" if word == "_" else "sup"
            done.append(f"<{tag}>{typeset(inner, True)}</{tag}>" if inner else word)
        elif kind == "word":
            is_article = ARTICLE.match(text, found.start()) is not None and not in_script
            done.append(word_of(word, 2 if in_script and word not in SMALL else 1 - is_article))
        else:
            done.append(sign_of(kind, word))
    return "".join(done)


def script_of(text: str, place: int) -> tuple[str, int]:
    """Returns the index or power that begins at a place, without its brackets, and where it ends; "" for none."""
    closing = CLOSING.get(text[place : place + 1])
    if closing is None:
        found = SIMPLE.match(text, place)
        return (found[0], found.end()) if found else ("", place)
    depth = 0
    for end in range(place, len(text)):
        depth += (text[end] == text[place]) - (text[end] == closing)
        if depth == 0:
            return text[place + 1 : end], end + 1
    return "", place


def word_of(word: str, longest: int) -> str:
    """Returns a word: Greek, a large sign, variables if it is not longer than `longest` letters, or the word itself."""
    if word in GREEK:
        return f"<i>{GREEK[word]}</i>"
    if word in LARGE:
        return LARGE[word]
    return f"<i>{word}</i>" if len(word) <= longest else escape(word)


def sign_of(kind: str, word: str) -> str:
    """Returns what is no word: signs of mathematics for those of a keyboard, and code as code."""
    if kind == "code":
        return f"<code>{escape(word)}</code>"
    if kind == "power":
        return f"10<sup>{typeset(word[2:])}</sup>"
    if kind == "genitive":
        return "’s"
    signs = {"sign": SIGNS.get(word, word), "prime": PRIME * len(word), "star": STAR, "times": " · ", "minus": MINUS}
    return signs.get(kind, escape(word))
