"""Plans of the phases of a run: the supervised warm-up, then those of its recipe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.core.recipe import Phase
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.core.spaces import Vocabulary
from assay.datasets.recorded import with_statistics
from assay.runs import adapters, catalogue
from assay.runs.options import GatherOptions
from assay.runs.plan import WARMUP, Plan


def phases_of(plan: Plan) -> tuple[Phase, ...]:
    """Returns the phases before the plan's own recipe: the supervised warm-up, then the recipe's phases.

    The warm-up of a pretrained actor, or of its adapters, has the learning rate of `sft` there.
    """
    from assay.models.pretrained.transformers import Pretrained

    if not plan.warmup:
        return plan.recipe.before
    actor = plan.recipe.actor
    trained = actor if isinstance(actor, Pretrained) else None
    recipe = replace(catalogue.recipe_for("sft", plan.task, {}, trained), actor=actor)
    recipe = adapters.with_adapter_rates(recipe, plan.model, plan.options, plan.settings)
    return (Phase(WARMUP, recipe, plan.warmup), *plan.recipe.before)


def phase_plan(plan: Plan, phase: Phase, policy: Any) -> Plan | None:
    """Returns the plan of a phase: its recipe with the statistics of its own data, and steps, the same seed and
    placement; `policy` is the previous one. None if the phase has nothing to do.

    The warm-up is not evaluated, since the main phase begins with an evaluation; other phases are, if the run is.
    """
    warm = phase.name == WARMUP
    every = max(1, phase.steps // 5)
    task = plan.task if phase.task is None else phase.task(Scene(plan.task, draw=Draw(plan.seed, (9,)), actor=policy))
    if task is None:
        return None
    cadence = replace(plan.options.cadence, until="", from_="")
    if isinstance(task.spec.action, Vocabulary) != isinstance(plan.task.spec.action, Vocabulary):
        cadence = replace(cadence, eval_prompts=None, eval_episodes=None)  # they count the starts of the run's own task
    return replace(
        plan,
        recipe=with_statistics(phase.recipe, task, plan.seed),
        task=task,
        steps=phase.steps,
        method="sft" if warm else None,
        settings={},
        warmup=0,
        evaluate_every=0 if warm or not plan.evaluate_every else every,
        options=replace(plan.options, cadence=cadence, gathering=GatherOptions()),
        start=None,
        more_steps=0,
    )
