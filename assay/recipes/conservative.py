"""Offline base recipes: TD3+BC, IQL and CQL with the settings of their papers' losses, on data of scripted experts.

In the classic presets networks and batches are small and Adam's rate is 1e-3, for thousands of updates instead of a
million; the presets mujoco and d4rl have the published sizes.
"""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe, Stage
from assay.models.bodies.by_data import StandardisedByData
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy, Temperature
from assay.parts.critics.conservative import Conservative, ConservativeChoices
from assay.parts.critics.td import Td
from assay.parts.fits.squared import Expectile
from assay.parts.objectives.pathwise import MatchEntropy, MaximizeSoftQ
from assay.parts.objectives.scaled import MaximizeScaledQ
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.regularizers.nearness import NearRecorded
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.scales import ReturnRange
from assay.parts.targets.one_step import NextValue, OwnAction
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.off_policy import dqn, td3
from assay.recipes.presets import CONTINUOUS, CONTROL, Preset


def logged(preset: Preset, log: Log | None = None) -> Logged:
    """Returns a source of batches from an offline dataset, by default that of the task defaults."""
    return Logged((log or preset.offline.log,), preset.offline.batch, preset.offline.updates)


def iql(
    preset: Preset = CONTROL, log: Log | None = None, level: float = 0.7, inverse_temperature: float = 3.0
) -> Recipe:
    """IQL (arXiv:2110.06169): expectile value regression, one-step targets, advantage-weighted regression.

    Rewards are scaled by the range of the data's returns, so that the exponent of the weights is of order one.
    """
    step = preset.offline.optimizer
    return Recipe(
        name="iql",
        actor=preset.actor,
        critics={"value": preset.value, "q": replace(preset.value, head=ActionValue())},
        copies={"q_target": Copy(of="q", rate=0.005)},
        source=replace(logged(preset, log), scale=ReturnRange(preset.offline.decisions)),
        stages=(
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(level), OfState()),), optimizer=step),
            Stage("actor", ("actor",), (AdvantageRegression(inverse_temperature),), optimizer=step),
            Stage("q", trains=("q",), critic=(Td(NextValue()),), optimizer=step),
        ),
        steps=preset.offline.steps,
    )


def cql(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float | None = None) -> Recipe:
    """CQL(H) (arXiv:2006.04779): SAC on an offline dataset (double DQN for discrete actions) with CQL's penalty; its
    weight is that of the task defaults unless given.
    """
    weight = preset.offline.penalty if weight is None else weight
    return conservative_dqn(preset, log, weight) if preset.discrete else conservative_sac(preset, log, weight)


def conservative_sac(preset: Preset, log: Log | None, weight: float) -> Recipe:
    """Returns CQL for continuous actions."""
    body, step = preset.offline.body, preset.offline.optimizer
    slow = preset.offline.slow or step
    return Recipe(
        name="cql",
        actor=Policy(body, SquashedGaussian()),
        critics={"q": Critic(body, ActionValue()), "temperature": Temperature(1.0)},
        copies={"q_target": Copy(of="q", rate=0.005)},
        source=logged(preset, log),
        stages=(
            Stage("critic", trains=("q",), critic=(Td(OwnAction()), Conservative(weight)), optimizer=step),
            Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(), MatchEntropy(-1.0)), optimizer=slow),
        ),
        steps=preset.offline.steps,
    )


def conservative_dqn(preset: Preset, log: Log | None, weight: float) -> Recipe:
    """Returns CQL for discrete actions."""
    base = dqn(preset)
    terms = (*base.stages[0].critic, ConservativeChoices(weight))
    stage = replace(base.stages[0], critic=terms, optimizer=preset.offline.optimizer)
    source, steps = logged(preset, log), preset.offline.steps
    return replace(base, name="cql", rollout=None, source=source, stages=(stage,), steps=steps)


def td3_bc(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float = 2.5) -> Recipe:
    """TD3+BC (arXiv:2106.06860): TD3 on an offline dataset, its actor regularised towards the recorded actions."""
    base, settings, source = td3(preset), preset.offline, logged(preset, log)
    body = StandardisedByData(settings.body) if settings.standardised else settings.body
    critic, actor = (replace(stage, optimizer=settings.optimizer) for stage in base.stages)
    actor = replace(actor, objective=(MaximizeScaledQ(weight),), regularizers=(NearRecorded(),))
    critics = {"q": Critic(body, ActionValue())}
    base = replace(base, actor=Policy(body, Deterministic()), critics=critics)
    return replace(base, name="td3-bc", rollout=None, source=source, stages=(critic, actor), steps=settings.steps)
