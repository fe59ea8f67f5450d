"""Routing, weights and the common denominator by hand. Axes: B sequences, T decisions."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, cartpole, probes, refuses
from assay.claims.probes.formulas import TABLE_SPEC, built, prepared
from assay.claims.taught import distances, divergence_gap, teacher_gap, with_candidates
from assay.method import Experience, Recipe
from assay.methods import sdpo
from assay.methods.srpo import RoutedTeacher, SharedDistil, Untaught, entropy_of, grpo_by_tokens, recipe
from assay.parts import Distil

OUTCOMES, SIBLINGS = (1.0, 0.0, 1.0, 1.0, 1.0, 0.0), (None, 0, None, None, None, 3)
"""Answers of `taught.ROWS`: a wrong one beside two right ones, one beside one right; and what its teacher saw."""


def routed(data: Experience) -> Experience:
    """Returns rows of which two thirds have a teacher, with a weight at each decision."""
    weight = torch.rand(data.mask.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64) + 0.5
    return with_candidates(4, data).add({"teacher_weight": weight})


def loss_by_hand(seen: probes.Seen) -> Tensor:
    """Returns both sums over the number of all decisions."""
    data = seen.experience
    is_taught = data.column("candidates")[..., 1].any(-1) & data.mask
    advantage = by_hand.standardised(data).unsqueeze(1)
    gain = by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.28)
    distance = torch.where(is_taught, data.column("teacher_weight") * distances(seen), 0.0)
    return (distance.sum() - gain[data.mask & ~is_taught].sum()) / data.mask.sum()


def gap_without_teacher() -> float:
    """Returns whether its gradient differs from the other branch's in any bit where nothing has a teacher."""
    data = probes.sequences().add({"candidates": torch.zeros(16, 7, 1, 2), "teacher_weight": torch.zeros(16, 7)})
    found = []
    for one in (recipe(), grpo_by_tokens()):
        engine = built(one, TABLE_SPEC)
        found.append(engine.gradient(one.stages[0], prepared(one, engine, data)))
    return float(not all(torch.equal(found[0][name], found[1][name]) for name in found[1]))


def small(one: Recipe) -> Recipe:
    """Returns a recipe with half the width, which the measurement affords."""
    return one.set("actor.body.width", 64)


DATA = [partial(lambda make: routed(make()), make) for make in probes.ANY_OUTCOME]

CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's: two sums over one number of decisions", lambda:
              probes.formula_gap(recipe(), DATA, loss_by_hand), at_most=1e-9),
        Exact("only a wrong answer has a teacher, which saw the first right one; entropy weighs it", lambda:
              max(teacher_gap(recipe(), num, OUTCOMES, SIBLINGS, 1.0) for num in (100, 5)), at_most=1e-4),
        Exact("its divergence is 0 between equal distributions, log 2 between disjoint ones",
              divergence_gap, at_most=1e-9),
        Exact("where no wrong answer has a right sibling it is grpo with the mean over tokens, to the bit",
              gap_without_teacher, equals=0.0, illustrates=True),
        Exact("off-policy the gradient of its other branch is grpo's with the mean over tokens", lambda:
              probes.formula_gap(grpo_by_tokens(), probes.ANY_OUTCOME, lambda seen: by_hand.token_loss(
                  seen, by_hand.standardised(seen.experience), 0.2, 0.28)), at_most=1e-9, of="grpo-by-tokens"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        refuses("a task without prompts is refused", recipe, cartpole),
        Measured("at equally many generated tokens it ends higher than sdpo, which distils all answers", "sorting-6",
                 small(recipe()), small(sdpo.recipe()), AtEqual("evaluation", reached="decisions_total"),
                 seeds=4, minutes=15.0, steps=120, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("right answers too", RoutedTeacher.told, "if is_wrong else", "if True else"),
        Edit("wrong answers are trained by both", Untaught.__call__, "~taught(experience).mask",
             "~taught(experience).mask | True"),
        Edit("each term by its own number", SharedDistil.count, "(batch)", "(taught(batch))"),
        Edit("without weights", Distil.__call__, "if TEACHER_WEIGHT in batch.extra", "if False"),
        Edit("the sum of weights is 1", RoutedTeacher.apply, "/ some.mask.sum()", ""),
        Edit("more where it is unsure", entropy_of, "-(some", "(some"),
    ),
)
