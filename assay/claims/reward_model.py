"""Claims of reward-model: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from assay.claims import Claims, Edit, Exact, probes
from assay.methods.reward_model import recipe
from assay.parts import BradleyTerry

SCORES_B = torch.linspace(-2.0, 3.0, 6)


def loss_of(scores_B: torch.Tensor) -> torch.Tensor:
    """Returns the recipe's mean loss where the row pairs (0, 1), (2, 3), ... have these scores at their last decisions
    and other numbers elsewhere; answers end at different columns.
    """
    data = probes.sequences(num=len(scores_B))
    rows, columns = torch.arange(len(data)), torch.arange(data.num_columns)
    last = columns[-1] - rows % 3
    mask = (columns > 0) & (columns <= last.unsqueeze(1))
    batch = replace(data, group=rows // 2, mask=mask).add({"chosen": torch.where(rows % 2 == 0, 1, -1)})
    values_BT = torch.where(columns == last.unsqueeze(1), scores_B.unsqueeze(1), 0.3 * columns - 1.0)
    (term,) = recipe().stages[0].critic
    assert isinstance(term, BradleyTerry)
    loss = term(batch, SimpleNamespace(model=lambda name: lambda context: values_BT))
    return loss.sum / loss.count


def gap_to_formula() -> float:
    """Returns the largest difference between the gradient of the loss and that of the formula."""

    def formula(score_B: torch.Tensor) -> torch.Tensor:
        return (1 + (score_B[1::2] - score_B[0::2]).exp()).log().mean()

    return probes.distance(*(probes.derivative(one, SCORES_B) for one in (loss_of, formula)))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is that of the formula", gap_to_formula, at_most=1e-6),
        Exact("no copy of the model is kept: there is no reference", lambda: len(recipe().copies), equals=0.0),
    ),
    mutants=(Edit("the rejected one is to win", BradleyTerry.__call__, "logsigmoid(margin)", "logsigmoid(-margin)"),),
)
