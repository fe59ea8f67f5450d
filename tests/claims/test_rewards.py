"""Each law of rewards catches a function or a part that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from assay.claims.laws.reward import REWARD, check_reward
from assay.claims.laws.reward_functions import REWARD_FUNCTION, RewardFunction
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, TextTask
from assay.parts.rewards.combine import StandardisedInGroup, Weighted, WeightedSum
from assay.parts.rewards.function import FromFunction, on_last_decision
from assay.tasks.control.cartpole import cartpole
from tests.claims.breaking import assert_caught, not_covered

Rows = list[dict[str, Any]]


def good(rows: Rows) -> list[float]:
    return [float(row["completion"] == row["answer"]) for row in rows]


def changing(rows: Rows) -> list[float]:
    for row in rows:
        row["completion"] = ""
    return [0.0] * len(rows)


def position(rows: Rows) -> list[float]:
    return [float(place) for place in range(len(rows))]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numbers": lambda rows: [1.0],
    "same_again": lambda rows: torch.rand(len(rows)).tolist(),
    "order": position,
    "rows_kept": changing,
    "alone": lambda rows: [one - sum(good(rows)) / len(rows) for one in good(rows)],
    "shotgun": lambda rows: [float(row["answer"] in row["completion"]) for row in rows],
}


@pytest.mark.parametrize("law", FUNCTIONS)
def test_law_catches_a_broken_reward_function(law: str) -> None:
    assert_caught(REWARD_FUNCTION, law, RewardFunction(FUNCTIONS[law]))


def test_every_law_of_reward_functions_is_shown_to_fail() -> None:
    assert not_covered(REWARD_FUNCTION, FUNCTIONS) == set()


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned NoneType"),
        (1.0, "returned float"),
        ("1.0", "returned str"),
        ([float("nan")] * 4, "returned nan for row 0"),
        ([1.0, 2.0, float("inf"), 0.0], "for row 2"),
        (["1"] * 4, "returned '1' for row 0"),
        ([1.0] * 5, "5 values for 4 rows"),
        ([], "0 values for 4 rows"),
        (torch.ones(4, 2), "for row 0"),
        (torch.ones(()), "0 values"),
        ({"reward": 1.0}, "returned dict"),
    ],
    ids=repr,
)
def test_what_is_not_one_finite_number_a_row_is_named(returned: Any, words: str) -> None:
    (found,) = check_reward(lambda rows: returned)
    assert not found.held
    assert words in found.detail


@pytest.mark.parametrize(
    "function",
    [
        good,
        lambda rows: torch.tensor(good(rows)),
        lambda rows: np.array(good(rows)),
        lambda completions: [float(len(one)) for one in completions],
        lambda completions, answers: [float(one == two) for one, two in zip(completions, answers, strict=True)],
        lambda prompts, completions, **others: [float(len(one)) for one in completions],
        lambda rows: [row["return"] for row in rows],
    ],
    ids=["rows", "tensor", "array", "completions", "answers", "prompts first", "control"],
)
def test_sound_reward_functions_of_every_form(function: Callable[..., Any]) -> None:
    assert [one for one in check_reward(function) if not one.held] == []


def test_a_reward_that_declares_chance_may_differ() -> None:
    def noisy(rows: Rows) -> list[float]:
        return torch.rand(len(rows)).tolist()

    noisy.stochastic = True  # type: ignore[attr-defined]
    assert [one.law for one in check_reward(noisy)] == ["numbers", "rows_kept"]


def test_what_a_run_accepts_is_accepted_here() -> None:
    async def asks(completions: list[str], solution: list[str], **others: Any) -> list[Any]:
        found = [np.float64(said == right) for said, right in zip(completions, solution, strict=True)]
        return [None if said == "" else one for said, one in zip(completions, found, strict=True)]

    assert all(one.held for one in check_reward(asks))  # an unknown column stands for the answer
    assert all(one.held for one in check_reward(lambda rows: [row["completion"] == row["answer"] for row in rows]))


# -------------------------------------------------------------------------------------------------------------- parts
@dataclass(frozen=True)
class Toy(Reward):
    mistake: str = ""
    unsaved: ClassVar[dict[str, int]] = {}

    def init(self, scene: Scene) -> State:
        return {"times": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        reward = experience.mask.to(experience.reward.dtype)
        if self.mistake == "rewards":
            reward = reward + 1.0
        if self.mistake == "repeats":
            reward = reward * torch.rand(())
        if self.mistake == "resumes":
            self.unsaved["times"] = self.unsaved.get("times", 0) + 1
            reward = reward * self.unsaved["times"]
        if self.mistake == "unmodified":
            experience.reward.zero_()
        if self.mistake == "padding":
            reward = reward / experience.num_columns
        if self.mistake == "permutation":
            reward = reward * torch.arange(len(experience)).unsqueeze(1)
        if self.mistake == "alone_in_batch":
            reward = reward - experience.reward.mean() * experience.mask
        if self.mistake == "shotgun_of_text":
            assert isinstance(scene.task, TextTask)
            found = [float(row["answer"] in row["completion"]) for row in scene.task.texts(experience, 0)]
            return on_last_decision(experience, torch.tensor(found))
        return replace(experience, reward=reward)


PARTS = ("rewards", "repeats", "resumes", "unmodified", "padding", "permutation", "alone_in_batch", "shotgun_of_text")


@pytest.mark.parametrize("law", PARTS)
def test_law_catches_a_broken_reward(law: str) -> None:
    assert_caught(REWARD, law, Toy(law))


def test_every_law_of_rewards_is_shown_to_fail() -> None:
    assert not_covered(REWARD, PARTS) == set()
    assert [one for one in check_reward(Toy()) if not one.held] == []


def test_a_reward_can_be_checked_on_one_task() -> None:
    reward = FromFunction(lambda rows: [row["return"] for row in rows])
    assert [one for one in check_reward(reward, cartpole()) if not one.held] == []


def test_a_function_may_compare_the_completions_of_a_prompt_and_no_others() -> None:
    def above_others(rows: Rows) -> list[float]:
        mine = [good([other for other in rows if other["prompt"] == row["prompt"]]) for row in rows]
        return [one - sum(group) / len(group) for one, group in zip(good(rows), mine, strict=True)]

    assert [one.law for one in check_reward(above_others) if not one.held] == ["alone"]
    above_others.compares_group = True  # type: ignore[attr-defined]
    assert [one for one in check_reward(above_others) if not one.held] == []


def test_a_part_that_compares_a_group_says_so_wherever_it_stands() -> None:
    assert [
        one for one in check_reward(WeightedSum({"relative": Weighted(StandardisedInGroup())})) if not one.held
    ] == []


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: [float(row["answer"] in row["completion"].split()) for row in rows],
        lambda rows: [float(f"\\boxed{{{row['answer']}}}" in row["completion"]) for row in rows],
        lambda completions, answers: [1.0 if b in a else -0.5 for a, b in zip(completions, answers, strict=True)],
    ],
    ids=["words", "boxed", "lists"],
)
def test_a_reward_that_a_list_of_candidates_wins_is_caught(function: Callable[..., Any]) -> None:
    assert [one.law for one in check_reward(function) if not one.held] == ["shotgun"]


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: [float((row["completion"].split() or [""])[-1] == row["answer"]) for row in rows],
        lambda rows: [float(re.findall(r"boxed{(.*?)}", row["completion"])[-1:] == [row["answer"]]) for row in rows],
        lambda rows: [SequenceMatcher(None, row["completion"], row["answer"]).ratio() for row in rows],
        lambda rows: [0.1 * len(row["completion"].split()) for row in rows],
    ],
    ids=["last word", "last box", "likeness", "length"],
)
def test_a_reward_that_reads_one_answer_holds(function: Callable[..., Any]) -> None:
    assert [one for one in check_reward(function) if not one.held] == []


def test_a_reward_may_declare_that_lists_are_paid() -> None:
    def recall(rows: Rows) -> list[float]:
        return [float(row["answer"] in row["completion"]) for row in rows]

    recall.breaks = {"shotgun": "recall of one fact, length is paid elsewhere"}  # type: ignore[attr-defined]
    assert [one for one in check_reward(recall) if not one.held] == []
