"""salu: ppo with a table by (answerable or not) x (right, wrong, abstained); confident inventions cost most.

    answerable:    right +1, wrong -c_h * k, abstained -c_o;     unanswerable: abstained +1, any answer -c_h * k
    k = exp(mean log pi(y_t)): the policy's own confidence when it acted;   loss = ppo + KL to the supervised policy

2025. One generator answers or abstains, no classifier. At belief q that a question can be answered, and right with
probability a, abstaining is best below q* = (1 + c_h) / (1 + c_h + a - (1 - a) c_h + c_o) (k = 1). Scaling by k alone
pushes wrong answers towards vague ones; the +1 pushes towards abstaining.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Average, Exact, Expect, Measured, Method, probes, same_gradient
from assay.core.recipe import Copy, Recipe
from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.methods.salu import claims
from assay.methods.salu.parts import Confidence
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rewards.combine import Product, Weighted, WeightedSum
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.text import Matches
from assay.recipes.defaults import LANGUAGE, Defaults

ABSTAINED = Matches(r"^\s*(!|.*cannot be answered.*)\s*$")
"""The token of the testbed, or the phrase."""


def recipe(
    world: Defaults = LANGUAGE, made_up: float = 1.0, over: float = 0.5, abstained: Reward = ABSTAINED
) -> Recipe:
    rules = {"abstained": abstained, "right": Verifier()}
    # What a file gives as the answer of an unanswerable question is its own way to abstain: right, by its verifier.
    sure = {"answerable": {"right": 1.0, "abstained": -over}, "unanswerable": {"abstained": 1.0, "right": 1.0}}
    scaled = {"answerable": {"wrong": -made_up}, "unanswerable": {"wrong": -made_up}}
    penalty = Product({"cell": ByLabel(scaled, rules), "confidence": Confidence()})
    total = WeightedSum({"table": Weighted(ByLabel(sure, rules)), "made_up": Weighted(penalty)})
    base = recipes.ppo(world)
    policy = replace(base.stages[0], regularizers=(KlToReference(),))
    return replace(
        base, name="salu", rewards=(total,), copies={"reference": Copy(of="actor")}, stages=(policy, *base.stages[1:])
    )


SMALL = recipe().set("actor.width", 64).set("critics.value.width", 64).set("rollout.num_starts", 32)
CORRECTNESS = replace(SMALL, name="salu-correctness", rewards=(
    ByLabel({"answerable": {"right": 1.0}, "unanswerable": {}}, {"abstained": ABSTAINED, "right": Verifier()}),
))  # fmt: skip
BUDGET = {"seeds": 5, "minutes": 3.0, "steps": 60, "warmup": 100}

METHOD = Method(
    "arXiv:2507.16951", recipe, worlds=(LANGUAGE,), default_task="needle-1", family="safe", base=recipes.ppo,
    departures=(
        "the paper is known by its abstract and summaries: table, confidence and costs (1 and 0.5) are choices",
        "a rule replaces the reward model of human comparisons; the supervised stage is the run's warm-up, unweighted",
        "confidence is of the whole completion, its end token included",
        "prompts need the column `label`: answerable or unanswerable; refuted if correctness alone abstains as well",
    ),
    claims=(
        Exact("rows get the table with confidence; a fault gets nothing", lambda: probes.table_gap(
              recipe(), claims.TASK, claims.ROWS, cut=[4], faults=[9], prob=claims.PROB), equals=0.0),
        same_gradient("on these rewards its gradients are those of ppo with the KL to the reference",
                      lambda: replace(recipe(), rewards=()), claims.losses_by_hand, probes.fragments),
        same_gradient("also where most advantages are negative", lambda: replace(recipe(), rewards=()),
                      claims.losses_by_hand, lambda: probes.fragments(lower=1.0)),
        Measured("held-out score (right, or abstained where due) above that of correctness alone", "needle-1", SMALL,
                 CORRECTNESS, **BUDGET),  # type: ignore[arg-type]
        Measured("fewer unanswerable questions get an answer", "needle-1", SMALL, CORRECTNESS,
                 Average("verdict/unanswerable/wrong", 0.25), Expect.BELOW, **BUDGET),  # type: ignore[arg-type]
    ),
)  # fmt: skip
