"""Claims of orpo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import Claims, Edit, Exact, best_of_group, learns_faster, probes, reused, same_gradient
from assay.claims.paired import compared, means, pair_loss
from assay.method import BIGRAMS
from assay.methods.orpo import OddsRatio, log_odds, recipe


def odds(mean: torch.Tensor) -> torch.Tensor:
    return mean.exp() / (1 - mean.exp())


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return pair_loss(
        seen, means(seen), lambda good, bad: -good - 0.1 * (1 / (1 + odds(bad) / odds(good))).log()
    )


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of likelihood and odds ratio of the best and the worst "
                      "answer of each group", recipe, loss_by_hand, compared),
        Exact("no copy of the policy is kept: there is no reference", lambda: len(recipe().copies), equals=0.0),
        Exact("the log-odds of a certain completion are finite", lambda: float(log_odds(torch.zeros(()).double())),
              at_most=14.0, illustrates=True),
        learns_faster("when every batch is used eight times it learns faster than by likelihood of the chosen answers: "
                      "mean pass rate", reused(recipe(BIGRAMS)), reused(best_of_group(BIGRAMS))),
    ),
    mutants=(
        Edit("sums instead of means", OddsRatio.__call__, "mean_logp(batch, view.scored.logp)",
             "(view.scored.logp * batch.mask).sum(1)"),
        Edit("probabilities instead of odds", log_odds, "bounded - torch.log(-torch.expm1(bounded))", "bounded"),
        Edit("no likelihood", OddsRatio.__call__, "-chosen - self.weight", "-self.weight"),
        Edit("rejected ones are to win", OddsRatio.__call__, "log_odds(chosen) - log_odds(rejected)",
             "log_odds(rejected) - log_odds(chosen)"),
    ),
)
