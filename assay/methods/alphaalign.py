"""alphaalign: ppo where refusing pays on harmful prompts and costs on benign ones, plus floored helpfulness.

    reward = 0.5 * format + s * refused + [benign and not refused] * max(z, 0),   s = +1 if harmful, -1 if benign
    z = (help - mean of its group) / deviation of its group, over all samples of the prompt, refusals included

Zhang et al. 2025. Refusals are found by a rule, without a judge. Standardised, helpfulness can grow in any units
without drowning the safety term; floored, it never makes an answer worse than a refusal of the same prompt.
"""

import re
from dataclasses import replace

from assay.method import LANGUAGE, AnswerFormat, Method, Preset, Recipe, Reward, Verifier, recipes
from assay.parts import ByLabel, Matches, Product, StandardisedInGroup, Weighted, WeightedSum

FORM = r"<safety_reasoning>.+?</safety_reasoning>\s*<answer>.+?</answer>"


PHRASES = ("i'm sorry", "i am sorry", "i apologize", "i cannot", "i can't", "i'm unable", "i won't", "as an ai")


def form_of(answers: AnswerFormat) -> str:
    """Returns the pattern of completions that are written as asked: the task's own, the paper's if it declares none."""
    return answers.form or FORM


def refusal_of(answers: AnswerFormat) -> str:
    """Returns the pattern of refusals: the task's own; if it declares none, a phrase of refusal, in any capitals, after
    the last `<answer>`, or anywhere in a completion without it.
    """
    return answers.refusal or f"(?i:{'|'.join(map(re.escape, PHRASES))})(?!.*<answer>)"


def with_help(base: Recipe, form: Reward, refusal: Reward, help_paid: Reward) -> Recipe:
    """The base with the safety term and, for benign prompts that are not refused, a helpfulness term."""
    may_be_paid = ByLabel({"harmful": {}, "benign": {"answered": 1.0}}, {"refused": refusal}, "answered")
    terms = {
        "format": Weighted(form, 0.5),
        "safety": Weighted(ByLabel({"harmful": {"refused": 1.0}, "benign": {"refused": -1.0}}, {"refused": refusal})),
        "help": Weighted(Product({"may_be_paid": may_be_paid, "paid": help_paid})),
    }
    return replace(base, rewards=(WeightedSum(terms),))


def recipe(
    preset: Preset = LANGUAGE, helpfulness: Reward = Verifier(), form: Reward = Matches(form_of),
    refusal: Reward = Matches(refusal_of, times=0),
) -> Recipe:  # fmt: skip
    """Returns ppo on groups, paid for refusals, for the form of an answer and for helpfulness within its group."""
    base = replace(recipes.ppo(preset), name="alphaalign", rollout=preset.group_rollout)
    return with_help(base, form, refusal, StandardisedInGroup(helpfulness, floor=0.0))


METHOD = Method(
    paper="arXiv:2507.14987",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="refusing",
    family="safe",
    base=recipes.ppo,
    departures=(
        "weights 0.5 and 1, groups of 8 and the deviation of n - 1: the paper's numbers could not be read",
        "helpfulness is the task's own score unless given; eight phrases of refusal instead of about twenty",
        "prompts need the column `label`: harmful or benign; no disguises of the rule are held out in the testbed",
        "refuted if helpfulness in its own units, ten times as large, keeps as many refusals of harmful prompts",
        "not measured: the safety term alone as a rival, for its cost",
    ),
)
