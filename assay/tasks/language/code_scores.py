"""Scores of what commands did to files and wrote, and of tests that a program passes (InterCode, arXiv:2306.14898)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.sandbox.grading import Grade

ADDED, GONE, CHANGED = "added", "gone", "changed"
WEIGHT, BASE = 0.33, 0.01
"""What each of three terms pays at most, and what is paid in any case."""
WORD = re.compile(r"\w\w+")


def commands_score(
    before: Mapping[str, bytes], found: Mapping[str, bytes], gold: Mapping[str, bytes], said: str, wanted: str
) -> float:
    """Returns 0.01 + p1 + p2 + p3, each rounded to two digits: 1 if files and output are those of the right commands.

        p1 = 0.33 (1 - erf(changes that are missing or too many))
        p2 = 0.33 share of the files added by both whose content is equal; 0.33 without such files
        p3 = 0.33 cosine of the TF-IDF weights of the last outputs

    The content of a file that was there before is not compared, and doing nothing is 0.67 where nothing should change.
    """
    mine, theirs = changes(before, found), changes(before, gold)
    wrong = len(mine ^ theirs)
    both = [path for path, kind in mine & theirs if kind == ADDED]
    equal = sum(found[path] == gold[path] for path in both) / len(both) if both else 1.0
    terms = (1.0 - math.erf(wrong), equal, similarity(said, wanted))
    return round(BASE + sum(round(WEIGHT * term, 2) for term in terms), 2)


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Returns (path, what happened to it) of each file that differs."""
    paths = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return {(path, GONE if path not in after else CHANGED if path in before else ADDED) for path in paths}


def similarity(one: str, other: str) -> float:
    """Returns the cosine of two texts' counts of words, each times ln(3 / (1 + texts with it)) + 1; words have at least
    two letters, in small ones. Whether the texts are equal if one of them has no words.
    """
    counts = [Counter(WORD.findall(text.lower())) for text in (one, other)]
    if not all(counts):
        return float(one.strip() == other.strip())
    weights = {word: math.log(3 / (1 + sum(word in own for own in counts))) + 1 for word in counts[0] | counts[1]}
    first, second = ({word: number * weights[word] for word, number in own.items()} for own in counts)
    product = sum(value * second.get(word, 0.0) for word, value in first.items())
    return product / math.sqrt(math.prod(sum(value**2 for value in own.values()) for own in (first, second)))


def tests_score(grade: Grade) -> Outcome:
    """Returns the share of tests that pass; a fault of the policy if a limit ended the program before any did."""
    if grade.passed is None:
        return InfraFault(grade.fault)
    share = sum(grade.passed) / max(1, len(grade.passed))
    return PolicyFault(grade.fault) if grade.fault and not share else Score(share)
