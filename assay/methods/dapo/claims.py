"""dapo's loss by hand, and its soft limit of the length on given answers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.engine.loop import Loop
from assay.recipes.defaults import TABLE
from assay.tasks.language.prompts import Item
from assay.tasks.tabular.bandit import bandit

DATA = probes.sequences(num=24)
GROUP = torch.arange(24).unsqueeze(1) // 4
REWARD = torch.where((GROUP == 1) | (GROUP == 5), DATA.terminal | DATA.truncated, DATA.reward)
DATA = replace(DATA, reward=torch.where(DATA.mask & (GROUP == 2), 0.0, REWARD))
"""Six groups: all right in the second and the last, where one row has no decision; all wrong in the third."""
LENGTHS = (2, 10, 16, 17, 18, 19, 20)
"""Tokens of right answers, the end token included."""


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    differs = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one != one[0]).any().double().expand_as(one))
    kept = replace(data, mask=data.mask & (differs > 0).unsqueeze(1))
    advantage = by_hand.standardised(data).unsqueeze(1)
    return -by_hand.mean_of_decisions(by_hand.clipped(by_hand.ratio(seen), advantage, low=0.2, high=0.28), kept)


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
