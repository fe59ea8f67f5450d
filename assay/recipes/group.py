"""Base recipes without a critic: outcomes are compared within groups; for language and control."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Need
from assay.core.slots import Objective, Regularizer
from assay.parts.aggregations import FixedLength, SequenceMean, SequenceSum, TokenMean
from assay.parts.credit.outcome import BatchMean, GroupDeviation, GroupMean, LeaveOneOut, OutcomeCredit
from assay.parts.credit.shaping import Informative, KlInReward, OverlongPenalty
from assay.parts.curricula.in_order import InOrder
from assay.parts.curricula.pool import Pool, PoolRule
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.ratio import SequenceRatio
from assay.parts.objectives.trust import Clip, NoTrust, SoftGate, StopGradientWeight
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.revisits import Revisits
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.presets import LANGUAGE, Preset


def group_reinforce(preset: Preset = LANGUAGE) -> Recipe:
    """Groups of samples, outcome minus group mean on every decision, one on-policy REINFORCE step."""
    objective = PolicyGradient(trust=NoTrust(), aggregate=TokenMean())
    return Recipe(
        name="group_reinforce",
        actor=preset.actor,
        rollout=preset.group_rollout,
        curriculum=InOrder(),
        credit=(OutcomeCredit(GroupMean()),),
        source=preset.on_policy_source,
        stages=(Stage("policy", trains=("actor",), objective=(objective,), optimizer=preset.optimizer),),
        steps=preset.steps,
    )


def with_policy(recipe: Recipe, name: str, objective: Objective) -> Recipe:
    """Returns the recipe under another name, with another policy loss."""
    stage = replace(recipe.stages[0], objective=(objective,))
    return replace(recipe, name=name, stages=(stage, *recipe.stages[1:]))


def with_minibatches(recipe: Recipe, preset: Preset, num: int) -> Recipe:
    """Returns the recipe with `num` updates on each batch of answers; on other tasks it keeps the preset's source."""
    return replace(recipe, source=FreshSequences(minibatches=num)) if preset.tokens else recipe


def with_token_clip(recipe: Recipe, name: str, low: float = 0.2, high: float = 0.2) -> Recipe:
    """Returns the recipe under another name, with ratios clipped to [1 - low, 1 + high] and a mean over decisions."""
    return with_policy(recipe, name, PolicyGradient(trust=Clip(low, high), aggregate=TokenMean()))


def with_regularizers(recipe: Recipe, *terms: Regularizer) -> Recipe:
    """Returns the recipe with these regularizers alone in its first stage, and with a copy of the first policy as
    `reference` if one of them needs it.
    """
    stage = replace(recipe.stages[0], regularizers=terms)
    anchored = any(Need.REFERENCE in term.needs for term in terms)
    copies = {**recipe.copies, "reference": Copy(of="actor")} if anchored else recipe.copies
    return replace(recipe, stages=(stage, *recipe.stages[1:]), copies=copies)


def with_pool(recipe: Recipe, name: str, rule: PoolRule, size: int = 0) -> Recipe:
    """Returns the recipe under another name on a pool of `size` prompts (0: all) that a rule chooses from; each visit
    of a prompt has samples of its own.
    """
    rollout = recipe.rollout
    assert isinstance(rollout, Episodes), f"{recipe.name} gathers with {rollout}"
    again = Revisits(rollout.num_starts, rollout.group_size)
    return replace(recipe, name=name, curriculum=Pool(rule, size), rollout=again)


def with_kl_in_reward(recipe: Recipe, name: str, coefficient: float) -> Recipe:
    """Returns the recipe under another name, with the KL to a copy of the first policy, `reference`, taken from the
    rewards before any other credit.
    """
    credit, copies = (KlInReward(coefficient), *recipe.credit), {**recipe.copies, "reference": Copy(of="actor")}
    return replace(recipe, name=name, credit=credit, copies=copies)


def reinforce(preset: Preset = LANGUAGE) -> Recipe:
    """REINFORCE (Williams 1992) with the batch mean as baseline: -(R - mean R) log pi(y), whole sequences."""
    base = replace(group_reinforce(preset), credit=(OutcomeCredit(BatchMean()),))
    return with_policy(base, "reinforce", PolicyGradient(trust=NoTrust(), aggregate=SequenceSum()))


def rloo(preset: Preset = LANGUAGE) -> Recipe:
    """RLOO (arXiv:2402.14740): REINFORCE with the mean of the group's other members as baseline; unbiased."""
    base = replace(group_reinforce(preset), credit=(OutcomeCredit(LeaveOneOut()),))
    return with_policy(base, "rloo", PolicyGradient(trust=NoTrust(), aggregate=SequenceSum()))


def grpo(preset: Preset = LANGUAGE) -> Recipe:
    """GRPO (arXiv:2402.03300): advantage divided by the group's deviation, clipped ratio, mean within each sequence."""
    credit = (OutcomeCredit(GroupMean(), GroupDeviation()),)
    base = replace(group_reinforce(preset), credit=credit, source=preset.minibatch_source)
    return with_policy(base, "grpo", PolicyGradient(trust=Clip(0.2, 0.2), aggregate=SequenceMean()))


def dr_grpo(preset: Preset = LANGUAGE, length: int = 0) -> Recipe:
    """Dr. GRPO (arXiv:2503.20783): divides neither by the group's deviation nor by the sequence's own length, but by a
    constant, 0 being the task's limit of an answer.
    """
    base = replace(grpo(preset), credit=(OutcomeCredit(GroupMean()),))
    return with_policy(base, "dr-grpo", PolicyGradient(trust=Clip(0.2, 0.2), aggregate=FixedLength(length)))


def dapo(preset: Preset = LANGUAGE) -> Recipe:
    """DAPO (arXiv:2503.14476): clip-higher, token mean, groups without signal are sampled again, and on tokens a soft
    penalty of answers near the limit.
    """
    base = grpo(preset)
    shaping = (OverlongPenalty(),) if preset.tokens else ()
    base = replace(base, select=Informative(), credit=(*shaping, *base.credit))
    return with_policy(base, "dapo", PolicyGradient(trust=Clip(0.2, 0.28), aggregate=TokenMean()))


def gspo(preset: Preset = LANGUAGE) -> Recipe:
    """GSPO (arXiv:2507.18071): clips the sequence's geometric-mean ratio."""
    objective = PolicyGradient(ratio=SequenceRatio(), trust=Clip(3e-4, 4e-4), aggregate=SequenceMean())
    return with_policy(grpo(preset), "gspo", objective)


def cispo(preset: Preset = LANGUAGE) -> Recipe:
    """CISPO (arXiv:2506.13585): clipped importance weights without gradient; no decision loses its gradient."""
    return with_policy(grpo(preset), "cispo", PolicyGradient(trust=StopGradientWeight(1.0, 4.0), aggregate=TokenMean()))


def sapo(preset: Preset = LANGUAGE) -> Recipe:
    """SAPO (arXiv:2511.20347): a smooth gate on the ratio instead of a clip, steeper for negative advantages."""
    return with_policy(grpo(preset), "sapo", PolicyGradient(trust=SoftGate(1.0, 1.05), aggregate=SequenceMean()))
