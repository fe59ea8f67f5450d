"""Measured claims that several methods state in the same way, and the rivals that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from assay.claims.claim import About, Edit, Expect, Final, Measured
from assay.claims.metrics import Area
from assay.core.recipe import Recipe
from assay.parts.aggregations import SequenceSum
from assay.parts.credit.outcome import Constant, OutcomeCredit
from assay.parts.credit.reweigh import WithoutIdle
from assay.parts.credit.shaping import PairUp
from assay.parts.objectives.denoising import Denoising
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.recipes.cloned_paths import cloned_gaussian
from assay.recipes.group import group_reinforce, reinforce, with_policy
from assay.recipes.presets import Preset


def learns_faster(name: str, ours: Recipe, theirs: Recipe, task: str = "levels") -> Measured:
    """Returns the headline that a method's pass rate, as a mean over 50 steps, is above that of a rival with as many
    sampled answers. Ten seeds, and ten more where these do not decide.
    """
    return Measured(
        name, task, ours, theirs, Area("pass_rate"), seeds=10, minutes=10.0, steps=50, looks=2, about=About.HEADLINE
    )


def not_worse(name: str, ours: Recipe, theirs: Recipe) -> Measured:
    """Returns the claim that on sorting-5, after 100 steps from a warm start, the score is at most 0.1 below that of a
    rival.
    """
    return Measured(
        name, "sorting-5", ours, theirs, margin=-0.1, seeds=5, minutes=4.0, steps=100, warmup=60, about=About.MECHANISM
    )


def ignores_constants(recipe: Recipe, rival: Recipe) -> tuple[Measured, Measured]:
    """Returns the claims of a baseline of each group: where prompts pay constants besides the task's own reward, and
    these are unequal, the recipe's score is above the rival's; where they are 0, it is within 0.05 of it.
    """
    score, others = Final("true_score"), f"{rival.name}'s"
    unequal = f"where prompts pay unequal constants it scores higher than {rival.name}; refuted by a lead below 0.1"
    none = f"where prompts pay no constants its score is within 0.05 of {others}"
    return (
        Measured(unequal, "hackable:hack=0,offset=5", recipe, rival, score, margin=0.1, seeds=5, minutes=1.0, steps=60,
                 about=About.MECHANISM),
        Measured(none, "hackable:hack=0,offset=0", recipe, rival, score, Expect.WITHIN, margin=0.05, seeds=5,
                 minutes=1.0, steps=60, about=About.COMPONENT),
    )  # fmt: skip


def has_two_modes(recipe: Callable[[], Recipe]) -> tuple[Measured, Measured]:
    """Returns the claims of a cloned policy of many modes: where the expert takes either of two ways it scores above a
    Gaussian, where he has one the Gaussian is as good.
    """
    gaussian = cloned_gaussian()
    return (
        Measured("where the expert takes either of two ways it scores 0.3 above a Gaussian", "forked", recipe(),
                 gaussian, margin=0.3, seeds=5, minutes=10, about=About.HEADLINE),
        Measured("where the expert has one way the Gaussian is as good", "forked:balance=1", gaussian, recipe(),
                 margin=-0.1, seeds=5, minutes=10, about=About.COMPONENT),
    )  # fmt: skip


UNMASKED = Edit("rows that are no decisions too", Denoising.__call__,
                "torch.where(batch.mask, self.weight(batch, view), 0.0)", "self.weight(batch, view)")  # fmt: skip
"""A mutant of methods that denoise."""


def reused(recipe: Recipe, passes: int = 8) -> Recipe:
    """Returns a recipe of sequences that passes over each whole batch several times, so that ratios leave 1."""
    return recipe.set("source.minibatches", 1).set("source.epochs", passes)


# ---------------------------------------------------------------------------------------------------- rivals
def without_baseline(preset: Preset) -> Recipe:
    """Returns reinforce whose outcomes are compared with nothing: -R log pi(y)."""
    return replace(reinforce(preset), name="no-baseline", credit=(OutcomeCredit(Constant(0.0)),))


def best_of_group(preset: Preset) -> Recipe:
    """Returns likelihood of the best answer of each group in which outcomes of 0 and 1 differ (RAFT; preferred
    fine-tuning): -log pi(y_best), without the worst.
    """
    credit = (PairUp(), OutcomeCredit(Constant(0.0)), WithoutIdle())
    likelihood = PolicyGradient(trust=NoTrust(), aggregate=SequenceSum())
    return with_policy(replace(group_reinforce(preset), credit=credit), "best-of-group", likelihood)
