"""prefixrl: on-policy learning from starts inside a stored solution, whose prefix is context and never a target.

    J = mean_x V(x) + mean_(x, h) V(x, y_x[:h]),   loss = grpo's on the decisions after the prefix

Setlur et al. 2026. Hard problems give no reward, hence no gradient; after a part of a correct solution they do. A
group is one (problem, prefix), and a prefix ends before it states the answer. Starts without a prefix stay in the
mix, and only they are in the held-out score. For control the prefix is the state that a demonstration's first actions
lead to.

Axes: B rows, T columns; of solutions B problems, N samples of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.method import DISCARDED, LANGUAGE, RIGHT, AssayError, Choice, Copy, DemonstratedTask, Draw, Experience
from assay.method import Method, Preset, Recipe, ResumableTask, Rollout, Scene, State, Task, TextTask, first_decisions
from assay.method import model_name, random, recipes
from assay.parts import before_answer, group_rows


class Solutions(Choice, Protocol):
    """Where the solutions of problems come from."""

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no such solutions."""

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns one attempt at each of `scene.starts`, and whether it is a solution, bool [B]."""


@dataclass(frozen=True)
class Demonstrated(Solutions):
    """The task's demonstrations, as from another model or a file of worked answers."""

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no demonstrations."""
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"task '{task.name}' has no demonstrations for prefixes. Use prefixrl:own-solutions")

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns the demonstrations; all are solutions."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError("the scene has no task with demonstrations. Pass one")
        return task.demonstrate(scene.starts, 0), torch.ones(len(scene.starts), dtype=torch.bool)


@dataclass(frozen=True)
class RejectionSampled(Solutions):
    """The first right one of `tries` samples of the base policy, as in the paper (arXiv:2601.18795).

    The base policy is the model `policy`, a copy of the actor that never changes. Right is a score above 1/2. The
    sampled decisions count as spent (`discarded_decisions`); the metric `solved` is the share of problems with a
    solution. Degenerate: a problem that no try solves has none.
    """

    tries: int = 16
    policy: str = model_name("reference")
    reads_shares: ClassVar[bool] = True

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no verifiable answers."""
        if not isinstance(task, TextTask):
            what = f"RejectionSampled needs verified answers; '{task.name}' has returns"
            raise AssayError(f"{what}. Use Demonstrated() or a language task")

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns the first right sample of each problem, or its first sample where none is."""
        rows, samples = group_rows(scene.starts, self.tries)
        base, draw = scene.models.model(self.policy), scene.draw.at(12)
        played = scene.task.judge(scene.task.play(base, rows, samples, draw, split=0, greedy=False), 0)
        is_right = (played.column("score") > RIGHT).view(len(scene.starts), self.tries)
        first = is_right.long().argmax(1) + self.tries * torch.arange(len(is_right))
        scene.log(DISCARDED, float(played.mask.sum()))
        is_solved = is_right.any(1)
        scene.log("solved", float(is_solved.sum()), float(len(is_solved)))
        shown = played.rows(first)
        return shown.add({"sample": torch.zeros_like(shown.column("sample"))}), is_solved


@dataclass(frozen=True)
class FromPrefixes(Rollout):
    """Gathers groups that start after the first h decisions of a solution y of the problem, h = floor(f |y|), the same
    for all members; f is uniform in [shortest, longest], and 0 with probability `plain`.

    The given decisions are context: mask false, no loss, no ratio. For tokens the start is prompt + prefix; for
    control it is the state that the given actions lead to. h is at most |y| - 1, so that a decision is left, and a
    prefix ends before the solution first states the task's answer: copying it would be no solution. The metric
    `prefixes_cut` is the share that this made shorter. `solutions` are the task's demonstrations, or the base policy's
    own; a problem without one has no prefix. Degenerate: longest = 0 is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    shortest: float = 0.4
    longest: float = 0.8
    plain: float = 0.25
    solutions: Solutions = Demonstrated()
    writes: ClassVar[Mapping[str, str]] = {"prefix": "B: number of given decisions"}

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no solutions of this kind."""
        self.solutions.check(scene.task)
        if not isinstance(scene.task, ResumableTask):
            raise AssayError(f"FromPrefixes needs a task that can be resumed; '{scene.task.name}' cannot. Use Episodes")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes; `prefix` [B] is the number of given decisions."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, ResumableTask)
        shown, is_solved = self.solutions(scene)
        where, is_plain = (random.uniform(Draw(draw.seed, (11, tag)), starts) for tag in range(2))
        fraction = (
            (self.shortest + (self.longest - self.shortest) * where) * (is_plain >= self.plain) * is_solved.numpy()
        )
        length = shown.mask.sum(1)
        given = torch.minimum((torch.from_numpy(fraction) * length).long(), (length - 1).clamp(min=0))
        wanted, given = given, before_answer(task, shown, given) if isinstance(task, TextTask) else given
        scene.log("prefixes_cut", float((given < wanted).sum()), float(len(given)))
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        begun = first_decisions(shown, given).rows(torch.from_numpy(rows))
        played = task.resume(actor, begun, samples, draw, split=0)
        return played.add({"prefix": given[torch.from_numpy(rows)]})


def recipe(preset: Preset = LANGUAGE, plain: float = 0.25) -> Recipe:
    """Returns GRPO from prefixes; `plain` is the share of starts without one."""
    base = recipes.grpo(preset)
    assert base.rollout is not None
    return replace(base, name="prefixrl", rollout=FromPrefixes(base.rollout.num_starts, plain=plain))


def own_solutions(preset: Preset = LANGUAGE, tries: int = 16) -> Recipe:
    """Returns the recipe with prefixes of the base policy's own right answers, by rejection of `tries` samples."""
    ours = recipe(preset)
    rollout = replace(ours.rollout, solutions=RejectionSampled(tries))  # type: ignore[type-var]
    return replace(ours, rollout=rollout, copies={**ours.copies, "reference": Copy("actor")})


METHOD = Method(
    paper="arXiv:2601.18795",
    recipe=recipe,
    family="guidance",
    base=recipes.grpo,
    variants={"own-solutions": own_solutions},
    departures=(
        "solutions are the task's demonstrations (as from another model); prefixrl:own-solutions samples the base "
        "policy for them, 16 times for each problem at hand, not once with a large budget",
        "each problem is used once, with one prefix or none, instead of several copies of a fixed set of problems",
        "prefixes of 40 to 80 % and a quarter of plain starts are from memory of the paper; grpo stands for its loss",
        "not measured: supervised training on the solutions first, for its cost",
    ),
    results=(
        "the first headline is undecided: grpo opens one or two of four locks for certain (0.25, 0.50), and this "
        "more of them but each less surely (0.16 to 0.48), so that pass rates are alike while within 64 tries it "
        "opens 0.39 more",
    ),
)
