"""Plans: everything that decides the result of a run, made from names and defaults, or read from a run folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Phase, Recipe
from assay.core.record import Draw
from assay.core.settings import describe
from assay.core.slots import Scene, Task, most_decisions
from assay.core.spaces import Vocabulary
from assay.datasets.recorded import Recorded, stamped, with_data, with_statistics
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.recipes.presets import CLASSIC, D4RL, MUJOCO, preset_for, suite_of
from assay.runs import adapters, catalogue, hardware
from assay.runs.checks import (
    check_arguments,
    check_placement,
    check_rows,
    check_values,
    checked_path,
    checked_seed,
    checked_steps,
    checked_warmup,
    has_demonstrations,
)
from assay.runs.config import precision_of, read_config, recorded
from assay.runs.distributed.checks import check_gathering
from assay.runs.language import in_tokens_of
from assay.runs.options import GatherOptions, RunOptions, run_options
from assay.runs.options.cadence import spacing
from assay.runs.options.group import parsed_group, record_of, words_of
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.training import TrainingOptions
from assay.runs.systems import as_the_method_runs
from assay.runs.user_code.addresses import PYTHON
from assay.runs.user_code.consent import Code, Consent, checked_code, consent_of, own_sources
from assay.runs.user_code.reward_model import reward_model
from assay.runs.user_code.reward_range import with_range
from assay.runs.user_code.rewards import with_components
from assay.runs.warm_start import Start, start_of
from assay.tasks.language.files import anchored_files
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
            "recipe": recorded(describe(self.recipe)),
            "task_settings": recorded(describe(self.task)),
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
    options.check()
    options = replace(options, own=options.own.anchored())
    code, changed = code_of(method, task, options, consent)
    address, found = (None, task) if not isinstance(task, str) else found_task(task, options)
    options = options if not isinstance(method, str) else as_the_method_runs(options, method, found)
    found = changed_task(found, options)
    model = None if model is None else anchored(model)
    actor, found = (None, found) if model is None else in_tokens_of(model, found, options.language.task)
    changes = dict(settings or {})
    if isinstance(method, str):
        name: str | None = catalogue.find_method(method)[0]
        preset = chosen_preset(found, bool(data)) if preset is None else preset
        recipe = catalogue.recipe_for(method, found, {}, actor, preset)
    else:
        if preset not in (None, CLASSIC):
            raise AssayError(f"preset is '{preset}', but recipe '{method.name}' is complete. Give a method's name.")
        name, recipe = None, method if actor is None else catalogue.with_pretrained(method, actor)
    files = tuple(stamped(file, found) for file in data)
    recipe = with_data(recipe, files) if files else recipe
    recipe = with_changes(recipe, found, model, options, changes)
    for group in options:
        steps = group.count_steps(steps, recipe, found)
    check_values(recipe)
    recipe.check()
    check_placement(placement, found)
    check_gathering(options.gathering, recipe, placement)
    check_rows(found)
    if options.cadence.from_ and start is None:
        start = start_of(options.cadence.from_)
    untrained = isinstance(found.spec.action, Vocabulary) and actor is None and start is None
    needed = untrained and bool(recipe.rollout or recipe.copies) and has_demonstrations(found)
    warmup = checked_warmup(warmup, found, preset_for(found, preset).warmup if needed else 0)
    budget = checked_steps(recipe.steps if steps is None else steps)
    numbers = (checked_seed(seed), budget, name, address, changes, warmup, 0, spacing(options.cadence.save_every)[0])
    recipe = with_statistics(recipe, found, seed)
    plan = Plan(recipe, found, *numbers, placement, model, files, preset or CLASSIC, options, start)
    started, accepted = (code, {}) if consent is None else (consent.started, code if changed else {})
    plan = replace(plan, code=started, accepted=accepted)
    return with_evaluations(plan, options.cadence.evaluations if evaluations is None else evaluations)


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


def found_task(task: str, options: RunOptions) -> tuple[str, Task]:
    """Returns a task by name or file, with its address."""
    address = task if catalogue.built_in_task(task) else anchored(task)
    return address, catalogue.find_task(address, needs_answers=not options.own.scores)


def changed_task(task: Task, options: RunOptions) -> Task:
    """Returns the task as each group of options changes it, in order; a reward model adds its scores, and at the end
    scores are mapped from their declared range.
    """
    for group in options:
        task = group.task(task)
    own = options.own
    if own.reward_model is None:
        return with_range(task, own.reward_range)
    trained = plan_of(own.reward_model)
    loop = Loop(trained.recipe, trained.task, seed=trained.seed, num_steps=trained.steps, placement=trained.placement)
    model = reward_model(own.reward_model, loop)
    task = with_components(task, {"reward_model": model}, {"reward_model": own.reward_model_weight})
    return with_range(task, own.reward_range)


def code_of(
    method: str | Recipe, task: str | Task, options: RunOptions, consent: Consent | None
) -> tuple[Code, Sequence[str]]:
    """Returns the digests of the own code that a plan names, and the files that have changed since a run folder
    recorded them; imports nothing. Recipes and tasks that are values were made from code that is loaded already.
    """
    named = [None if not isinstance(method, str) else catalogue.method_address(method)]
    named += [None if not isinstance(task, str) else catalogue.task_address(task)]
    sources = [address.source for address in named if address is not None]
    sources += [source for group in options for source in group.sources()]
    code, changed = checked_code(sources, options.own.seals(), consent)
    loaded = [own_sources(value) for value in (method, task) if not isinstance(value, str)]
    return {source: files for some in (code, *loaded) for source, files in sorted(some.items())}, changed


def chosen_preset(task: Task, has_data: bool) -> str:
    """Returns the preset that a task names; d4rl instead of mujoco if the data come from files."""
    preset = suite_of(task)
    return D4RL.suite if has_data and preset == MUJOCO.suite else preset


def anchored(address: str) -> str:
    """Returns existing paths as absolute ones, so that a run can be resumed from anywhere; other words unchanged."""
    if own := catalogue.task_address(address):
        return str(own)
    game, files = catalogue.game_and_files(address)
    return game + anchored_files(files) if files else address


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
    """Returns the plan of a phase: its recipe and steps, the same seed and placement; `policy` is the previous one.
    None if the phase has nothing to do.

    The warm-up is not evaluated, since the main phase begins with an evaluation; other phases are, if the run is.
    """
    warm = phase.name == WARMUP
    every = max(1, phase.steps // 5)
    task = plan.task if phase.task is None else phase.task(Scene(plan.task, draw=Draw(plan.seed, (9,)), actor=policy))
    if task is None:
        return None
    return replace(
        plan,
        recipe=phase.recipe,
        task=task,
        steps=phase.steps,
        method="sft" if warm else None,
        settings={},
        warmup=0,
        evaluate_every=0 if warm or not plan.evaluate_every else every,
        options=replace(
            plan.options, cadence=replace(plan.options.cadence, until="", from_=""), gathering=GatherOptions()
        ),
        start=None,
        more_steps=0,
    )


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


def plan_of(folder: str | Path, *, accept_changed_code: bool = False, model: str | None = None) -> Plan:
    """Returns the plan that a run folder was started with, from its config.json; its pretrained model is at `model`.

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
    begun, where = config.get("start"), parsed_group(PlacementOptions, config)
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
