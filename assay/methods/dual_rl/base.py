"""The recipes of dual-rl, on an offline dataset: XQL, f-DVL and ReCOIL from one conjugate."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Origin
from assay.methods.dual_rl.conjugates import ReverseKl
from assay.methods.dual_rl.critics import MatchMixture
from assay.methods.dual_rl.fits import ImplicitMaximum
from assay.models.heads.value import ActionValue
from assay.parts.critics.td import Td
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import NextValue
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.defaults import CONTROL, Defaults

XQL = ImplicitMaximum(ReverseKl(), level=0.5, clip=7.0)
"""Gumbel regression with its authors' bound."""


def f_dvl(world: Defaults = CONTROL, maximum: ImplicitMaximum = ImplicitMaximum(), reward_scale: float = 1.0) -> Recipe:
    """f-DVL (arXiv:2302.08560): an implicit maximum of Q, one-step targets, advantage-weighted regression.

    `reward_scale` multiplies rewards and everything in reward units: inverse temperature, and the step size of tables.
    """
    settings = world.offline
    critic = Adam(0.05 * reward_scale, clip_norm=0.0) if world.tabular else settings.optimizer
    return Recipe(
        name="dual-rl",
        actor=world.actor,
        critics={"value": world.value, "q": replace(world.value, head=ActionValue())},
        copies={"q_target": Copy(of="q", rate=0.05 if world.tabular else 0.005)},
        source=Logged((Log(reward_scale=reward_scale),), settings.batch, settings.updates),
        stages=(
            Stage("value", trains=("value",), critic=(Td(RecordedAction(), maximum, OfState()),), optimizer=critic),
            Stage("actor", ("actor",), (AdvantageRegression(3.0 / reward_scale),), optimizer=settings.optimizer),
            Stage("q", trains=("q",), critic=(Td(NextValue()),), optimizer=critic),
        ),
        steps=settings.steps,
    )


def shown(num: int) -> Log:
    """Describes `num` episodes of the expert itself, from starts that no other dataset uses."""
    return Log(num, noise=0.0, first=10_000, origin=int(Origin.TEACHER))


def recoil(world: Defaults = CONTROL, expert: int = 1, others: int = 50) -> Recipe:
    """ReCOIL (arXiv:2302.08560): f-DVL with a critic that matches mixtures of expert and other data; no rewards."""
    base = f_dvl(world)
    stages = (*base.stages[:2], replace(base.stages[2], critic=(MatchMixture(),)))
    return replace(base, name="recoil", source=Logged((Log(others), shown(expert))), stages=stages)


def cloned(world: Defaults = CONTROL, expert: int = 1) -> Recipe:
    """Returns behaviour cloning of the same expert episodes alone."""
    base = f_dvl(world)
    stage = replace(base.stages[1], objective=(LogLikelihood(),))
    return replace(base, name="cloned", critics={}, copies={}, source=Logged((shown(expert),)), stages=(stage,))
