"""How often a recipe returns a policy that violates its cost limit, where true costs are known. Axes: A arms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from assay.claims.probes.episodes import bandit_experience
from assay.claims.probes.estimators import table_of
from assay.claims.probes.gradients import NOWHERE, Given
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress
from assay.core.slots import ALONE
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.ops import distributions, random


@dataclass(frozen=True)
class CostlyBandit:
    """One state; pulling arm a gives reward_A[a] and costs 1 with probability cost_A[a]."""

    reward_A: Tensor
    cost_A: Tensor

    def pulls(self, logits_A: Tensor, num: int, draw: Draw) -> Experience:
        """Returns a group of pulls by the policy softmax(logits)."""
        uniform, chance = (torch.from_numpy(random.uniform(draw.at(tag), np.arange(num))) for tag in range(2))
        arms = distributions.categorical_sample(logits_A.expand(num, -1), uniform)
        cost = (chance < self.cost_A[arms]).double().view(-1, 1, 1)
        return bandit_experience(arms, self.reward_A[arms], logits_A).with_columns(cost=cost)

    def cost(self, logits_A: Tensor) -> float:
        """Returns the true mean cost of a pull."""
        return float(logits_A.softmax(-1) @ self.cost_A)


@dataclass(frozen=True)
class HandedOut:
    """Shares of trials: `unsafe` if the returned policy's true cost is above the limit, `solved` if a policy was
    returned at all; `reward` is the mean true reward of the returned policies.
    """

    unsafe: float
    solved: float
    reward: float


def trained_on_costs(recipe: Recipe, bandit: CostlyBandit, steps: int, pulls: int, draw: Draw) -> Tensor:
    """Returns the logits after training from the uniform policy with the recipe's credit, constraints and stages."""
    start = torch.zeros(1, len(bandit.reward_A), dtype=torch.float64)
    engine = Engine(replace(recipe, actor=Given(table_of(start))), NOWHERE, 0, Placement())
    engine.updates = 1  # the first update of a run also checks for leaks
    table = engine.models["actor"].get_parameter("body.table")
    states = [constraint.init(ALONE) for constraint in recipe.constraints]
    for step in range(steps):
        now = recipe.at(Progress(step, steps))
        batch = engine.annotate(bandit.pulls(table.detach()[0], pulls, draw.at(step)), now.needs)
        for part in now.credit:
            batch = part(batch)
        for constraint, state in zip(now.constraints, states, strict=True):
            batch = constraint(batch, ALONE, state)
        for stage in now.stages:
            engine.update(stage, batch)
        engine.follow(now.copies)
    return table.detach()[0].clone()


def handed_out(
    recipe: Recipe, bandit: CostlyBandit, limit: float, *, trials: int, steps: int, pulls: int, seed: int
) -> HandedOut:
    """Trains and certifies in independent trials; without a certificate every policy is returned."""
    results = []
    for trial in range(trials):
        draw = Draw(seed, (21, trial))
        logits = trained_on_costs(recipe, bandit, steps, pulls, draw)
        test = recipe.certificate
        passed = test is None or test(bandit.pulls(logits, test.num_starts, draw.at(-1))).holds
        results.append((passed, bandit.cost(logits) > limit, float(logits.softmax(-1) @ bandit.reward_A)))
    solved = [entry for entry in results if entry[0]]
    unsafe = sum(is_unsafe for _, is_unsafe, _ in solved)
    return HandedOut(unsafe / trials, len(solved) / trials, sum(r for *_, r in solved) / max(1, len(solved)))
