"""Plans: everything that decides a run's result, made from names and defaults, or read back from a run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay import catalogue, store
from assay.engine import Placement
from assay.recipe import Recipe, describe
from assay.slots import Task
from assay.types import AssayError, Vocabulary
from assay.version import __version__


@dataclass(frozen=True)
class Plan:
    """All that decides a run's result; `config.json` records it.

    `address` is what the task was called when it was asked for: a name or a file.
    """

    recipe: Recipe
    task: Task
    seed: int
    steps: int
    method: str | None = None
    address: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    warmup: int = 0
    evaluate_every: int = 0
    save_every: int = 1
    placement: Placement = Placement()

    def config(self) -> dict[str, Any]:
        """The plan as JSON, and the fingerprint of what decides the numbers."""
        decisive = {
            "method": self.method,
            "task": self.address or self.task.name,
            "seed": self.seed,
            "steps": self.steps,
            "settings": {name: str(value) for name, value in self.settings.items()},
            "warmup": self.warmup,
            "evaluate_every": self.evaluate_every,
            "recipe": describe(self.recipe),
            "task_settings": describe(self.task),
            "device": self.placement.device,
            "precision": str(self.placement.precision),
            "micro_batch": self.placement.micro_batch,
        }
        return decisive | {
            "fingerprint": store.fingerprint(decisive),
            "save_every": self.save_every,
            "assay": __version__,
        }


def make_plan(
    method: str | Recipe,
    task: str | Task,
    *,
    steps: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int = 10,
    placement: Placement = Placement(),
) -> Plan:
    """Resolves names and defaults, and refuses what cannot work, before compute is spent."""
    address = task if isinstance(task, str) else None
    found = catalogue.find_task(task) if isinstance(task, str) else task
    changes = dict(settings or {})
    if isinstance(method, str):
        name: str | None = catalogue.find_method(method)[0]
        recipe = catalogue.recipe_for(method, found, changes)
    else:
        name, recipe = None, method
        for path, value in changes.items():
            recipe = recipe.set(path, value)
    recipe.check()
    budget = recipe.steps if steps is None else steps
    if budget < 1:
        raise AssayError(f"steps is {budget}; give at least 1")
    if warmup is not None and warmup < 0:
        raise AssayError(f"warmup is {warmup}; give 0 (none) or a number of supervised steps")
    if warmup is None:
        needed = isinstance(found.spec.action, Vocabulary) and bool(recipe.rollout or recipe.copies)
        warmup = catalogue.WARMUP if needed else 0
    every = max(1, budget // evaluations) if evaluations else 0
    return Plan(recipe, found, seed, budget, name, address, changes, warmup, every, max(1, budget // 10), placement)


def warmup_plan(plan: Plan) -> Plan:
    """The supervised phase before: the task's demonstrations, the same actor, the same seed."""
    recipe = replace(catalogue.recipe_for("sft", plan.task, {}), actor=plan.recipe.actor)
    every = max(1, plan.warmup // 5)
    return replace(
        plan, recipe=recipe, steps=plan.warmup, method="sft", settings={}, warmup=0, evaluate_every=0, save_every=every
    )


def repeat_command(plan: Plan) -> str:
    """The command that starts the same run elsewhere; nothing for a recipe that only Python knows."""
    if plan.method is None or plan.address is None:
        return ""
    settings = "".join(f" --set {path}={value}" for path, value in plan.settings.items())
    options = f"--steps {plan.steps} --seed {plan.seed} --warmup {plan.warmup}"
    return f"assay train {plan.method} --task {plan.address} {options}{settings}"


def plan_of(folder: str | Path) -> Plan:
    """The plan that a run folder was started with, from its config.json."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise AssayError(
            f"{folder} is no run folder: it has no config.json; give the folder that 'assay train' printed"
        )
    config = read_config(path)
    if config["method"] is None:
        raise AssayError(
            f"{folder} was started from Python with its own recipe; resume it there with the same assay.train"
        )
    plan = make_plan(
        config["method"],
        config["task"],
        steps=config["steps"],
        seed=config["seed"],
        settings=config["settings"],
        warmup=config["warmup"],
        placement=Placement(config["device"], config["micro_batch"]),
    )
    return replace(plan, evaluate_every=config["evaluate_every"], save_every=config["save_every"])


def read_config(path: Path) -> dict[str, Any]:
    """config.json, checked to be what a run wrote."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise AssayError(f"{path} cannot be read ({error}); restore it, or start the run anew") from None
    wanted = {"method", "task", "steps", "seed", "settings", "warmup", "device", "micro_batch"}
    missing = (wanted | {"evaluate_every", "save_every"}) - set(config)
    if missing:
        raise AssayError(f"{path} lacks {', '.join(sorted(missing))}: it is not the config.json of a run")
    return dict(config)
