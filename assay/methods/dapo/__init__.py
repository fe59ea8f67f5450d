"""dapo: grpo with a higher upper clip, a token mean, and resampling of groups without signal.

    loss = -1/(sum_i |y_i|) sum_i sum_t min(rho_t A_i, clip(rho_t, 1 - 0.2, 1 + 0.28) A_i)

Yu et al. 2025. Clip-higher lets unlikely tokens grow; the token mean lets long answers count in full; dynamic
sampling keeps every group informative.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Expect, Measured, Method
from assay.recipes.defaults import EVERY

LOGITS_A = torch.zeros(2)


def push_at(ratio: float) -> torch.Tensor:
    """Returns the gradient of a correct answer at this ratio."""
    experience = probes.bandit_experience([0, 1], [1.0, 0.0], LOGITS_A)
    return probes.decision_weights(recipes.dapo(), experience, experience.logp + torch.tensor([[ratio], [1.0]]).log())[
        0, 0
    ]


def kept_without_signal() -> int:
    experience = probes.bandit_experience([0, 1, 0, 1], [1.0, 1.0, 1.0, 0.0], LOGITS_A, members=2)
    select = recipes.dapo().select
    assert select is not None
    return int((select(experience).reward.sum(1) > 1.0 - 1e-6).sum()) - 1


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
        Exact("a ratio of 1.25 still learns", lambda: push_at(1.25), at_least=1e-3),
        Exact("a ratio of 1.30 does not", lambda: push_at(1.30), equals=0.0),
        Exact("a group with equal rewards is dropped", kept_without_signal, equals=0.0),
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
)
