"""reward-model: scores texts so that chosen completions score higher than rejected ones.

    loss = -mean over pairs of log sigmoid(score(chosen) - score(rejected))

Bradley and Terry 1952; Ouyang et al. 2022. A linear layer on the states of a transformer, read at the end of a text.
Only differences of scores are learned, their level is not. The held-out score is the share of pairs in the right
order. `--reward-model RUN` rewards completions with it in any method on a language task.
"""

from dataclasses import replace
from types import SimpleNamespace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Method, probes
from assay.core.recipe import Recipe
from assay.methods.reward_model.policy import ByScore
from assay.parts.critics.score import BradleyTerry
from assay.recipes.defaults import PREFERENCES, Defaults

SCORES_B = torch.linspace(-2.0, 3.0, 6)


def recipe(world: Defaults = PREFERENCES) -> Recipe:
    """Returns a trainer of a scorer on preference pairs; the actor is not trained."""
    return replace(recipes.preference_score(world), name="reward-model", wrapper=ByScore("score"))


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


METHOD = Method(
    paper="arXiv:2203.02155",
    recipe=recipe,
    worlds=(PREFERENCES,),
    default_task="sorting-5-pairs",
    family="preference",
    base=recipes.dpo,
    departures=("one rejected completion for each chosen one instead of all pairs of a ranking",),
    claims=(
        Exact("its gradient is that of the formula", gap_to_formula, at_most=1e-6),
        Exact("equal scores cost log 2", lambda: loss_of(torch.zeros(6)) - torch.tensor(2.0).log(), equals=0.0),
        Exact("no copy of the model is kept: there is no reference", lambda: len(recipe().copies), equals=0.0),
    ),
    mutants=(Edit("the rejected one is to win", BradleyTerry.__call__, "logsigmoid(margin)", "logsigmoid(-margin)"),),
)
