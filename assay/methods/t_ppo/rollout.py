"""Rollouts that do not wait for the longest answer: one window of decisions per call; unfinished answers continue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State, concatenate
from assay.core.slots import ResumableTask, Rollout, Scene, has_turns, most_decisions
from assay.ops import random


@dataclass(frozen=True)
class Windows(Rollout):
    """Takes at most w decisions in each of `slots` sequences; finished ones leave, unfinished ones are stored in the
    state and continue at the next call, and new starts (in order) fill the slots.

    w is uniform from half of `window`, at least 2, to `window`, a new one at each call: with a constant one the same
    places of every answer would be at a window's end, where nothing is trained (`WithoutTail`). `window` 0 is a quarter
    of the task's limit, at least 4.

    The mask is true on this window's decisions, all by the current policy; the column `answer` on all decisions so
    far; `left` [B, T] is the number of positions left in the window after a decision, and more than any window has if
    it reaches the task's limit, where nothing is cut. Unfinished sequences are
    encoded again at the next call, since their cached keys and values would be those of older weights. A row that
    stops at the window's end is neither terminal nor truncated. With unchanged weights the windows of an episode
    equal the undivided episode. Degenerate: a window as long as the task's limit is `Episodes`.
    """

    slots: int = 64
    window: int = 0
    writes: ClassVar[tuple[str, ...]] = ("left",)

    def init(self, scene: Scene) -> State:
        """Returns the first start, and no unfinished sequences."""
        task = scene.task
        if not isinstance(task, ResumableTask):
            raise AssayError(
                f"Windows needs a task that can continue from a prefix; '{task.name}' cannot. Use Episodes"
            )
        if has_turns(task):
            raise AssayError(f"Windows cuts episodes; '{task.name}' has conversations of turns. Use Episodes")
        return {"next": 0, "open": None, "calls": 0}

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
        once, most = np.zeros(self.slots, dtype=np.int64), most_decisions(task)
        window = self.length(most, draw, state["calls"])
        state["calls"] += 1
        played = task.resume(actor, concatenate(waiting), once, draw, split=0, limit=window)
        goes_on = ~(played.terminal | played.truncated).any(1)
        state["open"] = kept(played.rows(goes_on)) if bool(goes_on.any()) else None
        before = (played.column("answer") & ~played.mask).sum(1, keepdim=True)
        left = (window - played.mask.long().cumsum(1)).clamp(min=0)
        return played.add({"left": torch.where(before + window >= most, most + left, left)})

    def length(self, most: int, draw: Draw, call: int) -> int:
        """Returns the length of this call's window, a function of (seed, call)."""
        longest = self.window or max(4, most // 4)
        shortest = min(longest, max(2, longest // 2))
        number = float(random.uniform(Draw(draw.seed, (13,)), np.array([call]))[0])
        return shortest + int(number * (longest - shortest + 1))


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
