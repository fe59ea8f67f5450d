"""Offline bases: IQL, CQL, with the settings of their papers' losses, on a log of scripted experts.

Networks and batches are small and Adam's rate is 1e-3, for thousands of updates instead of a million.
"""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.models.bounded import Squashed
from assay.parts.critics.conservative import Conservative, ConservativeChoices
from assay.parts.critics.dual import ActionValue
from assay.parts.critics.q import Temperature, TwinQ
from assay.parts.critics.td import Td
from assay.parts.fits.squared import Expectile
from assay.parts.objectives.pathwise import MatchEntropy, MaximizeSoftQ
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import NextValue, OwnAction
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.off_policy import dqn
from assay.recipes.worlds import CONTINUOUS, CONTROL, TABLE, World

STEP = Adam(learning_rate=1e-3, clip_norm=0.0)
LOG = Log(episodes=50, noise=0.5, reward_scale=0.1)
"""10,000 transitions of the pendulum: every second action is random, rewards are tenths."""


def iql(world: World = CONTROL, log: Log = LOG, level: float = 0.7, sharpness: float = 3.0) -> Recipe:
    """IQL (arXiv:2110.06169): an expectile of recorded values, one-step targets, advantage-weighted cloning."""
    step = Adam(0.05, clip_norm=0.0) if world is TABLE else STEP
    return Recipe(
        name="iql",
        actor=world.actor,
        critics={"value": world.value, "q": ActionValue()},
        copies={"q_target": Copy(of="q", rate=0.005)},
        source=Logged((log,), batch=128),
        stages=(
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(level), OfState()),), optimizer=step),
            Stage("actor", ("actor",), (AdvantageRegression(sharpness),), optimizer=step),
            Stage("q", trains=("q",), critic=(Td(NextValue()),), optimizer=step),
        ),
        steps=200,
    )


def cql(world: World = CONTINUOUS, log: Log = LOG, weight: float = 1.0) -> Recipe:
    """CQL(H) (arXiv:2006.04779): SAC on a log (double DQN for choices), held below what was not recorded."""
    return conservative_dqn(log, weight) if world is CONTROL else conservative_sac(log, weight)


def conservative_sac(log: Log, weight: float) -> Recipe:
    """CQL for torques."""
    return Recipe(
        name="cql",
        actor=Squashed((64, 64)),
        critics={"q": TwinQ((64, 64)), "temperature": Temperature(1.0)},
        copies={"q_target": Copy(of="q", rate=0.005)},
        source=Logged((log,), batch=128),
        stages=(
            Stage("critic", trains=("q",), critic=(Td(OwnAction()), Conservative(weight)), optimizer=STEP),
            Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(), MatchEntropy(-1.0)), optimizer=STEP),
        ),
        steps=200,
    )


def conservative_dqn(log: Log, weight: float) -> Recipe:
    """CQL for choices."""
    base = dqn()
    stage = replace(base.stages[0], critic=(*base.stages[0].critic, ConservativeChoices(weight)), optimizer=STEP)
    source = Logged((log,), batch=128)
    return replace(base, name="cql", rollout=None, source=source, stages=(stage,), steps=200)
