"""Off-policy with a dataset in every batch: many critics with layer norm, targets of two of them."""

from __future__ import annotations

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import Source
from assay.models.bodies.normalised import Normalised
from assay.models.heads.bounded import SquashedGaussian
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy, Temperature
from assay.parts.critics.td import Td
from assay.parts.objectives.pathwise import MatchEntropy, MaximizeSoftQ
from assay.parts.rollouts.episodes import Fragments
from assay.parts.targets.one_step import OwnAction

STEP = Adam(learning_rate=1e-3, clip_norm=0.0)
FOLLOWS = {"q_target": Copy(of="q", rate=0.02)}
BODY = Normalised((64, 64))


def rlpd(source: Source, discount: float = 0.95, averaged: bool = False) -> Recipe:
    """RLPD (arXiv:2302.02948): SAC with ten critics, targets of two of them without entropy, four critic steps for each
    decision and each step of the actor, on batches that `source` fills with a dataset by half.

    `averaged` lets the actor climb the mean of the critics instead of their minimum.
    """
    climb = MaximizeSoftQ(averaged=averaged)
    return Recipe(
        name="rlpd",
        actor=Policy(BODY, SquashedGaussian()),
        critics={"q": Critic(BODY, ActionValue(10)), "temperature": Temperature(1.0)},
        copies=FOLLOWS,
        rollout=Fragments(num_envs=1, steps=8),
        source=source,
        stages=(
            Stage("critic", trains=("q",), critic=(Td(OwnAction(discount, subset=2)),), optimizer=STEP),
            Stage("actor", ("actor", "temperature"), (climb, MatchEntropy(-1.0)), optimizer=STEP, every=4),
        ),
        steps=180,
    )
