"""Exact checks of the parts of iwocs: the max-min actor, the worst regime, the phases and their hand-off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.probes import steps
from assay.core.recipe import Phase
from assay.core.slots import ALONE
from assay.core.spaces import Discrete
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.methods.iwocs.base import iwocs
from assay.methods.iwocs.claims import acting
from assay.tasks.tabular.table import Table, tabular
from assay.tasks.tabular.uncertain import Regime, Uncertain

LATE = ((4.0, 2.0), (1.0, 2.5), (2.0, 3.0))
"""Rewards of the two actions of the second decision, in each of three regimes."""


def two_steps(regimes: tuple[Regime, ...]) -> Any:
    """Returns a task of two decisions: the first leads to state 1 without reward, the second ends it with LATE's."""
    P, R = torch.zeros(3, 2, 3, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    P[0, :, 1], P[1:, :, 2], R[1] = 1.0, 1.0, torch.tensor(regimes[0], dtype=torch.float64)
    ends, starts = torch.tensor([False, False, True]), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    return tabular("two-steps", Table(P, R, ends, starts, 2))


def wrong_regimes() -> float:
    """Counts wrong answers of the shipped phases' task change, by the reward of the second decision under it.

    The policy takes action 0, worth 0.99 * (4, 1, 2). Without a policy the nominal regime counts; with a prediction
    above 0.99 the worst one does; with one below, the search is over.
    """
    changes: list[Any] = [phase.task for phase in iwocs().before[::2]]
    task, wrong = Uncertain("two-steps", LATE, two_steps), float(len(changes) != 3)
    for change in changes:
        for predicted, wanted in ((None, 4.0), (3.0, 1.0), (0.991, 1.0), (0.989, None)):
            policy = None
            if predicted is not None:
                low = torch.tensor([[predicted, 0.0], [1.0, 0.0], [0.0, 0.0]])
                policy = acting([low, low + 5.0])
            found = change(ALONE.given(task=task, actor=policy))
            wrong += float((None if found is None else reward_in(found)) != wanted)
    return wrong


def reward_in(task: Any) -> float:
    """Returns the return of action 0 in a task of two steps."""
    first = acting([torch.tensor([[1.0, 0.0]] * 3)])
    played = task.play(first, np.arange(1), np.zeros(1, np.int64), ALONE.draw, split=0, greedy=True)
    return float((played.reward * played.mask).sum())


def misplaced_networks() -> float:
    """Returns how many of the final actor's three members, and of the candidates', do not hold the network solved in
    their phase: an empty place holds the last one solved before.
    """
    recipe, wrong = iwocs(), 0.0
    given: dict[str, Tensor] = {}
    for number, phase in enumerate((*recipe.before, Phase("final", recipe, 1, hands={}))):
        engine = Engine(phase.recipe, probes.CHOICE_SPEC, 0, Placement())
        if number % 2:  # a candidate, or the final policy: it acts with what the phases before it handed on
            engine.load(given, phase.recipe)
            acts: Any = engine.models["actor"]
            for place, pair in enumerate(zip(acts.members, acts.coders, strict=True)):
                numbers = [p for member in pair for p in member.parameters()]
                wrong += float(any(bool((p != min(place, number // 2)).any()) for p in numbers))
            wrong += float(len(acts.members) != 3)
            continue
        wrong += float(set(phase.hands) != {"actor", "coder"})
        for own in phase.hands:
            engine.flats[own].values.fill_(number // 2)
        given |= probes.handed_on(phase, engine)
    return wrong


def solving_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of a problem: double DQN's, and that of the reconstruction and its 95 % quantile."""
    step, coder = steps.step_of(seen), seen.models["coder"]
    code = coder.encode(step.now).tanh()
    found = coder.decode(code).view(len(step.now), -1, step.now.shape[-1])
    error = (found[torch.arange(len(step.now)), step.action] - step.now).square().mean(-1)
    above = error.detach().clamp(min=1e-4).log() - 10.0 * coder.log_limit
    fit = step.mean(error + torch.where(above > 0, 0.95 * above, -0.05 * above))
    return {"values": step.mean(steps.double_q(seen, 0.99)[1]), "coder": fit}


def validity_errors() -> float:
    """Counts wrong actions of the shipped actor with Q = (3, 2) and Q' = (-5, 4), valid as stated; the third is Q."""
    spec, wrong = replace(probes.CHOICE_SPEC, action=Discrete(2)), 0.0
    actor: Any = iwocs().actor.build(spec)
    for place, numbers in enumerate(((3.0, 2.0), (-5.0, 4.0), (3.0, 2.0))):
        for parameter in actor.members[place].parameters():
            parameter.data.zero_()
        list(actor.members[place].parameters())[-1].data.copy_(torch.tensor(numbers))
    seen = {"observation": torch.ones(1, 3)}
    for first, second, wanted in (((1, 1), (0, 1), 0), ((1, 1), (1, 1), 1), ((0, 0), (0, 0), 1), ((0, 0), (0, 1), 1)):
        for coder, valid in zip(actor.coders, (first, second, first), strict=True):
            coder.decode[-1].weight.data.zero_()
            coder.decode[-1].bias.data.copy_(torch.tensor([1.0 if one else 1.2 for one in valid]).repeat_interleave(3))
            coder.log_limit.data.fill_(math.log(0.03) / 10.0)  # the errors are 0 and 0.04
        wrong += float(int(actor.act(seen, None)[0]) != wanted)
    return wrong


def solving_gap() -> float:
    """Returns the largest gap between the gradients of the phases that solve a problem and double DQN's."""
    data = probes.transitions(probes.CHOICE_SPEC)
    phases = iwocs().before[::2]
    return max(probes.formula_gap(phase.recipe, data, solving_by_hand, probes.CHOICE_SPEC) for phase in phases)
