"""The training loop, the same for all methods: draws starts, gathers, rewards, credits, and steps the recipe's
stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.core.errors import AssayError
from assay.core.recipe import Feed, Recipe
from assay.core.record import Draw, Experience, Progress, State, Sums, concatenate
from assay.core.slots import Sampled, Scene, Task, Transform, most_decisions
from assay.core.slots.scene import DISCARDED
from assay.core.spaces import Spec, Vocabulary
from assay.core.verifier import Metered
from assay.engine.batch_shards import digest
from assay.engine.engine import Engine
from assay.engine.evaluation import source_metrics
from assay.engine.gathering import Gatherers, Gathering, batches_of, handed
from assay.engine.guards.correctness import STANDARD, Alarm, Moment, Watch
from assay.engine.guards.wiring import inspect_credit
from assay.engine.loop_metrics import averages, count_sampled, credit_metrics, largest_means, means, outcome_metrics
from assay.engine.memory import check_memory
from assay.engine.placement import Placement, task_on, with_history
from assay.engine.updates import Slip, Update
from assay.ops import groups


@dataclass
class Step:
    """The result of one pass of the loop."""

    progress: Progress
    metrics: dict[str, float] = field(default_factory=dict)
    fresh: Experience | None = None
    alarms: list[Alarm] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        """Adds the time spent inside to a phase."""
        begin = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begin


class Loop:
    """Trains a recipe on a task. Its whole state is in `snapshot`; randomness is a function of (seed, ordinal)."""

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        *,
        seed: int,
        num_steps: int,
        placement: Placement = Placement(),
        guards: tuple[Watch, ...] = STANDARD,
    ) -> None:
        recipe, task = recipe.at_limit(most_decisions(task)).at_task(task), with_history(recipe, task)
        check_memory(recipe, task.spec, num_steps, placement.device)
        self.recipe, self.task, self.seed, self.guards = recipe, task_on(task, placement), seed, guards
        self.engine = engine_for(recipe, task.spec, seed, placement)
        self.progress = Progress(num_steps=num_steps)
        self.states: State = {}
        self.gatherers: Gatherers | None = None
        self.begin({})

    def begin(self, handed: Mapping[str, Any]) -> None:
        """Sets every part's state to that of a new run; `handed` are the states from earlier phases."""
        recipe = self.recipe
        scene = Scene(self.task, self.engine, Draw(self.seed), self.progress, handed=handed)
        self.states = {
            "sources": [feed.source.init(scene) for feed in recipe.feeds],
            "rollout": recipe.rollout.init(scene) if recipe.rollout else {},
            "curriculum": recipe.curriculum.init(scene) if recipe.curriculum else {},
            "rewards": [part.init(scene) for part in recipe.rewards],
            "select": recipe.select.init(scene) if recipe.select else {},
            "credit": [part.init(scene) for part in recipe.credit],
            "constraints": [part.init(scene) for part in recipe.constraints],
            "guards": [guard.init() for guard in self.guards],
        }

    @property
    def actor(self) -> Any:
        """The actor that gathers and is trained."""
        return self.engine.models["actor"]

    @property
    def reference(self) -> Any:
        """Returns the reference policy, or None if the recipe has none."""
        return self.engine.models["reference"] if "reference" in self.recipe.copies else None

    @property
    def policy(self) -> Any:
        """The policy to evaluate and deploy."""
        return self.recipe.policy(self.engine.models)

    def step(self) -> Step:
        """Runs one pass: gather, reward, credit, update, observe. With ranks, all of them run it together."""
        # Ranks that have drifted apart would train different models without a word: compared at every step.
        self.engine.ranks.meet(lambda: digest(piece for flat in self.engine.flats.values() for piece in flat.pieces))
        recipe, step = self.recipe.at(self.progress), Step(self.progress)
        draw = Draw(self.seed, (self.progress.step,))
        scene = Scene(self.task, self.engine, draw, self.progress)
        # The recipe is that of this step: schedules have their values before anything is gathered.
        fresh = self.gather(recipe, scene, step) if recipe.rollout else None
        if fresh is not None:
            who = self.engine.models[recipe.behaviour]
            if isinstance(who, Sampled):
                who.release()  # the update needs the memory
            fresh = self.prepare(recipe, fresh, scene, step)
            step.fresh = fresh

        def batches(place: int, feed: Feed, own: Draw) -> Iterator[Experience]:
            # Only what this feed's stages read: a column may cost a pass of a model.
            needs = feed.needs(recipe)
            source, here = feed.source, scene.given(fresh=fresh, draw=own)
            for batch in batches_of(source, here, source(here, self.states["sources"][place])):
                yield self.engine.annotate(batch, needs)

        with step.time_phase("update"):
            updates, found = learn(self.engine, recipe, draw, batches)
        step.metrics.update(averages(scene.metrics))
        # Known only now: `learn` has settled all updates.
        faults = tuple(update.fault for update in updates if update.fault)
        slips = tuple(slip for update in updates for slip in update.slips)
        metrics = means(found) | largest_means(found, recipe.watched.values())
        self.finish(recipe, step, metrics, self.engine.updates, fresh, faults, slips, len(updates))
        return step

    def finish(
        self,
        recipe: Recipe,
        step: Step,
        metrics: Mapping[str, float],
        updates: int,
        fresh: Experience | None = None,
        faults: tuple[str, ...] = (),
        slips: tuple[Slip, ...] = (),
        tried: int = 0,
    ) -> None:
        """Counts the step, shows its metrics to credit and constraints, and runs the guards on them and on the faults
        of its updates.
        """
        self.progress = replace(self.progress, step=self.progress.step + 1, updates=updates)
        step.metrics.update(metrics)
        # A multiplier or controller moves once a step, after all updates, by what they measured.
        for part, own in zip(*self._preparing_parts(recipe), strict=True):
            part.updated(step.metrics, own)
        moment = Moment(recipe, step.progress, self.actor, fresh, step.metrics, faults, slips, tried)
        for guard, state in zip(self.guards, self.states["guards"], strict=True):
            step.alarms += guard.updated(moment, state)

    def observe_scores(self, scores: Sequence[float]) -> list[Alarm]:
        """Shows the guards the scores of held-out starts; returns their alarms."""
        watched = zip(self.guards, self.states["guards"], strict=True)
        return [alarm for guard, state in watched for alarm in guard.evaluated(scores, state)]

    def gather(self, recipe: Recipe, scene: Scene, step: Step) -> Experience:
        """Returns fresh, rewarded experience; gathers again while the recipe's selection asks for more.

        Selection keeps at most as many groups as one round has, in a game as many starts with all their players. If
        it keeps none, the step has no decisions.
        """
        assert recipe.rollout is not None
        who = self.engine.models[recipe.behaviour]
        gathering = Gathering(recipe, self.engine, self.states, step.time_phase, self.gatherers)
        kept: list[Experience] = []
        asked = missing = recipe.rollout.num_starts
        for _ in range(recipe.select.max_rounds if recipe.select else 1):
            fresh = gathering.rows(scene.given(num_starts=asked))
            if isinstance(self.task, Metered) and (waited := self.task.waited()):
                step.seconds["replies"] = step.seconds.get("replies", 0.0) + waited
                step.seconds["sample"] = step.seconds.get("sample", 0.0) - waited
            moment = Moment(recipe, step.progress, who, fresh, step.metrics)
            for guard, state in zip(self.guards, self.states["guards"], strict=True):
                step.alarms += guard.gathered(moment, state)
            # Guards have seen what was recorded; from here on ratios compare numbers of one precision.
            fresh = gathering.rescore(scene, fresh)
            # Metrics are of the policy's own rows: demonstrations in a batch would flatter it.
            own = fresh.own()
            spent = count_sampled(fresh) + int(sum(value for value, _ in scene.metrics.pop(DISCARDED, ())))
            self.progress = replace(self.progress, decisions=self.progress.decisions + spent)
            step.metrics.update(outcome_metrics(own) | source_metrics(own, self.task))
            if recipe.select is None:
                return fresh
            part = recipe.select(fresh, scene.given(draw=scene.draw.at(11)), self.states["select"])
            # Through float32: the metric keeps the bits that it had as a tensor.
            step.metrics["selected"] = float(torch.tensor(len(part) / max(1, len(fresh))))
            if len(part):
                found = groups.linked_groups(part)
                # More groups than asked would make a larger batch than the recipe's.
                kept.append(part.rows(found.index < missing))
                missing -= min(missing, found.num)
            if not missing:
                break
        return concatenate(kept) if kept else replace(fresh, mask=torch.zeros_like(fresh.mask))

    def prepare(self, recipe: Recipe, fresh: Experience, scene: Scene, step: Step) -> Experience:
        """Adds the columns that parts need, then applies shaping, credit and constraints in order; last, the
        curriculum observes the rewards and credit of its starts.
        """
        with step.time_phase("credit"):
            fresh = self.engine.annotate(fresh, recipe.needs)
            for place, (part, state) in enumerate(zip(*self._preparing_parts(recipe), strict=True)):
                own, is_first = scene.given(draw=scene.draw.at(12, place)), self.progress.step == 0 and not state
                after, alarms = inspect_credit(part, fresh, part(fresh, own, state), own, is_first=is_first)
                fresh, step.alarms = after, [*step.alarms, *alarms]
        # After credit, since a curriculum may read advantages.
        if recipe.curriculum is not None:
            with handed(recipe.curriculum, scene):
                recipe.curriculum.observe(fresh, scene, self.states["curriculum"])
        step.metrics.update(credit_metrics(fresh))
        return fresh

    def _preparing_parts(self, recipe: Recipe) -> tuple[Sequence[Transform], Sequence[State]]:
        """Returns the parts of credit and constraints in order, and their states."""
        return (*recipe.credit, *recipe.constraints), (*self.states["credit"], *self.states["constraints"])

    # ------------------------------------------------------------------------------------------------ state
    def snapshot(self) -> State:
        """Returns the whole state of the run, as a tree of plain values; with ranks, this one's slices of optimizers'
        states.
        """
        return {
            "engine": self.engine.snapshot(),
            "states": freeze_states(self.states),
            "progress": dict(vars(self.progress)),
            "seed": self.seed,
            **({} if self.gatherers is None else {"gatherers": self.gatherers.snapshot()}),
        }

    def restore(self, state: State) -> None:
        """Resumes exactly where `snapshot` was taken."""
        if state["seed"] != self.seed:
            raise AssayError(f"the checkpoint has seed {state['seed']}, this run has {self.seed}. Use the same seed")
        self.engine.restore(state["engine"])
        self.states = thaw_states(self.states, state["states"])
        # The number of steps is the present plan's: a run may be resumed for longer.
        self.progress = replace(Progress(**state["progress"]), num_steps=self.progress.num_steps)
        if self.gatherers is not None and "gatherers" in state:
            self.gatherers.restore(state["gatherers"])


def engine_for(recipe: Recipe, spec: Spec, seed: int, placement: Placement) -> Engine:
    """Returns the engine of a recipe; on a GPU one with graphs, but for tokens, whose rows differ in shape."""
    if isinstance(spec.action, Vocabulary) or not (placement.is_on_gpu and placement.captured):
        return Engine(recipe, spec, seed, placement)
    from assay.engine.captured import CapturedEngine  # here: a run on the CPU does not need it

    return CapturedEngine(recipe, spec, seed, placement)


def learn(
    engine: Engine, recipe: Recipe, draw: Draw, batches: Callable[[int, Feed, Draw], Iterable[Experience]]
) -> tuple[list[Update], list[Sums]]:
    """Steps every stage that is due on each of the recipe's batches, and updates the target networks after each
    batch.

    `batches(place, feed, draw)` yields the annotated batches of one feed. Returns the updates and the step's metrics.
    """
    updates: list[Update] = []
    found: list[Sums] = []
    with torch.no_grad():
        # Some optimizers have an own state for each step (moments that begin again).
        for stage in recipe.stages:
            stage.optimizer.begin(engine.optimizers[stage.name])
    for place, feed in enumerate(recipe.feeds):
        copies = feed.copies(recipe)
        # The first feed has the step's own draw: recipes with one source keep their numbers if a second one is added.
        for batch in batches(place, feed, draw.at(8, place) if place else draw):
            due = [stage for stage in feed.stages if engine.updates % stage.every == 0]
            # Stages that share a network are stepped from one backward pass; the others one after the other.
            for stages in recipe.together(due):
                done = engine.update_together(stages, batch)
                updates += done
                found += [update.sums for update in done]
            found.append(engine.follow(copies))
    for update in updates:
        update.settle()  # the host waits for the device here, once a step
    return updates, found


def freeze_states(value: Any) -> Any:
    """Returns a state tree with live objects (simulations) replaced by their snapshots."""
    if isinstance(value, dict):
        return {name: freeze_states(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [freeze_states(item) for item in value]
    return value.snapshot() if callable(getattr(value, "snapshot", None)) else value


def thaw_states(mine: Any, saved: Any) -> Any:
    """Returns the saved tree with the live objects of `mine` restored from their snapshots."""
    if callable(getattr(mine, "restore", None)) and not isinstance(mine, dict):
        mine.restore(saved)
        return mine
    if isinstance(saved, dict):
        here = mine if isinstance(mine, dict) else {}
        return {name: thaw_states(here.get(name), item) for name, item in saved.items()}
    if isinstance(saved, list) and isinstance(mine, list) and len(mine) == len(saved):
        return [thaw_states(own, item) for own, item in zip(mine, saved, strict=True)]
    return saved
