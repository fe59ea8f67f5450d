"""dapo's loss by hand, and its soft limit of the length on given answers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.record import Experience
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.engine.loop import Loop
from assay.recipes.defaults import TABLE
from assay.tasks.language.prompts import Item
from assay.tasks.tabular.bandit import bandit

LENGTHS = (2, 10, 16, 17, 18, 19, 20)
"""Tokens of right answers, the end token included."""


def some_without_signal() -> Experience:
    """Returns six groups: the second and the last, where a row has no decision, are all right, the third all wrong."""
    data, group = probes.sequences(num=24), torch.arange(24).unsqueeze(1) // 4
    reward = torch.where((group == 1) | (group == 5), data.terminal | data.truncated, data.reward)
    return replace(data, reward=torch.where(data.mask & (group == 2), 0.0, reward))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    differs = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one != one[0]).any().double().expand_as(one))
    return by_hand.token_loss(seen, by_hand.standardised(data), high=0.28, kept=differs > 0)


def rounds_without_signal() -> float:
    """Returns the decisions sampled for one step where all rewards are equal, in batches of 8 starts x 8 samples."""
    loop = Loop(recipes.dapo(TABLE), bandit((0.5, 0.5)), seed=0, num_steps=1)
    loop.step()
    return loop.progress.decisions / 64


def distance_from_ramp(shown: int) -> Tensor:
    """Returns how far the advantages of one group are from those by hand, at a limit of 20 tokens and with
    demonstrations of up to `shown` tokens. Besides right answers there are one that is cut and a wrong one
    of 18 tokens.
    """
    task = probes.listed(Item("q", "7", "." * (shown - 2) + "7"), Item("r", "7", "7"), max_tokens=20)
    said = [*("." * (length - 2) + "7" for length in LENGTHS), "." * 19 + "7", "." * 17]
    found = probes.completed(task, said, [0] * len(said), cut=[len(LENGTHS)])
    for part in (Verifier(), *recipes.dapo().credit):
        found = part(found, Scene(task))
    begin = max(16, shown)
    total = torch.tensor([1.0 - max(0, length - begin) / max(1, 20 - begin) for length in (*LENGTHS, 20, 18)])
    total[-1] -= 1.0
    advantage = (total - total.mean()) / (total.std() + 1e-4)
    return torch.where(found.mask, found.column("advantage") - advantage.unsqueeze(1), 0.0).abs().max()
