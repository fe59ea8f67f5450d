"""Each law of constraints, curricula, sources, rollouts and schedules catches a part that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.laws.constraint import CONSTRAINT
from assay.claims.laws.credit import EVERY
from assay.claims.laws.curriculum import CURRICULUM
from assay.claims.laws.rollout import ROLLOUT, check_rollout
from assay.claims.laws.schedule import SCHEDULE
from assay.claims.laws.source import SOURCE, check_source
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Progress, State
from assay.core.slots import Constraint, Curriculum, Rollout, Scene, Schedule, Source
from assay.methods.delethink import InChunks
from assay.ops import random
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.sources.fresh import FreshSequences
from assay.tasks.language.addition import addition
from assay.tasks.tabular.table import chain
from tests.claims.breaking import assert_caught, finding, not_covered

HANDED = "handed_models"
"""The law of models that are read before the update: tests/engine/test_handed.py breaks it in every slot."""


# -------------------------------------------------------------------------------------------------------- constraints
@dataclass(frozen=True)
class Priced(Constraint):
    """A multiplier on the mean cost, with one mistake."""

    mistake: str = ""

    def init(self, scene: Scene) -> State:
        return {"multiplier": 0.0} if self.mistake != "named" else {"price": 0.0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        assert experience.cost is not None
        if self.mistake == "lagged":
            self.move(experience, state)
        price = 0.0 if self.mistake == "bites" else float(state["multiplier"])
        cost = experience.cost[..., 0].detach()
        if self.mistake != "masked":
            cost = cost * experience.mask
        shift = 1.0 if self.mistake == "masked" else 0.0
        merged = experience.add({"advantage": experience.column("advantage").detach() - price * cost - shift})
        if self.mistake != "lagged":
            self.move(experience, state)
        if self.mistake == "unmodified":
            experience.reward.zero_()
        return merged

    def move(self, experience: Experience, state: State) -> None:
        assert experience.cost is not None
        cost = float((experience.cost[..., 0] * experience.mask).sum() / experience.mask.sum().clamp(min=1))
        step = cost - 0.5
        if self.mistake == "rises":
            step = -abs(step)
        if self.mistake == "falls":
            step = abs(step)
        new = float(state["multiplier"]) + 0.1 * step
        state["multiplier"] = new if self.mistake == "not_negative" else max(0.0, new)
        if self.mistake == "resumes":
            state["multiplier"] = Unsaved(state["multiplier"])


class Unsaved(float):
    """A number that no store knows."""


CONSTRAINTS = ("not_negative", "rises", "falls", "resumes", "unmodified", "lagged", "bites", "masked")


@pytest.mark.parametrize("law", CONSTRAINTS)
def test_law_catches_a_broken_constraint(law: str) -> None:
    assert_caught(CONSTRAINT, law, Priced(law))


def test_every_law_of_constraints_is_shown_to_fail() -> None:
    assert not_covered(CONSTRAINT, CONSTRAINTS, EVERY) == set()
    assert [one for one in CONSTRAINT.check(Priced()) if not one.held] == []


def test_a_constraint_without_a_multiplier_must_say_so() -> None:
    assert "no entry named `multiplier`" in finding(CONSTRAINT, "rises", Priced("named")).detail


# ---------------------------------------------------------------------------------------------------------- curricula
@dataclass(frozen=True)
class Random(Curriculum):
    """Random starts by a hash, with one mistake."""

    mistake: str = ""

    def init(self, scene: Scene) -> State:
        return {"step": 0}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        hidden = state if self.mistake != "resumes" else Hidden.state
        hidden["step"] = hidden.get("step", 0) + 1
        if self.mistake == "repeats":
            return np.random.randint(0, 100, scene.num_starts)  # noqa: NPY002
        starts = random.integers(scene.draw.at(hidden["step"]), 100, scene.num_starts)
        return starts - 50 if self.mistake == "ordinals" else starts

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        if self.mistake == "unmodified":
            experience.reward.zero_()


class Hidden:
    """What a part must not have: memory outside its state."""

    state: State = {}


CURRICULA = ("ordinals", "repeats", "resumes", "unmodified")


@pytest.mark.parametrize("law", CURRICULA)
def test_law_catches_a_broken_curriculum(law: str) -> None:
    assert_caught(CURRICULUM, law, Random(law))


def test_every_law_of_curricula_is_shown_to_fail() -> None:
    assert not_covered(CURRICULUM, [*CURRICULA, HANDED]) == set()
    assert [one for one in CURRICULUM.check(Random()) if not one.held] == []


@pytest.mark.parametrize("starts", [[0, 1], np.zeros(7), np.zeros((7, 1), dtype=np.int64)], ids=["few", "float", "2d"])
def test_starts_are_as_many_whole_numbers_as_asked_for(starts: Any) -> None:
    class Odd(Random):
        def __call__(self, scene: Scene, state: State) -> Any:
            return starts

    assert not finding(CURRICULUM, "ordinals", Odd()).held


# ------------------------------------------------------------------------------------------------------------ sources
@dataclass(frozen=True)
class Halves(Source):
    """Half of the fresh rows after the other, with one mistake."""

    mistake: str = ""
    epochs: int = 1

    def init(self, scene: Scene) -> State:
        if self.mistake == "runs":
            raise AssayError("no task suits it")
        return {"turn": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh = scene.fresh
        assert fresh is not None
        memory = Hidden.state if self.mistake == "resumes" else state
        memory["turn"] = memory.get("turn", 0) + 1
        if self.mistake == "yields":
            return
        if self.mistake == "own":
            fresh = replace(fresh, reward=fresh.reward + 0.5 * fresh.mask)
        if self.mistake == "unmodified":
            fresh.reward.mul_(2.0)
        order = torch.from_numpy(random.permutation(scene.draw.at(memory["turn"]), len(fresh)))
        if self.mistake == "repeats":
            order = torch.randperm(len(fresh))
        halves = order.tensor_split(2)
        yield fresh.rows(halves[0])
        yield fresh.rows(halves[0 if self.mistake == "each_epoch" else 1])


SOURCES = ("runs", "yields", "own", "each_epoch", "repeats", "resumes", "unmodified")


@pytest.mark.parametrize("law", SOURCES)
def test_law_catches_a_broken_source(law: str) -> None:
    assert_caught(SOURCE, law, Halves(law))


def test_every_law_of_sources_is_shown_to_fail() -> None:
    assert not_covered(SOURCE, [*SOURCES, HANDED]) == set()
    assert [one for one in SOURCE.check(Halves()) if not one.held] == []


def test_a_source_can_be_checked_on_one_task() -> None:
    assert all(one.held for one in check_source(FreshSequences(), addition(2)))


# ----------------------------------------------------------------------------------------------------------- rollouts
@dataclass(frozen=True)
class WithHint:
    """A frame that reads a token more than the task's prompt."""

    def around(self, models: Any) -> Any:
        class Hinting:
            num_draws = models["actor"].num_draws

            def decoder(self, prompts: Any, repeats: Any, num_new: int) -> Any:
                return models["actor"].decoder([[*prompt, 3] for prompt in prompts], repeats, num_new)

        return Hinting()


@dataclass(frozen=True)
class Played(Rollout):
    """Episodes with one mistake."""

    mistake: str = ""

    def init(self, scene: Scene) -> State:
        if self.mistake == "runs":
            raise AssayError("no task suits it")
        return {"calls": 0}

    @property
    def num_starts(self) -> int:
        return 3

    @property
    def frame(self) -> Any:
        return {"framed": InChunks(1, 0), "unhinted": WithHint()}.get(self.mistake)

    @property
    def by_start(self) -> bool:
        return self.mistake == "by_start"

    def __call__(self, scene: Scene, state: State) -> Experience:
        starts, draw = scene.starts, scene.draw
        memory = Hidden.state if self.mistake == "resumes" else state
        memory["calls"] = memory.get("calls", 0) + 1
        if self.mistake == "seeded":
            draw = Draw(int(torch.randint(0, 100, ())))
        if self.mistake == "subset":
            draw = draw.at(len(starts))
        draw = draw.at(memory["calls"])
        fresh = scene.task.play(scene.actor, starts, np.zeros(len(starts), dtype=np.int64), draw, split=0, greedy=False)
        if self.mistake == "gathers":
            return replace(fresh, mask=fresh.mask & False)
        if self.mistake == "recorded":
            return replace(fresh, logp=(fresh.logp - 0.5) * fresh.mask)
        if self.mistake == "masked":
            return replace(fresh, reward=fresh.reward + 1.0)
        return fresh


ROLLOUTS = ("runs", "gathers", "recorded", "seeded", "masked", "subset", "by_start", "resumes", "framed", "unhinted")


@pytest.mark.parametrize("law", ROLLOUTS)
def test_law_catches_a_broken_rollout(law: str) -> None:
    assert_caught(ROLLOUT, law, Played(law))


def test_every_law_of_rollouts_is_shown_to_fail() -> None:
    assert not_covered(ROLLOUT, [*ROLLOUTS, HANDED]) == set()
    assert [one for one in ROLLOUT.check(Played()) if not one.held] == []


def test_rows_in_another_order_are_not_cut_by_start() -> None:
    class Backwards(Episodes):
        def __call__(self, scene: Scene, state: State) -> Experience:
            fresh = super().__call__(scene, state)
            return fresh.rows(torch.arange(len(fresh)).flip(0))

    assert "instead of" in finding(ROLLOUT, "by_start", Backwards()).detail


def test_a_greedy_rollout_is_the_same_under_every_seed() -> None:
    class Greedy(Episodes):
        def __call__(self, scene: Scene, state: State) -> Experience:
            samples = np.zeros(len(scene.starts), dtype=np.int64)
            return scene.task.play(scene.actor, scene.starts, samples, scene.draw, split=0, greedy=True)

    assert "another seed" in finding(ROLLOUT, "seeded", Greedy()).detail


def test_a_rollout_can_be_checked_on_one_task() -> None:
    assert all(one.held for one in check_rollout(Fragments(num_envs=4, steps=8), chain(3)))
    (found,) = check_rollout(Fragments(), addition(1))
    assert (found.law, found.held) == ("runs", False)


# ---------------------------------------------------------------------------------------------------------- schedules
@dataclass(frozen=True)
class Falling(Schedule):
    def at(self, progress: Progress) -> float:
        return 1.0 / progress.step if progress.step else float("inf")


def test_law_catches_a_broken_schedule() -> None:
    assert_caught(SCHEDULE, "finite", Falling())
    assert not_covered(SCHEDULE, ["finite"]) == set()
