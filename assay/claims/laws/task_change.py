"""Laws of task changes: another task for a phase of a program, in which the same models can act."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.claims.laws.trials import columns_of
from assay.claims.laws.laws import Contract, Finding, Unsuited, law, other_streams, runs, suited
from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import ModelSpec, Scene, Task
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from assay.tasks.tabular.table import chain
from assay.tasks.tabular.uncertain import uncertain_cartpole

STARTS = np.arange(2)


@dataclass(frozen=True)
class TaskCase:
    """A task, and the policy that the phase before ended with."""

    name: str
    task: Task
    model: ModelSpec | None

    @property
    def scene(self) -> Scene:
        """Returns the argument of a task change."""
        actor = None if self.model is None else built(self.model, self.task.spec)
        return Scene(self.task, draw=Draw(4, (9,)), actor=actor)


def task_cases(part: Any, task: Task | None = None) -> list[TaskCase] | list[Unsuited]:
    """Returns tasks of several kinds, or the given one, with and without a policy; those that it does not refuse."""
    cases = []
    for one in (uncertain_cartpole(), cartpole(), chain(4), addition(1)) if task is None else (task,):
        policies = {"no policy yet": None, "a policy": small_actor(one.spec)}
        if one.spec == uncertain_cartpole().spec:
            policies["action values"] = Policy(Perceptron((8,)), Greedy())
        cases += [TaskCase(f"task {one.name}, {name}", one, model) for name, model in policies.items()]
    reason = "it refuses uncertain and plain control, numbered states and tokens"
    return suited(cases, lambda case: part(case.scene), reason, (AssayError, AttributeError))


def played(task: Task) -> Experience:
    """Plays a small policy in a task."""
    actor = built(small_actor(task.spec), task.spec)
    return task.play(actor, STARTS, np.zeros_like(STARTS), Draw(1), split=0, greedy=False)


def plays_alike(one: Task, other: Task) -> bool:
    """Returns whether the same policy has the same episodes in both tasks."""
    if one.spec != other.spec:
        return False
    mine, theirs = dict(columns_of(played(one))), dict(columns_of(played(other)))
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


@law("it gives a task with the same observations and actions, or None")
def spaces(part: Any, case: TaskCase) -> Iterator[str]:
    """The models of the program must fit."""
    given = part(case.scene)
    if given is None:
        return
    spec = getattr(given, "spec", None)
    if spec is None or not callable(getattr(given, "play", None)):
        yield f"it returned {type(given).__name__}, not a task"
    elif (spec.observation, spec.action) != (case.task.spec.observation, case.task.spec.action):
        yield f"it goes from {case.task.spec.observation} and {case.task.spec.action} to other spaces"


@law("None only if there is nothing to do: without a policy there is")
def first(part: Any, case: TaskCase) -> Iterator[str]:
    """A skipped phase passes its predecessor's policy on; the first one has no predecessor."""
    if case.model is None and part(case.scene) is None:
        yield "it leaves the first phase out, so that no phase has a policy"


@law("equal scenes give equal tasks")
def repeats(part: Any, case: TaskCase) -> Iterator[str]:
    """Two calls, with the global random streams at different places; the same policy has the same episodes."""
    with other_streams(1):
        one = part(case.scene)
    with other_streams(2):
        other = part(case.scene)
    if (one is None) != (other is None):
        yield "it gave a task once and None the other time"
    elif one is not None and not plays_alike(one, other):
        yield "the same policy has other episodes in the second task"


@law("the given task and policy are not modified")
def unmodified(part: Any, case: TaskCase) -> Iterator[str]:
    """The task plays as before, and the weights are as they were."""
    scene = case.scene
    weights = {} if scene.actor is None else {k: v.clone() for k, v in scene.actor.state_dict().items()}
    before = dict(columns_of(played(case.task)))
    part(scene)
    if any(not torch.equal(value, before[name]) for name, value in columns_of(played(case.task))):
        yield "the given task plays otherwise afterwards"
    yield from (
        f"{name} changed" for name, value in weights.items() if not torch.equal(scene.actor.state_dict()[name], value)
    )


TASK_CHANGE = Contract("task_change", (runs, spaces, first, repeats, unmodified), task_cases)


def check_task_change(part: Any, task: Task | None = None) -> list[Finding]:
    """Checks the laws of a task change, on a task or on one of each kind."""
    return TASK_CHANGE.check(part, task_cases(part, task))
