"""Rollouts that do not wait for the longest answer: a window of decisions a call, the unfinished go on later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State, concatenate
from assay.core.slots import ResumableTask, Rollout, Scene


@dataclass(frozen=True)
class Windows(Rollout):
    """At most `window` decisions in each of `slots` sequences; the finished leave, the unfinished are kept in the state
    and go on at the next call, new starts (in order) fill the slots.

    The mask is true on this window's decisions, all by the present policy; the column `answer` on all decisions so far;
    `left` [B, T] is how many places the window has after a decision.
    What is unfinished is read again at the next call: its keys and values would be those of older weights.
    A row that stops at the window's end has neither terminal nor truncated. With unchanged weights the windows of an
    episode are the episode that would have been played in one go; a window as long as the task's limit is `Episodes`.
    """

    slots: int = 64
    window: int = 2
    writes: ClassVar[tuple[str, ...]] = ("left",)

    def init(self, scene: Scene) -> State:
        """The next start, and nothing unfinished."""
        task = scene.task
        if not isinstance(task, ResumableTask):
            raise AssayError(
                f"Windows needs a task that can go on from a prefix, and '{task.name}' cannot; use Episodes"
            )
        return {"next": 0, "open": None}

    @property
    def num_starts(self) -> int:
        """It starts by itself."""
        return 0

    def __call__(self, scene: Scene, state: State) -> Experience:
        """The next window of every slot, unfinished sequences first."""
        task, actor, draw = scene.task, scene.actor, scene.draw
        assert isinstance(task, ResumableTask)
        waiting = [] if state["open"] is None else [begun(state["open"])]
        num_new = self.slots - sum(map(len, waiting))
        if num_new:
            fresh = task.begin(np.arange(state["next"], state["next"] + num_new, dtype=np.int64), 0)
            waiting.append(fresh.add({"answer": fresh.mask}))
        state["next"] += num_new
        once = np.zeros(self.slots, dtype=np.int64)
        played = task.resume(actor, concatenate(waiting), once, draw, split=0, limit=self.window)
        goes_on = ~(played.terminal | played.truncated).any(1)
        state["open"] = kept(played.rows(goes_on)) if bool(goes_on.any()) else None
        return played.add({"left": (self.window - played.mask.long().cumsum(1)).clamp(min=0)})


def kept(played: Experience) -> State:
    """What must be remembered of unfinished sequences."""
    context = {name: value.clone() for name, value in played.context.items()}
    return {
        "context": context,
        "action": played.action.clone(),
        "answer": played.column("answer").clone(),
        "start": played.column("start").clone(),
    }


def begun(state: State) -> Experience:
    """The sequences of `kept`, as begun."""
    answer, start = state["answer"], state["start"]
    zero, false = torch.zeros(answer.shape), torch.zeros_like(answer)
    record = Experience(dict(state["context"]), state["action"], answer, zero, zero, false, false, group=start)
    return replace(record, extra={"start": start, "answer": answer})
