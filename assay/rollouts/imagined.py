"""A learned model as a task: its simulations step the model, and episodes begin in recorded states.

Every rollout, credit, objective and constraint works in it as in the task that the model was learned from. Episode k of
an instance with seed s is a function of (s, k), of its actions and of the model, as for other simulations.

Axes: N instances, n states, D numbers of an observation, K costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Imagining, Task
from assay.core.spaces import Context, Spec
from assay.ops import random
from assay.ops.random_torch import GOLDEN, as_open_float32, as_uniform, folded, mixed
from assay.rollouts.episodes import play_episodes

Asked = Callable[[], Imagining]
"""Returns the model as it is now."""


class ImaginedSimulation:
    """N instances that step a learned model, which may be on a device; contexts and rewards are on the CPU."""

    def __init__(self, model: Asked, starts: Tensor, spec: Spec, num: int) -> None:
        self.model, self.starts, self.spec, self.num = model, starts, spec, num
        self.reset(np.arange(num))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance; without it, the seeds are 0 to N - 1."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self._seeds = torch.from_numpy(np.asarray(seeds).astype(np.int64))
        self._episode, self._elapsed = torch.zeros_like(self._seeds), torch.zeros_like(self._seeds)
        self._ended = torch.zeros(self.num, dtype=torch.bool)
        self._seen = self._begun()
        return {"observation": self._seen}

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one decision of every instance in an episode; starts the next episode of the others."""
        model, starting = self.model(), self._ended
        weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        there = self._seen.device if weight is None else weight.device
        numbers = folded(folded(self._words(), -1), self._elapsed).unsqueeze(-1)
        uniform = as_open_float32(folded(numbers, torch.arange(model.num_step_draws)))
        said = model.imagined({"observation": self._seen.to(there)}, action.detach().to(there), uniform.to(there))
        after, reward, ended = said.observation.cpu(), said.reward.cpu(), said.ended.cpu()
        self._episode = self._episode + starting
        self._elapsed = torch.where(starting, 0, self._elapsed + 1)
        self._seen = torch.where(starting.unsqueeze(1), self._begun(), after.to(self._seen.dtype))
        terminal, truncated = ended & ~starting, (self._elapsed >= self.spec.horizon) & ~starting
        self._ended = terminal | truncated
        cost = None if said.cost is None else torch.where(starting.unsqueeze(1), 0.0, said.cost.cpu())
        return {"observation": self._seen}, torch.where(starting, 0.0, reward), terminal, truncated, cost

    def snapshot(self) -> State:
        """Returns seeds, counters and observations."""
        return {name: getattr(self, f"_{name}").clone() for name in ("seeds", "episode", "elapsed", "ended", "seen")}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        for name, value in state.items():
            setattr(self, f"_{name}", value.clone())

    def _words(self) -> Tensor:
        """Returns the hash of each instance's episode, [N]."""
        return folded(mixed(self._seeds + GOLDEN), self._episode)

    def _begun(self) -> Tensor:
        """Returns the recorded state in which each instance's episode begins, [N, D]."""
        place = (as_uniform(folded(self._words(), 0)) * len(self.starts)).long()
        return self.starts[place.clamp(max=len(self.starts) - 1)]


@dataclass(frozen=True, eq=False)
class LearnedTask:
    """The task `of` as a learned model has it: the same spec, but for the length of episodes; starts are states [n, D].

    Start `ordinal` is a function of the ordinal alone; the splits draw from the same states. Every step is of the
    model as it is then. Degenerate: a model that is the task itself plays the task's own episodes from these states.
    """

    of: Task
    model: Asked
    starts: Tensor
    spec: Spec

    @property
    def name(self) -> str:
        """The task's name, and that it is learned."""
        return f"{self.of.name} (learned)"

    def simulate(self, num: int) -> ImaginedSimulation:
        """Returns N instances side by side."""
        return ImaginedSimulation(self.model, self.starts, self.spec, num)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays one imagined episode for each (start, sample); equal ordinals have equal starts and equal chance."""
        seeds = random.hashed(Draw(0), 22, split, starts).view(np.int64)
        simulation = self.simulate(len(starts))
        return play_episodes(actor, simulation, seeds, starts, samples, draw, self.spec.horizon, greedy)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds what the task adds to experience of its own."""
        return self.of.judge(experience, split)

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns one sequence as the task shows it."""
        return self.of.describe(experience, row)
