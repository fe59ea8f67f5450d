"""Claims of real: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import Claims, Edit, by_hand, learns_faster, probes, reused, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.real import AgainstAnchor, recipe


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    moved = by_hand.moved(seen) / data.mask.sum(1).clamp(min=1)
    right, losses = by_hand.outcome(data) > 0.5, []
    for rows in by_hand.rows_of_groups(data):
        good, bad = (moved[[row for row in rows if right[row] == kind]] for kind in (True, False))
        both = torch.log(1 + (-good / 0.5).exp().sum()) + torch.log(1 + (bad / 0.5).exp().sum())
        losses.append(both if len(good) and len(bad) else both * 0.0)
    return torch.stack(losses).mean()


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        learns_faster("it learns faster than grpo when every batch is used eight times: mean pass rate",
                      reused(recipe(BIGRAMS)), reused(recipes.grpo(BIGRAMS))),
    ),
    mutants=(
        Edit("groups of one class learn", AgainstAnchor.__call__, "(sizes[0] > 0) & (sizes[1] > 0)", "sizes[0] >= 0"),
        Edit("the likely right answers", AgainstAnchor.__call__, "zip((-1.0, 1.0)", "zip((1.0, -1.0)"),
        Edit("no anchor", AgainstAnchor.__call__, "torch.log1p(", "torch.log(1e-9 + "),
    ),
)
