"""The loss by hand, divergences of three answers, and a start policy whose solved prompts are known.

Axes: B sequences, T decisions.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Loop, Measured, by_hand, probes
from assay.claims.testbeds.language.sparse import levels
from assay.method import BIGRAMS, Draw, Experience, Origin, Recipe, Scene
from assay.methods.dph_rl import CoveringDivergence, OfOrigin, Remembered, Unsolved, beside, forward_kl, recipe, reverse

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


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe(), lambda u: u - 1 - u.log()), at_most=1e-9),
        Exact("without stored rows its gradient is grpo's", lambda: gap_to_grpo(recipe()), at_most=1e-9),
        Exact("the start is split once, its right answers stored and rehearsed, solved prompts left out",
              lambda: wrong_rehearsal(recipe(BIGRAMS)), equals=0.0),
        Measured("where contexts share parameters it has a higher pass@64 than the reverse KL of the same weight at an "
                 "equal pass rate",
                 "many-ways:right=94", recipe(BIGRAMS, eta=0.5).set("actor.rank", 4),
                 reverse(BIGRAMS, 0.5).set("actor.rank", 4), AtEqual("pass@64"), minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("u upside down", CoveringDivergence.__call__, "view.scored.logp - batch.logp.detach()",
             "batch.logp.detach() - view.scored.logp"),
        Edit("stored rows learn from rewards", OfOrigin.rows, "(batch.source == self.origin)", "(batch.source >= 0)"),
        Edit("likelihood", forward_kl, "torch.expm1(log_u) - log_u", "-log_u"),
        Edit("samples of the split are stored", Remembered.__call__, "own & ~first & right", "own & right"),
        Edit("solved prompts stay", Unsolved.__call__, "prompt not in solved", "True"),
        Edit("stored rows join groups", beside, "-1 - torch.arange", "torch.arange"),
    ),
)
