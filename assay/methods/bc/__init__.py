"""bc: behaviour cloning, maximum likelihood of an expert's actions.

    loss = -1/(sum_i T_i) sum_i sum_t log pi(a_t | s_t)

Pomerleau 1988. The same objective part as sft; a deterministic actor makes it least squares.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE


def distance_from_sft() -> torch.Tensor:
    experience = probes.bandit_experience([0, 1, 1], [0.0, 0.0, 0.0], torch.tensor([0.5, -0.5]))
    ours, theirs = (probes.loss(base(), experience, experience.logp).loss for base in (recipes.bc, recipes.sft))
    return (ours - theirs).abs()


METHOD = Method(
    paper="Pomerleau 1988",
    recipe=recipes.bc,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="imitation",
    base=recipes.sft,
    aliases=(
        "behaviour-cloning",
        "behavior-cloning",
    ),
    departures=("expert episodes come from the task's scripted expert unless a dataset is the task",),
    claims=(
        Exact("its loss is sft's", distance_from_sft, equals=0.0),
        Measured("imitates a perfect expert", "cartpole", recipes.bc(), 475.0, seeds=5, minutes=1),
    ),
)
