"""A score of texts: its loss against the formula, and what it learns from pairs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, InfraFault, Outcome, Score, concatenate
from assay.core.slots import PairedTask
from assay.engine.loop import Loop
from assay.models.bodies.transformer import Transformer
from assay.models.heads.score import TextScore
from assay.models.model import Critic
from assay.parts.critics.score import BradleyTerry, at_last_decision
from assay.recipes.judges import preference_score
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.contrasts import contrasted
from assay.tasks.language.sorting import sorting

TASK = sorting(3)
PAIRS = contrasted(TASK)


def view_of(model: nn.Module) -> Any:
    class View:
        def model(self, name: str) -> nn.Module:
            return model

    return View()


class Given(nn.Module):
    """Scores that are parameters: one for each row, at every column."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, context: Any) -> Tensor:
        return self.scores[:, None].expand(-1, context["tokens"].shape[1])


class Repeated(nn.Module):
    """The same two scores for every pair."""

    def __init__(self, scores: nn.Parameter) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, context: Any) -> Tensor:
        rows, columns = context["tokens"].shape
        return self.scores.repeat(rows // 2)[:, None].expand(-1, columns)


def pairs_record(num: int) -> Experience:
    return PAIRS.pairs(np.arange(num), 0)


# ---------------------------------------------------------------------------------------------------- the loss
def test_the_loss_and_its_gradient_are_bradley_and_terrys() -> None:
    batch, scores = pairs_record(3), torch.tensor([0.5, -0.2, 1.0, 3.0, 0.0, 0.0], dtype=torch.float64)
    model = Given(scores)
    loss = BradleyTerry("score")(batch, view_of(model))
    margins = [0.7, -2.0, 0.0]
    by_hand = sum(math.log(1 + math.exp(-margin)) for margin in margins)
    assert float(loss.sum.detach()) == pytest.approx(by_hand, abs=1e-12)
    assert int(loss.count) == 3
    (gradient,) = torch.autograd.grad(loss.sum, model.scores)
    pull = [1 / (1 + math.exp(margin)) for margin in margins]
    assert gradient.tolist() == pytest.approx([sign * p for p in pull for sign in (-1.0, 1.0)], abs=1e-12)
    assert [float(number) for number in loss.metrics["score_accuracy"]] == [1.0, 3.0]


def test_rows_in_no_pair_and_rows_without_decisions_take_no_part() -> None:
    batch, model = pairs_record(2), Given(torch.tensor([1.0, 0.0, 5.0, 7.0]))
    alone = batch.add({"chosen": batch.column("chosen") * torch.tensor([1.0, 1.0, 0.0, 0.0])})
    assert int(BradleyTerry().count(alone)) == 1
    assert float(BradleyTerry()(alone, view_of(model)).sum.detach()) == pytest.approx(math.log(1 + math.exp(-1.0)))
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    assert int(BradleyTerry().count(empty)) == 0
    assert float(BradleyTerry()(empty, view_of(model)).sum.detach()) == 0.0


def test_free_scores_settle_at_the_log_odds() -> None:
    """One pair chosen three times of four: the difference is log 3."""
    once = pairs_record(1)
    flipped = once.add({"chosen": -once.column("chosen")})
    rounds = concatenate([replace(one, group=torch.full((2,), k)) for k, one in enumerate([once] * 3 + [flipped])])
    spread = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = torch.optim.LBFGS([spread], max_iter=100, tolerance_grad=1e-12, tolerance_change=1e-15)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = BradleyTerry()(rounds, view_of(Repeated(spread))).sum
        loss.backward()
        return loss

    optimizer.step(closure)
    assert float((spread[0] - spread[1]).detach()) == pytest.approx(math.log(3.0), abs=1e-6)


def test_the_score_is_read_at_the_last_decision() -> None:
    values = torch.arange(12.0).view(3, 4)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    assert at_last_decision(values, mask).tolist() == [1.0, 7.0, 0.0]


def test_a_score_of_text_needs_a_task_of_text() -> None:
    with pytest.raises(AssayError, match="needs a Transformer"):
        Critic(Transformer(64), TextScore()).build(cartpole().spec)


# ---------------------------------------------------------------------------------------------------- learning
def worth(outcome: Outcome) -> float:
    assert not isinstance(outcome, InfraFault)
    return outcome.value


def test_spoiled_demonstrations_are_wrong_and_stay_the_same() -> None:
    assert isinstance(PAIRS, PairedTask)
    for split in (0, 1):
        for ordinal in range(50):
            item = PAIRS.prompts.items.item(ordinal, split)
            assert item == PAIRS.prompts.items.item(ordinal, split)
            assert worth(TASK.items.verify(item, str(item.facts["rejected"]))) == 0.0
            assert TASK.items.verify(item, item.demonstration) == Score(1.0)


def test_a_score_learns_pairs() -> None:
    recipe = replace(preference_score(), critics={"score": Critic(Transformer(32, 2, 2), TextScore())})
    loop = Loop(recipe, PAIRS, seed=0, num_steps=60)
    held_out = PAIRS.pairs(np.arange(128), 1)

    def accuracy() -> float:
        score = at_last_decision(loop.engine.models["score"](held_out.context), held_out.mask)
        return float((score[::2] > score[1::2]).double().mean())

    first = accuracy()
    for _ in range(60):
        loop.step()
    assert accuracy() > max(0.7, first)
