"""dump: a bandit over data sources, rewarded by the size of the advantages that a source gives.

    P(d) = softmax(U_d / 0.1),   U_d = mean |A| of d's last 300 answers + sqrt(2 ln(N + 1) / (n_d + 1));   rest: grpo

Wang et al. 2025. If all answers are correct or all are wrong, |A| is 0 and nothing can be learned; it is largest if
half of them are correct. So the curriculum moves from mastered sources to those that have just become learnable.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Average, Exact, Measured, Method, by_hand, same_gradient
from assay.core.recipe import Recipe
from assay.methods.dump.claims import accepted_without_sources, distance_from_shares, foreign_rows, payoff_error
from assay.methods.dump.curriculum import SourceBandit
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    return replace(recipes.grpo(world), name="dump", curriculum=SourceBandit())


METHOD = Method(
    paper="arXiv:2504.09710",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="sorting-3-to-8",
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "items of a source come in order, each once, instead of at random with replacement",
        "held-out evaluations do not enter the bandit, as they do in the authors' code",
        "counts are of answers, as in the authors' code; no KL to a reference",
    ),
    claims=(
        Exact("a source pays 2 sqrt(p (1 - p) (G - 1) / G): most at p = 1/2", lambda: payoff_error(recipe()),
              equals=0.0, tolerance=1e-3),
        same_gradient("off-policy its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("starts are drawn at softmax(U / 0.1) of the last 300 |mean A| and all counts",
              lambda: distance_from_shares(recipe()), at_most=1e-6),
        Exact("every start is the next row of its source, in files too", lambda: foreign_rows(recipe()), equals=0.0),
        Exact("a task without sources is refused", lambda: accepted_without_sources(recipe()), equals=0.0),
        Measured("mean held-out score over the run is higher than with equal shares", "sorting-3-to-8", recipe(),
                 recipes.grpo(), metric=Average("evaluation"), seeds=5, minutes=5.0, steps=100, warmup=60),
    ),
)  # fmt: skip
