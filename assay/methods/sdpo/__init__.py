"""sdpo: the policy, given a correct answer of the group as context, distils itself token by token.

    loss = sum_t D(pi(.|x, y_<t), q(.|x, f, y_<t)),   q = the same model (or its target network) after the feedback f
    for D = KL(pi || q) a policy gradient with advantages A_t(v) = log q(v) - log pi(v) for every token v

Huebotter et al. 2026. An outcome does not say which token was wrong; a model that can read feedback knows it in
hindsight. y is the policy's own; q costs two more forward passes and nothing is sampled from it. D is over the
policy's 100 likeliest tokens and all others together.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Measured, Method, probes
from assay.core.recipe import Copy, Phase, Recipe
from assay.methods.sdpo.claims import divergence_gap, loss_by_hand, teacher_gap, with_candidates
from assay.methods.sdpo.objectives import Distil, jensen_shannon
from assay.methods.sdpo.source import ShownTwice
from assay.methods.sdpo.teacher import SelfTeacher
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, rate: float = 0.05) -> Recipe:
    base = recipes.grpo(world)
    stages = (replace(base.stages[0], objective=(Distil(jensen_shannon),)),)
    copies = {"teacher": Copy(of="actor", rate=rate)}
    return replace(base, name="sdpo", credit=(SelfTeacher(),), stages=stages, copies=copies)


def reading(one: Recipe, steps: int = 200) -> Recipe:
    """Returns the recipe after a phase in which the small model learns to use an answer in its context."""
    phase = Phase("in-context", replace(recipes.sft(), actor=one.actor, source=ShownTwice(32, 4)), steps)
    return replace(one, before=(phase,))


METHOD = Method(
    "arXiv:2601.20802", recipe, worlds=(LANGUAGE,), default_task="sorting-5",
    family="distillation",
    base=recipes.grpo,
    departures=(
        "feedback is a correct answer of the same group, the paper's setting without text from the environment",
        "the teacher's prompt is question, answer, question in one text, without words around them (`shown`)",
        "the teacher scores once per step, at the acting policy's 100 likeliest tokens, not the current one's",
        "a small model cannot read feedback by itself: the claims have a phase that teaches it, for both sides",
    ),
    claims=(
        Exact("off-policy its gradient is the formula's, with every token as a candidate",
              lambda: probes.formula_gap(recipe(), with_candidates(4), loss_by_hand), at_most=1e-9),
        Exact("and with two of four and the rest together",
              lambda: probes.formula_gap(recipe(), with_candidates(2), loss_by_hand), at_most=1e-9),
        Exact("its divergence is 0 between equal ones, log 2 between disjoint ones", divergence_gap, at_most=1e-9),
        Exact("the teacher's numbers are those of the model after the first other correct answer",
              lambda: max(teacher_gap(recipe(), num) for num in (100, 5)), at_most=1e-4),
        Measured("scores higher than grpo at equal samples", "sorting-6", reading(recipe()), reading(recipes.grpo()),
                 seeds=5, steps=40, warmup=0),
    ),
)  # fmt: skip
