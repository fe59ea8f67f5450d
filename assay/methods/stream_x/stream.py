"""A stream: one simulation, rewards in units of the return's deviation, training on each decision once. Axes: B, T."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from assay.method import Experience, Explore, Rollout, Scene, Source, State
from assay.parts import Fragments, need_fresh


@dataclass(frozen=True)
class Stream(Rollout):
    """Takes the next `steps` steps of a single simulation; reward <- reward / sqrt(variance of u + 1e-8).

    u <- discount * u + reward, reset to 0 after an episode's end; its variance is Welford's, unbiased, and 1 before
    the second reward. `episode_return` stays in the task's own units. One step per call is a stream in the strict
    sense.
    """

    steps: int
    discount: float = 0.99
    explore: Explore | None = None
    num_starts: ClassVar[int] = 0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"steps": 24},)

    @property
    def fragments(self) -> Fragments:
        """Returns the inner rollout of one simulation."""
        return Fragments(num_envs=1, steps=self.steps, explore=self.explore)

    def init(self, scene: Scene) -> State:
        """Returns the simulation, and no reward seen."""
        return {"fragments": self.fragments.init(scene), "trace": 0.0, "mean": 0.0, "squares": 0.0, "number": 0}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers the next steps."""
        record = self.fragments(scene, state["fragments"])
        reward = record.reward.clone()
        over = record.terminal | record.truncated
        for t in record.mask[0].nonzero().squeeze(1).tolist():
            reward[0, t] = self.scaled(float(reward[0, t]), bool(over[0, t]), state)
        return replace(record, reward=reward)

    def scaled(self, reward: float, is_over: bool, state: State) -> float:
        """Returns the reward in units of the deviation of the discounted return so far, itself included."""
        trace = self.discount * state["trace"] + reward
        state["number"] += 1
        change = trace - state["mean"]
        state["mean"] += change / state["number"]
        state["squares"] += change * (trace - state["mean"])
        state["trace"] = 0.0 if is_over else trace
        variance = state["squares"] / (state["number"] - 1) if state["number"] > 1 else 1.0
        return float(reward / (variance + 1e-8) ** 0.5)


@dataclass(frozen=True)
class OneByOne(Source):
    """Yields every fresh decision with its next column, one after the other; columns that are not decisions are left
    out.
    """

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields two columns at a time: the decisions of one time step, and the context after them."""
        experience = need_fresh(scene.fresh)
        for t in range(experience.num_columns - 1):
            if bool(experience.mask[:, t].any()):
                pair = experience.columns(t, t + 2)
                first = torch.tensor([True, False], device=pair.mask.device)
                yield replace(pair, mask=pair.mask & first)
