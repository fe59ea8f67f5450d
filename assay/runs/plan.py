"""Plans: everything that decides the result of a run, made from names and defaults, or read from a run folder."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError, DataWarning
from assay.core.recipe import Recipe
from assay.core.settings import describe
from assay.core.slots import Task, most_decisions
from assay.core.spaces import Vocabulary
from assay.datasets.recorded import Recorded, stamped, with_data, with_statistics
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.placement import Placement, with_history
from assay.recipes.presets import CLASSIC
from assay.runs import adapters, hardware
from assay.runs.checks import (
    check_arguments,
    check_parts_on_device,
    check_placement,
    check_rows,
    check_values,
    checked_path,
    checked_seed,
    checked_steps,
    checked_warmup,
)
from assay.runs.config import as_json, precision_of, read_config
from assay.runs.distributed.checks import check_gathering
from assay.runs.given_model import installed_model
from assay.runs.language import in_tokens_of
from assay.runs.options import RunOptions, run_options
from assay.runs.options.cadence import spacing
from assay.runs.options.group import parsed_group, record_of, words_of
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.training import TrainingOptions
from assay.runs.resolved import anchored, chosen_preset, code_of, default_warmup, found_task, recipe_of
from assay.runs.systems import as_the_method_runs
from assay.runs.user_code.addresses import PYTHON
from assay.runs.user_code.consent import Code, Consent, consent_of
from assay.runs.user_code.reward_range import with_range
from assay.runs.user_code.rewards import with_components
from assay.runs.warm_start import Start, start_of
from assay.version import __version__

WARMUP = "warmup"
"""The name of the supervised phase before methods on language tasks."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides the result of a run; `config.json` records it.

    `address` is the task as the user named it: a name or a file.
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
    save_every: int = 0
    """Steps between checkpoints; 0 leaves them to time (see `assay.runs.saving`)."""
    placement: Placement = Placement()
    model: str | None = None
    """Folder or hub id of a pretrained actor."""
    data: tuple[Recorded, ...] = ()
    """Files that replace the recipe's offline datasets."""
    preset: str = CLASSIC
    """The preset that the method's defaults come from."""
    options: RunOptions = RunOptions()
    """Own code, words of language and control tasks, evaluation and checkpoints."""
    start: Start | None = None
    """The checkpoint whose weights the run starts from, with a hash of them."""
    more_steps: int = 0
    """Steps beyond `steps`: schedules end with `steps` and stay at their last value."""

    @property
    def last_step(self) -> int:
        """The step at which training ends."""
        return self.steps + self.more_steps

    @property
    def num_starts(self) -> int | None:
        """Held-out starts of an evaluation; None leaves them to the task."""
        return self.options.cadence.starts(of_language=isinstance(self.task.spec.action, Vocabulary))

    def is_evaluated(self, step: int) -> bool:
        """Returns whether the run is evaluated after this step."""
        return step == self.last_step or bool(self.evaluate_every and step % self.evaluate_every == 0)

    code: Code = field(default_factory=dict)
    """Digests of the files of own code that the run was started with."""
    accepted: Code = field(default_factory=dict)
    """Digests of changed files with which the run is resumed, since the user accepted the change; else empty."""

    def config(self) -> dict[str, Any]:
        """Returns the plan as JSON, with the fingerprint of what decides the numbers."""
        where = parsed_group(PlacementOptions, vars(self.placement))
        decisive = {
            "method": self.method,
            "task": self.address or self.task.name,
            "seed": self.seed,
            "steps": self.steps,
            "settings": {name: str(value) for name, value in self.settings.items()},
            "warmup": self.warmup,
            "model": self.model,
            "evaluate_every": self.evaluate_every,
            "recipe": as_json(describe(self.recipe)),
            "task_settings": as_json(describe(self.task)),
            "device": where.device,
            "precision": str(self.placement.precision),
            "micro_batch": where.micro_batch,
            **record_of(where, decisive=True),
        }
        if self.preset != CLASSIC:
            decisive["preset"] = self.preset
        if options := self.options.record(decisive=True):
            decisive["options"] = options
        if self.code:
            decisive["code"] = {source: dict(files) for source, files in self.code.items()}
        if self.data:
            decisive["data"] = [{"path": file.path, "hash": file.hash} for file in self.data]
        if self.start is not None:
            decisive["start"] = {"path": self.start.path, "hash": self.start.hash}
        return decisive | {
            "fingerprint": store.fingerprint(decisive),
            "save_every": self.save_every,
            "held_out": evaluation.num_starts(self.task, self.num_starts),
            **record_of(where, decisive=False),
            "assay": __version__,
            **({"more_steps": self.more_steps} if self.more_steps else {}),
            **({"cadence": cadence} if (cadence := self.options.record(decisive=False)) else {}),
        }


def make_plan(
    method: str | Recipe,
    task: str | Task,
    *,
    steps: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int | None = None,
    placement: Placement = Placement(),
    model: str | None = None,
    data: Sequence[str | Recorded] = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    start: Start | None = None,
    consent: Consent | None = None,
) -> Plan:
    """Resolves names and defaults; refuses a plan that cannot work before compute is spent.

    Names may be files and import paths of own code; with `consent`, only code that a run folder records is loaded.
    `preset` names the set of defaults (classic, mujoco, ...); None takes the task's own (see `chosen_preset`).
    `evaluations` is their number during training; None takes that of the options, else as many as
    `evaluation.evaluated_every` allows. `start` is the checkpoint of `options.cadence.from_` as recorded. Each
    group of `options` may change the task, then the recipe; `settings` are applied last. Options that are not given
    are those of the method, if it is a system.
    """
    check_arguments(task, settings, placement, model)
    options = checked_options(options)
    code, changed = code_of(method, task, options, consent)
    address, found = (None, task) if not isinstance(task, str) else found_task(task, options)
    options = options if not isinstance(method, str) else as_the_method_runs(options, method, found)
    found = changed_task(found, options)
    model = None if model is None else anchored(installed_model(model))
    actor, found = (None, found) if model is None else in_tokens_of(model, found, options.language.task)
    changes = dict(settings or {})
    name, recipe, preset = recipe_of(method, found, actor, preset, bool(data))
    files = tuple(stamped(file, found) for file in data)
    recipe = with_data(recipe, files) if files else recipe
    recipe = with_changes(recipe, found, model, options, changes)
    found = with_history(recipe, found)
    check_plan(recipe, found, placement, options)
    start = start_of(options.cadence.from_) if options.cadence.from_ and start is None else start
    default = default_warmup(recipe, found, preset, is_trained=actor is not None or start is not None)
    warmup, budget = checked_warmup(warmup, found, default), budget_of(steps, recipe, found, options)
    numbers = (checked_seed(seed), budget, name, address, changes, warmup, 0, spacing(options.cadence.save_every)[0])
    recipe, place = with_statistics(recipe, found, seed), (placement, model, files, preset or CLASSIC, options, start)
    started, accepted = (code, {}) if consent is None else (consent.started, code if changed else {})
    plan = replace(Plan(recipe, found, *numbers, *place), code=started, accepted=accepted)
    return with_evaluations(plan, options.cadence.evaluations if evaluations is None else evaluations)


def checked_options(options: RunOptions) -> RunOptions:
    """Returns the options with whole paths; refuses what no run can have."""
    options.check()
    return replace(options, own=options.own.anchored(), language=options.language.anchored())


def check_plan(recipe: Recipe, task: Task, placement: Placement, options: RunOptions) -> None:
    """Refuses values, parts, models, processes and rows that cannot work together."""
    check_values(recipe)
    recipe.check()
    check_placement(placement, task)
    check_parts_on_device(recipe, placement, task)
    check_gathering(options.gathering, recipe, placement)
    check_rows(task)


def budget_of(steps: int | None, recipe: Recipe, task: Task, options: RunOptions) -> int:
    """Returns the steps of a run: as given, or as options count them, else the recipe's own."""
    for group in options:
        steps = group.count_steps(steps, recipe, task)
    return checked_steps(recipe.steps if steps is None else steps)


def with_changes(recipe: Recipe, task: Task, model: str | None, options: RunOptions, changes: dict[str, Any]) -> Recipe:
    """Returns the recipe as options, then settings change it, with the task's limit; adapters have their own rates."""
    for group in options:
        recipe = group.recipe(recipe, task)
    recipe = adapters.with_adapter_rates(recipe, model, options, changes)
    for path, value in changes.items():
        recipe = recipe.set(path, value)
    return recipe.at_limit(most_decisions(task)).at_task(task)


def with_evaluations(plan: Plan, evaluations: int | None) -> Plan:
    """Returns the plan with this many evaluations during training; None leaves them to `evaluated_every`."""
    if evaluations is None:
        every = evaluation.evaluated_every(plan.recipe, plan.task, plan.steps, plan.num_starts)
        return replace(plan, evaluate_every=every)
    if evaluations < 0:
        raise AssayError(f"evaluations is {evaluations}. Use 0 (only before and after training) or more.")
    return replace(plan, evaluate_every=max(1, plan.steps // evaluations) if evaluations else 0)


def changed_task(task: Task, options: RunOptions) -> Task:
    """Returns the task as each group of options changes it, in order; a reward model adds its scores, and at the end
    scores are mapped from their declared range.
    """
    for group in options:
        task = group.task(task)
    own = options.own
    if own.reward_model is None:
        return with_range(task, own.reward_range)
    from assay.runs.user_code.reward_model import reward_model

    trained = plan_of(own.reward_model)
    loop = Loop(trained.recipe, trained.task, seed=trained.seed, num_steps=trained.steps, placement=trained.placement)
    model = reward_model(own.reward_model, loop)
    task = with_components(task, {"reward_model": model}, {"reward_model": own.reward_model_weight})
    return with_range(task, own.reward_range)


def repeat_command(plan: Plan) -> str:
    """Returns the command that starts the same run again; "" for one made with objects of Python."""
    if plan.method is None or plan.address is None:
        return ""
    preset = None if plan.preset == chosen_preset(plan.task, bool(plan.data)) else plan.preset
    data = tuple(file.path for file in plan.data)
    settings = tuple(f"{path}={value}" for path, value in plan.settings.items())
    training = TrainingOptions(plan.steps, None, settings, plan.warmup, data, plan.model, preset)
    options = plan.options
    usual = evaluation.evaluated_every(plan.recipe, plan.task, plan.steps, plan.num_starts)
    if options.cadence.evaluations is None and plan.evaluate_every != usual:
        evaluations = plan.steps // plan.evaluate_every if plan.evaluate_every else 0
        options = replace(options, cadence=replace(options.cadence, evaluations=evaluations))
    words = ["assay", "train", plan.method, "--task", plan.address, *words_of(training), "--seed", str(plan.seed)]
    where = replace(parsed_group(PlacementOptions, vars(plan.placement)), compiled=False)
    words += [*words_of(where), *hardware.words(plan.model, plan.placement, options, plan.settings), *options.words()]
    return "" if any(PYTHON in word for word in words) else shlex.join(words)


def plan_of(
    folder: str | Path, *, accept_changed_code: bool = False, model: str | None = None, device: str | None = None
) -> Plan:
    """Returns the plan that a run folder was started with, from its config.json, with its pretrained model at `model`
    and on `device`.

    Own code is loaded only if it is what the folder records; `accept_changed_code` also allows files that have changed
    since.
    """
    path = checked_path(folder, "folder") / "config.json"
    if not path.is_file():
        raise AssayError(
            f"{folder} is not a run folder: it has no config.json. Name the folder that 'assay train' printed."
        )
    config = read_config(path)
    if config["method"] is None and folder_of_run(Path(folder)) is not None:
        raise AssayError(f"{folder} is a phase of a run. Name the folder of the run: {folder_of_run(Path(folder))}")
    if config["method"] is None:
        raise AssayError(
            f"{folder} was started from Python with its own recipe. Resume it there with the same assay.train call."
        )
    begun, where = config.get("start"), parsed_group(PlacementOptions, hardware.moved(config, device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said when the run was planned
        plan = make_plan(
            config["method"],
            config["task"],
            steps=config["steps"],
            seed=config["seed"],
            settings=config["settings"],
            warmup=config["warmup"],
            placement=Placement(precision=precision_of(config["precision"]), **vars(where)),
            model=model or config["model"],
            data=[Recorded(str(one["path"]), str(one["hash"])) for one in config.get("data", ())],
            preset=str(config.get("preset", CLASSIC)),
            options=run_options(config.get("options", {}) | config.get("cadence", {})),
            start=Start(str(begun["path"]), str(begun["hash"])) if begun else None,
            consent=consent_of(Path(folder), config, accept_changed_code),
        )
    kept = {name: config[name] for name in ("evaluate_every", "save_every")}
    return replace(plan, **kept, more_steps=config.get("more_steps", 0))


def folder_of_run(folder: Path) -> Path | None:
    """Returns the run that a phase's folder belongs to, or None if the folder is not a phase."""
    above = folder.resolve().parent
    return above if folder.resolve().name.startswith("phase-") and (above / "config.json").is_file() else None
