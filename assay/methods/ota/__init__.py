"""ota: chooses subgoals by a value that counts options of n steps instead of steps.

    V(s, g) <- -1 + discount * V(s_t+1, g)          low:  a by exp(3 (V(s_t+1, w) - V(s, w))), w = phi(s, s_t+10)
    V_h(s, g) <- -1 + discount * V_h(s_t+n, g)      high: w by exp(3 (V_h(s_t+10, g) - V_h(s, g)))

Ahn et al. 2025 on HIQL (Park et al. 2023): both values by expectile regression (0.7) on play data with hindsight
goals, 0 where s is the goal. Over long distances a one-step value is flat and noise decides the sign of its
advantages; an option discounts once for n steps. Its rivals: n = 1, and one step with discount^(1/n), the same
horizon.
"""

from functools import partial

import torch

from assay.claims.claim import Average, Exact, Measured, Method
from assay.methods.ota.base import ota
from assay.methods.ota.claims import line_values
from assay.parts.sources.relabelled import Relabelled
from assay.parts.targets.one_step import NextValue
from assay.recipes.defaults import CONTINUOUS, CONTROL

LENGTH = 31
AWAY = (torch.arange(LENGTH).unsqueeze(0) - torch.arange(LENGTH).unsqueeze(1)).clamp(min=0).double()
"""Steps from each state to each goal ahead of it."""


def values(jump: int, discount: float) -> torch.Tensor:
    """Returns V of all states and goals ahead, at the fixed point."""
    return line_values(Relabelled(jump=jump), NextValue(discount), LENGTH)


def one_step_gap() -> torch.Tensor:
    """Compares n = 1 with HIQL's value in closed form, -(1 - discount^d) / (1 - discount)."""
    return (values(1, 0.95) + (1.0 - 0.95**AWAY) / 0.05).abs().max()


def horizon_gap() -> torch.Tensor:
    """Compares 1 + (1 - discount) V_h with that of one step with discount^(1/n), where n divides the distance."""
    root = 0.95**0.2
    gap = 1.0 + 0.05 * values(5, 0.95) - 1.0 - (1.0 - root) * values(1, root)
    return gap[AWAY % 5 == 0].abs().max()


def wrong_signs() -> torch.Tensor:
    """Returns how many advantages of ten steps towards a goal at least as far are not positive."""
    value = values(5, 0.95)
    gain = value[10:] - value[:-10]
    return (gain[AWAY[:-10] >= 10] <= 0).sum()


HIQL = partial(ota, option=1)
"""One step per option: HIQL (arXiv:2307.11949)."""


METHOD = Method(
    paper="arXiv:2505.12737",
    recipe=ota,
    worlds=(CONTROL, CONTINUOUS),
    default_task="pointmaze-medium",
    family="goal-conditioned",
    base=HIQL,
    variants={"hiql": HIQL},
    departures=(
        "an option costs 1 unless it starts at the goal, so that n = 1 is HIQL; in the authors' code the arriving one "
        "costs 0: V = -1 + discount * theirs, the same order",
        "V_h has a representation of its own; the authors' two values, their targets and the low level share one",
        "no layer norm, learned deviation of actions, Polyak 0.02, 64 units: the budget is a few thousand updates",
        "goals are positions; data are native mazes explored by a scripted expert with noise, not OGBench's",
    ),
    claims=(
        Exact("with n = 1 it is HIQL's value", one_step_gap, equals=0.0, tolerance=1e-9),
        Exact("n steps an option are one step with discount^(1/n)", horizon_gap, equals=0.0, tolerance=1e-9),
        Exact("no advantage on the way to a goal has the wrong sign", wrong_signs, equals=0.0),
        Measured(
            "goals 40 and more steps away: the advantage's sign is right more often than with n = 1",
            "corridor", ota(far=40.0), ota(option=1, far=40.0), Average("right_signs", 0.25),
            seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "and not less often than with one step and the same horizon, discount^(1/n)",
            "corridor", ota(far=40.0), ota(option=1, high_discount=0.95**0.2, far=40.0), Average("right_signs", 0.25),
            margin=-0.05, seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "the policy reaches more held-out goals than with n = 1",
            "pointmaze-large", ota(), ota(option=1), seeds=5, minutes=3.0, steps=100,
        ),
    ),
)  # fmt: skip
