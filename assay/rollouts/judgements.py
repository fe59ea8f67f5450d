"""Judgements as text: a score for each response, "8,3", or the better of two answers, at the end of what a judge
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from assay.core.errors import AssayError

Scores = Sequence[int] | None
"""The scores of one judgement; None where it cannot be read."""
PAIR = """Which answer solves the task better?

Task:
{prompt}

Answer A:
{first}

Answer B:
{second}

End with the line "Better: A", "Better: B" or "Better: tie"."""
"""What a chat model is asked about two answers."""
BETTER = re.compile(r"\b[Bb]etter\W{1,6}(A|B|[Tt]ie)\W*\Z")
ALONE = re.compile(r"\W*(A|B|[Tt]ie)\W*")
SCORES = re.compile(r"\s*[0-9]{1,3}(\s*,\s*[0-9]{1,3})*\s*")


def scores_in(completion: str, mark: str = ":") -> list[int] | None:
    """Returns the scores after the last `mark`, or in the whole text without one; None for anything but numbers and
    commas.
    """
    said = completion.rpartition(mark)[2]
    return [int(one.strip()) for one in said.split(",")] if SCORES.fullmatch(said) else None


def preference(answer: str) -> float | None:
    """Returns 1 if an answer ends with "Better: A", 0 for B, 1/2 for a tie, or if it is that letter or word alone; None
    if it says neither: "A fine answer" is no preference.
    """
    stated = BETTER.search(answer[-200:]) or ALONE.fullmatch(answer)
    return None if stated is None else {"A": 1.0, "B": 0.0}.get(stated[1], 0.5)


def won(answer: str) -> float:
    """Returns 1 if an answer prefers A, 0 for B, 1/2 for a tie; AssayError if it prefers neither."""
    found = preference(answer)
    if found is None:
        what = f"the judge preferred neither A nor B: {answer[-80:]!a}"
        raise AssayError(f'{what}. Ask it for "Better: A", "Better: B" or "Better: tie"')
    return found


def filled_pair(template: str, prompt: str, first: str, second: str) -> str:
    """Returns the template with a prompt and two answers in place of {prompt}, {first} and {second}."""
    return filled(template, {"prompt": prompt, "first": first, "second": second})


def filled(template: str, values: Mapping[str, object]) -> str:
    """Returns the template with each value in place of its name in braces; names inside of a value stay, so that no
    answer can bring the prompt, or the reference, into what a judge is shown of it.
    """
    return re.sub(rf"\{{({'|'.join(values)})\}}", lambda name: str(values[name[1]]), template)


def numbered(lines: Iterable[object]) -> str:
    """Returns lines with their numbers from 1."""
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def numbers_after(name: str, said: str) -> set[int] | None:
    """Returns the numbers of the last list "NAME: 1, 3", an empty set after "NAME: none"; None without such a list.
    `name` is a regular expression.
    """
    found = re.findall(rf"{name}\W*?:\W*(none|\d[\d,; and]*)", said, flags=re.IGNORECASE)
    return set(map(int, re.findall(r"\d+", found[-1]))) if found else None


def leading(scores: Sequence[int]) -> list[int]:
    """Returns the numbers, from 1, of the responses with the highest score; of no scores none."""
    return [place for place, score in enumerate(scores, 1) if score == max(scores)]
