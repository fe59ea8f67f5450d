"""hl-gauss: the critic classifies over bins, with Gaussian labels as targets; the rest is dqn, sac or ppo.

    V = sum_i centre_i * softmax(l)_i;   loss = -sum_i p_i(y) log softmax(l)_i,  p_i(y) = N(y, (0.75 width)^2) in bin i

Farebrother et al. 2024. y is the base's own target, from decoded values. The gradient in the logits is softmax - p:
bounded however large the error is, so that noisy and nonstationary targets do less harm. Bins reach as far as the
values of the task, which its first rewards tell, or as the returns of an offline dataset.

Axes: B sequences, T decisions, N critics, M bins.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, LANGUAGE, SPARE, TABLE, UNKNOWN, AssayError, BinsOfTask, Experience
from assay.method import Method, Metric, Prediction, Preset, Recipe, Regressed, Regression, Stage, View, cql, dqn, ppo
from assay.method import recipes, sac
from assay.models import ActionValue, Bins, Critic, Greedy, Policy, Value, decoded, two_hot_labels
from assay.parts import Td, returns_to_go


def gaussian_labels(number: Tensor, bins: Bins, spread: float) -> Tensor:
    """Returns the share of N(number, (spread * width)^2), truncated to the range, in each bin, [..., M].

    Away from the ends its mean is the number up to exp(-2 (pi spread)^2) / pi of a width (5e-6 at 0.75). Within three
    widths of an end the truncation pulls it inwards, by 0.69 of a width at the end itself.
    """
    scaled = (bins.edges(number) - bins.clamped(number).unsqueeze(-1)) / (spread * bins.width * math.sqrt(2.0))
    below = torch.erf(scaled)
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


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


# ---------------------------------------------------------------------------------------------------- ranges
@dataclass(frozen=True)
class BinsOfData(Bins):
    """Bins between -reach and reach, 1.25 times the largest |discounted return| of the data unless set."""

    low: float = 0.0
    high: float = 0.0
    num: int = 101
    discount: float = 0.99
    not_a_part: ClassVar[str] = "a setting of the head, read from the data"

    @property
    def needs_rewards(self) -> bool:
        """Whether the range is not set."""
        return not self.low < self.high

    def of_rewards(self, reward: Tensor, is_last: Tensor) -> "BinsOfData":
        """Returns the bins with the range of these returns; raises AssayError if all are 0."""
        if not (reach := SPARE * float(returns_to_go(reward, is_last, self.discount).abs().max())):
            raise AssayError(f"hl-gauss: all rewards of the data are 0. {UNKNOWN}")
        return replace(self, low=-reach, high=reach)


# ---------------------------------------------------------------------------------------------------- recipes
def classified_dqn(preset: Preset = CONTROL) -> Recipe:
    """Double DQN over bins."""
    base = dqn(preset)
    stage = with_classes(base.stages[0])
    return replace(base, actor=Policy(preset.off_policy.body, Greedy(BinsOfTask())), stages=(stage,))


def classified_sac(preset: Preset = CONTINUOUS) -> Recipe:
    """SAC over bins."""
    base = sac(preset)
    stage = with_classes(base.stages[0])
    critics = {**base.critics, "q": Critic(preset.off_policy.body, ActionValue(bins=BinsOfTask(num=201)))}
    return replace(base, critics=critics, stages=(stage, *base.stages[1:]))


def classified_ppo(preset: Preset = LANGUAGE) -> Recipe:
    """PPO over bins."""
    base = ppo(preset)
    stage = with_classes(base.stages[1])
    bins = BinsOfTask(num=51 if preset.tokens else 101, discount=preset.gae.discount)
    return replace(base, critics={"value": replace(preset.value, head=Value(bins))}, stages=(base.stages[0], stage))


def recipe(preset: Preset = CONTROL) -> Recipe:
    """HL-Gauss (arXiv:2403.03950) on the value-based recipe of this preset: dqn, sac or ppo.

    Its bins reach as far as the task's values (`reach_of`) unless bins.low and bins.high are set; the guard `inside
    bins` tells if that is too narrow.
    """
    if preset.tokens or preset.tabular:
        made = classified_ppo(preset)
    else:
        made = classified_dqn(preset) if preset.discrete else classified_sac(preset)
    return replace(made, name="hl-gauss")


def classified_cql(preset: Preset = CONTROL) -> Recipe:
    """CQL over bins on an offline dataset, whose returns are the range: the authors' offline agent for discrete
    actions, with their weight 0.1; SAC's for continuous ones, with the preset's.
    """
    base = cql(preset, weight=0.1 if preset.discrete else None)
    stages = (with_classes(base.stages[0]), *base.stages[1:])
    if preset.discrete:
        actor = Policy(preset.off_policy.body, Greedy(BinsOfData()))
        return replace(base, name="hl-gauss", actor=actor, stages=stages)
    critics = {**base.critics, "q": Critic(preset.offline.body, ActionValue(bins=BinsOfData(num=201)))}
    return replace(base, name="hl-gauss", critics=critics, stages=stages)


def regressing(preset: Preset = CONTROL) -> Recipe:
    """Returns the recipe whose critic is replaced, for this preset."""
    base = recipes.ppo if preset.tokens or preset.tabular else recipes.dqn if preset.discrete else recipes.sac
    return base(preset)


METHOD = Method(
    paper="arXiv:2403.03950",
    recipe=recipe,
    presets=(CONTROL, CONTINUOUS, LANGUAGE, TABLE),
    default_task="cartpole",
    family="value-based",
    base=regressing,
    variants={"offline": classified_cql},
    departures=(
        "targets beyond the bins are clipped, and a guard reports more than a fifth of them",
        "the range is found from uniform decisions, or the data's returns (offline), or set; the authors fix +-10",
        "not measured: two-hot labels as a third arm, and learning rates chosen for each arm; all have 3e-3",
    ),
    results=(
        "below dqn on cartpole by the testbed: with 2.3e-3 it goes from 258 (step 40 of 100) to 72, with 5e-4 from 343 "
        "to 53. Once the pole is held both actions are worth the same in 96 % of the states (exact values of the "
        "scripted expert, 1,500 states); fitted to these, regression has an error of 10 and a median difference "
        "between the actions of 2.6, whose sign holds the pole, classification an error of 4 and a difference of 0.003",
    ),
)
