"""Claims of dpo: its loss by hand, exact and measured claims, mutants."""

from dataclasses import replace

import torch
from torch.nn.functional import logsigmoid

from assay.claims import Claims, Edit, Exact, best_of_group, by_hand, learns_faster, probes, reused
from assay.method import BIGRAMS, Experience, recipes
from assay.parts import PairUp


def compared() -> Experience:
    """Returns groups with positive outcomes; the first and the last have a row that left training, in the last one all
    outcomes are equal. Rewards outside of decisions are large.
    """
    data = probes.sequences()
    assert data.group is not None
    mask = data.mask & (torch.arange(len(data)) != 1).unsqueeze(1)
    reward = torch.where(mask, data.reward.abs(), 100.0 * data.reward)
    ends = (data.terminal | data.truncated).to(reward)
    return replace(data, mask=mask, reward=torch.where(data.group.unsqueeze(1) == 3, ends, reward))


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, losses = seen.experience, []
    assert data.group is not None
    outcome, gain = by_hand.outcome(data), (seen.logp() - seen.logp("reference").detach()).sum(1)
    for label in data.group.unique():
        rows = ((data.group == label) & data.mask.any(1)).nonzero().flatten()
        best, worst = rows[outcome[rows].argmax()], rows[outcome[rows].argmin()]
        losses += [-logsigmoid(0.1 * (gain[best] - gain[worst]))] if outcome[best] > outcome[worst] else []
    return torch.stack(losses).mean()


CLAIMS = Claims(
    claims=(
        Exact(
            "its gradient is that of the best against the worst answer of each group",
            lambda: probes.formula_gap(recipes.dpo(), compared(), loss_by_hand),
            at_most=1e-9,
        ),
        learns_faster("when every batch is used eight times it learns faster than by likelihood of the chosen answers: "
                      "mean pass rate", reused(recipes.dpo(BIGRAMS)), reused(best_of_group(BIGRAMS))),
    ),
    mutants=(
        Edit("the second best is rejected", PairUp.apply, "worst & differs", "~best & differs"),
        Edit("groups without a difference are pairs", PairUp.apply, "best & differs", "best"),
    ),
)
