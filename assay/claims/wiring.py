"""Claims that every method has, on what lies between its parts: settings, stages, target networks, groups, phases,
options of a system.

They read the recipes that a method ships (`shipped`), run a few gathered steps of each at a small size, and compare
what moved with the settings in the method's record: stages when they are due, target networks at their rate and
interval, references never, minibatches with whole groups, actions inside their space. `find` adds them to the claims of
a method's own file; there is nothing to write for one method.

Weights have the shapes of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from assay.claims.claim import Exact, Finding
from assay.claims.probes.schedules import handed_on
from assay.claims.probes.walked import Trained, gathered_steps, shrunk, weights_of
from assay.claims.shipped import (
    Settings,
    Shipped,
    changes_since_record,
    recorded_settings,
    settings_of,
    shipped_recipes,
)
from assay.core.errors import AssayError
from assay.core.recipe import Feed, Recipe
from assay.core.record import Experience
from assay.core.slots import Scene, Task
from assay.core.spaces import Box
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.method import Method
from assay.recipes.presets import preset_for
from assay.runs import catalogue
from assay.runs.options import RunOptions, run_options
from assay.runs.systems import ENVIRONMENT, as_the_method_runs

OF_SETTINGS = "settings"
TASKS = (
    "addition-1", "hazards", "steered-hazards", "bandit", "sorting-5-pairs", "four-rooms", "pointmaze-umaze",
    "gridworld", "prisoners-dilemma-tokens", "prisoners-dilemma-vector", "prisoners-dilemma",
    "thinking",
)  # fmt: skip
"""Small tasks of each kind; a recipe on a preset that its default task does not have runs on the first that fits."""


@dataclass(frozen=True)
class Without(Exact):
    """An exact claim whose function returns complaints, in words; it holds if there are none."""

    equals: float | None = 0.0

    def run(self) -> Finding:
        """Counts the complaints; the first three are shown where a bound would be."""
        found = self.function()
        told = "no complaint" if not found else f"no complaint: {'; '.join(found[:3])}{'; ...' * (len(found) > 3)}"
        return Finding(self.name, float(len(found)), told, not found)


def wiring_claims(key: str, method: Method) -> tuple[Exact, ...]:
    """Returns the claims on a method's wiring, those on what it does first, that on the record last."""
    shipped = shipped_recipes(method)
    own = [place for place, one in enumerate(shipped) if not one.variant]
    what = "gathered steps on its default task train what is due, on whole groups"
    found: list[Exact] = [Without(what, partial(step_complaints, key, own[:1]), of="gathered steps")]
    for place in own[1:]:
        what = f"on {shipped[place].name}, gathered steps train what is due, or the task is refused in words"
        found.append(Without(what, partial(preset_complaints, key, place), of="gathered steps"))
    for name in method.variants:
        # A variant differs in its parts, which run once; its settings are recorded on every preset.
        places = [place for place, one in enumerate(shipped) if one.variant == name]
        what = f"gathered steps of {name} train what is due, on whole groups"
        found.append(Without(what, partial(step_complaints, key, places), of="gathered steps"))
    copied = [place for place, one in enumerate(shipped) if one.recipe().copies]
    if copied:
        what = "target networks move at the recorded rate and interval, references never"
        found.append(Without(what, partial(copy_complaints, key, copied), of="target networks"))
    if shipped[0].recipe().before:
        what = "weights reach the models that a phase names"
        found.append(Without(what, partial(phase_complaints, key), of="phases"))
    if method.options:
        what = "a run without options takes those that are recorded"
        found.append(Without(what, partial(option_complaints, key), of="options"))
    what = "its recipes have the settings that were recorded"
    return (*found, Without(what, partial(changes_since_record, key), of=OF_SETTINGS))


def is_record(claim: Exact) -> bool:
    """Returns whether a claim compares settings with the record, which proves nothing about what they do."""
    return claim.of == OF_SETTINGS


def told_settings(key: str, one: Shipped) -> Settings:
    """Returns the recorded settings of a shipped recipe; those that it has, for a method without a record."""
    record = recorded_settings(key)
    if record is None:
        return settings_of(one.recipe())
    recipes, method = record["recipes"], catalogue.find_method(key)[1]
    names = [next(iter(recipes)), *([Shipped(one.preset, method.recipe).name] if one.variant else []), one.name]
    found: Settings = {}
    for name in dict.fromkeys(names):
        found |= recipes.get(name, {})
    return {path: value for path, value in found.items() if value is not None}


# ---------------------------------------------------------------------------------------------------- gathered steps
def tasks_for(method: Method, one: Shipped) -> list[Task]:
    """Returns the tasks on which a shipped recipe may be run: the default task, if that has its preset."""
    own = catalogue.find_task(method.default_task)
    if preset_for(own) == one.preset:
        return [own]
    others = (catalogue.find_task(name) for name in TASKS)
    return [task for task in others if preset_for(task).kind == one.preset.kind]


def step_complaints(key: str, places: Sequence[int]) -> list[str]:
    """Returns what is wrong in a few gathered steps of the first of these shipped recipes that a task does not refuse;
    why each was refused, if all were.
    """
    method, refused = catalogue.find_method(key)[1], list[str]()
    shipped = shipped_recipes(method)
    for one, task in ((shipped[place], task) for place in places for task in tasks_for(method, shipped[place])):
        try:
            return steps_on(one.recipe(), told_settings(key, one), task)
        except AssayError as error:
            refused.append(f"{REFUSED} {task.name}: {error}")
    return refused or [f"{REFUSED} no task of this kind is built in"]


REFUSED = "refused:"


def preset_complaints(key: str, place: int) -> list[str]:
    """Returns `step_complaints`, without those of tasks that the method rightly refuses: a user's may be another."""
    return [one for one in step_complaints(key, [place]) if not one.startswith(REFUSED)]


def steps_on(recipe: Recipe, told: Settings, task: Task) -> list[str]:
    """Returns what is wrong in a few gathered steps of a recipe, each complaint once."""
    recipe = shrunk(recipe)
    steps = gathered_steps(recipe, task)
    batches = [batch for step in steps for batch in step.batches]
    found = [*stage_complaints(recipe, told, batches), *copies_moved(recipe, told, batches)]
    finite = all(torch.isfinite(values).all() for one in batches[-1:] for values in one.after.values())
    found += [] if finite else ["weights are not finite"]
    for step in steps:
        found += [f"a guard stops the run: {reason}" for reason in step.stops]
        found += [] if step.fresh is None else gathered_complaints(recipe, told, task, step.fresh, step.batches)
    return list(dict.fromkeys(found))


def stage_complaints(recipe: Recipe, told: Settings, batches: Sequence[Trained]) -> list[str]:
    """Returns which models moved though no stage was due by the record, or did not move though one was."""
    found = [] if batches or not recipe.stages else ["no batch was trained on"]
    trained = {name for stage in recipe.stages for name in stage.trains}
    names = set(batches[0].before) if batches else set()
    for name in names - trained - set(recipe.copies):
        found += [f"{name} moved, which no stage trains"] * any(one.moved(name) for one in batches)
    for stage in recipe.stages:
        every = told.get(f"stages.{stage.name}.every", 1)
        own = [one for one in batches if one.source == (stage.source or recipe.source)]
        for name in stage.trains:
            moves = [one.update for one in own if one.moved(name)]
            if not moves:
                found.append(f"{name}, which stage {stage.name} trains, did not move in {len(own)} updates")
            alone = sum(name in other.trains for other in recipe.stages) == 1
            wrong = [one for one in moves if one % every] if alone else []
            found += [f"{name} moved at update {wrong[0]}, every {every} is recorded"] if wrong else []
            due = [one.update in moves for one in own if moves and one.update >= moves[0] and one.update % every == 0]
            # A single update may have no gradient; of those that follow each other some two must have.
            rare = len(due) > 2 and not any(one and other for one, other in pairwise(due))
            found += [f"{name} moves more rarely than every {every}, which is recorded"] * rare
    return found


def copies_moved(recipe: Recipe, told: Settings, batches: Sequence[Trained]) -> list[str]:
    """Returns which target networks moved otherwise than by the recorded rate and interval."""
    found = []
    for one in batches:
        feed = next((feed for feed in recipe.feeds if feed.source == one.source), None)
        for name in recipe.copies:
            if feed is not None and (gap := copy_gap(recipe, told, feed, name, one.update, one.before, one.after)):
                found.append(f"{name} is {gap:.2g} from where the record puts it")
    return found


def copy_gap(
    recipe: Recipe, told: Settings, feed: Feed, name: str, update: int,
    before: Mapping[str, Tensor], after: Mapping[str, Tensor],
) -> float:  # fmt: skip
    """Returns how far a copy is from (1 - rate) * copy + rate * model with the recorded numbers after an update of the
    feed, 0 within rounding. A copy called `reference` stays whatever is recorded. A gated copy is not judged.
    """
    rate, every = (told.get(f"copies.{name}.{one}", 0) for one in ("rate", "every"))
    is_due = name in feed.copies(recipe) and every and update % every == 0
    if recipe.copies[name].gate is not None:
        return 0.0
    share = float(rate) if is_due and name != "reference" else 0.0
    expected = torch.lerp(before[name], after[recipe.copies[name].of], share) if share else before[name]
    gap = float((after[name] - expected).abs().max())
    return gap if gap > ROUNDING * (1.0 + float(expected.abs().max())) else 0.0


ROUNDING = 1e-6


def gathered_complaints(
    recipe: Recipe, told: Settings, task: Task, fresh: Experience, batches: Sequence[Trained]
) -> list[str]:
    """Returns what is wrong with gathered rows: actions outside of their space, groups of another size than recorded,
    minibatches with a part of a group where sequences are trained on or a loss compares the rows of a group.
    """
    found, space = [], task.spec.action
    comparing = [one for one in recipe.stages if any(term.together == "group" for term in one.terms)]
    compared = [one.source or recipe.source for one in comparing]
    if isinstance(space, Box) and "rollout.explore" in told:  # a Gaussian's own actions are clipped by the task
        action = fresh.action[fresh.mask]
        low, high = (torch.tensor(side).to(action) for side in (space.low, space.high))
        slack = ROUNDING * (high - low)
        found += ["an action is outside of its space"] * bool(((action < low - slack) | (action > high + slack)).any())
    if fresh.group is None:
        return found
    sizes = {int(num) for num in torch.unique(fresh.group, return_counts=True)[1]}
    size = told.get("rollout.group_size")
    if told.get("rollout") == "Episodes" and fresh.episode is None and fresh.player is None and sizes != {size}:
        found.append(f"groups have {sorted(sizes)} rows, {size} are recorded")
    for one in batches if len(fresh) else ():
        needs_whole = isinstance(one.source, FreshSequences) or one.source in compared
        if needs_whole and one.batch.group is not None and fresh.mask.any():
            labels, nums = torch.unique(one.batch.group, return_counts=True)
            whole = torch.stack([(fresh.group == label).sum() for label in labels])
            found += ["a minibatch has a part of a group"] * bool((nums != whole).any())
    return found


# ---------------------------------------------------------------------------------------------------- without steps
def copy_complaints(key: str, places: Sequence[int]) -> list[str]:
    """Returns which target networks of the shipped recipes do not follow random weights as recorded, at updates where
    they are due and at others.
    """
    method, found = catalogue.find_method(key)[1], list[str]()
    shipped, known = shipped_recipes(method), list[Recipe]()
    for one in (shipped[place] for place in places):
        recipe = replace(one.recipe(), before=())
        if any((recipe.copies, recipe.actor, recipe.stages) == (old.copies, old.actor, old.stages) for old in known):
            continue
        known.append(recipe)
        engine, told = engine_of(recipe, tasks_for(method, one)), told_settings(key, one)
        if engine is None:
            continue
        often = [told.get(f"copies.{name}.every", 1) for name in recipe.copies]
        for update in range(max(often) + 2):
            found += followed_wrongly(engine, recipe, told, update)
    return list(dict.fromkeys(found))


def engine_of(recipe: Recipe, tasks: Sequence[Task]) -> Engine | None:
    """Returns the engine of the first task that the recipe's models can be built for; None if they refuse all."""
    for task in tasks:
        try:
            return Engine(recipe, task.spec, 0, Placement())
        except AssayError:  # the models refuse this task; another of its kind may fit
            continue
    return None


def followed_wrongly(engine: Engine, recipe: Recipe, told: Settings, update: int) -> list[str]:
    """Returns which copies are wrong after this update of models that were moved at random."""
    found = []
    for feed in recipe.feeds:
        for place, name in enumerate(sorted(set(engine.flats) - set(recipe.copies))):
            values = engine.flats[name].values
            values.add_(torch.randn(values.shape, generator=torch.Generator().manual_seed(17 * update + place)))
        before, engine.updates = weights_of(engine), update
        engine.follow(feed.copies(recipe))
        after = weights_of(engine)
        for name in recipe.copies:
            if gap := copy_gap(recipe, told, feed, name, update, before, after):
                found.append(f"at update {update} {name} is {gap:.2g} from where the record puts it")
    return found


def phase_complaints(key: str) -> list[str]:
    """Returns which phases of the recipe on the default task train wrongly, and which models of the last one do not
    begin with the weights of the latest phase that hands them on.
    """
    method = catalogue.find_method(key)[1]
    one, task = shipped_recipes(method)[0], catalogue.find_task(method.default_task)
    recipe, told, found = one.recipe(), told_settings(key, one), list[str]()
    weights, last = dict[str, Tensor](), Engine(replace(recipe, before=()), task.spec, 0, Placement())
    for place, phase in enumerate(recipe.before):
        head = f"before.{phase.name}.recipe."
        own = {path.removeprefix(head): value for path, value in told.items() if path.startswith(head)}
        if phase.task is None:
            found += [f"phase {phase.name}: {what}" for what in steps_on(phase.recipe, own, task)]
        there = None if phase.task is None else phase.task(Scene(task))
        engine = Engine(replace(phase.recipe, before=()), (there or task).spec, place + 1, Placement())
        weights |= handed_on(phase, engine)
    last.load(weights, recipe)
    for name, flat in last.flats.items():
        parts = zip(flat.names, flat.split(flat.values), strict=True)
        wrong = [part for part, value in parts if not torch.equal(weights.get(f"{name}.{part}", value), value)]
        found += [f"{name}.{wrong[0]} does not begin with the weights that a phase hands on"] if wrong else []
    recorded = {path.split(".")[3] for path in told if path.startswith("before.") and path.split(".")[2:3] == ["hands"]}
    handed = {own for phase in recipe.before for own, _ in phase.handed}
    found += [f"{name} is recorded as handed on, but is not" for name in sorted(recorded - handed)]
    return found


def option_complaints(key: str) -> list[str]:
    """Returns the recorded options of a system that a run without options does not have."""
    options = (recorded_settings(key) or {}).get("options", {})
    # Options of environments act on Gymnasium's alone, so they are tried on one of those.
    task = catalogue.find_task("CartPole-v1" if ENVIRONMENT & set(options) else "addition-1")
    has = as_the_method_runs(RunOptions(), key, task)
    wanted = RunOptions().or_else(run_options(options))
    return [] if has == wanted else [f"a run has {has.words()}, {wanted.words()} are recorded"]
