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
    """Returns the recipe's mean loss where the row pairs (0, 1), (2, 3), ... have these scores at their ends."""
    data = probes.sequences(num=len(scores_B))
    pairs = torch.arange(len(data)) // 2
    chosen = torch.where(torch.arange(len(data)) % 2 == 0, 1, -1)
    batch = replace(data, group=pairs, mask=torch.ones_like(data.mask)).add({"chosen": chosen})
    values_BT = scores_B[: len(data)].unsqueeze(1).expand(data.mask.shape)
    (term,) = recipe().stages[0].critic
    assert isinstance(term, BradleyTerry)
    loss = term(batch, SimpleNamespace(model=lambda name: lambda context: values_BT))
    return loss.sum / loss.count


def gap_to_formula() -> torch.Tensor:
    """Returns the largest difference between the gradient of the loss and that of the formula."""
    found, expected = (SCORES_B.clone().requires_grad_() for _ in range(2))
    loss_of(found).backward()
    margins = expected[0::2] - expected[1::2]
    (1 + (-margins).exp()).log().mean().backward()
    assert found.grad is not None
    assert expected.grad is not None
    return (found.grad - expected.grad).abs().max()


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
    ),
    mutants=(Edit("the rejected one is to win", BradleyTerry.__call__, "logsigmoid(margin)", "logsigmoid(-margin)"),),
)
