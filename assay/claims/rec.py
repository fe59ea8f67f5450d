"""The formula behind rec's exact claims. Axes: B sequences, T decisions."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Area, Claims, Edit, Exact, Measured, by_hand, probes
from assay.method import STALE, Experience, random
from assay.methods.rec import METHOD, EveryDecision, Importance, MaskedScore, OneSide, recipe


def forward(log_ratio: Tensor) -> Tensor:
    """-(log pi - log old): unbiased for KL(old || pi) on samples of old; its gradient is that of the likelihood."""
    return -log_ratio


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


def gap(variant: str = "", formula: probes.Formula = loss_by_hand) -> float:
    ours = METHOD.variants[variant]() if variant else recipe()
    return probes.formula_gap(ours, probes.sequences(num=128), formula)


OURS, WEIGHED, BARE = (
    one.set("rollout.delay", 40)
    for one in (recipe(STALE), recipe(STALE, weight=Importance()), recipe(STALE, keeps=EveryDecision()))
)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's", gap, at_most=1e-9),
        Exact("the gradient of rec-is is its formula's",
              lambda: gap("rec-is", partial(loss_by_hand, weighted=True)), at_most=1e-9),
        Exact("the gradient of opmd is its formula's",
              lambda: gap("opmd", partial(loss_by_hand, bounded=False)), at_most=1e-9, of="opmd"),
        Exact("the gradient of red-drop is its formula's",
              lambda: gap("red-drop", partial(loss_by_hand, dropped=True)), at_most=1e-9),
        Measured(
            "from answers of 40 updates ago importance weights do not help: mean pass rate at most 0.01 lower without",
            "stale", OURS, WEIGHED, Area("pass_rate"), margin=-0.01, seeds=5, minutes=2.0, steps=100,
            about=About.HEADLINE,
        ),
        Measured(
            "from answers of 40 updates ago it learns faster than without the mask: mean pass rate over the run",
            "stale", OURS, BARE, Area("pass_rate"), seeds=5, minutes=2.0, steps=100, about=About.HEADLINE,
        ),
    ),
    mutants=(
        Edit("both sides are masked", OneSide.__call__,
             "torch.where(advantage > 0, below, torch.where(advantage < 0, above, below | above))", "below & above"),
        Edit("sides exchanged", OneSide.__call__,
             "torch.where(advantage > 0, below, ", "torch.where(advantage < 0, below, "),
        Edit("importance weights", MaskedScore.__call__, "self.weight(ratio, advantage)", "ratio"),
        Edit("a clip of the value", MaskedScore.__call__, "torch.where(kept, logp, logp.detach())", "logp"),
    ),
)
