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
from assay.parts.sources.logged import Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.targets.one_step import OwnAction

OPTIMIZER = Adam(learning_rate=1e-3, clip_norm=0.0)
TARGETS = {"q_target": Copy(of="q", rate=0.02)}
CRITIC_BODY = Normalised((64, 64))


def mixed(log: Logged, warmup: int, kept: float = 0.5) -> Retained:
    """Returns batches of 64 rows, a share `kept` of them a dataset's and the others from replay, once that holds
    `warmup` decisions; four for each decision.
    """
    return Retained(Replay(capacity=100_000, batch=64, updates=32, warmup=warmup), log, kept)


def rlpd(
    source: Source,
    discount: float = 0.95,
    averaged: bool = False,
    temperature: float = 1.0,
    entropy: float = -1.0,
    critics: int = 10,
) -> Recipe:
    """RLPD (arXiv:2302.02948): SAC with ten critics, targets of two of them without entropy, four critic steps for each
    decision and each step of the actor, on batches that `source` fills with a dataset by half. Targets of two `critics`
    are of both.

    `averaged` lets the actor climb the mean of the critics instead of their minimum. `temperature` is the first one; it
    moves the entropy of the policy to `entropy` for each dimension of an action.
    """
    climb, target = MaximizeSoftQ(averaged=averaged), OwnAction(discount, subset=2 if critics > 2 else 0)
    return Recipe(
        name="rlpd",
        actor=Policy(CRITIC_BODY, SquashedGaussian()),
        critics={"q": Critic(CRITIC_BODY, ActionValue(critics)), "temperature": Temperature(temperature)},
        copies=TARGETS,
        rollout=Fragments(num_envs=1, steps=8),
        source=source,
        stages=(
            Stage("critic", trains=("q",), critic=(Td(target),), optimizer=OPTIMIZER),
            Stage("actor", ("actor", "temperature"), (climb, MatchEntropy(entropy)), optimizer=OPTIMIZER, every=4),
        ),
        steps=180,
    )
