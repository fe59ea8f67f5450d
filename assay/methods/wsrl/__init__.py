"""wsrl: offline values, a warm-up with the frozen policy, then fast online learning without the offline data.

    offline: CQL on a dataset -> `warmup` decisions of the frozen policy into an empty replay, no update -> online:
    critic loss = sum_i (Q_i(s, a) - r - discount * min over a random pair k of Q'_k(s', a'))^2 / 2, ten critics,
    four such steps for each decision and each step of the actor, whose loss = temperature * log pi - min_i Q_i

Zhou et al. 2025. The warm-up shows the critics the online distribution before any update; afterwards there is no
pessimism and no offline data. `retain` is the share of offline data in every batch: 0 here, a half in RLPD.
"""

from functools import partial
from typing import Any

import torch

from assay import recipes
from assay.claims.claim import Dip, Exact, Measured, Method
from assay.core.record import Draw, Experience
from assay.core.slots import ALONE, Scene
from assay.methods.wsrl.base import LOG, wsrl
from assay.parts.sources.logged import Log
from assay.parts.targets.one_step import chosen
from assay.recipes.defaults import CONTINUOUS

E = 10


def subset_gap() -> torch.Tensor:
    """Returns the mean minimum of all pairs, drawn with replacement, minus its formula: the k-th smallest critic has
    weight ((E - k + 1)^2 - (E - k)^2) / E^2.
    """
    values = torch.tensor([3.0, -1.0, 0.5, 7.0, 2.0, -4.0, 9.0, 1.0, 5.0, -2.0]).double()
    middle = (torch.arange(E) + 0.5) / E
    pairs = torch.cartesian_prod(middle, middle).unsqueeze(1)
    found = chosen(values.view(E, 1, 1).expand(E, E * E, 1), pairs).amin(0).mean()
    k = torch.arange(1, E + 1)
    return found - (values.sort().values * ((E - k + 1) ** 2 - (E - k) ** 2) / E**2).sum()


def batches(log: Log, warmup: int = 40, decisions: int = 8, steps: int = 8) -> tuple[int, torch.Tensor]:
    """Returns (transitions stored at the first batch, that batch's rewards); without a task no dataset can be read."""
    source: Any = wsrl(warmup=warmup, log=log).source
    state = source.init(ALONE)
    first = torch.tensor([True, False]).expand(decisions, 2)
    for step in range(steps):
        reward = torch.arange(decisions).unsqueeze(1) + 100.0 * step * first
        seen, no = {"observation": torch.zeros(decisions, 2, 3)}, torch.zeros_like(first)
        fresh = Experience(seen, torch.zeros(decisions, 2, 1), first, 0 * reward, reward, no, no)
        for batch in source(Scene(draw=Draw(0, (step,)), fresh=fresh), state):
            return (step + 1) * decisions, batch.reward
    return 0, torch.zeros(1)


METHOD = Method(
    paper="arXiv:2412.07762",
    recipe=wsrl,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.sac,
    variants={"retained-data": partial(wsrl, retain=0.5)},
    departures=(
        "pairs of critics are drawn for each decision, not once for a minibatch: the same target in expectation",
        "the actor's step sees 64 rows, one of the four critic steps' batches, not all four; entropy at s, not at s'",
        "parameters, targets and temperature are transferred, Adam's moments are not",
        "no phantom steps: the authors' optimizers also step on zero gradients",
        "CQL, not Cal-QL, for 1,000 updates (250,000); 800 decisions of warm-up (5,000)",
        "discount 0.95, target networks at rate 0.02 (0.005), small networks and batches",
    ),
    claims=(
        Exact("a pair of critics weighs the k-th smallest as enumerated", subset_gap, equals=0.0, tolerance=1e-9),
        Exact("the first update sees the warm-up and nothing else", lambda: batches(LOG)[0], equals=40.0),
        Exact("another log changes no batch",
              lambda: (batches(LOG)[1] - batches(Log(9, 0.3))[1]).abs().max(), equals=0.0),
        Measured("less is lost at the onset than without a warm-up", "pendulum", wsrl(), wsrl(warmup=64), metric=Dip(),
                 seeds=5, minutes=5.0, steps=140),
    ),
)  # fmt: skip
