"""direct-advantage-po: regresses the log-ratio of every reasoning step to its gain in success probability, offline.

    loss = mean over steps of (A_h - beta sum_{t in h} (log pi(y_t) - log pi_ref(y_t)))^2 / (2 beta)
    A_h = V(after step h) - V(before it),   V: success probability of partial answers, by cross-entropy on outcomes

Liu et al. 2024, called DAPO there; not the method with clip-higher, which is `dapo` here. Answers are the reference's;
the critic is trained first and then frozen. The minimum is not normalised: a small beta does not reach the KL optimum.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method
from assay.core.recipe import Copy, Phase, Recipe, Stage
from assay.methods.direct_advantage_po import claims
from assay.methods.direct_advantage_po.parts import AsProbability, RegressSteps, in_segments
from assay.parts.aggregations import SequenceMean
from assay.parts.credit.segments import SegmentGae, Spans
from assay.parts.credit.temporal import RewardToGo
from assay.parts.critics.td import Td
from assay.parts.fits.logistic import Logistic
from assay.parts.objectives.regression import RegressLogRatio
from assay.parts.predictions import OfState
from assay.parts.targets.recorded import Column
from assay.recipes.defaults import LANGUAGE, Defaults


def critic(world: Defaults = LANGUAGE) -> Recipe:
    """The first phase: the start's own answers, whose outcome is the label of each of their states."""
    loss = Td(Column("return"), Logistic(), OfState("value"), SequenceMean())
    stage = Stage("value", trains=("value",), critic=(loss,), optimizer=world.optimizer)
    base = replace(recipes.group_reinforce(world), name="success", credit=(RewardToGo(),))
    return replace(base, stages=(stage,), critics={"value": world.value})


def recipe(world: Defaults = LANGUAGE, beta: float = 0.5, length: int = 5, critic_steps: int = 100) -> Recipe:
    stage = Stage("steps", trains=("actor",), objective=(RegressSteps(beta),), optimizer=world.optimizer)
    first = Phase("critic", critic(world), critic_steps, hands={"actor": "actor", "value": "value"})
    return replace(
        recipes.group_reinforce(world), name="direct-advantage-po", copies={"reference": Copy(of="actor")},
        behaviour="reference", critics={"value": world.value}, before=(first,), stages=(stage,),
        credit=(AsProbability(), Spans(length), SegmentGae(1.0, 0.0)),
    )  # fmt: skip


def of_answers(world: Defaults = LANGUAGE, beta: float = 0.5) -> Recipe:
    """Whole answers and centred outcomes of as many samples, without a critic."""
    ours = recipe(world)
    stage = replace(ours.stages[0], objective=(RegressLogRatio(beta, pairs=False),))
    steps = ours.steps + ours.before[0].steps
    return replace(ours, name="of-answers", stages=(stage,), credit=(), critics={}, before=(), steps=steps)


START = torch.tensor([0.15, -0.03, -0.12])

METHOD = Method(
    "arXiv:2412.18279", recipe, worlds=(LANGUAGE,), default_task="scratch", family="credit assignment",
    base=recipes.group_reinforce, variants={"direct-advantage-po-answers": of_answers},
    departures=(
        "a step is a span of `length` tokens, not a line of text; a given column `segment` replaces it",
        "the label of a partial answer is the outcome of its own continuation (one completion, same minimum as the "
        "share of several), and the generator completes; the last step ends in the outcome, not in the critic",
        "samples are drawn from the fixed reference at every step instead of once; loss over beta; beta 0.5 and 100 "
        "critic steps are not the paper's, whose settings were not found",
        "three designs: two on the pass rate on key-decisions:length=8 (0.05 and 0.09, whole answers 0.06 and 0.17, "
        "dpo 0.79; 2 pilot seeds), with a critic that saw no token; the third is on credit",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: claims.gap(recipe(), 5), at_most=1e-9),
        Exact("with steps of two tokens, too", lambda: claims.gap(recipe(length=2), 2), at_most=1e-9),
        Exact("the critic's gradient is that of the cross-entropy on outcomes", lambda: claims.critic_gap(critic()),
              at_most=1e-9),
        Exact("at the reference it is the policy gradient of the advantage", lambda: (
              claims.slope(recipe(), 0.5, 0.3, 0.2) - START).abs().max(), at_most=1e-6),
        Exact("at beta 0.3 its minimum from there is (.798, .177, .026), not the KL optimum",
              lambda: claims.slope(recipe(beta=0.3), 0.797509, 0.176572, 0.025920).abs().max(), at_most=1e-5),
        Exact("advantages sum to outcome minus first value", lambda: claims.telescoped(recipe(length=2)), at_most=1e-9),
        Exact("one step an answer with the group's mean as value: kimi-k1.5's regression",
              lambda: claims.gap_to_answers(recipe(length=99), of_answers()), at_most=1e-6),
        Exact("the frozen start answers; both models are handed on", lambda: claims.wrong_phases(recipe()), equals=0.0),
        Measured("where 2 of 3 tokens decide, its advantages are nearer the true ones than centred outcomes are: "
                 "correlation at the start", "", lambda seed: claims.credit_of(recipe(claims.SEEN, length=1), seed),
                 lambda seed: claims.credit_of(recipes.group_reinforce(claims.SEEN), seed), minutes=3.0, looks=2),
    ),
    mutants=(
        Edit("logits as values", AsProbability.apply, 'column("value").sigmoid()', 'column("value")'),
        Edit("a mean within steps", RegressSteps.__call__, "self.beta * moved",
             "self.beta * moved / size.clamp(min=1)"),
        Edit("one step a row", in_segments, "batch.segment is None", "True"),
        Edit("the policy answers", recipe, 'behaviour="reference", ', ""),
    ),
)  # fmt: skip
