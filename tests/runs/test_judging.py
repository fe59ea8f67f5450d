"""A judge that is a model: its loss against the formula, what it learns, and tournaments that it decides."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, InfraFault, Outcome, Score, concatenate
from assay.core.slots import PairedTask, Scene
from assay.engine.loop import Loop
from assay.methods import arenarl
from assay.methods.arenarl import Arena, JudgedAlone
from assay.models.bodies.transformer import Transformer
from assay.models.heads.score import TextScore, TransformerScore, load_score, save_score
from assay.models.model import Critic
from assay.parts.critics.score import BradleyTerry, at_last_decision
from assay.parts.rewards.judges import ModelJudge
from assay.recipes.judges import preference_score
from assay.runs.judging import fit_judge, pair_accuracy, wins
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


# ---------------------------------------------------------------------------------------------------- the file
def judge_file(path: Path, seed: int = 0) -> TransformerScore:
    torch.manual_seed(seed)
    model = Critic(Transformer(16, 1, 2), TextScore()).build(TASK.spec)
    assert isinstance(model, TransformerScore)
    save_score(model, path)
    return model


def test_a_judge_is_what_was_saved_and_other_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "judge.safetensors"
    model, batch = judge_file(path), pairs_record(4)
    again = load_score(path)
    assert torch.equal(again(batch.context), model(batch.context))
    assert not any(parameter.requires_grad for parameter in again.parameters())
    first = ModelJudge(str(path))(batch, TASK, torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(AssayError, match="Use the original weights"):
        ModelJudge(str(path), "0" * 16)(batch, TASK, torch.tensor([0]), torch.tensor([1]))
    judge_file(path, seed=1)
    assert not torch.equal(ModelJudge(str(path))(batch, TASK, torch.tensor([0]), torch.tensor([1])), first)
    path.write_bytes(b"nothing")
    with pytest.raises(AssayError, match="is not a judge"):
        load_score(path)
    with pytest.raises(AssayError, match="no judge file"):
        ModelJudge(str(tmp_path / "no"))(batch, TASK, torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(AssayError, match="needs a Transformer"):
        Critic(Transformer(64), TextScore()).build(cartpole().spec)


def test_a_judge_of_other_tokens_is_refused(tmp_path: Path) -> None:
    judge_file(tmp_path / "it")
    with pytest.raises(AssayError, match="other tokens"):
        ModelJudge(str(tmp_path / "it"))(pairs_record(1), cartpole(), torch.tensor([0]), torch.tensor([1]))


# ---------------------------------------------------------------------------------------------------- matches
def test_scores_do_not_depend_on_the_other_rows_on_order_or_on_padding(tmp_path: Path) -> None:
    model, batch = judge_file(tmp_path / "it"), pairs_record(6)
    judge = ModelJudge(str(tmp_path / "it"))
    by_hand = at_last_decision(model(batch.context), batch.mask).double().round(decimals=4)
    first, second = torch.tensor([0, 3, 5, 5]), torch.tensor([1, 0, 7, 5])
    found = judge(batch, TASK, first, second)
    assert torch.allclose(found, torch.stack((by_hand[first], by_hand[second]), 1), atol=2e-4)
    assert torch.equal(judge(batch, TASK, second, first), found.flip(1))
    assert torch.equal(found[3, 0], found[3, 1])
    assert torch.allclose(judge(batch, TASK, first[2:3], second[2:3]), found[2:3], atol=2e-4)


def test_a_completion_that_was_cut_is_scored_as_if_it_ended_there(tmp_path: Path) -> None:
    judge_file(tmp_path / "it")
    whole, judge = pairs_record(3), ModelJudge(str(tmp_path / "it"))
    ends = whole.mask & (whole.action == TASK.tokenizer.vocabulary.eos)
    assert bool(ends.any(1).all())
    tokens = torch.where(ends, TASK.tokenizer.encode("q")[0], whole.context["tokens"])
    cut = replace(whole, mask=whole.mask & ~ends, context={**whole.context, "tokens": tokens})
    rows = torch.arange(6)
    assert torch.allclose(judge(cut, TASK, rows, rows), judge(whole, TASK, rows, rows), atol=2e-4)


def test_an_arena_ranks_each_group_as_the_model_scores_it(tmp_path: Path) -> None:
    model, batch = judge_file(tmp_path / "it"), pairs_record(4)
    whole = replace(batch, group=torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])).add({"sample": torch.arange(8) % 4})
    judge = ModelJudge(str(tmp_path / "it"))
    ranked = Arena(judge)(whole, Scene(TASK)).reward.sum(1)
    score = at_last_decision(model(batch.context), batch.mask)
    for rows in (slice(0, 4), slice(4, 8)):
        best = int(score[rows].argmax())
        assert int(ranked[rows].argmax()) == best
        assert float(ranked[rows].max()) == 1.0
    alone = JudgedAlone(judge)(whole, Scene(TASK)).reward.sum(1)
    assert torch.allclose(alone, score.detach(), atol=2e-4)


def test_ties_count_a_half() -> None:
    assert wins([(1.0, 0.0), (0.0, 1.0), (2.0, 2.0)]) == [1.0, 0.0, 0.5]


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


def test_a_judge_learns_pairs_and_decides_arenas(tmp_path: Path) -> None:
    recipe = preference_score()
    small = replace(recipe, critics={"score": Critic(Transformer(32, 2, 2), TextScore())})
    judge = fit_judge(PAIRS, tmp_path / "judge.safetensors", steps=60, recipe=small)
    untrained = fit_judge(PAIRS, tmp_path / "first.safetensors", steps=0, recipe=small)
    assert pair_accuracy(judge, PAIRS, 128) > max(0.7, pair_accuracy(untrained, PAIRS, 128))
    twice = [fit_judge(PAIRS, tmp_path / f"{name}.safetensors", steps=4, recipe=small).hash for name in ("one", "two")]
    assert twice[0] == twice[1]
    loop = Loop(arenarl.recipe(judge=judge), TASK, seed=0, num_steps=1)
    step = loop.step()
    assert step.fresh is not None
    assert bool(torch.isfinite(step.fresh.reward).all())
    wrong = replace(recipe, critics={"score": Critic(Transformer(8, 1, 2))})
    with pytest.raises(AssayError, match="no critic 'score'"):
        fit_judge(PAIRS, tmp_path / "no", steps=1, recipe=wrong)
