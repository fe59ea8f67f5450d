"""The formula behind rec's exact claims. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.claims import by_hand, probes
from assay.core.record import Experience
from assay.core.slots.scene import ALONE
from assay.ops import random


def loss_by_hand(
    seen: probes.Seen, weighted: bool = False, bounded: bool = True, dropped: bool = False
) -> torch.Tensor:
    """Returns the loss; without the bound it is OPMD, which has a penalty of its own."""
    data, ratio = seen.experience, by_hand.ratio(seen)
    if dropped:
        data = without_surplus(data)
    advantage = by_hand.centred(data).unsqueeze(1)
    moved = ((advantage > 0) & (ratio > 1.2)) | ((advantage < 0) & (ratio < 0.8))
    weight = (ratio.detach() if weighted else torch.ones_like(ratio)) * ~(moved & bounded)
    penalty = 0.0 if bounded else 0.1 * ratio.log().square() / 2
    return by_hand.mean_of_decisions(penalty - advantage * weight * seen.logp(), data)


def without_surplus(data: Experience) -> Experience:
    """Returns the data with as many rows below their group's mean as there are others: those with the smallest lots."""
    mask, reward, row = data.mask.clone(), by_hand.outcome(data), np.arange(len(data))
    lot = random.uniform(ALONE.draw, row // 4, row % 4)
    for group in row.reshape(-1, 4).tolist():
        present = [one for one in group if data.mask[one].any()]
        bad = sorted((one for one in present if reward[one] < reward[present].mean()), key=lambda one: lot[one])
        mask[bad[len(present) - len(bad) :]] = False
    return replace(data, mask=mask)
