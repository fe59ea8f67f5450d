"""Rollouts that do not wait for the longest answer: one window of decisions per call; unfinished answers continue."""

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
    """Takes at most `window` decisions in each of `slots` sequences; finished ones leave, unfinished ones are stored
    in the state and continue at the next call, and new starts (in order) fill the slots.

    The mask is true on this window's decisions, all by the current policy; the column `answer` on all decisions so
    far; `left` [B, T] is the number of positions left in the window after a decision. Unfinished sequences are
    encoded again at the next call, since their cached keys and values would be those of older weights. A row that
    stops at the window's end is neither terminal nor truncated. With unchanged weights the windows of an episode
    equal the undivided episode. Degenerate: a window as long as the task's limit is `Episodes`.
    """

    slots: int = 64
    window: int = 2
    writes: ClassVar[tuple[str, ...]] = ("left",)

    def init(self, scene: Scene) -> State:
        """Returns the first start, and no unfinished sequences."""
        task = scene.task
        if not isinstance(task, ResumableTask):
            raise AssayError(
                f"Windows needs a task that can continue from a prefix; '{task.name}' cannot. Use Episodes"
            )
        return {"next": 0, "open": None}

    @property
    def num_starts(self) -> int:
        """Returns 0: the rollout draws its own starts."""
        return 0

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers the next window of every slot, unfinished sequences first."""
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
    """Returns the state of unfinished sequences."""
    context = {name: value.clone() for name, value in played.context.items()}
    return {
        "context": context,
        "action": played.action.clone(),
        "answer": played.column("answer").clone(),
        "start": played.column("start").clone(),
    }


def begun(state: State) -> Experience:
    """Returns the unfinished sequences of a state as experience."""
    answer, start = state["answer"], state["start"]
    zero, false = torch.zeros(answer.shape), torch.zeros_like(answer)
    record = Experience(dict(state["context"]), state["action"], answer, zero, zero, false, false, group=start)
    return replace(record, extra={"start": start, "answer": answer})
