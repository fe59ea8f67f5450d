"""etr: grpo whose clip range grows with the size of an answer's advantage and with the variance of its group.

    loss = -min(rho_t A, clip(rho_t, 1 - eps, 1 + eps) A),   eps = 0.2 (1 + tanh|A| / 2) (1 + v / 2), in [0.1, 0.5]
    v = 4 p (1 - p), p the share of right answers in the group (4 times the variance of graded outcomes)

2026 (arXiv:2601.03723). A constant range cuts the strongest signals first, since they move furthest in a batch. With
one update a batch no ratio leaves 1 and it is grpo. A wider range for all is no merit: the rival has the same mean
range. Of outcomes 0 and 1 |A| and p determine each other.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.etr import claims
from assay.methods.etr.parts import ElasticGradient, ElasticRange
from assay.parts.aggregations import SequenceMean
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults
from assay.recipes.group import with_policy


def recipe(
    world: Defaults = LANGUAGE, advantage: float = 0.5, variance: float = 0.5, *, centred: bool = False
) -> Recipe:
    base = recipes.grpo(world)
    room = ElasticRange(by_advantage=advantage, by_variance=variance, centred=centred)
    return with_policy(replace(base, credit=(*base.credit, room)), "etr", ElasticGradient(aggregate=SequenceMean()))


AROUND = partial(recipe, centred=True)
"""Weak signals have less room than 0.2."""
OURS, GRPO = (make(PLACES).set("source.epochs", 8) for make in (recipe, recipes.grpo))
MATCHED = replace(GRPO, name="grpo-matched").set("trust.low", 0.26).set("trust.high", 0.26)
"""grpo with the mean range that etr has on the testbed (one pilot seed)."""

METHOD = Method(
    paper="arXiv:2601.03723",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"etr-centred": AROUND},
    departures=(
        "tanh, 4 p (1 - p), their product, the factors 1/2 and the bounds are ours: the paper's were not found, only "
        "that the range grows with |A| and with the group's variance; whether it may fall below the base is not known",
        "no claim on scores or entropy; one design was tried",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: claims.gap(recipe()), at_most=1e-9),
        Exact("that of the centred form, too", lambda: claims.gap(AROUND(), 0.5), at_most=1e-9),
        Exact("without factors it is grpo to the bit", lambda: claims.gap_to(
              recipe(advantage=0.0, variance=0.0), recipes.grpo()), equals=0.0, tolerance=0.0),
        Exact("1 of 8 right: the right answer's range", lambda: claims.room(recipe(), 7**0.5, 1), equals=0.364404),
        Exact("1 of 8 right: a wrong answer's range", lambda: claims.room(recipe(), 7**-0.5, 1), equals=0.287739),
        Exact("4 of 8 right", lambda: claims.room(recipe(), 1.0, 4), equals=0.414239),
        Exact("not beyond 0.5, nor below 0.1", lambda: abs(claims.room(recipe(variance=2.0), 1.0, 4) - 0.5)
              + abs(claims.room(recipe(variance=-2.0), 1.0, 4) - 0.1), at_most=1e-9),
        Exact("at ratio 1.3 it still learns, at 1.45 no more", lambda: claims.slopes_gap(recipe()), at_most=1e-9),
        Measured("after 8 epochs it has cut less of the largest quarter of |A|, relative to all, than grpo with the "
                 "same mean range", "", lambda seed: claims.cut_of_strong(OURS, seed),
                 lambda seed: claims.cut_of_strong(MATCHED, seed), expect=Expect.BELOW, seeds=10, minutes=3.0, looks=2),
    ),
    mutants=(
        Edit("strong signals have less room", ElasticRange.apply, "1.0 + self.by_advantage", "1.0 - self.by_advantage"),
        Edit("mixed groups have less room", ElasticRange.apply, "1.0 + self.by_variance", "1.0 - self.by_variance"),
        Edit("the variance of the batch", ElasticRange.apply, "groups.mean(away, by_group)", "away.mean()"),
        Edit("the upper side alone", ElasticGradient.__call__, "1.0 - room", "0.8"),
    ),
)  # fmt: skip
