"""Claims of dpo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch.nn.functional import logsigmoid

from assay.claims import Claims, Edit, best_of_group, learns_faster, probes, reused, same_gradient
from assay.claims.paired import compared, log_ratios, pair_loss
from assay.method import BIGRAMS, recipes
from assay.parts import PairUp


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return pair_loss(seen, log_ratios(seen), lambda good, bad: -logsigmoid(0.1 * (good - bad)))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the best against the worst answer of each group", recipes.dpo,
                      loss_by_hand, compared),
        learns_faster("when every batch is used eight times it learns faster than by likelihood of the chosen answers: "
                      "mean pass rate", reused(recipes.dpo(BIGRAMS)), reused(best_of_group(BIGRAMS))),
    ),
    mutants=(
        Edit("the second best is rejected", PairUp.apply, "worst & differs", "~best & differs"),
        Edit("groups without a difference are pairs", PairUp.apply, "best & differs", "best"),
    ),
)
