"""sft: maximum likelihood of demonstrations.

    loss = -1/(sum_i |y_i|) sum_i sum_t log pi(y_t | prompt, y_<t)

Prompts are context, never targets. It is the warm-up of every language method.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Gain, Measured, Method
from assay.recipes.defaults import LANGUAGE, PREFERENCES, TABLE

LOGITS_A = torch.tensor([0.5, -0.5, 0.1])


def distance_from_cross_entropy() -> torch.Tensor:
    experience = probes.bandit_experience([0, 2, 1], [0.0, 0.0, 0.0], LOGITS_A)
    ours = probes.loss(recipes.sft(), experience, experience.logp).loss
    theirs = torch.nn.functional.cross_entropy(LOGITS_A.double().expand(3, -1), experience.action[:, 0])
    return (ours - theirs).abs()


METHOD = Method(
    paper="maximum likelihood",
    recipe=recipes.sft,
    worlds=(LANGUAGE, PREFERENCES, TABLE),
    default_task="countdown",
    family="imitation",
    claims=(
        Exact("its loss is the cross-entropy", distance_from_cross_entropy, equals=0.0),
        Measured(
            "learns: held-out score rises",
            "sorting-5",
            recipes.sft(),
            0.0,
            metric=Gain(),
            seeds=5,
            minutes=1,
            steps=100,
        ),
    ),
)
