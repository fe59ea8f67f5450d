"""dpo: classifies preferences by log-ratios to a reference; no reward model, no critic.

    loss = -mean over pairs of log sigmoid(beta * (h(chosen) - h(rejected))),  h(y) = log pi(y) - log pi_ref(y)

Rafailov et al. 2023. Pairs come from a file, or from sampling any verifiable task: the best against the worst answer
of each group. At the reference every pair has loss log 2 and a gradient of weight beta / 2.
"""

import math

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Gain, Measured, Method
from assay.recipes.defaults import EVERY, PREFERENCES

LOGITS_A = torch.tensor([0.5, -0.5])


def at_the_reference() -> probes.Probe:
    experience = probes.bandit_experience([0, 1], [1.0, 0.0], LOGITS_A)
    logp = experience.logp.clone().requires_grad_()
    return probes.loss(recipes.dpo(), experience, logp, logp_ref=experience.logp)


def pull_at_the_reference() -> torch.Tensor:
    experience = probes.bandit_experience([0, 1], [1.0, 0.0], LOGITS_A)
    return probes.decision_weights(recipes.dpo(beta=0.1), experience, experience.logp, logp_ref=experience.logp)[0, 0]


METHOD = Method(
    paper="arXiv:2305.18290",
    recipe=recipes.dpo,
    worlds=(*EVERY, PREFERENCES),
    default_task="countdown",
    family="preference",
    departures=("pairs are sampled from the current policy at every step unless a file of pairs is the task",),
    claims=(
        Exact("at the reference a pair costs log 2", lambda: at_the_reference().loss, equals=math.log(2.0)),
        Exact("at the reference a chosen answer is pulled by beta / 2", pull_at_the_reference, equals=0.05),
        Measured(
            "learns: held-out score rises",
            "sorting-5",
            recipes.dpo(),
            0.0,
            metric=Gain(),
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
        ),
    ),
)
