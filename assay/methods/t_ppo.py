"""t-ppo: ppo on windows of unfinished answers; the policy trains on windows, the critic on finished answers.

    policy: A_t = delta_t + lambda A_(t+1) on the window, V(s_L) := V(s_(L-1)) where it stops before the end
    critic: mean over all decisions of the answers that ended now of (V(s_t) - R)^2 / 2

Fan et al. 2025. A step never waits for the longest answer: it takes at most `window` decisions in every slot, and
unfinished answers continue at the next step. With a window as long as an answer it is ppo with a Monte-Carlo critic.

Axes: B sequences, T decisions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, Aggregation, AssayError, Credit, Draw, Experience, Method, Need, Prepare, Preset
from assay.method import Recipe, ResumableTask, Rollout, Scene, State, Target, View, concatenate, has_turns
from assay.method import most_decisions, random, recipes, returns
from assay.parts import DualClip, OfState, PolicyGradient, Td, Whiten


def stops_open(experience: Experience) -> Tensor:
    """Marks the last decision of a row whose episode continues after it, bool [B, T]."""
    later = experience.mask.long().flip(1).cumsum(1).flip(1) - experience.mask.long()
    return experience.mask & (later == 0) & ~experience.terminal & ~experience.truncated


@dataclass(frozen=True)
class ExtendedGae(Credit):
    """GAE on a window (T-PPO, arXiv:2506.15050): if a row stops before its episode's end, the value after its last
    decision is taken to be the value before it, V(s_L) := V(s_(L-1)).

    A_t = delta_t + discount * decay * A_(t+1), delta_t = r_t + discount * V(s_(t+1)) - V(s_t). With discount 1 the
    last decision of such a row has advantage 0 and the others those of the window without it. Degenerate: ended rows
    have GAE's.
    """

    discount: float = 1.0
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    centred: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("advantage", "return")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `return`."""
        value, mask = experience.column("value"), experience.mask
        after, goes_on = returns.following_value(value, mask, experience.terminal, experience.truncated)
        after = torch.where(stops_open(experience), value, after)
        delta = experience.reward + self.discount * after - value
        advantage = returns.accumulate(delta, self.discount * self.gae_lambda, mask, goes_on)
        return experience.add({"advantage": advantage, "return": (advantage + value) * mask})


@dataclass(frozen=True)
class WithoutTail(Prepare):
    """Masks decisions in the last `num` positions of a window, whose credit is mostly the critic's estimate.

    Place it after a credit. `left` [B, T] is the number of positions left in the window after a decision. Answers that
    ended there lose their last decisions too: otherwise the decisions would determine whether they are trained on,
    which is biased.
    """

    num: int = 1
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[Mapping[str, str]] = {"left": "B"}
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "left": lambda batch: batch.mask.long().flip(1).cumsum(1).flip(1) - 1
    }

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Narrows the mask."""
        return replace(experience, mask=experience.mask & (experience.column("left") >= self.num))


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
    writes: ClassVar[Mapping[str, str]] = {"left": "B: number of decisions of the answer outside this window"}

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


def told_of(batch: Experience) -> Tensor:
    """Marks all decisions of the episode in a row: those of the column `answer`, if set, and the row's own; none after
    an infrastructure fault. A row whose own decisions are all in the dropped tail still has those of its answer.
    """
    answer, fault = batch.extra.get("answer"), batch.extra.get("infra_fault", ~batch.mask.any(1))
    return batch.mask if answer is None else (batch.mask | answer) & ~fault.unsqueeze(1)


@dataclass(frozen=True)
class Finished(Aggregation):
    """Counts the decisions whose episode ended in this row.

    With the column `answer` these are all decisions of the episode, including earlier windows, so that each is
    trained on exactly once: when its episode ends (T-PPO, arXiv:2506.15050). Degenerate: unfinished rows give (0, 0).
    """

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns 1 on every decision that a terminal decision of its row follows, else 0."""
        told = told_of(batch)
        ended = (batch.terminal & told).to(batch.reward.dtype)
        return returns.discounted_returns(ended, told, batch.terminal, batch.truncated, 1.0)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of such decisions."""
        return self.weigh(batch).sum()


@dataclass(frozen=True)
class RewardToGo(Target):
    """y = G_t, the reward from here to the end of the row, over all decisions of the episode in the row.

    Assumes that the outcome is at the end, as for verified answers: rewards of earlier windows are not in the row.
    """

    discount: float = 1.0

    def rows(self, batch: Experience) -> Experience:
        return batch

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        told = told_of(batch)
        reward = batch.reward.detach() * told
        return returns.discounted_returns(reward, told, batch.terminal, batch.truncated, self.discount)


FINISHED_VALUE = Td(RewardToGo(), of=OfState(), aggregate=Finished())
"""(V(s_t) - G_t)^2 / 2 over the decisions of finished episodes."""


def recipe(preset: Preset = LANGUAGE, slots: int = 256, window: int = 0) -> Recipe:
    """Returns PPO with windows (0: from the task's limit), extended advantages, a critic of finished answers."""
    base = recipes.ppo(preset)
    policy = replace(base.stages[0], objective=(PolicyGradient(trust=DualClip(0.2, 0.28, 10.0)),), regularizers=())
    value = replace(base.stages[1], critic=(FINISHED_VALUE,))
    credit = (ExtendedGae(preset.gae.discount, preset.gae.gae_lambda), WithoutTail(1), Whiten())
    rollout = Windows(slots, window)
    return replace(base, name="t-ppo", rollout=rollout, curriculum=None, credit=credit, stages=(policy, value))


METHOD = Method(
    paper="arXiv:2506.15050",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="register-walk",
    family="long context",
    base=recipes.ppo,
    aliases=("truncated-ppo",),
    departures=(
        "one answer per prompt instead of 16, one position dropped at a window's end, not 8: windows are short here",
        "a step's window has a random length, from half to all of `window`, so that no place is always at its end",
        "no warm-up of the critic alone, 10 iterations in the public port",
        "that position is dropped even if the answer ended there; the public port keeps it then, which is biased",
        "fixed lambda, no likelihood term on correct answers (both are in the public port), no value clipping",
        "new prompts come in order, whatever the curriculum: their number depends on how many answers have finished",
        "not measured: score per token; the claim counts decisions one after the other, which is what waiting costs",
    ),
    results=(
        "it needs windows that hold most of an answer, or a critic that knows its states: on answers of 9 tokens "
        "(sorting-8, one seed) windows of 2 to 4 go from 0.37 to 0.00 in 50 steps, windows of 8 to 16 to 0.40. Where "
        "most windows stop open, credit is the critic's values alone, standardised, however little they differ",
    ),
)
