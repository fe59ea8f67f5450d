"""Exact quantities of thoughts that are stopped, and of answers that game a rubric, against brute force."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from assay.claims.testbeds.language.attempts import MARK, attempts
from assay.claims.testbeds.language.enumerable import DIGITS
from assay.claims.testbeds.language.lab import lab
from assay.core.record import Score
from assay.runs import catalogue
from tests.claims.testbeds.language.test_exact import actor_of, all_chances, conditional


@pytest.mark.parametrize(("most", "width"), [(2, 1), (1, 2)])
def test_stopped_thoughts_equal_an_enumeration(most: int, width: int) -> None:
    task: Any = attempts(most, width, accepted=3, prompts=2)
    actor, rates, forced = actor_of(task, 0.7), [], []
    for prompt in range(2):
        item, own, ended, stopped = task.items.item(prompt, 1), str(task.items.own(prompt)), {}, [0.0] * most
        odds = {"": 1.0}
        for length in range(most * width + 1):
            odds = {one: odd for one, odd in odds.items() if MARK not in one}
            for thought, odd in odds.items():
                before, zero = (
                    conditional(actor, task, prompt, thought),
                    conditional(actor, task, prompt, thought + "0"),
                )
                signed = conditional(actor, task, prompt, thought + MARK)
                if length and not length % width and thought[-1] == own:
                    stopped[length // width - 1] += odd * float(signed[:3].sum())
                for place, digit in enumerate(DIGITS):
                    said = thought + MARK + digit
                    if said.index(MARK) == length and task.items.verify(item, said) == Score(1.0):
                        ended[said] = odd * float(before[0] * zero[0] * signed[place])
            odds = {
                thought + digit: odd * float(step)
                for thought, odd in odds.items()
                for digit, step in zip(DIGITS, conditional(actor, task, prompt, thought), strict=True)
            }
        rates.append(sum(ended.values()))
        early = [sum(odd for said, odd in ended.items() if len(said) <= 1 + width * (k + 1)) for k in range(most)]
        forced.append(np.mean(np.array(stopped) + early))
    found = task.exact(actor)
    assert found["pass_rate"] == pytest.approx(np.mean(rates), rel=1e-4)
    assert found["forced"] == pytest.approx(np.mean(forced), rel=1e-4)


def test_a_start_of_attempts_is_right_as_often_as_stated() -> None:
    task: Any = attempts(1, 1, accepted=10, prompts=1)
    assert task.exact(actor_of(task)) == pytest.approx({"pass_rate": 1e-3, "forced": 0.1}, rel=1e-5)


def test_what_games_a_rubric_equals_an_enumeration() -> None:
    task: Any = lab(digits=1, accepted=2, prompts=2)
    actor, rates, gamed = actor_of(task, 0.7), [], []
    for prompt in range(2):
        odds, item = all_chances(actor, task, prompt, 3), task.items.item(prompt, 1)
        right = {one for one in odds if task.items.verify(item, one) == Score(1.0)}
        told = [one for one in odds if all(re.search(item.facts["rubric"][k]["pattern"], one) for k in range(2))]
        rates.append(sum(odds[one] for one in right))
        gamed.append(sum(odds[one] for one in told if one not in right))
        assert not any(one.startswith("9") for one in right), "the flourish rules out what is right"
        assert not any(re.search(item.facts["rubric"][3]["pattern"], one) for one in task.items.ways(prompt)[0])
    assert task.exact(actor) == pytest.approx({"pass_rate": np.mean(rates), "gamed": np.mean(gamed)}, rel=1e-4)


def test_prompts_of_a_lab_get_harder() -> None:
    task: Any = catalogue.find_task("lab:hardest=0.3,prompts=4")
    rates = [task.items.item(prompt, 0).facts["pass_rate"] for prompt in range(4)]
    assert rates == pytest.approx([0.9, 0.7, 0.5, 0.3])
    assert all(one > two for one, two in itertools.pairwise(rates))
