"""Rewards that combine rewards: weighted sum, product, gate; and the base of those that change one.

Each component is a reward part. It is applied to the original experience (components do not see each other's
rewards), logged as `reward/NAME` (mean over episodes), and stored as the column `reward/NAME` [B, T]. Rows that
`Verifier` has verified are not verified again. `score` is the task's own where a component is the verifier, otherwise
the combined reward of the row. Axes: B sequences, T decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Choice, Reward, Scene, Schedule, number
from assay.core.verifier import VERIFIED, Verifier
from assay.ops import groups
from assay.parts.rewards.function import on_last_decision


@dataclass(frozen=True)
class Weighted(Choice):
    """A component of a weighted sum. Degenerate: a weight of 0 logs the component without training on it.

    Source: by definition. Assumes that the weight is finite.
    """

    reward: Reward
    weight: float | Schedule = 1.0

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"reward": Verifier()},)


def states_of(components: Mapping[str, Reward], scene: Scene) -> State:
    """Returns the initial state of each component by name."""
    return {name: reward.init(scene) for name, reward in components.items()}


def check_components(of: Reward, components: Mapping[str, Reward]) -> None:
    """Raises AssayError if there are no components, or if a component other than Verifier() is named 'verifier'."""
    if not components:
        raise AssayError(f"{type(of).__name__}.components is empty. Name at least one reward")
    if not isinstance(components.get("verifier", Verifier()), Verifier):
        raise AssayError(
            f"{type(of).__name__}.components: the name 'verifier' is reserved for Verifier(), whose column is not "
            "verified again. Choose another name for this reward"
        )


def applied(
    components: Mapping[str, Reward], experience: Experience, scene: Scene, state: State
) -> tuple[Experience, dict[str, Tensor]]:
    """Returns the experience with the columns `reward/NAME`, and the reward [B, T] of each component by name.

    `score` is the task's own if one of the components is the verifier; otherwise the column is dropped.
    """
    values: dict[str, Tensor] = {}
    base = experience
    score = experience.extra.get("score") if VERIFIED in experience.extra else None
    for place, (name, reward) in enumerate(components.items()):
        after = reward(experience.with_columns(reward=base.reward), scene.given(draw=scene.draw.at(place)), state[name])
        values[name] = after.reward
        log_component(name, after, scene)
        experience = after.add({f"reward/{name}": after.reward})
        if score is None and (isinstance(reward, Verifier) or VERIFIED in experience.extra):
            score = experience.extra["score"]
    extra = dict(experience.extra)
    extra.pop("score", None)
    return experience.with_columns(extra=extra if score is None else {**extra, "score": score}), values


def log_component(name: str, rewarded: Experience, scene: Scene) -> None:
    """Logs the mean total of a component over rows that have a decision."""
    there = rewarded.mask.any(1)
    scene.log(f"reward/{name}", float((rewarded.reward * rewarded.mask).sum()), float(there.sum()))


@dataclass(frozen=True)
class WeightedSum(Reward):
    """reward = sum over components of weight * reward_component, decision by decision.

    A weight of 0 logs a component without training on it. Degenerate: one component of weight 1 is that component.
    Source: by definition. Assumes components of comparable sizes.
    """

    components: Mapping[str, Weighted] = field(default_factory=lambda: {"verifier": Weighted(Verifier())})

    def __post_init__(self) -> None:
        check_components(self, self.parts)

    @property
    def parts(self) -> dict[str, Reward]:
        """Returns the components' rewards by name."""
        return {name: one.reward for name, one in self.components.items()}

    def init(self, scene: Scene) -> State:
        return states_of(self.parts, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rewarded, values = applied(self.parts, experience, scene, state)
        weighted = sum((number(one.weight) * values[name] for name, one in self.components.items()), torch.zeros(()))
        total = weighted * rewarded.mask  # a later component may have masked a faulty row
        return rewarded.with_columns(reward=total, extra={"score": total.sum(1), **rewarded.extra})


@dataclass(frozen=True)
class Product(Reward):
    """reward = product over components of each row's total reward, on the last decision.

    One component of 0 makes the whole 0 (format times correctness). Degenerate: one component is its row total. Source:
    by definition. Assumes components of at least 0.
    """

    components: Mapping[str, Reward] = field(default_factory=lambda: {"verifier": Verifier()})

    def __post_init__(self) -> None:
        check_components(self, self.components)

    def init(self, scene: Scene) -> State:
        return states_of(self.components, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rewarded, values = applied(self.components, experience, scene, state)
        total = torch.stack([(value * rewarded.mask).sum(1) for value in values.values()]).prod(0)
        return placed(rewarded, total)


@dataclass(frozen=True)
class Gated(Reward):
    """reward = `then` where the total of `gate` is above `threshold`, else `closed`, on the last decision.

    For rewards that count only on a condition: a style score of correct answers, correctness of well-formed ones.
    Degenerate: a threshold of -inf always pays the total of `then`. Source: by definition. Assumes that the total of
    `gate` is known at the end.
    """

    gate: Reward = Verifier()
    then: Reward = Verifier()
    threshold: float = 0.0
    closed: float = 0.0

    def init(self, scene: Scene) -> State:
        return states_of({"gate": self.gate, "then": self.then}, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rewarded, values = applied({"gate": self.gate, "then": self.then}, experience, scene, state)
        gate, then = ((values[name] * rewarded.mask).sum(1) for name in ("gate", "then"))
        return placed(rewarded, torch.where(gate > self.threshold, then, torch.full_like(then, self.closed)))


class Rescored(Reward, Protocol):
    """A reward that replaces each row's total of `reward` by another number, on the last decision.

    Source: by definition. Assumes whole rows. Degenerate: a row without a decision gets nothing.
    """

    reward: Reward

    def init(self, scene: Scene) -> State:
        return {"inside": self.reward.init(scene)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rewarded = self.reward(experience, scene, state["inside"])
        return placed(rewarded, self.rescored((rewarded.reward * rewarded.mask).sum(1), rewarded, scene))

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the new number of each row, [B]."""


@dataclass(frozen=True)
class StandardisedInGroup(Rescored):
    """reward = max((total - mean of its group) / (deviation of its group + epsilon), floor), on the last decision.

    Gives components of different scales comparable sizes before they are added; with a floor of 0 no row loses by it.
    Degenerate: a group of one, or of equal totals, gets 0; rows without a decision are left out. Source:
    arXiv:2507.14987. Assumes several samples of each start.
    """

    reward: Reward = Verifier()
    epsilon: float = 1e-6
    floor: float = -math.inf
    compares_group: ClassVar[bool] = True

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        by_group = groups.row_groups(rewarded)
        apart = (total_B - groups.mean(total_B, by_group)) / (groups.deviation(total_B, by_group) + self.epsilon)
        return apart.clamp(min=self.floor)


def placed(experience: Experience, total_B: Tensor) -> Experience:
    """Writes one number per row as the reward of its last decision; `score` stays the task's own if it is set."""
    rewarded = on_last_decision(experience, total_B.to(experience.reward.dtype))
    return rewarded.add({"score": experience.extra["score"]}) if "score" in experience.extra else rewarded
