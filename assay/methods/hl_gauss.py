"""hl-gauss: the critic classifies over bins, with Gaussian labels as targets; the rest is dqn, sac or ppo.

    V = sum_i centre_i * softmax(l)_i;   loss = -sum_i p_i(y) log softmax(l)_i,  p_i(y) = N(y, (0.75 width)^2) in bin i

Farebrother et al. 2024. y is the base's own target, from decoded values. The gradient in the logits is softmax - p:
bounded however large the error is, so that noisy and nonstationary targets do less harm.

Axes: B sequences, T decisions, N critics, M bins.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, LANGUAGE, TABLE, Experience, Method, Metric, Prediction, Preset, Recipe
from assay.method import Regressed, Regression, Stage, View, dqn, ppo, recipes, sac
from assay.models import ActionValue, Bins, Critic, Greedy, Policy, Value, decoded
from assay.parts import Td


def gaussian_labels(number: Tensor, bins: Bins, spread: float) -> Tensor:
    """Returns the share of N(number, (spread * width)^2), truncated to the range, in each bin, [..., M].

    Away from the ends its mean is the number up to exp(-2 (pi spread)^2) / pi of a width (5e-6 at 0.75). Within three
    widths of an end the truncation pulls it inwards, by 0.69 of a width at the end itself.
    """
    scaled = (bins.edges(number) - bins.clamped(number).unsqueeze(-1)) / (spread * bins.width * math.sqrt(2.0))
    below = torch.erf(scaled)
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


def two_hot_labels(number: Tensor, bins: Bins) -> Tensor:
    """Interpolates the number linearly between its two nearest centres, [..., M]: exact between the outermost
    centres.
    """
    place = ((bins.clamped(number) - bins.low) / bins.width - 0.5).clamp(0.0, bins.num - 1.0).unsqueeze(-1)
    index = torch.arange(bins.num, dtype=number.dtype, device=number.device)
    return (1.0 - (index - place).abs()).clamp(min=0.0)


class Label(Protocol):
    """Encodes a number as a distribution over bins."""

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels [..., M] that sum to one."""


@dataclass(frozen=True)
class HlGauss:
    """A Gaussian of `spread` bin widths around the target, discretised (arXiv:2403.03950)."""

    spread: float = 0.75
    not_a_part: ClassVar[str] = "a setting of the fit below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels that sum to one."""
        return gaussian_labels(number, bins, self.spread)


@dataclass(frozen=True)
class TwoHot:
    """The target interpolated between its two nearest bins."""

    not_a_part: ClassVar[str] = "a setting of the fit below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels that sum to one."""
        return two_hot_labels(number, bins)


def cross_entropy(outputs_M: Tensor, target: Tensor, bins: Bins, label: Label) -> Tensor:
    """Returns -sum_i label_i(target) * log softmax(outputs)_i, [...]; no gradient in the target."""
    return -(label(target.detach(), bins) * outputs_M.log_softmax(-1)).sum(-1)


def is_beyond(target: Tensor, bins: Bins) -> Tensor:
    """Returns whether the target is outside the bins."""
    return (target < bins.low) | (target > bins.high)


BEYOND = (
    "{value:.0%} of the critic's targets lie beyond its bins at step {step}, so that their values cannot be learned. "
    "Set the range to that of the task's returns: --set bins.low=... --set bins.high=..."
)


@dataclass(frozen=True)
class CrossEntropy(Regression):
    """Cross-entropy of a critic's bins to the target's label; every member of an ensemble has the same target.

    The share of targets beyond the bins, where they are clipped, is `beyond_bins`; above a fifth it raises an alarm.
    """

    label: Label = HlGauss()
    watches: ClassVar[tuple[Metric, ...]] = (Metric("beyond_bins", 0.2, "inside bins", BEYOND),)

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the losses; the target is encoded once, from decoded values."""
        critic = view.model(of.model)
        outputs = of.outputs(critic, rows)
        loss = cross_entropy(outputs, target, critic.bins, self.label)
        beyond = is_beyond(target, critic.bins).to(target)
        return Regressed(loss, decoded(outputs.detach(), critic.bins), {"beyond_bins": beyond})


def with_classes(stage: Stage) -> Stage:
    """Returns the stage with its targets fitted by cross-entropy."""
    terms = tuple(replace(term, fit=CrossEntropy()) if isinstance(term, Td) else term for term in stage.critic)
    return replace(stage, critic=terms)


def classified_dqn(preset: Preset = CONTROL, reach: float = 110.0) -> Recipe:
    """Double DQN over bins; with discount 0.99 and rewards of 1 per step, CartPole's values are 0 to 100."""
    base = dqn(preset)
    stage = with_classes(base.stages[0])
    return replace(base, actor=Policy(preset.off_policy.body, Greedy(Bins(-reach, reach, 101))), stages=(stage,))


def classified_sac(preset: Preset = CONTINUOUS, reach: float = 1800.0) -> Recipe:
    """SAC over bins; with discount 0.99 and rewards of -16 to 0 per step, the pendulum's values are -1600 to 0."""
    base = sac(preset)
    stage = with_classes(base.stages[0])
    critics = {**base.critics, "q": Critic(preset.off_policy.body, ActionValue(bins=Bins(-reach, reach, 201)))}
    return replace(base, critics=critics, stages=(stage, *base.stages[1:]))


def classified_ppo(preset: Preset = LANGUAGE, reach: float = 1.5, num: int = 51) -> Recipe:
    """PPO over bins; by default for outcomes of 0 and 1."""
    base = ppo(preset)
    stage = with_classes(base.stages[1])
    critic = replace(preset.value, head=Value(Bins(-reach, reach, num)))
    return replace(base, critics={"value": critic}, stages=(base.stages[0], stage))


def hl_gauss(preset: Preset = CONTROL, reach: float | None = None) -> Recipe:
    """HL-Gauss (arXiv:2403.03950) on the value-based recipe of this preset: dqn, sac or ppo.

    `reach` is the largest |value|; by default that of outcomes (1.5) for tokens, of the pendulum (1800) for continuous
    actions, and of rewards within +-1 and discount 0.99 (110) otherwise. The guard `inside bins` tells if it is wrong.
    """
    if preset.tokens:
        made = classified_ppo(preset, reach or 1.5)
    elif preset.tabular:
        made = classified_ppo(preset, reach or 110.0, 101)
    else:
        made = classified_dqn(preset, reach or 110.0) if preset.discrete else classified_sac(preset, reach or 1800.0)
    return replace(made, name="hl-gauss")


def regressing(preset: Preset = CONTROL) -> Recipe:
    """Returns the recipe whose critic is replaced, for this preset."""
    base = recipes.ppo if preset.tokens or preset.tabular else recipes.dqn if preset.discrete else recipes.sac
    return base(preset)


METHOD = Method(
    paper="arXiv:2403.03950",
    recipe=hl_gauss,
    presets=(CONTROL, CONTINUOUS, LANGUAGE, TABLE),
    default_task="cartpole",
    family="value-based",
    base=regressing,
    departures=(
        "targets beyond the bins are clipped, and a guard reports more than a fifth of them",
        "ranges: +-110 (rewards within 1), +-1800 (the pendulum), +-1.5 (outcomes); else set bins.low, bins.high",
        "not measured: two-hot labels as a third arm, and learning rates chosen for each arm; all have 3e-3",
    ),
)
