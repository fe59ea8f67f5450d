"""Losses, length rewards, shares of prompts and steps of the optimizer by hand. Axes: B sequences, T decisions."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Computed, Edit, Exact, Expect, Item, Loop, Measured, PromptTask
from assay.claims import addition, by_hand, probes
from assay.claims.probes.completions import Listed
from assay.claims.probes.estimators import bandit_gradient_of
from assay.claims.testbeds.language.enumerable import SIGNS, TOKENS
from assay.method import PLACES, Draw, Progress, Recipe, Scene, recipes
from assay.methods.kimi_k1_5 import LengthReward, OftenFailed, RestartedAdam, any_length, recipe
from assay.parts import Episodes
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.textfile import TextFile

TASK = probes.listed(Item("q", "7", "7"), Item("p", "7", "7"))


LETTERS = tuple(Item(sign, f"{place + 1}0", f"{place + 1}0") for place, sign in enumerate(SIGNS[:8]))


FREE = PromptTask("free", Listed(LETTERS), TOKENS, max_prompt=2, max_tokens=8, stops=("0",))
"""A letter is answered by any digits, then its own, then the 0 that ends the answer."""


LOGITS = torch.tensor([0.5, 0.3, 0.2]).double().log()


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    moved = torch.where(data.mask, seen.logp() - data.logp, 0.0).sum(1)
    residual = by_hand.centred(data) - moved
    return torch.stack([residual[rows].square().mean() for rows in by_hand.rows_of_groups(data)]).mean() / 2


def gap(ours: Recipe, lower: float = 0.0) -> float:
    made = [make() for make in probes.ANY_OUTCOME]
    below = [replace(data, reward=data.reward - lower) for data in made]
    return max(probes.formula_gap(replace(ours, rewards=()), data, loss_by_hand) for data in below)


def pull(ours: Recipe) -> Tensor:
    """Returns how strongly four answers that have drifted by s are raised."""
    data = probes.bandit_experience([0] * 4, [1.0, 0.0, 1.0, 0.0], torch.zeros(2))
    return probes.decision_weights(ours, data, data.logp + torch.tensor([[0.3], [-0.2], [0.0], [0.1]]))


def slope(ours: Recipe, *policy: float) -> Tensor:
    """Returns the largest slope at a policy of three arms, the first of which pays 1, pulled 5, 3 and 2 times."""
    data = probes.bandit_experience([0] * 5 + [1] * 3 + [2] * 2, [1.0] * 5 + [0.0] * 5, LOGITS)
    return bandit_gradient_of(ours, data, torch.tensor(policy).double().log()).abs().max()


def paid(ours: Recipe, step: int) -> list[float]:
    """Returns the rewards of right and wrong answers of 10, 20, 30 and 40 tokens, then of two of one length; a row that
    left training stands in each group.
    """
    said = [*("." * num + end for end in "78" for num in (8, 18, 28, 38)), "", "7", "8", "."]
    rows = probes.completed(TASK, said, [0] * 9 + [1] * 3, faults=[8, 11])
    return probes.rewarded(ours.at(Progress(step, 100)), TASK, rows).tolist()


def distance_from_formula(ours: Recipe) -> float:
    right, wrong = (0.5, 1 / 6, -1 / 6, -0.5), (0.0, 0.0, -1 / 6, -0.5)
    expected = [*(1.0 + 0.5 * one for one in right), *(0.5 * one for one in wrong), 0.0, 1.0, 0.0, 0.0]
    return probes.distance(list(paid(ours, step=20)), expected)


def priority_gap(ours: Recipe) -> float:
    """Returns how far the shares of a file's prompts with success rates 0, 0.5, 0.9 and 1 are from (1, 0.5, 0.1, 0) /
    1.6, those of 2000 starts beyond 0.03, and of solved prompts from 1/4; plus 1 for each start that stands twice, and
    for each of a generator's prompts that is out of order.
    """
    rows = tuple(Item(f"{place}", "1", "1") for place in range(4))
    scene = Scene(PromptTask("file", TextFile("", "", 0.0, 0, rows), CharacterTokenizer(), 9, 9), num_starts=1000)
    part = ours.curriculum
    assert isinstance(part, OftenFailed)

    def observe(prompts: list[int], scores: list[float]) -> None:
        data = probes.bandit_experience([0] * len(prompts), scores, torch.zeros(2))
        data = replace(data, mask=data.mask & (torch.arange(len(prompts)) < len(prompts) - 1).unsqueeze(1))
        start = torch.tensor(prompts) + 4 * torch.arange(len(prompts))
        part.observe(data.add({"start": start, "score": torch.tensor(scores)}), scene, state)

    state = part.init(scene)
    fresh = np.abs(part.shares(state) - 0.25).max()
    observe([0, 0, 1, 1, *[2] * 10, 3, 0], [-1.0, 0.0, 2.0, 0.0, *[1.0] * 9, 0.0, 1.0, 1.0])
    expected = np.array([1.0, 0.5, 0.1, 0.0]) / 1.6
    starts = np.concatenate([part(scene.given(draw=Draw(5, (time,))), state) for time in range(2)])
    drawn = np.bincount(starts % 4, minlength=4) / 2000
    wrong = np.abs(part.shares(state) - expected).max() + probes.worst(0.0, np.abs(drawn - expected).max() - 0.03)
    state = part.init(scene)
    observe([0, 1, 2, 3, 0], [1.0] * 5)
    solved = np.abs(part.shares(state) - 0.25).max()
    endless = Scene(addition(), num_starts=3)
    unordered = int((part(endless, part.init(endless)) != np.arange(3)).sum())
    return float((fresh + wrong + solved > 1e-9) + len(starts) - len(np.unique(starts)) + unordered)


def gap_to_fresh(ours: Recipe) -> float:
    """Returns the distance of the weights after two steps of the loop from those with a new optimizer
    between them; infinite if the second step moved nothing.
    """
    ours = replace(ours, rollout=Episodes(num_starts=2, group_size=4))
    kept, renewed = (Loop(ours, FREE, seed=3, num_steps=2) for _ in range(2))
    for loop in (kept, renewed):
        loop.step()
    before = kept.engine.flats["actor"].values.clone()
    stage = renewed.recipe.stages[0]
    renewed.engine.optimizers[stage.name] = stage.optimizer.init(renewed.engine.pieces(stage))
    for loop in (kept, renewed):
        loop.step()
    after, expected = (loop.engine.flats["actor"].values for loop in (kept, renewed))
    return float((after - expected).abs().max()) if bool((after != before).any()) else torch.inf


def cost(ours: Recipe, seed: int, steps: int = 40) -> float:
    """Returns the tokens for each right answer in the second half of a run where answers have any length up to 8."""
    loop = Loop(ours, FREE, seed=seed, num_steps=steps)
    logged = [loop.step().metrics for _ in range(steps)][steps // 2 :]
    return sum(row["length"] for row in logged) / sum(row["reward/verifier"] for row in logged)


def costs(ours: Recipe) -> Computed:
    """Returns the side of `cost`; small, with four steps, of which the last two are paid for their length."""
    return Computed(partial(cost, ours), small=partial(cost, ours, steps=4))


PULLED = torch.tensor([[0.0875], [-0.1], [0.125], [-0.1375]])


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe()), at_most=1e-9),
        Exact("its gradient is the formula's also where most rewards are negative",
              lambda: gap(recipe(), lower=0.5), at_most=1e-9),
        Exact("drifted answers are pulled back", lambda: (pull(recipe(tau=0.5)) - PULLED).abs().max(),
              at_most=1e-6),
        Exact("lengths are paid by the formula", lambda: distance_from_formula(recipe()), at_most=1e-6),
        Exact("lengths are not paid in the first fifth of a run",
              lambda: paid(recipe(), step=0)[0], equals=1.0, of="schedules"),
        Exact("prompts are drawn in proportion to 1 - success", lambda: priority_gap(recipe()), at_most=0.0),
        Exact("every batch begins with a fresh optimizer",
              lambda: max(gap_to_fresh(recipe(PLACES)), gap_to_fresh(recipe(PLACES).set("epochs", 3)),
                          gap_to_fresh(recipe(PLACES).set("source.minibatches", 2))), equals=0.0, tolerance=0.0),
        Measured("it spends fewer tokens for a right answer than without the length reward, where waiting is free", "",
                 costs(recipe(PLACES)), costs(any_length(PLACES)),
                 expect=Expect.BELOW, seeds=10, minutes=3.0, looks=2, about=About.COMPONENT),
        Measured("with equally many generated tokens it is right more often than grpo", "levels", recipe(PLACES),
                 recipes.grpo(PLACES), AtEqual("pass_rate", "decisions_total"), seeds=5, minutes=6.0, steps=60, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("a short wrong answer is paid", LengthReward.rescored, "worth.clamp(max=0.0)", "worth"),
        Edit("long answers are paid", LengthReward.rescored, "length - shortest", "-negative - length"),
        Edit("solved prompts come back", OftenFailed.shares, "1.0 - state", "state"),
        Edit("repeated visits share a start", OftenFailed.__call__, "len(visits) * visits[prompt]", "0"),
        Edit("the optimizer is kept", RestartedAdam.begin, "*state[\"first\"], *state[\"second\"], ", ""),
    ),
)
