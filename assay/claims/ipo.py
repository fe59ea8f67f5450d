"""Claims of ipo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch

from assay.claims import About, Claims, Computed, Edit, Expect, Measured, learns_faster, probes, reused, same_gradient
from assay.claims.paired import compared, log_ratios, pair_loss
from assay.method import BIGRAMS, TABLE, Recipe, recipes
from assay.methods.ipo import SquaredMargin, recipe


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return pair_loss(seen, log_ratios(seen), lambda good, bad: (good - bad - 1 / (2 * 0.1)) ** 2)


def spread(learner: Recipe, seed: int, steps: int = 400) -> float:
    """Returns how far the log-ratios to the uniform reference of the best and the worst of three answers are apart,
    after updates on pairs that the reference sampled, in which the better answer always wins.
    """
    start, episodes = torch.zeros(1, 3).double(), probes.bandit_episodes(torch.tensor([0.0, 0.5, 1.0]))
    table = probes.trained_table(
        learner, episodes, start, steps=steps, members=4, groups=8, seed=seed, behaviour_SA=start
    )
    return float(table.max() - table.min())


def settled(learner: Recipe) -> Computed:
    """Returns the measurement of `spread`."""
    return Computed(partial(spread, learner), small=partial(spread, learner, steps=40))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the squared margin of the best against the worst answer of each group",
                      recipe, loss_by_hand, compared, at_most=1e-8),
        Measured("where the better answer always wins its policy stays nearer the reference than dpo's after as many "
                 "updates: log-ratios of the best and the worst of three answers are less apart", "",
                 settled(recipe(TABLE)), settled(recipes.dpo(TABLE)), expect=Expect.BELOW, seeds=5, minutes=0.3,
                 about=About.HEADLINE),
        learns_faster("when every batch is used eight times it learns faster than dpo: mean pass rate",
                      reused(recipe(BIGRAMS)), reused(recipes.dpo(BIGRAMS))),
    ),
    mutants=(
        Edit("no reference", SquaredMargin.__call__, '- batch.column("logp_ref").detach()', ""),
        Edit("the target is 1 / tau", SquaredMargin.__call__, "0.5 / self.tau", "1.0 / self.tau"),
        Edit("rejected ones are to win", SquaredMargin.__call__, "chosen - rejected", "rejected - chosen"),
        Edit("a mean within sequences", SquaredMargin.__call__,
             "* batch.mask).sum(1)", "* batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)"),
    ),
)
