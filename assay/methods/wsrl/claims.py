"""Both phases of wsrl by hand, and what passes between them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.probes import steps
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
from assay.core.slots import ALONE, Scene
from assay.methods.wsrl.base import LOG, offline, wsrl
from assay.methods.wsrl.calibrated import RETURN
from assay.parts.sources.logged import Log
from assay.tasks.control.pendulum import pendulum


def online_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of the online phase: targets of a random pair of critics without entropy, no penalty."""
    return {"critic": steps.rlpd_critics(seen, 0.95), "actor": steps.sac_actor(seen)}


def offline_by_hand(seen: probes.Seen, calibrated: bool = False) -> dict[str, Tensor]:
    """Returns the losses of the offline phase: CQL with weight 5, two proposals of each kind, ten critics; in Cal-QL
    the policy's proposals are worth at least the recorded return.
    """
    least = seen.experience.column(RETURN)[:, 0] if calibrated else None
    squares, penalty = steps.conservative(seen, 0.95, 2, least)
    return {"critic": steps.step_of(seen).mean(squares + 5.0 * penalty), "actor": steps.sac_actor(seen)}


def calibrated_gap() -> float:
    """Returns the gap of Cal-QL's gradients to the formulas; about half of the proposals are below the return."""
    data = probes.transitions(num=64)
    column = torch.linspace(-1.0, 1.0, 64, dtype=data.reward.dtype).unsqueeze(1).expand_as(data.reward)
    recipe, hand = offline(LOG, calibrated=True), partial(offline_by_hand, calibrated=True)
    return probes.formula_gap(recipe, data.add({RETURN: column}), hand, probes.BOX_SPEC)


def returns_gap() -> float:
    """Returns the largest gap of the returns of two episodes to sums by hand, in a step's batches."""
    source = offline(Log(2), calibrated=True).source
    columns, gap = Log(2).columns(pendulum()), 0.0
    reward = columns["reward"][:, 0].double()
    length = len(reward) // 2
    for batch in probes.drawn(source, ALONE.given(task=pendulum())):
        for paid, found in zip(batch.reward[:8, 0], batch.column(RETURN)[:8, 0], strict=True):
            start = int((reward == paid.double()).nonzero()[0])
            left = length - start % length
            by_hand = (0.95 ** torch.arange(left).double() * reward[start : start + left]).sum()
            gap = probes.worst(gap, float((by_hand - found).abs()))
    return gap


def schedule_gap() -> float:
    """Returns the largest deviation of both phases' schedules from the stated ones."""
    data, targets = probes.transitions(dtype=torch.float32), {"q_target": ("q", 0.02, 1)}
    online = {"actor": 4, "q": 1, "temperature": 4}
    gap = probes.schedule_gap(wsrl(), data, probes.BOX_SPEC, online, targets)
    first = wsrl().before[0].recipe
    return probes.worst(gap, probes.schedule_gap(first, data, probes.BOX_SPEC, dict.fromkeys(online, 1), targets))


def batches(recipe: Recipe, decisions: int = 8, most: int = 120) -> tuple[int, Tensor]:
    """Returns (transitions stored at the first batch, that batch's rewards); without a task no dataset can be read."""
    source: Any = recipe.source
    state = source.init(ALONE)
    first = torch.tensor([True, False]).expand(decisions, 2)
    for step in range(most):
        reward = torch.arange(decisions).unsqueeze(1) + 100.0 * step * first
        seen, no = {"observation": torch.zeros(decisions, 2, 3)}, torch.zeros_like(first)
        fresh = Experience(seen, torch.zeros(decisions, 2, 1), first, 0 * reward, reward, no, no)
        for batch in source(Scene(draw=Draw(0, (step,)), fresh=fresh), state):
            return (step + 1) * decisions, batch.reward
    return 0, torch.zeros(1)
