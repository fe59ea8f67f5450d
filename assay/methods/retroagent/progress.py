"""Progress over what was reached before, as a reward. Axes: B rows."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import AssayError, Chat, Choice, Experience, PromptTask, Reward, Scene, State, TextTask, filled
from assay.method import groups
from assay.methods.retroagent.reflection import Rows, said_in
from assay.parts import on_last_decision
from assay.tasks.language.dialogue import DialogueTask, MeasuredPartner

Shares = Callable[[Sequence[Mapping[str, Any]]], list[float]]
"""(rows as `TextTask.texts` describes them) -> which share of its subtasks each completed, from the row alone."""


History = Callable[[Tensor, Tensor, groups.Groups], Tensor]
"""(phi_B, won_B, groups) -> what its group has reached, for later attempts to exceed, [B]."""


def prefix_share(rows: Sequence[Mapping[str, Any]], separator: str = "") -> list[float]:
    """Returns the share of subtasks that the task states of a conversation, else that of the answer's parts before the
    first wrong one: characters, or what `separator` separates.
    """
    found = []
    for row in rows:
        if "progress" in row:
            found.append(float(row["progress"]))
            continue
        answer, said = (
            (text.split(separator) if separator else list(text))
            for text in (str(row["answer"]).strip(), str(row["completion"]).strip())
        )
        right = takewhile(lambda pair: pair[0] == pair[1], zip(answer, said, strict=False))
        found.append(len(list(right)) / max(1, len(answer)))
    return found


MUCH = """How much of the task does the answer complete?

Task:
{prompt}

Answer:
{completion}

End with the line "Score: N", from 0 (nothing) to 10 (all of it)."""


@dataclass(frozen=True)
class ChatProgress(Choice):
    """A judge says which share of the task an answer completes; what cannot be read is 0."""

    ask: Chat

    def __call__(self, rows: Rows) -> list[float]:
        """Shares from 0 to 1."""
        said = self.ask([filled(MUCH, {"prompt": row["prompt"], "completion": said_in(row)}) for row in rows])
        found = [re.findall(r"[Ss]core\W{0,5}(\d+(?:\.\d+)?)", one) for one in said]
        return [min(float(one[-1]), 10.0) / 10.0 if one else 0.0 for one in found]


def group_success(phi_B: Tensor, won_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the share of the group that won: the released rule. If no attempt ever wins, each is paid in full."""
    return groups.mean(won_B.to(phi_B.dtype), by_group)


def best_progress(phi_B: Tensor, won_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the group's largest share of subtasks: what is paid for a task over time then sums to its final best."""
    return -groups.lowest(torch.where(by_group.share > 0, -phi_B, 0.0), by_group)


@dataclass(frozen=True)
class Progress(Reward):
    """reward <- reward + coefficient * max(0, phi - best), on the last decision; then best <- max(best, history).

    phi is the share of subtasks (1 if `score` is above `threshold`: the row won; 0 for an answer that is not readable).
    best is kept for each prompt, from 0 on. All rows of a batch are paid by what was best before it.
    """

    phi: Shares = prefix_share
    history: History = group_success
    coefficient: float = 1.0
    threshold: float = 0.5
    reads: ClassVar[Mapping[str, str]] = {"score": "B"}

    def init(self, scene: Scene) -> State:
        """Nothing reached; refuses a task without texts, one whose demonstrations begin with other text than their
        answer, and conversations whose partner does not know subtasks.
        """
        task = scene.task
        if task is not None and not isinstance(task, TextTask):
            raise AssayError(f"task '{task.name}' has no answers to take subtasks from. Use a task of prompts")
        if self.phi is prefix_share and isinstance(task, PromptTask):
            items = task.items_of(np.arange(8), 0)
            shown = prefix_share([{"answer": one.answer, "completion": one.demonstration} for one in items])
            if min(shown) < 1.0:
                what = f"task '{task.name}' has worked answers, of which the beginning says nothing about progress"
                raise AssayError(f"{what}. Add --judge URL, which says how much an answer completes")
        talks = isinstance(task, DialogueTask) and not isinstance(task.partner, MeasuredPartner)
        if self.phi is prefix_share and isinstance(task, DialogueTask) and talks:
            what = f"the partner in task '{task.name}' does not say how much of it a conversation completes"
            raise AssayError(f"{what}. Add --judge URL, which does, or give it a method progress(item, said)")
        return {"best": {}}

    def with_judge(self, ask: Chat) -> Any:
        """Returns the same with a chat model that judges progress."""
        return replace(self, phi=ChatProgress(ask))

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience with progress paid; logs it, and what had been reached."""
        assert isinstance(scene.task, TextTask)
        told, best = scene.task.texts(experience, scene.split), state["best"]
        won, there = experience.column("score") > self.threshold, experience.mask.any(1)
        phi = torch.where(won, 1.0, torch.tensor(self.phi(told)).to(won.device))
        if "policy_fault" in experience.extra:
            # An episode of turns is at fault when its turns run out, which says nothing of its subtasks.
            is_answer = torch.tensor(["messages" not in row for row in told], device=won.device)
            phi = torch.where(experience.extra["policy_fault"].bool() & is_answer, 0.0, phi)
        before = torch.tensor([best.get(row["prompt"], 0.0) for row in told], device=won.device)
        gain = self.coefficient * (phi - before).clamp(min=0.0)
        reached = self.history(phi, won & there, groups.row_groups(experience))
        for row, value, is_there in zip(told, reached.tolist(), there.tolist(), strict=True):
            if is_there:
                best[str(row["prompt"])] = max(best.get(row["prompt"], 0.0), value)
        scene.log("progress_paid", float(gain[there].sum()), float(there.sum()))
        scene.log("progress_before", float(before[there].sum()), float(there.sum()))
        return experience.with_columns(reward=experience.reward + on_last_decision(experience, gain).reward)
