"""Bases that learn from a fixed log: one conjugate gives the losses of XQL, f-DVL and ReCOIL."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Origin
from assay.methods.dual_rl.conjugates import ReverseKl
from assay.methods.dual_rl.critics import MatchMixture
from assay.methods.dual_rl.fits import ImplicitMaximum
from assay.parts.critics.dual import ActionValue
from assay.parts.critics.td import Td
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import NextValue
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.worlds import CONTROL, TABLE, World

XQL = ImplicitMaximum(ReverseKl(), level=0.5, clip=7.0)
"""Gumbel regression as its authors bound it."""


def f_dvl(world: World = CONTROL, maximum: ImplicitMaximum = ImplicitMaximum(), reward_scale: float = 1.0) -> Recipe:
    """f-DVL (arXiv:2302.08560): an implicit maximum of Q, one-step targets, advantage-weighted regression.

    `reward_scale` multiplies rewards, and what is measured in rewards: sharpness, and the step size of tables.
    """
    rate = 0.05 * reward_scale if world is TABLE else 1e-3
    critic, actor = Adam(rate, clip_norm=0.0), Adam(0.05 if world is TABLE else 1e-3, clip_norm=0.0)
    return Recipe(
        name="dual-rl",
        actor=world.actor,
        critics={"value": world.value, "q": ActionValue()},
        copies={"q_target": Copy(of="q", rate=0.05 if world is TABLE else 0.005)},
        source=Logged((Log(reward_scale=reward_scale),)),
        stages=(
            Stage("value", trains=("value",), critic=(Td(RecordedAction(), maximum, OfState()),), optimizer=critic),
            Stage("actor", ("actor",), (AdvantageRegression(3.0 / reward_scale),), optimizer=actor),
            Stage("q", trains=("q",), critic=(Td(NextValue()),), optimizer=critic),
        ),
        steps=200,
    )


def shown(num: int) -> Log:
    """That many episodes of the expert itself, of starts that no other log has."""
    return Log(num, noise=0.0, first=10_000, origin=int(Origin.TEACHER))


def recoil(world: World = CONTROL, expert: int = 1, others: int = 50) -> Recipe:
    """ReCOIL (arXiv:2302.08560): f-DVL whose critic matches mixtures of expert and other data; no rewards."""
    base = f_dvl(world)
    stages = (*base.stages[:2], replace(base.stages[2], critic=(MatchMixture(),)))
    return replace(base, name="recoil", source=Logged((Log(others), shown(expert))), stages=stages)


def cloned(world: World = CONTROL, expert: int = 1) -> Recipe:
    """Behaviour cloning of the same expert episodes alone."""
    base = f_dvl(world)
    stage = replace(base.stages[1], objective=(LogLikelihood(),))
    return replace(base, name="cloned", critics={}, copies={}, source=Logged((shown(expert),)), stages=(stage,))
