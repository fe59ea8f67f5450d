"""The recipe of fisor: critics of reward and of harm, and a diffusion actor trained by weighted cloning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import Task
from assay.methods.fisor.models import Diffusion
from assay.methods.fisor.parts import BestOf, Feasible, WorstToCome
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy
from assay.parts.critics.td import Td
from assay.parts.fits.squared import Expectile
from assay.parts.objectives.denoising import Alike, Denoising
from assay.parts.predictions import OfAction, OfState
from assay.parts.sources.conditions import Condition
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import NextValue
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.defaults import CONTINUOUS, Defaults


@dataclass(frozen=True)
class WithCosts(Condition):
    """Data with a column of costs: without it every state would count as safe."""

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        """Raises AssayError if the column is missing."""
        if any("cost" not in columns for columns in datasets):
            raise AssayError(
                f"fisor learns from costs, and the data of task '{task.name}' have no column 'cost'. Use a task with "
                "costs such as steered-hazards, a file with costs, or iql"
            )


LOGS = (Log(150, noise=0.4), Log(150, noise=0.4, first=1_000, reckless=True))
MIXED = Logged(LOGS, batch=128, updates=10, condition=WithCosts())
"""Half cautious, half cost-ignoring expert episodes, both with action noise."""
STEP = Adam(1e-3, clip_norm=0.0)


def least_harm(level: float = 0.98) -> Td:
    """V_h as a low expectile of the recorded actions' harm: level 1/2 is the mean, level -> 1 the minimum."""
    return Td(RecordedAction("harm_q_target", largest=True), Expectile(1.0 - level), OfState("harm"))


def fisor(world: Defaults = CONTINUOUS, num: int = 16) -> Recipe:
    """FISOR (arXiv:2401.10700): three independent losses, no multiplier; takes the safest of `num` candidates."""
    body = Perceptron((128, 128))
    value, q = Critic(body), Critic(body, ActionValue())
    harm_q = Td(WorstToCome(0.9, harm=5.0), of=OfAction("harm_q"))
    return Recipe(
        name="fisor",
        actor=Policy(body, Diffusion()),
        critics={"value": value, "q": q, "harm": value, "harm_q": q},
        copies={
            "q_target": Copy(of="q", rate=0.02),
            "harm_q_target": Copy(of="harm_q", rate=0.02),
            "average": Copy(of="actor", rate=0.01),
        },
        source=MIXED,
        stages=(
            Stage("actor", trains=("actor",), objective=(Denoising(Feasible(10.0)),), optimizer=STEP),
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(0.9), OfState()),), optimizer=STEP),
            Stage("q", trains=("q",), critic=(Td(NextValue(0.95)),), optimizer=STEP),
            Stage("harm", trains=("harm",), critic=(least_harm(),), optimizer=STEP),
            Stage("harm q", trains=("harm_q",), critic=(harm_q,), optimizer=STEP),
        ),
        wrapper=BestOf(num, "average", "harm_q_target", lowest=True, enough=-0.9),
        steps=200,
    )


def cloned_diffusion(world: Defaults = CONTINUOUS) -> Recipe:
    """Returns unweighted cloning of the same data by the same actor, one candidate."""
    base = fisor(world)
    actor = replace(base.stages[0], objective=(Denoising(Alike()),))
    copies = {"average": base.copies["average"]}
    return replace(base, name="cloned", critics={}, copies=copies, stages=(actor,), wrapper=None)
