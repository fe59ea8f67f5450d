"""Applies the options of environments to tasks and recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Body, ModelSpec, Rollout, Task
from assay.models.bodies.by_data import StandardisedByData
from assay.models.bodies.perceptron import Vectors
from assay.models.bodies.standardised import Standardised
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.standardised import Standardising
from assay.parts.sources.logged import Logged
from assay.runs.user_code.addresses import needed_address
from assay.runs.user_code.loading import value_of
from assay.tasks.adapters.gymnasium import EnvironmentTask
from assay.tasks.adapters.gymnasium_instances import NO_LIMIT, without_limit
from assay.tasks.control.frames import with_frames
from assay.tasks.control.stepping import SteppedTask


# ---------------------------------------------------------------------------------------------------- tasks
def remade(
    task: Task, keywords: Mapping[str, Any], wrappers: Sequence[str], limit: int | None, *, one_hot: bool
) -> Task:
    """Returns the task with its environments made with keyword arguments, wrappers and a time limit; AssayError for a
    task without a time limit, and for options of environments where there are none.
    """
    chosen = {"--env-set": keywords, "--wrapper": wrappers, "--max-episode-steps": limit, "--one-hot": one_hot}
    asked = [name for name, value in chosen.items() if value]
    if not isinstance(task, EnvironmentTask):
        if asked:
            raise AssayError(f"{asked[0]} is for Gymnasium environments; task '{task.name}' is built in. Leave it out.")
        return task
    if asked:
        wraps = tuple((text, named_wrapper(text)) for text in wrappers)
        task = task.remake(keywords, wraps, limit, one_hot=one_hot)
    if task.spec.horizon == NO_LIMIT:
        raise AssayError(without_limit(task.name))
    return task


def with_workers(task: Task, num: int, ready: int = 0) -> Task:
    """Returns the task with its environments in this many processes, `ready` of which are waited for in a step."""
    if isinstance(task, EnvironmentTask):
        return task.with_workers(num, ready)
    raise AssayError(f"--env-workers is for Gymnasium environments; task '{task.name}' is built in. Leave it out.")


def stack_frames(task: Task, num: int) -> Task:
    """Returns the task with its last `num` observations shown."""
    if isinstance(task, SteppedTask):
        return with_frames(task, num)
    raise AssayError(f"--frame-stack is for control tasks, not for '{task.name}'. Leave it out.")


def named_wrapper(text: str) -> Callable[[Any], Any]:
    """Returns the wrapper that MODULE:NAME or FILE.py:NAME names."""
    address = needed_address(text, "--wrapper")
    if not address.name:
        example = "gymnasium.wrappers:FlattenObservation"
        raise AssayError(f"--wrapper {text} is not of the form module:Name. Example: {example}")
    wrapper: Callable[[Any], Any] = value_of(address)
    return wrapper


# ---------------------------------------------------------------------------------------------------- recipes
def changed_fragments(rollout: Any, change: Callable[[Fragments], Fragments]) -> Any:
    """Returns the rollout with its fragments changed, also inside other rollouts; None if it has none."""
    if isinstance(rollout, Fragments):
        return change(rollout)
    below = [one.name for one in fields(rollout) if one.init] if is_dataclass(rollout) else []
    for name in below:
        inner = getattr(rollout, name)
        if Rollout in type(inner).__mro__ and (found := changed_fragments(inner, change)) is not None:
            return replace(rollout, **{name: found})
    return None


def check_fragments(recipe: Recipe, asked: str) -> None:
    """Raises AssayError for a recipe that does not step its simulations for a fixed number of steps."""
    inside = getattr(recipe.rollout, "fragments", recipe.rollout)
    if changed_fragments(inside, lambda fragments: fragments) is None:
        raise AssayError(f"{asked}, but {recipe.name} gathers whole episodes, which wait for all. Leave it out.")


def with_num_envs(recipe: Recipe, num: int) -> Recipe:
    """Returns the recipe with `num` environments side by side; a step gathers as many decisions as before, or a few
    more.
    """

    def change(fragments: Fragments) -> Fragments:
        return replace(fragments, num_envs=num, steps=-(-fragments.num_envs * fragments.steps // num))

    rollout = changed_fragments(recipe.rollout, change)
    if rollout is None:
        what = "gathers whole episodes or none" if recipe.rollout is not None else "gathers no experience"
        raise AssayError(f"--num-envs needs rollouts of fixed length, but {recipe.name} {what}. Leave it out.")
    return replace(recipe, rollout=rollout)


def steps_for(decisions: int, recipe: Recipe, task: Task) -> int:
    """Returns the steps that gather this many decisions, rounded up; refuses rollouts without a fixed length."""
    counts: list[int] = []

    def count(fragments: Fragments) -> Fragments:
        counts.append(fragments.num_envs * fragments.steps)
        return fragments

    inside = getattr(recipe.rollout, "fragments", recipe.rollout)  # a stream is fragments of one simulation
    if changed_fragments(inside, count) is None:
        raise AssayError(
            f"--decisions needs rollouts of fixed length, but {recipe.name} on {task.name} gathers whole episodes. Use "
            "--steps."
        )
    return -(-decisions // counts[0])


def normalised(recipe: Recipe, task: Task, what: Sequence[str]) -> Recipe:
    """Returns the recipe with observations standardised in all its networks, and rewards scaled, by running moments; by
    the data's moments if it learns from an offline dataset.
    """
    if isinstance(recipe.source, Logged) and recipe.rollout is None:
        return normalised_by_data(recipe, task, what)
    if recipe.rollout is None or recipe.before:
        why = "has several phases" if recipe.before else "gathers no experience"
        raise AssayError(f"--normalize measures experience that is gathered, but {recipe.name} {why}. Leave it out.")
    if not isinstance(task, SteppedTask):
        raise AssayError(f"--normalize is for control tasks; '{task.name}' has no vectors. Leave it out.")
    actor, critics = recipe.actor, dict(recipe.critics)
    names: tuple[str, ...] = ()
    if "obs" in what:
        actor, critics = standardised(actor), {name: standardised(one) for name, one in critics.items()}
        old = {"actor": recipe.actor, **recipe.critics}
        new = [name for name, one in {"actor": actor, **critics}.items() if one is not old[name]]
        if "actor" not in new:
            seen = type(task.spec.observation).__name__
            raise AssayError(
                f"--normalize obs needs networks on vectors; {recipe.name} on {task.name} reads {seen}. Leave obs out."
            )
        names = (*new, *(name for name, copy in recipe.copies.items() if copy.of in new))
    rollout = Standardising(recipe.rollout, names, "reward" in what)
    return replace(recipe, actor=actor, critics=critics, rollout=rollout)


def normalised_by_data(recipe: Recipe, task: Task, what: Sequence[str]) -> Recipe:
    """Returns a recipe of an offline dataset with observations standardised by the data's mean and deviation."""
    if "reward" in what:
        refused = f"--normalize reward measures rewards as they are gathered, but {recipe.name} reads data"
        raise AssayError(f"{refused}. Use --normalize obs; iql scales rewards by the range of returns.")
    actor = standardised(recipe.actor, StandardisedByData)
    if actor is recipe.actor and not isinstance(getattr(actor, "body", None), StandardisedByData):
        seen = type(task.spec.observation).__name__
        raise AssayError(f"--normalize obs needs networks on vectors; {recipe.name} on {task.name} reads {seen}.")
    critics = {name: standardised(one, StandardisedByData) for name, one in recipe.critics.items()}
    return replace(recipe, actor=actor, critics=critics)


def standardised(model: ModelSpec, by: Callable[[Any], Body] = Standardised) -> ModelSpec:
    """Returns a model with its body on standardised observations; as it is if the body does not read vectors."""
    body = getattr(model, "body", None)
    return replace(model, body=by(body)) if isinstance(body, Vectors) and is_dataclass(model) else model
