"""The loss by hand, divergences of three answers, and a start policy whose solved prompts are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.claims.probes.estimators import bandit_gradient_of
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.tasks.testbeds.language.sparse import levels

START, POLICY = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1)


def mixed() -> Experience:
    """Returns groups beside rows of the start, whose log-probabilities are far away; advantages by hand."""
    data = probes.sequences(spread=6.0)
    stored = data.column("sample") == 3
    own = replace(data, mask=data.mask & ~stored.unsqueeze(1))
    advantage = by_hand.standardised(own).unsqueeze(1) * own.mask
    source = torch.where(stored, int(Origin.OLDER_SELF), int(Origin.POLICY))
    return replace(data, source=source).add({"advantage": advantage, "outcome": by_hand.outcome(own)})


def loss_by_hand(seen: probes.Seen, f: Callable[[Tensor], Tensor]) -> Tensor:
    data, ratio = seen.experience, by_hand.ratio(seen)
    gain, cost = [], []
    for row, origin in enumerate(data.source.tolist() if data.source is not None else ()):
        for column in data.mask[row].nonzero().flatten().tolist():
            u, advantage = ratio[row, column], data.column("advantage")[row, column]
            if origin == int(Origin.POLICY):
                gain.append(by_hand.clipped(u, advantage, 0.2, 0.28))
            else:
                cost.append(f(u) if f(u) < 10 else 0.0 * u)
    return -torch.stack(gain).mean() + 0.02 * torch.stack(cost).mean()


def gap(ours: Recipe, f: Callable[[Tensor], Tensor]) -> float:
    return probes.formula_gap(ours, mixed(), lambda seen: loss_by_hand(seen, f))


def gap_to_grpo(ours: Recipe) -> float:
    """Returns how far its gradient without stored rows is from grpo's with the clip 0.28 and a mean over decisions."""

    def grpo(seen: probes.Seen) -> Tensor:
        advantage = by_hand.standardised(seen.experience).unsqueeze(1)
        gain = by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.28)
        return -by_hand.mean_of_decisions(gain, seen.experience)

    return probes.formula_gap(ours, probes.sequences(), grpo)


def slope(ours: Recipe, u: float) -> float:
    """Returns the derivative of the divergence of one stored decision by its log-probability, at the ratio u."""
    data = replace(probes.bandit_experience([0], [0.0], torch.zeros(2)), source=torch.tensor([int(Origin.OLDER_SELF)]))
    logp = (data.logp + torch.tensor(u).double().log()).requires_grad_()
    total = probes.loss(ours, data.add({"advantage": torch.zeros(1, 1).double()}), logp).loss
    return float(torch.autograd.grad(total, logp)[0]) / 0.02


def of_answers(ours: Recipe, answers: tuple[int, ...], policy: tuple[float, ...] = POLICY) -> Tensor:
    """Returns the gradient of the logits where the start's samples are these answers, as often as it gives them."""
    start = torch.tensor(START).double()
    total = torch.zeros(3).double()
    for answer in answers:
        data = probes.bandit_experience([answer], [0.0], start.log())
        data = replace(data, source=torch.tensor([int(Origin.OLDER_SELF)])).add({"advantage": data.reward})
        total += start[answer] * bandit_gradient_of(ours, data, torch.tensor(policy).double().log()) / 0.02
    return total / start[list(answers)].sum()


def mean_of(f: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the mean divergence of the policy over all answers of the start."""
    start = torch.tensor(START).double()
    return start @ f((torch.tensor(POLICY).double() / start).log())


def wrong_rehearsal(ours: Recipe) -> float:
    """Returns what is wrong in a run on 16 prompts of which every answer is right and 16 of which one in 100 is:
    the split, the stored rows, the prompts that are trained on, or what a batch holds.
    """
    task = levels(easy=0.5, solved=100)
    phase = ours.before[0]
    first = Loop(phase.recipe, task, seed=0, num_steps=2)
    first.step()
    before = first.states["sources"][0]
    solved = {prompt for prompt, is_solved in zip(before["prompts"], before["solved"], strict=True) if is_solved}
    easy = set(task.prompts(np.arange(16), 0))
    columns = before["columns"]
    wrong = float(len(easy - solved) + len(solved) - len(easy) + abs(len(columns["mask"]) - 16))
    wrong += float(not (columns["logp"][columns["mask"]] - np.log(0.1)).abs().max() <= 1e-5)
    wrong += float((columns["reward"].sum(1) - 1.0).abs().sum())
    loop = Loop(ours, task, seed=0, num_steps=2)
    loop.begin({"start": before})
    fresh = loop.step().fresh
    assert fresh is not None
    trained = fresh.column("start").numpy()
    wrong += len(set(task.prompts(trained, 0)) & solved) + (len(set(trained.tolist())) != 32)
    scene = Scene(task, fresh=fresh, draw=Draw(0))
    (batch,) = ours.source(scene, ours.source.init(scene.given(handed={"start": before})))
    assert batch.source is not None
    assert batch.group is not None
    stored = batch.source == int(Origin.OLDER_SELF)
    wrong += int(stored.sum()) != 32 or not torch.equal(batch.rows(~stored).logp, fresh.logp)
    wrong += float(batch.column("advantage")[stored].abs().sum()) + len(
        set(batch.group[stored].tolist()) & set(trained)
    )
    known = {tuple(row) for row in columns["action"].tolist()}
    return wrong + float(len({tuple(row) for row in batch.action[stored].tolist()} - known))
