"""repexp: pays right groups for answers whose hidden states differ from the others'; verifies such answers first.

    r = verifier + 0.01 b,  b = phi^T (0.01 I + sum of the group's phi phi^T)^-1 phi, 0 in groups without a right answer

phi is the mean hidden state of the frozen start over the answer, projected at random, minus the group's mean; b is the
leverage of a row: duplicates share it. Standardised in the group, 0.01 b is invisible beside right and wrong answers,
and where all are right it is the whole signal. `coreset` orders a pool of answers by the same number.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Copy, Recipe
from assay.methods.repexp import claims
from assay.methods.repexp.bonus import Elliptical, Sketch, coreset, leverage
from assay.parts.aggregations import TokenMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.recipes.group import with_policy


def recipe(world: Defaults = LANGUAGE, bonus: Elliptical = Elliptical()) -> Recipe:
    base = recipes.grpo(world)
    paid = replace(base, credit=(bonus, *base.credit), copies={"start": Copy(of="actor")})
    return with_policy(paid, "repexp", PolicyGradient(trust=Clip(0.2, 0.2), aggregate=TokenMean()))


METHOD = Method(
    paper="arXiv:2510.11686",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="sorting-3",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "4 projected numbers instead of 32: beyond group size - 2 all answers of a group have about the same leverage",
        "the projection is the same in every batch and run; the authors draw another for each batch",
        "`coreset` is a function of a pool, not a policy: it orders answers for a verifier and returns no single one",
        "in the measured claim the pool is that of the uniform start; hidden states are a random transformer's",
        "two designs were tried on 3 pilot seeds: with 16 wide states 66 answers were verified, 48 in random order",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(recipe(), claims.sketched(),
              claims.loss_by_hand), at_most=1e-9),
        Exact("also where most states are negative", lambda: probes.formula_gap(recipe(), claims.sketched(lower=0.5),
              claims.loss_by_hand), at_most=1e-9),
        Exact("leverage of (1,0), (1,0), (0,1), (-2,-1)", lambda: (claims.leverage_of(
              [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.0, -1.0]]) - torch.tensor(
              [0.24876, 0.24876, 0.74380, 0.74875])).abs().max(), at_most=1e-5),
        Exact("of eight answers in 32 dimensions all have nearly the same", lambda: claims.spread(32), at_most=5e-4),
        Exact("in 4 they differ", lambda: claims.spread(4), at_least=0.1),
        Exact("the sketch is of the states after each token, the last one included",
              lambda: claims.sketch_error(Sketch()), at_most=1e-5),
        Exact("projections have entries +-sqrt(3 / D), 1/6 of them each", claims.projection_error, at_most=0.02),
        Exact("rank-one updates choose as inverses of the whole sum do", claims.other_choices, equals=0.0),
        Exact("four directions with three copies each: all in four picks", claims.directions_missed, equals=0.0),
        Measured("fewer answers are verified until the first right one of 256 than in random order", "",
                 claims.verified_until_right, lambda seed: claims.verified_until_right(seed, is_random=True),
                 expect=Expect.BELOW, seeds=10, minutes=2.0),
    ),
    mutants=(
        Edit("unsolved groups too", Elliptical.apply, "torch.where(solved,", "torch.where(solved | True,"),
        Edit("not centred", leverage, "phi_BD - mean", "phi_BD"),
        Edit("states before the tokens", Sketch.__call__, "later = one_later(rows)",
             "later = one_later(one_later(rows).columns(1, rows.num_columns + 1))"),
        Edit("what was chosen does not count", coreset, "inverse = inverse - torch.outer", "_ = inverse - torch.outer"),
        Edit("the best covered first", coreset, "value, -torch.inf).argmax()", "-value, -torch.inf).argmax()"),
    ),
)  # fmt: skip
