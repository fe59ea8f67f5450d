"""Offline bases: TD3+BC, IQL, CQL, with the settings of their papers' losses, on a log of scripted experts.

Networks and batches are small and Adam's rate is 1e-3, for thousands of updates instead of a million.
"""

from __future__ import annotations

from dataclasses import replace

from assay.actors.bounded import Deterministic, Squashed
from assay.bases.off_policy import dqn, td3
from assay.critics.conservative import Conservative, ConservativeChoices, Expectile, ToOwnAction
from assay.critics.dual import ActionValue, ToNextValue
from assay.critics.q import DoubleQLearning, Temperature, TwinQ
from assay.objectives.pathwise import MatchEntropy, MaximizeSoftQ
from assay.objectives.scaled import MaximizeScaledQ
from assay.objectives.weighted import AdvantageRegression
from assay.optimizers import Adam
from assay.recipe import Copy, Recipe, Stage
from assay.regularizers.nearness import NearRecorded
from assay.sources.logged import Log, Logged
from assay.worlds import CONTINUOUS, CONTROL, TABLE, World

STEP = Adam(learning_rate=1e-3, clip_norm=0.0)
LOG = Log(episodes=50, noise=0.5, reward_scale=0.1)
"""10,000 transitions of the pendulum: every second action is random, rewards are tenths."""


def td3_bc(world: World = CONTINUOUS, log: Log = LOG, weight: float = 2.5) -> Recipe:
    """TD3+BC (arXiv:2106.06860): TD3 on a log, its actor held to the recorded actions."""
    base, source = td3(world), Logged((log,), batch=128)
    critic, actor = (replace(stage, optimizer=STEP) for stage in base.stages)
    actor = replace(actor, objective=(MaximizeScaledQ(weight),), regularizers=(NearRecorded(),))
    base = replace(base, actor=Deterministic((64, 64)), critics={"q": TwinQ((64, 64))})
    return replace(base, name="td3_bc", rollout=None, source=source, stages=(critic, actor), steps=200)


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
            Stage("value", trains=("value",), critic=(Expectile(level),), optimizer=step),
            Stage("actor", ("actor",), (AdvantageRegression(sharpness),), optimizer=step),
            Stage("q", trains=("q",), critic=(ToNextValue(),), optimizer=step),
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
            Stage("critic", trains=("q",), critic=(ToOwnAction(), Conservative(weight)), optimizer=STEP),
            Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(), MatchEntropy(-1.0)), optimizer=STEP),
        ),
        steps=200,
    )


def conservative_dqn(log: Log, weight: float) -> Recipe:
    """CQL for choices."""
    base = dqn()
    stage = replace(base.stages[0], critic=(DoubleQLearning(0.99), ConservativeChoices(weight)), optimizer=STEP)
    source = Logged((log,), batch=128)
    return replace(base, name="cql", rollout=None, source=source, stages=(stage,), steps=200)
