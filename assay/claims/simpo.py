"""Claims of simpo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch.nn.functional import logsigmoid

from assay.claims import Claims, Edit, Exact, learns_faster, probes, reused, same_gradient
from assay.claims.paired import compared, means, pair_loss
from assay.method import BIGRAMS, recipes
from assay.methods.simpo import MeanMargin, recipe


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return pair_loss(seen, means(seen), lambda good, bad: -logsigmoid(2 * (good - bad) - 1))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the mean log-probabilities of the best and the worst "
                      "answer of each group", recipe, loss_by_hand, compared),
        Exact("no copy of the policy is kept: there is no reference", lambda: len(recipe().copies), equals=0.0),
        learns_faster("when every batch is used eight times it learns faster than dpo: mean pass rate",
                      reused(recipe(BIGRAMS)), reused(recipes.dpo(BIGRAMS))),
    ),
    mutants=(
        Edit("sums instead of means", MeanMargin.__call__, "mean_logp(batch, view.scored.logp)",
             "(view.scored.logp * batch.mask).sum(1)"),
        Edit("the margin is added", MeanMargin.__call__, "margin - self.gamma", "margin + self.gamma"),
        Edit("rejected ones are to win", MeanMargin.__call__, "chosen - rejected", "rejected - chosen"),
    ),
)
