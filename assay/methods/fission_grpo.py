"""fission-grpo: an answer that failed becomes a prompt, with what its environment said; a new group recovers from it.

    x' = [x; failed answer; error],   y' ~ pi(. | x'), G' of them, rewarded as answers to x
    A  = (R - mean) / std within the group of x,   A' = (R' - mean) / std within the group of x'

2026. A group that fails as a whole teaches nothing, and an error that is only penalised is not corrected. The errors
are those of the present policy, so that recoveries stay on-policy. The failed answer and the error are context. Each
kind of groups has an update of its own: first those of x, then those of x'.

Axes: B rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, Experience, Method, Origin, Preset, PromptTask, Recipe, ReplayableTask
from assay.method import Rollout, Scene, Source, State, feedback_of, gives_feedback, groups, recipes, with_last_message
from assay.parts import FAR, FIRST_AGAIN, Around, Episodes, FreshSequences, check_written, group_rows, in_order
from assay.parts import need_fresh, together, unhinted, with_origin
from assay.parts.rollouts.refined import FORM


@dataclass(frozen=True)
class Fission(Around):
    """Gathers and rewards, then lets the policy recover from its failed answers, in groups of their own.

    Failed is an outcome of at most `threshold`. Of each group the `most` newest failures that differ are shown in
    `form` with what the task says of them (its verifier, the field `feedback` of a file; in a conversation, the
    replies), or without `tells` with nothing. Recoveries stay on the prompt that the policy saw, `hinted` marks them.
    What is not used in its step is dropped. Degenerate: if nothing failed, or nothing is said, it equals `gather`.
    """

    gather: Rollout = Episodes()
    group_size: int = 8
    most: int = 1
    tells: bool = True
    threshold: float = 0.0
    form: str = FORM
    not_a_part: ClassVar[str] = "the tasks of the laws say nothing of failures: its claims gather steps with it"
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; AssayError for a task that says nothing of failures."""
        task = scene.task
        if not isinstance(task, ReplayableTask):
            raise AssayError(f"Fission needs prompts that can be changed; task '{task.name}' has none. Use Episodes")
        if isinstance(task, PromptTask) and self.tells and not gives_feedback(task):
            line = '{"prompt": "...", "answer": "...", "feedback": "..."}'
            what = f"Fission needs what is said of failed answers, and task '{task.name}' says nothing: no 'feedback'"
            raise AssayError(f"{what}. Write JSON lines such as {line}, a conversation with tools, or tells=False")
        check_written(
            task, "Fission.form", self.form, lambda: [self.form.format(prompt="", attempt="", feedback="")]
        )
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns all groups with those of the recoveries, rewarded, in the order of the starts."""
        rows = unhinted(scene.reward(self.gather(scene, state)))
        index, said = self.failures(rows, scene)
        scene.log("fissions", float(len(index)), float(len(rows)))
        if not index:
            return rows
        new = self.recoveries(rows.rows(torch.tensor(index)), said, scene)
        there = new.mask.any(1)
        scene.log("recovered", float((groups.outcome(new)[there] > self.threshold).sum()), float(there.sum()))
        return in_order(together(rows, new), scene.starts)

    def failures(self, rows: Experience, scene: Scene) -> tuple[list[int], list[tuple[str, str]]]:
        """Returns the failed rows that recover, and of each its text and what is said of it."""
        task = scene.task
        assert isinstance(task, ReplayableTask)
        told, failed = task.texts(rows, scene.split), (groups.outcome(rows) <= self.threshold) & rows.mask.any(1)
        notes = feedback_of(task, rows, scene.split) if isinstance(task, PromptTask) else [""] * len(rows)
        used, chosen = dict[int, set[str]](), dict[int, tuple[str, str]]()
        newest = sorted(failed.nonzero().flatten().tolist(), key=lambda row: -int(rows.column("sample")[row]))
        for row in newest:
            talk = [str(one["content"]) for one in told[row].get("messages", ())[1:]]
            said = "\n".join(talk) or str(told[row]["completion"])
            own = used.setdefault(int(rows.column("start")[row]), set())
            is_told = bool(talk or notes[row]) or not self.tells
            if is_told and said not in own and len(own) < self.most:
                own.add(said)
                chosen[row] = (said, notes[row] if self.tells else "")
        return sorted(chosen), [chosen[row] for row in sorted(chosen)]

    def recoveries(self, failed: Experience, said: list[tuple[str, str]], scene: Scene) -> Experience:
        """Returns a rewarded group after each failure."""
        task, starts = scene.task, failed.column("start").numpy()
        assert isinstance(task, ReplayableTask)
        own = task.prompts(starts, scene.split)
        shown = [
            with_last_message(prompt, partial(self.written, attempt=attempt, feedback=note))
            for prompt, (attempt, note) in zip(own, said, strict=True)
        ]
        place, member = group_rows(np.arange(len(starts)), self.group_size)
        visit = 1 + failed.column("sample").numpy()[place]
        prompts, samples = [shown[one] for one in place], member + visit * FIRST_AGAIN
        played = task.play_prompts(scene.actor, prompts, starts[place], samples, scene.draw, split=scene.split)
        new = scene.reward(played).add({"hinted": torch.ones(len(played), dtype=torch.bool)})
        assert new.group is not None
        return with_origin(new.with_columns(group=new.group + torch.from_numpy(visit) * FAR), Origin.HINTED)

    def written(self, prompt: str, attempt: str, feedback: str) -> str:
        """Returns a prompt with a failed attempt and what is said of it."""
        return self.form.format(prompt=prompt, attempt=attempt, feedback=feedback)


@dataclass(frozen=True)
class Alternating(Source):
    """Yields the batches of `source` on the rows that saw the task's own prompts, then on the hinted ones.

    Degenerate: if no row is hinted it is `source`.
    """

    source: Source = FreshSequences()

    def init(self, scene: Scene) -> State:
        return self.source.init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh = need_fresh(scene.fresh)
        hinted = fresh.extra.get("hinted", torch.zeros(len(fresh), dtype=torch.bool))
        for rows in (~hinted, hinted):
            if rows.any():
                yield from self.source(scene.given(fresh=fresh.rows(rows)), state)


def recipe(preset: Preset = LANGUAGE, group_size: int = 8, most: int = 1, tells: bool = True) -> Recipe:
    """Returns grpo with groups that recover from failures; without `tells` nothing is said of them."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    rollout, source = Fission(own, group_size, most, tells), Alternating(base.source)
    return replace(base, name="fission-grpo", rollout=rollout, source=source)


METHOD = Method(
    paper="arXiv:2601.15625",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="calls",
    family="guidance",
    base=recipes.grpo,
    variants={"fission-grpo-untold": partial(recipe, tells=False)},
    departures=(
        "no code is released: the threshold (0), the number of failures of a group that are used (1, the newest) and "
        "the size of recovery groups (8) are guesses",
        "recoveries are sampled before the first of a step's two updates; the second corrects for it by its ratio",
        "errors are the task's own words, not those of a trained simulator; failures that wait for a later step are "
        "dropped, where the paper has a buffer",
        "the task's reward, without the paper's weights of format and correctness that change over training",
        "a conversation is tried again from its beginning, after all that was said in it, not from its last call",
        "the policy must read errors: a transformer from scratch does not, a pretrained model and a testbed's table do",
        "not measured: grpo on conversations of two attempts",
    ),
    results=(
        "where the start is right once in 1,000 it is undecided (+20 points [+8, +33], margin 10, ten seeds): grpo "
        "finds most right answers by itself there; the headline is the claim where it is right once in 10,000",
        "with both kinds of groups in one update, which are half as many updates at equal tokens, it was not ahead: "
        "-15 points [-37, +8] (once in 1,000, five seeds), +3 [-20, +9] (once in 10,000, 40 steps, ten seeds)",
        "a policy that is not told what was wrong copies its failed answer: the testbed's copies what its prompt shows",
    ),
    pilots=("seeds 0 to 9 with one update a step, 40 steps; seeds 100 and 101 with two, three fields, 40 steps",),
)
