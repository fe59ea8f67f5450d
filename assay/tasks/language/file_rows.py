"""Rows of a file of prompts: what a line holds, and its problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw, Outcome, PolicyFault, Score
from assay.ops import random
from assay.rollouts.judgements import leading, scores_in
from assay.tasks.language.arithmetic import FINAL, final_answer, is_same_answer, plain_number, stated_numbers
from assay.tasks.language.items import Item, check_split
from assay.tasks.language.judging import ranked
from assay.tasks.language.rows import ANSWERS
from assay.tasks.language.verifying import Grader, row_of


# ---------------------------------------------------------------------------------------------------- rows by number
class Rows(ABC):
    """Finitely many rows: start k is row k modulo their number, in training and held out.

    `portions` are the numbers of training rows that share a weight, and how many of each portion one pass takes.
    """

    in_order: bool
    worked: bool
    judged: bool
    grader: Grader | None

    @property
    @abstractmethod
    def splits(self) -> tuple[list[Item], list[Item]]:
        """Returns (training rows, held-out rows)."""

    @property
    def portions(self) -> list[tuple[np.ndarray, int]]:
        """Returns all training rows as one portion, each once in a pass."""
        number = len(self.splits[0])
        return [(np.arange(number), number)]

    @property
    @abstractmethod
    def names(self) -> str:
        """Returns the names of the files."""

    def item(self, ordinal: int, split: int) -> Item:
        """Returns row `ordinal` of the split, modulo the number of rows."""
        check_split(split)
        rows = self.splits[split]
        if not rows:
            what = "held-out row" if split else "row to train on"
            pair = "or TRAIN.jsonl,TEST.jsonl, in Python (training, held_out)"
            raise AssayError(f"{self.names} has no {what}. Give more rows, {pair}")
        return rows[ordinal % len(rows)]

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the start at each place of the run's order, a function of draw and ordinal.

        Pass e takes the next rows of each portion (its own order changes when all of them were taken) in an order of
        its own. A row's repetition k is start k * number of rows + row, so that samples differ.
        """
        number, quotas = len(self.splits[0]), [quota for _, quota in self.portions]
        ends, total = np.cumsum(quotas), sum(quotas)
        passes, slots = np.divmod(ordinals, total)
        result = np.empty_like(ordinals)
        for which in np.unique(passes).tolist():
            place = self.permuted(draw.at(0, which), total)[slots[passes == which]]
            portion, start = np.searchsorted(ends, place, side="right"), np.empty_like(place)
            for index in np.unique(portion).tolist():
                rows, quota = self.portions[index]
                here = portion == index
                again, within = np.divmod(which * quota + place[here] - (ends[index] - quota), len(rows))
                for time in np.unique(again).tolist():
                    own = rows if quota == len(rows) else rows[self.permuted(draw.at(1, index, time), len(rows))]
                    start[np.flatnonzero(here)[again == time]] = time * number + own[within[again == time]]
            result[passes == which] = start
        return result

    def permuted(self, draw: Draw, number: int) -> np.ndarray:
        """Returns the numbers below `number` in the draw's order, or in theirs if rows are taken in order."""
        return np.arange(number) if self.in_order else np.argsort(random.hashed(draw, np.arange(number)), kind="stable")

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Returns the values of the field `source` in training rows, in order; none if no row has it. AssayError if
        only some have.
        """
        found = [str(item.facts["source"]) for item in self.splits[0] if "source" in item.facts]
        if found and len(found) < len(self.splits[0]):
            missing = len(self.splits[0]) - len(found)
            raise AssayError(f"{self.names}: {missing} training rows have no field 'source'. Add it to all, or to none")
        return tuple(sorted(set(found)))

    @cached_property
    def places(self) -> tuple[list[int], ...]:
        """Returns the training rows of each source."""
        rows = [str(item.facts.get("source")) for item in self.splits[0]]
        return tuple([place for place, own in enumerate(rows) if own == name] for name in self.source_names)

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of row `place` of a source; after its last row its first one follows, as a new start."""
        again, row = divmod(place, len(self.places[source]))
        return again * len(self.splits[0]) + self.places[source][row]

    def source_of(self, start: int) -> int:
        """Returns the number of a training row's source."""
        return self.source_names.index(str(self.item(start, 0).facts["source"]))

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the answer, 0 for all else; what `ranked` says in a file of judgements; what a grader says."""
        if self.grader is not None:
            return self.grader([row_of(item, completion)])[0]
        if self.judged:
            return ranked(item, completion)
        given = final_answer(completion)
        if not given and completion.strip() == item.answer.strip():
            return Score(1.0)
        if not given:
            return PolicyFault("several final answers" if given is None else "no answer")
        if self.worked:
            numbers = stated_numbers(given)
            if not numbers:
                return PolicyFault("no number")
            is_one = FINAL not in completion or len(numbers) == 1
            return Score(float(is_one and is_right(numbers[-1], item)))
        return Score(float(is_right(given, item)))

    def stated(self, completion: str) -> str | None:
        """Returns the answer that a completion states, in one spelling, for votes; None if it states no one answer."""
        if self.judged:
            first = leading(scores_in(completion) or ())
            return str(first[0]) if len(first) == 1 else None
        given = final_answer(completion)
        numbers = stated_numbers(given) if given and self.worked else []
        if not given or (self.worked and not numbers):
            return None
        answer = numbers[-1] if self.worked else given
        number = plain_number(answer)
        return answer.strip() if number is None else str(number)


def is_right(given: str, item: Item) -> bool:
    """Returns whether an answer is the item's, or one of several that its row lists."""
    several = item.facts.get(ANSWERS)
    answers = [final_answer(one) or one for one in several] if isinstance(several, list) else [item.answer]
    return any(is_same_answer(given, one) for one in answers)



def first(pair: tuple[int, str]) -> int:
    """Returns the number of a pair."""
    return pair[0]
