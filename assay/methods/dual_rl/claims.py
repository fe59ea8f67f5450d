"""The losses of dual-rl by hand. Axes: B transitions, N critics."""

from __future__ import annotations

from functools import partial

import torch

from assay.claims import probes
from assay.claims.probes import steps
from assay.core.recipe import Recipe
from assay.core.record import Origin

SPEC = probes.CHOICE_SPEC
DATA = probes.of_origins(probes.transitions(SPEC, num=64), Origin.TEACHER, Origin.DATASET)
"""Half of the rows are the expert's."""


def losses_by_hand(
    seen: probes.Seen, divergence: str, rewards: float = 1.0, scale: float = 1.0, clip: float = 7.0
) -> dict[str, torch.Tensor]:
    step, models, out = steps.step_of(seen), seen.models, steps.output
    gain = out(models["q_target"], step.now, step.action).amin(0).detach() - out(models["value"], step.now)
    above = torch.where(gain > 0, gain, 0.0)
    short = (gain / scale).clamp(max=clip)
    raised = {"variation": 0.8 * above - 0.2 * gain, "kl": 0.5 * short.exp() - 0.5 * short,
              "chi": 0.8 * (above + above.square() / 4) - 0.2 * gain}  # fmt: skip
    logp = out(models["actor"], step.now).log_softmax(-1)[torch.arange(len(gain)), step.action]
    q, onward = out(models["q"], step.now, step.action), 0.99 * step.goes_on * out(models["value"], step.after).detach()
    critic = step.mean((step.reward + onward - q).square()) / 2
    if rewards == 0.0:
        expert = step.here & (torch.arange(64) % 2 == 0)
        both = step.mean((onward - q).square()) / 4
        critic = both - q[:, expert].sum() / step.here.sum()
    return {
        "value": step.mean(raised[divergence]),
        "actor": -step.mean((3.0 * gain).exp().clamp(max=100.0).detach() * logp),
        "q": critic,
    }


def gradient_gap(
    recipe: Recipe, divergence: str, rewards: float = 1.0, scale: float = 1.0, clip: float = 7.0
) -> float:
    formula = partial(losses_by_hand, divergence=divergence, rewards=rewards, scale=scale, clip=clip)
    return probes.formula_gap(recipe, DATA, formula, SPEC)


def schedule_gap(recipe: Recipe) -> float:
    data, trained = probes.transitions(SPEC, dtype=torch.float32), {"actor": 1, "value": 1, "q": 1}
    return probes.schedule_gap(recipe, data, SPEC, trained, {"q_target": ("q", 0.005, 1)})
