"""hil-serl: serl with an overseer who takes over; the overseer's decisions also join the demonstrations.

    executed action = the overseer's in a takeover, else the policy's;  a takeover lasts 4 decisions, from the 8th
    proposal a in a row with <a, e> < 0 on, e being the overseer's action: no progress towards where it leads
    batch = half of all that was executed, half of the demonstrations and the overseer's decisions together
    y = reward + discount * min(Q'_1, Q'_2)(s', a'),  reward = the task's;  no entropy in y

Luo et al. 2024. Demonstrations end where the policy leaves them; an overseer acts in the states that it reaches. What
it proposed is not trained on, nor that it was overruled: an intervention is data like any other.

Axes: B sequences, N instances, T columns, A action dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.method import CONTINUOUS, DEMOS, NEEDED, AssayError, Box, Choice, Context, Draw, Experience, Method, Metric
from assay.method import Loss, Objective, Origin, Preset, Recipe, Scene, Schedule, ScriptedTask, Simulation, Stage
from assay.method import State, View, classified, mixed, number, random, rlpd
from assay.parts import Around, Fragments, Logged, OverDecisions, Replay, Retained, at, from_columns, transitions


Overseer = Callable[[Context], Tensor | None]
"""A function from the contexts of N instances to their actions; NaN, or None for all, where it does not act."""


class Straying(Choice, Protocol):
    """Says in which rows a proposed action is one that an overseer would not let pass many times."""

    def __call__(self, proposed_NA: Tensor, shown_NA: Tensor) -> Tensor:
        """Returns a bool for each row, from the policy's actions and the overseer's."""


@dataclass(frozen=True)
class NoProgress(Straying):
    """A proposal a strays where <a, e> < `least` * <e, e>, with e the overseer's action: it gets less than this share
    of that way. Choices stray where they differ. Degenerate: where the overseer stands still nothing strays.
    """

    least: float = 0.0

    def __call__(self, proposed_NA: Tensor, shown_NA: Tensor) -> Tensor:
        if not proposed_NA.is_floating_point():
            return (proposed_NA != shown_NA).view(len(shown_NA), -1).any(1)
        return ((proposed_NA - self.least * shown_NA) * shown_NA).sum(1) < 0


@dataclass(frozen=True)
class Offered(Straying):
    """Every proposal strays for which the overseer has an action: with `patience` 1 and `stretch` 1 it acts whenever it
    offers one, as a person does who takes the controls and lets them go. Where it offers none, nothing strays.
    """

    def __call__(self, proposed_NA: Tensor, shown_NA: Tensor) -> Tensor:
        return torch.ones(len(proposed_NA), dtype=torch.bool)


class Watched:
    """A simulation in which the overseer's action is executed in place of the policy's in a takeover.

    Of each instance it remembers how many proposals in a row have strayed, and how many decisions of a takeover are
    left; both are 0 when an episode begins. The step after its end, whose action is ignored, is in none. Where the
    overseer offers no action the policy acts, and a takeover is over.
    """

    def __init__(self, inner: Simulation, num: int) -> None:
        self.inner, self.time = inner, 0
        self.context: Context = {}
        self.strayed, self.left = torch.zeros(2, num, dtype=torch.long)
        self.over = torch.zeros(num, dtype=torch.bool)

    def begin(self, rules: Overseen, expert: Overseer, space: Any, draw: Draw) -> None:
        """Sets the overseer of the next steps, of which none is recorded yet."""
        self.rules, self.expert, self.space, self.draw = rules, expert, space, draw
        self.taken = list[tuple[Tensor, Tensor]]()

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        self.context = self.inner.reset(seeds)
        return self.context

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps all instances, with the overseer's action in a takeover; records both."""
        (shown, offered), rules = self.shown(action), self.rules
        self.strayed = (self.strayed + 1) * (rules.strays(action, shown) & offered & ~self.over)
        chance = random.uniform(self.draw, np.arange(len(action)), self.time)
        begins = (self.strayed >= rules.patience) & torch.from_numpy(chance < number(rules.rate)) & (self.left == 0)
        self.left = torch.where(begins & ~self.over, rules.stretch, self.left)
        self.left = self.left * offered
        acts = self.left > 0
        executed = torch.where(acts.view(-1, *[1] * (action.dim() - 1)), shown, action)
        self.taken.append((executed, acts))
        self.context, reward, terminal, truncated, cost = self.inner.step(executed)
        self.over = terminal | truncated
        self.left, self.strayed = (self.left - acts.long()) * ~self.over, self.strayed * ~(acts | self.over)
        self.time += 1
        return self.context, reward, terminal, truncated, cost

    def shown(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the overseer's actions, inside their bounds, and the rows [N] in which it offers one: not those of
        NaN, none if it returns None; there the policy's stand. Raises AssayError if they are not actions.
        """
        given = self.expert(self.context)
        if given is None:
            return action, torch.zeros(len(action), dtype=torch.bool)
        shown = torch.as_tensor(given)
        if shown.shape != action.shape:
            wanted = f"one action a row, {tuple(action.shape)}, NaN in rows that it leaves to the policy, or None"
            raise AssayError(f"the overseer returned shape {tuple(shown.shape)}. Return {wanted}")
        flat = shown.reshape(len(shown), -1)
        offered = ~flat.isnan().all(1)
        if not bool(torch.isfinite(flat[offered]).all()):
            what = "the overseer returned numbers that are not finite in a part of an action"
            raise AssayError(f"{what}. Return NaN in the whole row to leave it to the policy")
        if isinstance(self.space, Box):
            shown = shown.clamp(*(torch.tensor(side, dtype=shown.dtype) for side in (self.space.low, self.space.high)))
        shown = torch.where(offered.view(-1, *[1] * (action.dim() - 1)), shown, action.to(shown.dtype))
        return shown.to(action.dtype), offered

    def snapshot(self) -> State:
        """Returns everything that `restore` needs."""
        memory = {"strayed": self.strayed, "left": self.left, "over": self.over, "time": self.time}
        return {"inner": self.inner.snapshot(), "context": dict(self.context), **memory}

    def restore(self, state: State) -> None:
        """Continues from the snapshot."""
        self.inner.restore(state["inner"])
        for name in ("context", "strayed", "left", "over", "time"):
            setattr(self, name, state[name])


@dataclass(frozen=True)
class Overseen(Around):
    """Runs `gather` beside an overseer, who takes over at the `patience`-th proposal in a row that strays, with chance
    `rate`, and then acts for `stretch` decisions or until the episode ends: HIL-SERL (arXiv:2410.21845).

    `expert` is a function from contexts to actions, NaN in rows that it leaves to the policy (or None for all); without
    one it is the task's scripted expert. A person is such a function, with `Offered()`. What was executed is recorded
    as the action; `proposed` [N, T, ...] is the policy's, `intervened` [N, T] marks takeovers, with log-probability 0,
    since the overseer's is unknown: nothing that forms ratios may learn from it. Logs the share `intervened`. An
    evaluation has no overseer. Degenerate: rate 0 is `gather`.
    """

    gather: Fragments = Fragments()
    expert: Overseer | None = None
    strays: Straying = NoProgress()
    patience: int = 8
    stretch: int = 4
    rate: float | Schedule = 1.0
    writes: ClassVar[Mapping[str, str]] = {
        "intervened": "BT: an overseer took the decision in the policy's place",
        "proposed": "BTA: the policy's own action, executed or not",
    }
    watches: ClassVar[tuple[Metric, ...]] = (Metric("intervened"),)
    has_logp: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"recorded": "the log-probability of an overseer's decision is unknown"}

    def __post_init__(self) -> None:
        for name, value in (("patience", self.patience), ("stretch", self.stretch)):
            if value < 1:
                raise AssayError(f"rollout.{name} is {value}. Use 1 or more decisions")

    def overseer(self, scene: Scene) -> Overseer:
        """Returns the function that acts; raises AssayError if the task has no script."""
        task = scene.task
        found = self.expert or (task.expert if isinstance(task, ScriptedTask) else None)
        if found is None:
            what = f"task '{task.name}' has no scripted expert to take over"
            raise AssayError(f"{what}. Use one that has (peg), replace(task, expert=...), or Overseen(expert=...)")
        return found

    def init(self, scene: Scene) -> State:
        """Returns the inner rollout's state with the simulations watched; raises AssayError without an overseer."""
        self.overseer(scene)
        state = self.gather.init(scene)
        return {**state, "simulation": Watched(state["simulation"], self.gather.num_envs)}

    def __call__(self, scene: Scene, state: State) -> Experience:
        watched = state["simulation"]
        watched.begin(self, self.overseer(scene), scene.task.spec.action, Draw(scene.draw.seed).at(21))
        record = self.gather(scene, state)
        columns = zip(*watched.taken, strict=True)
        executed, acts = (torch.stack([*some, torch.zeros_like(some[-1])], 1) for some in columns)
        scene.log("intervened", float(acts.sum()), float(record.mask.sum()))
        marks = {"intervened": acts, "proposed": record.action}
        return replace(record, action=executed, logp=record.logp * ~acts).add(marks)


@dataclass(frozen=True)
class Growing(Logged):
    """`Logged` whose one dataset grows by the decisions of the fresh experience that are marked `intervened`; rows are
    drawn uniformly from both together, and the column `source` of the new ones is HUMAN.

    The last `capacity` of them are kept, and saved. Degenerate: without such decisions it is `Logged`, row by row.
    """

    capacity: int = 100_000

    def init(self, scene: Scene) -> State:
        """Returns the dataset, and an empty buffer; raises AssayError if there are several datasets."""
        if len(self.logs) != 1:
            raise AssayError(f"demonstrations that grow are one dataset; {len(self.logs)} were given. Join the files")
        return {**super().init(scene), "added": self.ring.init(scene)}

    @property
    def ring(self) -> Replay:
        """The buffer of what was added."""
        return Replay(self.capacity, warmup=0)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the overseer's decisions at once, whether or not a batch is drawn; then yields the batches."""
        fresh = scene.fresh
        if fresh is not None and "intervened" in fresh.extra:
            theirs = replace(fresh, mask=fresh.mask & fresh.extra["intervened"])
            if bool(theirs.mask.any()):
                self.ring.store(self.laid_out(theirs, state), state["added"])
        return self.batches(scene, state)

    def laid_out(self, theirs: Experience, state: State) -> dict[str, Tensor]:
        """Returns the overseer's transitions with the columns of the dataset: no one marked their successes."""
        columns = transitions(theirs)
        if "success" in state["contents"].columns[0]:
            columns["success"] = torch.zeros_like(columns["mask"])
        return columns

    def batches(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields rows of the dataset, then those that were added."""
        (shown,), added = state["contents"].columns, state["added"]
        num = len(shown["mask"])
        for update in range(self.updates):
            index = torch.from_numpy(random.integers(scene.draw.at(4, update, 0), num + added["size"], self.batch))
            old, new = index[index < num], index[index >= num] - num
            parts = [rows_at(shown, old), rows_at(added["columns"], new)] if len(new) else [rows_at(shown, old)]
            joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
            origin = torch.where(torch.arange(len(index)) < len(old), self.logs[0].origin, int(Origin.HUMAN))
            yield replace(from_columns(joined), source=origin)


def rows_at(columns: dict[str, Tensor], places: Tensor) -> dict[str, Tensor]:
    """Returns these rows of all columns."""
    return {name: at(column, places) for name, column in columns.items()}


def recipe(preset: Preset = CONTINUOUS, rate: float = 1.0, learned: bool = False) -> Recipe:
    """Returns RLPD under an overseer; `learned` takes rewards from a classifier of success."""
    source = mixed(Growing(DEMOS.logs, condition=NEEDED if learned else None), warmup=100)
    base = rlpd(source, discount=0.97, averaged=True, temperature=0.01, entropy=-0.5, critics=2)
    overseen = replace(base, name="hil-serl", rollout=Overseen(Fragments(num_envs=1, steps=8), rate=rate))
    return classified(overseen, source) if learned else overseen


@dataclass(frozen=True)
class Shown(OverDecisions, Objective):
    """loss = -sum_bt log pi(a_bt | s_bt) / number of decisions, of decisions that were shown.

    None of its rows is the policy's own, so recorded log-probabilities, which a takeover lacks, are not needed.
    Degenerate: an empty mask gives sum 0 and count 0.
    """

    breaks: ClassVar[dict[str, str]] = {"zero_credit": "likelihood does not read credit: every shown decision counts"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        nll = -(view.scored.logp * batch.weight).sum()
        return Loss(nll, self.count(batch), {"nll": (nll.detach(), self.count(batch))})


def cloning(preset: Preset = CONTINUOUS) -> Recipe:
    """Interactive cloning with the same overseer (HG-DAgger, arXiv:1810.02890): likelihood of the demonstrations and of
    the overseer's decisions together, as many rows and steps of the actor; rewards are not read.
    """
    base = recipe(preset)
    assert isinstance(base.source, Retained)
    updates = base.source.replay.updates // base.stages[1].every
    source = Growing(DEMOS.logs, batch=base.source.replay.batch, updates=updates)
    stage = Stage("likelihood", ("actor",), (Shown(),), optimizer=base.stages[1].optimizer)
    return replace(base, name="interactive-cloning", critics={}, copies={}, source=source, stages=(stage,))


METHOD = Method(
    paper="arXiv:2410.21845",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="walled-peg",
    family="offline to online",
    base=lambda preset=CONTINUOUS: rlpd(mixed(DEMOS, warmup=100), discount=0.97, averaged=True),
    variants={"alone": partial(recipe, rate=0.0), "classified": partial(recipe, learned=True),
              "cloning": cloning},
    results=(
        "undecided after 20 seeds: 0.55 of the last episodes succeed, with the demonstrations alone 0.55, with "
        "cloning 0.45, more on 11 of 20; episodes end in success or not at all, so that effects below 0.3 are not"
        " excluded",
    ),
    departures=(
        "the reward is the task's own; that of a classifier of success, as in the paper, is the variant `classified`",
        "the overseer is the task's scripted expert and takes over by a rule; a person is a function (docs/own.md)",
        "no gripper: the paper's discrete critic of it (double DQN) is left out, all actions are continuous",
        "the variant's classifier goes on learning with the policy's states as negatives; in the paper it is fixed",
        "batches of 32 own and 32 demonstrated rows (128 each), four critic steps for one of the actor (2)",
        "entropy at s, not at s'; networks 64 x 64; targets follow by 0.02 (0.005); states, no images; one process",
        "time limits bootstrap; in the authors' code the bootstrap ends there",
        "not measured: lengths of episodes, and cloning without interventions as a rival, for cost",
    ),
    pilots=(
        "with `classified` 0.00 of a pilot's episodes on walled-peg succeeded where the task's reward reached 0.25",
        "piloted on peg, seeds 900 and 901: for 5 decisions from the 3rd proposal on 10 to 50 % were taken over, and "
        "success came later than without. Walls were added for the claims, piloted with seeds 900 to 902",
    ),
)
