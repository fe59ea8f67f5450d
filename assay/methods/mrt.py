"""mrt: every step of a thought is paid by how much it raises the success of stopping there.

    J_k = mean reward of answers that are forced after step k, by the text that ends thoughts
    A_t = (R - mean R) / (deviation + epsilon) + alpha (J_k - J_(k-1)),   t in step k; what follows the thought: R alone

Qu et al. 2025. An outcome pays all steps of a long thought alike, those that led nowhere too. The bonuses of a thought
sum to alpha (J_end - J_0): nothing is won by more steps. Forced answers are sampled and not trained.

Axes: B rows, T tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import DISCARDED, LANGUAGE, AssayError, CheckedTask, Credit, Experience, Method, Preset, Recipe
from assay.method import ResumableTask, Rollout, Scene, State, Task, answer_format_of, first_decisions, groups
from assay.method import Vocabulary, has_turns, recipes
from assay.parts import Around, Episodes, TextSteps, decisions_within, group_rows, steps_of


@dataclass(frozen=True)
class Probed(Around):
    """Gathers and rewards, then forces an answer before the thought and after its steps: `samples` for each place.

    At most `most` places of a thought are probed, spread evenly, its end among them; steps between two are one. The
    thought ends before `stop`, by default the task's mark, which is what forces the answer. `progress` [B, T] is by how
    much the step of a decision raises the mean reward of such answers, 0 after the thought. All rows of a start have
    one probe of the bare prompt. What is sampled counts as spent. Degenerate: a thought without a token has none.
    """

    gather: Rollout = Episodes()
    steps: TextSteps = TextSteps(length=8)
    samples: int = 4
    most: int = 6
    stop: str = ""
    writes: ClassVar[Mapping[str, str]] = {"progress": "BT: how much the decision's step raises what stopping is worth"}
    not_a_part: ClassVar[str] = "the tasks of the laws have no mark: the method's claims run it"

    def __post_init__(self) -> None:
        if self.samples < 1 or self.most < 1:
            raise AssayError(f"Probed has {self.samples} samples at {self.most} places. Use 1 or more of both")

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; AssayError if answers cannot be forced."""
        task = scene.task
        if not isinstance(task, ResumableTask) or not isinstance(task, CheckedTask) or has_turns(task):
            raise AssayError(f"Probed forces answers, and those of task '{task.name}' are none of text in one turn")
        self.stop_of(task)
        return super().init(scene)

    def stop_of(self, task: Task) -> str:
        """Returns the text that ends a thought; AssayError if neither a setting nor the task says it."""
        try:
            return self.stop or answer_format_of(task).need_mark()
        except AssayError as error:
            line = '{"prompt": "...", "answer": "first ... then ...\\n#### 18"}'
            raise AssayError(f"Probed ends thoughts; of task '{task.name}' {error}, or JSON lines: {line}") from None

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns the rows, rewarded, with their progress."""
        rows = scene.reward(self.gather(scene, state))
        places = self.places(rows, scene)
        asked = [(row, int(end)) for row, ends in places.items() for end in ends]
        first = {start: row for row, start in reversed(list(enumerate(rows.column("start").tolist()))) if row in places}
        every = [*((row, 0) for row in first.values()), *asked]
        progress = torch.zeros(rows.mask.shape, dtype=torch.float64)
        if not every:
            return rows.add({"progress": progress.to(rows.reward)})
        index, ends = (torch.tensor(one) for one in zip(*every, strict=True))
        found = dict(zip(every, self.success(rows.rows(index), ends, scene).tolist(), strict=True))
        for row, own in places.items():
            columns, begin = rows.mask[row].nonzero().squeeze(1), 0
            before = found[first[int(rows.column("start")[row])], 0]
            for end in own:
                progress[row, columns[begin:end]] = found[row, end] - before
                before, begin = found[row, end], end
        return rows.add({"progress": progress.to(rows.reward)})

    def places(self, rows: Experience, scene: Scene) -> dict[int, list[int]]:
        """Returns the numbers of decisions after which each row is probed, for rows with a thought."""
        task, found = scene.task, {}
        assert isinstance(task, CheckedTask)
        said, stop = [str(row["completion"]) for row in task.texts(rows, scene.split)], self.stop_of(task)
        marks = [one.find(stop) if stop in one else len(one) for one in said]
        vocabulary = task.spec.action
        assert isinstance(vocabulary, Vocabulary)
        said_B = (rows.mask & (rows.action != vocabulary.eos)).sum(1)
        thought = decisions_within(task, rows, said_B, marks, scene.split).tolist()
        for row, steps in steps_of(self.steps(rows, scene, {})):
            ends = np.unique(np.cumsum([len(one) for one in steps]).clip(max=thought[row]))
            ends = ends[ends > 0]
            num = min(self.most, len(ends))
            if num:
                found[row] = [int(ends[-(-len(ends) * k // num) - 1]) for k in range(1, num + 1)]
        return found

    def success(self, rows: Experience, num_B: Tensor, scene: Scene) -> Tensor:
        """Returns the mean reward of answers that are forced after the first decisions of each row, [B]."""
        task = scene.task
        assert isinstance(task, ResumableTask)
        assert isinstance(task, CheckedTask)
        begun = task.followed(first_decisions(rows, num_B), [self.stop_of(task)] * len(rows), is_over=False)
        place, member = group_rows(np.arange(len(rows)), self.samples)
        begun = replace(begun.rows(torch.from_numpy(place)), source=None)
        room = task.spec.horizon + 1  # random numbers of their own for each (start, sample, place, member)
        own = (rows.column("sample") * room + num_B).numpy()[place] * self.samples + member
        played = scene.reward(task.resume(scene.actor, begun, own, scene.draw.at(15), split=scene.split))
        scene.log(DISCARDED, float(played.mask.sum()))
        return groups.outcome(played).double().view(len(rows), self.samples).mean(1)


def some_progress(batch: Experience) -> Tensor:
    """Returns numbers from -1 to 1 for the decisions: what the laws fill the column `progress` with."""
    return (2.0 * batch.logp.exp() - 1.0) * batch.mask


@dataclass(frozen=True)
class PaidProgress(Credit):
    """Adds `alpha` times the progress of a decision's step to its advantage. Degenerate: alpha 0 changes nothing."""

    alpha: float = 1.0
    centred: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("advantage", "progress")
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"progress": some_progress}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        paid = experience.column("advantage") + self.alpha * experience.column("progress")
        return experience.add({"advantage": paid * experience.mask})


def recipe(preset: Preset = LANGUAGE, alpha: float = 1.0, samples: int = 4, most: int = 6) -> Recipe:
    """Returns grpo with progress at `most` places of a thought, each from `samples` forced answers."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    rollout = Probed(own, samples=samples, most=most)
    return replace(base, name="mrt", rollout=rollout, credit=(*base.credit, PaidProgress(alpha)))


METHOD = Method(
    paper="arXiv:2503.07572",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="attempts",
    family="credit assignment",
    base=recipes.grpo,
    departures=(
        "each step is paid its own progress, as in the authors' later online form; the paper adds one number to the "
        "outcome, where the split into steps has no effect, and begins in thoughts of an older policy",
        "progress is not standardised, alpha is 1 and four answers are forced at each of at most six places",
        "a step ends with a line break, where tokens can write none with each token; the paper cuts at words of doubt",
        "a thought that fills the limit leaves no room for a forced answer: its end has success 0",
    ),
    pilots=(
        "at the tokens of 80 steps of grpo the comparison was undecided with four seeds (0.312 against 0.234); "
        "it is stated for 60, before grpo takes off: on one of four seeds grpo is ahead after 380,000 tokens (0.47 "
        "against 0.42), since a step costs a third more tokens with forced answers",
    ),
)
