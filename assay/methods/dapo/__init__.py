"""dapo: grpo with a higher upper clip, a token mean, and resampling of groups without signal.

    loss = -1/(sum_i |y_i|) sum_i sum_t min(rho_t A_i, clip(rho_t, 1 - 0.2, 1 + 0.28) A_i)

Yu et al. 2025. Clip-higher lets unlikely tokens grow; the token mean lets long answers count in full; dynamic
sampling keeps every group informative.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Edit, Exact, Expect, Measured, Method
from assay.claims.probes import by_hand
from assay.engine.loop import Loop
from assay.parts.credit.shaping import Informative
from assay.recipes.defaults import EVERY, TABLE
from assay.tasks.tabular.bandit import bandit

DATA = probes.sequences(num=24)
GROUP = torch.arange(24).unsqueeze(1) // 4
REWARD = torch.where((GROUP == 1) | (GROUP == 5), DATA.terminal | DATA.truncated, DATA.reward)
DATA = replace(DATA, reward=torch.where(DATA.mask & (GROUP == 2), 0.0, REWARD))
"""Six groups: all right in the second and the last, where one row has no decision; all wrong in the third."""


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
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


METHOD = Method(
    paper="arXiv:2503.14476",
    recipe=recipes.dapo,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "at most three rounds of dynamic sampling a step",
        "the soft length penalty is the part OverlongPenalty, off by default",
    ),
    claims=(
        Exact(
            "off-policy its gradient is the formula's, without groups of equal rewards",
            lambda: probes.formula_gap(recipes.dapo(), DATA, loss_by_hand),
            at_most=1e-9,
        ),
        Exact("groups of equal rewards are sampled again, in three rounds", rounds_without_signal, equals=3.0),
        Measured(
            "fewer groups without signal reach the update than in grpo",
            "sorting-5",
            recipes.dapo(),
            recipes.grpo(),
            metric=Average("zero_advantage_groups"),
            expect=Expect.BELOW,
            margin=0.05,
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
        ),
    ),
    mutants=(
        Edit("grpo's upper clip", recipes.dapo, "0.28", "0.2"),
        Edit("one round of sampling", recipes.dapo, "Informative()", "Informative(max_rounds=1)"),
        Edit(
            "groups that are all right are kept",
            Informative.apply,
            "groups.differs(groups.outcome(experience), groups.row_groups(experience))",
            "groups.outcome(experience) > 0",
        ),
    ),
)
