"""salu: ppo with a table by (answerable or not) x (right, wrong, abstained); confident inventions cost most.

    answerable:    right +1, wrong -c_h * k, abstained -c_o;     unanswerable: abstained +1, any answer -c_h * k
    k = exp(mean log pi(y_t)): the policy's own confidence when it acted;   loss = ppo + KL to the supervised policy

2025. One generator answers or abstains, no classifier. At belief q that a question can be answered, and right with
probability a, abstaining is best below q* = (1 + c_h) / (1 + c_h + a - (1 - a) c_h + c_o) (k = 1). Scaling by k alone
pushes wrong answers towards vague ones; the +1 pushes towards abstaining.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace

import torch

from assay.method import LANGUAGE, Copy, Experience, Method, Preset, Recipe, Reward, Scene, State, Verifier, recipes
from assay.parts import ByLabel, KlToReference, Matches, Product, Weighted, WeightedSum, geometric_mean, placed


@dataclass(frozen=True)
class Confidence(Reward):
    """reward = exp(mean over decisions of log pi(a_t)): the geometric-mean probability of what was written, in [0, 1].

    Taken from the log-probabilities recorded when acting, so that it stays the same while the policy is updated, and
    carries no gradient. As a factor of a `Product` it scales another reward. Degenerate: no decision gives no reward.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with each row's confidence on its last decision."""
        return placed(experience, geometric_mean(experience.logp, experience.mask))


ABSTAINED = Matches(r"^\s*(!|.*cannot be answered.*)\s*$")
"""The token of the testbed, or the phrase."""


def recipe(
    preset: Preset = LANGUAGE, made_up: float = 1.0, over: float = 0.5, abstained: Reward = ABSTAINED
) -> Recipe:
    """Returns ppo on a table of outcomes, where inventions cost in proportion to confidence."""
    rules = {"abstained": abstained, "right": Verifier()}
    # What a file gives as the answer of an unanswerable question is its own way to abstain: right, by its verifier.
    sure = {"answerable": {"right": 1.0, "abstained": -over}, "unanswerable": {"abstained": 1.0, "right": 1.0}}
    scaled = {"answerable": {"wrong": -made_up}, "unanswerable": {"wrong": -made_up}}
    penalty = Product({"cell": ByLabel(scaled, rules), "confidence": Confidence()})
    total = WeightedSum({"table": Weighted(ByLabel(sure, rules)), "made_up": Weighted(penalty)})
    base = recipes.ppo(preset)
    policy = replace(base.stages[0], regularizers=(KlToReference(),))
    return replace(
        base, name="salu", rewards=(total,), copies={"reference": Copy(of="actor")}, stages=(policy, *base.stages[1:])
    )


METHOD = Method(
    paper="arXiv:2507.16951",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="needle-1",
    family="safe",
    base=recipes.ppo,
    departures=(
        "the paper is known by its abstract and summaries: table, confidence and costs (1 and 0.5) are choices",
        "a rule replaces the reward model of human comparisons; the supervised stage is the run's warm-up, unweighted",
        "confidence is of the whole completion, its end token included",
        "prompts need the column `label`: answerable or unanswerable; refuted if correctness alone abstains as well",
        "not measured: supervised training alone as a rival, and how sure the remaining inventions are, for their cost",
    ),
)
