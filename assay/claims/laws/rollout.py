"""Laws of rollouts and of exploration. Axes: N rows, B sequences, T columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from assay.core.answers import AnswerFormat
from assay.core.record import Draw, Experience, Need
from assay.core.slots import ModelSpec, ResumableTask, Scene, Task, frame_of
from assay.core.spaces import Discrete, Spec, Vocabulary
from assay.engine.gathering import join_pieces
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.ops import random
from assay.claims.laws.trials import columns_of
from assay.claims.laws.cases import normal
from assay.claims.laws.handed import Handed, reads_models
from assay.claims.laws.invariance import changed_columns
from assay.claims.laws.laws import (
    LOOSE,
    Contract,
    Finding,
    Memo,
    Unsuited,
    gap,
    is_finite,
    law,
    other_streams,
    runs,
    shown,
    suited,
)
from assay.claims.laws.state import continuing
from assay.tasks.control.cartpole import CartPole, balance, cartpole
from assay.tasks.control.pendulum import Pendulum, pendulum, swing_up
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.games.matrix import PRISONERS_DILEMMA, Rules
from assay.tasks.games.repeated import RepeatedGame
from assay.tasks.language.addition import addition
from assay.tasks.tabular.table import chain

STARTS = np.array([4, 0, 9])
GAME = RepeatedGame("prisoners-dilemma", Rules(PRISONERS_DILEMMA, rounds=3))


@dataclass(frozen=True)
class Brief(Pendulum):
    """Pendulum in episodes of 30 decisions; no law of rollouts depends on their length."""

    limit: ClassVar[int] = 30


@dataclass(frozen=True)
class BriefPole(CartPole):
    """CartPole in episodes of 30 decisions: demonstrations reach the limit, of random episodes some fall before it."""

    limit: ClassVar[int] = 30


def brief_cartpole() -> SteppedTask:
    """Returns CartPole in short episodes."""
    spec, dynamics = replace(cartpole().spec, horizon=BriefPole.limit), BriefPole()
    return SteppedTask("cartpole", spec, partial(ArraySimulation, dynamics), balance, dynamics)


def brief_pendulum() -> SteppedTask:
    """Returns Pendulum in short episodes."""
    spec, dynamics = replace(pendulum().spec, horizon=Brief.limit), Brief()
    return SteppedTask("pendulum", spec, partial(ArraySimulation, dynamics), swing_up, dynamics)


def small_actor(spec: Spec) -> ModelSpec:
    """Returns an actor that suits the task, made small."""
    if isinstance(spec.action, Vocabulary):
        return Policy(Transformer(16, 1, 2))
    return Policy(Table() if isinstance(spec.observation, Discrete) else Perceptron((8,)))


def built(model: ModelSpec, spec: Spec) -> nn.Module:
    """Returns the model with weights that are the same every time and not at their start."""
    with random.seeded(7):
        module = model.build(spec)
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.add_(normal(f"rollout {place}", parameter.shape).to(parameter.dtype), alpha=0.1)
    return module


@dataclass(frozen=True)
class RolloutCase:
    """A task that a rollout can gather from."""

    name: str
    task: Task
    model: ModelSpec | None = None
    memo: Memo[Experience] = field(default_factory=Memo, init=False, compare=False, repr=False)

    def actor(self) -> Any:
        """Returns the given actor, or a small one that suits the task."""
        return built(self.model or small_actor(self.task.spec), self.task.spec)

    def gather(self, part: Any, seed: int = 1, starts: np.ndarray = STARTS, state: Any = None) -> Experience:
        """Returns fresh experience from a new start, or from a state."""
        asked = starts if part.num_starts else np.empty(0, dtype=np.int64)
        return self.gather_with(self.handed(part), part, seed, asked, state)

    def handed(self, part: Any) -> Handed:
        """Returns the models that the part declares."""
        return Handed(part.models, self.task.spec)

    def gather_with(self, models: Handed, part: Any, seed: int, starts: np.ndarray, state: Any) -> Experience:
        """Returns fresh experience from these starts, with these models."""
        scene = Scene(self.task, models, Draw(seed, (0,)), actor=self.actor(), starts=starts)
        gathered: Experience = part(scene, part.init(scene) if state is None else state)
        return gathered

    def plain(self, part: Any) -> Experience:
        """Returns fresh experience from a new start, gathered once for all laws."""
        return self.memo(part, lambda: self.gather(part))


def rollout_cases(
    part: Any, task: Task | None = None, actor: ModelSpec | None = None
) -> list[RolloutCase] | list[Unsuited]:
    """Returns a task of each kind, or the given one; only those that the rollout and the actor can start on."""
    usual: tuple[Task, ...] = (addition(1), chain(4), brief_cartpole(), brief_pendulum(), GAME)
    rare: tuple[Task, ...] = (replace(addition(1), answer_format=AnswerFormat(openings=("1", "2"))),)
    reason = "it refuses the given task, or tokens, discrete and continuous actions, and numbered states"
    found: list[RolloutCase] | list[Unsuited] = []
    for tasks in (usual, rare) if task is None else ((task,),):
        cases = [RolloutCase(f"task {one.name}", one, actor) for one in tasks]
        found = suited(cases, lambda case: (part.init(Scene(case.task)), case.actor()), reason)
        if isinstance(found[0], RolloutCase):
            break
    return found


@law("it gathers decisions")
def gathers(part: Any, case: RolloutCase) -> Iterator[str]:
    """At least one."""
    if not bool(case.plain(part).mask.any()):
        yield "there is no decision in what it gathered"


@law(
    "recorded log-probabilities equal recomputed ones under the same weights",
    lambda part: getattr(part, "explore", None) is None,
)
def recorded(part: Any, case: RolloutCase) -> Iterator[str]:
    """Sampled, then scored."""
    fresh = case.plain(part)
    with torch.no_grad():
        again = case.actor().score(fresh, frozenset({Need.LOGP})).logp
    noted = fresh.extra.get("logp_model", fresh.logp)
    if gap(again, noted) > LOOSE:
        at = (again - noted).abs().flatten().argmax()
        yield f"recorded {shown(noted.flatten()[at])}, recomputed {shown(again.flatten()[at])}"


@law("the seed determines the batch, and another seed gives another")
def seeded(part: Any, case: RolloutCase) -> Iterator[str]:
    """With the global random streams at different places."""
    with other_streams(1):
        first = case.gather(part)
    with other_streams(2):
        second = case.gather(part)
    yield from (f"{detail} under the same seed" for detail in changed_columns(first, second))
    other = case.gather(part, seed=2)
    if other.action.shape == first.action.shape and torch.equal(other.action, first.action):
        yield "every decision is the same under another seed"


@law("nothing is recorded where the mask is false, and everything is finite")
def masked(part: Any, case: RolloutCase) -> Iterator[str]:
    """Log-probabilities, rewards and ends belong to decisions."""
    fresh = case.plain(part)
    hole = ~fresh.mask
    for name in ("logp", "reward", "terminal", "truncated"):
        column = getattr(fresh, name)
        if bool((column[hole] != 0).any()):
            yield f"{name} is {shown(column[hole])} where the mask is false"
        if not is_finite(column):
            yield f"{name} is not finite"


@law("what a start gives does not depend on the other starts", lambda part: part.num_starts > 0)
def subset(part: Any, case: RolloutCase) -> Iterator[str]:
    """One start alone has the first decisions that it has among others; torques up to rounding."""
    together, alone = case.plain(part), case.gather(part, starts=STARTS[1:2])
    rows = together.rows(together.column("start") == int(STARTS[1]))
    num = min(10, rows.num_columns, alone.num_columns)
    if gap(rows.action[:, :num] * is_there(rows, num), alone.action[:, :num] * is_there(alone, num)) > LOOSE:
        yield f"start {STARTS[1]} gives other decisions when it is alone"


@law("a batch that may be cut by start has the same rows if it is", lambda part: part.by_start)
def by_start(part: Any, case: RolloutCase) -> Iterator[str]:
    """Two starts and one, joined: order, labels and decisions are those of all together; numbers up to rounding."""
    whole, parts = case.plain(part), join_pieces([case.gather(part, starts=some) for some in (STARTS[:2], STARTS[2:])])
    if whole.mask.shape != parts.mask.shape or not torch.equal(whole.mask, parts.mask):
        yield f"decisions are {shown(parts.mask.sum(1))} a row instead of {shown(whole.mask.sum(1))}"
        return
    mine, theirs = labels_of(whole) | dict(columns_of(whole)), labels_of(parts) | dict(columns_of(parts))
    for name in {**mine, **theirs}:
        if name not in mine or name not in theirs:
            yield f"the column {name} is written once and not the other time"
        elif gap(*(one[whole.mask] if one.dim() > 1 else one for one in (mine[name], theirs[name]))) > LOOSE:
            yield f"the column {name} is {shown(theirs[name])} instead of {shown(mine[name])}"
    if part.init(Scene(case.task)):
        yield "it has a state"


def labels_of(record: Experience) -> dict[str, torch.Tensor]:
    """Returns the columns that say where a row belongs."""
    found = {"group": record.group, "episode": record.episode, "player": record.player, "source": record.source}
    return {name: column for name, column in found.items() if column is not None}


def is_there(record: Experience, num: int) -> torch.Tensor:
    """Returns the mask of the first columns, with axes to multiply actions by."""
    mask = record.mask[:, :num]
    return mask.view(*mask.shape, *[1] * (record.action.dim() - 2))


@law("used in its frame, a policy decides as when it was gathered", lambda part: frame_of(part) is not None)
def framed(part: Any, case: RolloutCase) -> Iterator[str]:
    """Every (start, sample) has as many decisions, and the log-probability, that it had; a narrowed one has others."""
    fresh, frame = case.plain(part).own(), frame_of(part)
    if frame is None or "logp_model" in fresh.extra:
        return
    pairs, row = torch.stack([fresh.column("start"), fresh.column("sample")], 1).unique(dim=0, return_inverse=True)
    start, sample = pairs.numpy().T
    used = case.task.play(frame.around({"actor": case.actor()}), start, sample, Draw(1, (0,)), split=0, greedy=False)
    for name, ours, theirs in (("decisions", used.mask, fresh.mask), ("log-probability", used.logp, fresh.logp)):
        before = torch.zeros(len(pairs)).index_add(0, row, theirs.sum(1).float())
        if gap(ours.sum(1).float(), before) > LOOSE:
            yield f"{name} of an episode: {shown(ours.sum(1).float())} when used, {shown(before)} when gathered"


class Overheard:
    """A token actor that always writes the same token and keeps what it was given to read."""

    num_draws = 1

    def __init__(self, token: int, size: int) -> None:
        self.token, self.size, self.num, self.heard = token, size, 0, list[list[int]]()

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Overheard:
        """Returns itself with this number of rows."""
        self.heard += [list(prompt) for prompt in prompts]
        self.num = sum(repeats)
        return self

    def logits(self) -> torch.Tensor:
        """Returns logits with all weight on its token."""
        return torch.full((self.num, self.size), -30.0).index_fill(1, torch.tensor([self.token]), 30.0)

    def push(self, tokens: torch.Tensor) -> None:
        """Does nothing: it has no state."""

    def keep(self, rows: torch.Tensor) -> None:
        """Continues with these rows."""
        self.num = len(rows)


@law("an evaluation never sees a hint")
def unhinted(part: Any, case: RolloutCase) -> Iterator[str]:
    """On held-out starts the deployed policy reads the task's own prompt and its own tokens, and nothing else."""
    task, frame = case.task, frame_of(part)
    if not isinstance(task, ResumableTask) or not isinstance(task.spec.action, Vocabulary) or frame is None:
        return  # without a frame the deployed policy is the actor itself, and the task writes its prompts
    own = task.begin(STARTS, 1)
    prompts = [row[there].tolist() for row, there in zip(own.context["tokens"], own.context["valid"], strict=True)]
    spy = Overheard(task.spec.action.size - 1, task.spec.action.size)
    task.play(frame.around({"actor": spy}), STARTS, np.zeros_like(STARTS), Draw(1, (7,)), split=1, greedy=True)
    for heard in spy.heard:
        ours = [prompt for prompt in prompts if heard[: len(prompt)] == prompt]
        if not any(set(heard[len(prompt) :]) <= {spy.token} for prompt in ours):
            yield f"it was shown {heard}, which is not a prompt of the task followed by what the policy wrote"


def used(part: Any, case: RolloutCase) -> Handed:
    """Gathers once; returns the models that were handed."""
    models, starts = case.handed(part), STARTS if part.num_starts else STARTS[:0]
    case.gather_with(models, part, 1, starts, None)
    return models


STATE = continuing(
    lambda part, case: part.init(Scene(case.task)), lambda part, case, state, time: case.gather(part, state=state)
)
LAWS = (runs, gathers, recorded, seeded, masked, subset, by_start, STATE.resumes, framed, unhinted, reads_models(used))
ROLLOUT = Contract("rollout", LAWS, rollout_cases)


def check_rollout(part: Any, task: Task | None = None, actor: ModelSpec | None = None) -> list[Finding]:
    """Checks the laws of a rollout, on a task or on one of each kind, with an actor or with a small one that suits."""
    return ROLLOUT.check(part, rollout_cases(part, task, actor))


