"""Payoffs, shares and starts of sources by hand."""

from contextlib import suppress
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import torch

from assay.claims import About, Average, Claims, Exact, Item, Measured, PromptTask, by_hand, probes, same_gradient
from assay.claims import sorting
from assay.method import AssayError, Draw, Recipe, Scene, recipes
from assay.methods.dump import SourceBandit, recipe
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.mixture import easy_and_hard
from assay.tasks.language.textfile import TextFile
from assay.tasks.tabular.bandit import bandit as bandit_task


def payoff_error(recipe: Recipe) -> float:
    """Returns mean |A| of grpo's groups of 8 with k correct answers minus 2 sqrt(p (1 - p) 7/8), p = k/8."""
    errors = []
    for right in range(9):
        rewards = [1.0] * right + [0.0] * (8 - right)
        group = probes.credited(recipe, probes.bandit_experience([0] * 8, rewards, torch.zeros(2)))
        size, p = group.column("advantage").abs().mean(), right / 8
        errors.append(abs(float(size) - 2.0 * sqrt(p * (1.0 - p) * 7 / 8)))
    return probes.worst(*errors)


def drawn(recipe: Recipe, rounds: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns 2000 starts of two sources, and the shares, after the recipe's curriculum has seen these mean advantages,
    which belong to sources 0, 1, 0, 1, ... in each round.
    """
    bandit, scene = recipe.curriculum, Scene(easy_and_hard())
    assert isinstance(bandit, SourceBandit)
    state = bandit.init(scene)
    for payoff in rounds:
        record = probes.bandit_experience([0] * len(payoff), payoff, torch.zeros(2))
        sign = (-1.0) ** torch.arange(len(payoff)).unsqueeze(1)
        # Two decisions, a number in a masked column, and a last row without any decision.
        advantage = torch.cat((record.reward * sign * torch.tensor([1.5, 0.5]), torch.full_like(sign, 9.0)), 1)
        mask = torch.tensor([True, True, False]).repeat(len(payoff) + 1, 1)
        mask[-1] = False
        rows = record.rows(torch.tensor([*range(len(payoff)), 0]))
        columns = {"advantage": advantage[[*range(len(payoff)), 0]], "start": torch.arange(len(payoff) + 1)}
        bandit.observe(replace(rows, mask=mask).add(columns), scene, state)
    shares = bandit.probabilities(state)
    return bandit(scene.given(num_starts=2000, draw=Draw(5)), state), shares


def distance_from_shares(recipe: Recipe) -> float:
    """Returns how far the share of source 0 is from softmax(U / 0.1), U by hand, and that of 2000 starts beyond two
    deviations: with equal and unequal counts, nothing seen, and values beyond the last 300.
    """
    cases = [[[0.3, 0.2] * 50], [[0.4, 0.45] * 20, [0.4] * 1], [], [[0.9, 0.1] * 40, [0.1, 0.2] * 280]]
    worst = 0.0
    for rounds in cases:
        seen: tuple[list[float], list[float]] = ([], [])
        for payoff in rounds:
            for place, value in enumerate(payoff):
                seen[place % 2].append(value)
        total = max(1, len(seen[0]) + len(seen[1]))
        bound = [
            sum(own[-300:]) / max(1, len(own[-300:])) + sqrt(2 * log(total + 1) / (len(own) + 1)) for own in seen
        ]
        share = 1 / (1 + exp((bound[1] - bound[0]) / 0.1))
        starts, shares = drawn(recipe, rounds)
        worst = probes.worst(worst, abs(shares[0] - share), abs(float((starts % 2 == 0).mean()) - share) - 0.025)
    return worst


def foreign_rows(recipe: Recipe) -> float:
    """Returns the share of starts that are not the next row of the source that was drawn, over several rounds of a file
    whose sources have 2 and 5 rows, or that stand twice in it.
    """
    rows = tuple(Item(f"{place}", "1", "1", {"source": "ab"[place % 7 in (1, 2, 4, 5, 6)]}) for place in range(7))
    task = PromptTask("file", TextFile("", "", 0.0, 0, rows), CharacterTokenizer(), 9, 9)
    bandit, scene = recipe.curriculum, Scene(task, num_starts=40)
    assert bandit is not None
    starts = np.concatenate([bandit(scene, state) for state in [bandit.init(scene)] for _ in range(3)]).tolist()
    mine = {name: [one for one in starts if task.items.item(one, 0).facts["source"] == name] for name in "ab"}
    own = {"a": (0, 3), "b": (1, 2, 4, 5, 6)}
    wrong = [one % 7 != own[name][k % len(own[name])] for name in "ab" for k, one in enumerate(mine[name])]
    return sum(wrong) / len(wrong) + len(starts) - len(set(starts)) + float(min(map(len, mine.values())) == 0)


def accepted_without_sources(recipe: Recipe) -> float:
    """Returns how many of two tasks without sources are accepted: prompts of one kind, and states."""
    accepted = 0
    for task in (sorting(3), bandit_task()):
        with suppress(AssayError):
            recipe.curriculum.init(Scene(task))  # type: ignore[union-attr]
            accepted += 1
    return accepted


CLAIMS = Claims(
    claims=(
        Exact("a source pays 2 sqrt(p (1 - p) (G - 1) / G): most at p = 1/2", lambda: payoff_error(recipe()),
              equals=0.0, tolerance=1e-3),
        same_gradient("off-policy its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("starts are drawn at softmax(U / 0.1) of the last 300 |mean A| and all counts",
              lambda: distance_from_shares(recipe()), at_most=1e-6),
        Exact("every start is the next row of its source, in files too", lambda: foreign_rows(recipe()), equals=0.0,
              of="sources"),
        Exact("a task without sources is refused", lambda: accepted_without_sources(recipe()), equals=0.0,
              of="refusals"),
        Measured("its mean held-out score over the run is higher than with equal shares", "sorting-3-to-8", recipe(),
                 recipes.grpo(), metric=Average("evaluation"), seeds=5, minutes=5.0, steps=100, warmup=60,
                 about=About.HEADLINE),
    ),
)
