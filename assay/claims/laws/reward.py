"""Laws of rewards: a user's function of rows, or a part. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.laws.invariance import Measured, invariances, keeps_inputs
from assay.claims.laws.laws import (
    LOOSE,
    Contract,
    Finding,
    Unsuited,
    gap,
    is_finite,
    law,
    shown,
    suited,
)
from assay.claims.laws.state import continuing
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Progress, Scored, State
from assay.core.slots import DemonstratedTask, Scene
from assay.core.slots.scene import OnRows
from assay.rollouts import text
from assay.tasks.language.addition import addition
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.proxy_strings import proxy_strings
from assay.tasks.language.scratch import scratch
from assay.claims.laws.reward_functions import (
    PLAIN_FORMS,
    REWARD_FUNCTION,
    RewardFunction,
    STRIDE,
    compares_group,
    is_certain,
    lists_win,
    of_rows,
)


# ---------------------------------------------------------------------------------------------------- parts
class StandIn:
    """A model that a reward may ask for: critic and actor at once, a smooth function of each column's own numbers."""

    def __call__(self, context: Mapping[str, Tensor], action: Tensor | None = None) -> Tensor:
        """Values [B, T] of contexts, or [1, B, T] of actions in them."""
        seen = [column.double() for name, column in sorted(context.items()) if name != "valid"]
        value = sum((flat(column).cos() for column in seen), torch.zeros(()))
        return value.float() if action is None else (value + flat(action.double()).sin()).float().unsqueeze(0)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the decisions."""
        return Scored(-self(batch.context, batch.action)[0].exp() * batch.mask)


def flat(column: Tensor) -> Tensor:
    """[B, T] of a column [B, T, ...]."""
    return column if column.dim() == 2 else column.flatten(2).sum(-1)


class StandIns:
    """A stand-in for each model that a reward declares in `models`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def model(self, name: str) -> StandIn:
        """Returns a stand-in; AssayError if the reward did not declare the model."""
        if name not in self.names:
            raise AssayError(f"it asks for the model '{name}' and declares {', '.join(self.names) or 'none'}")
        return StandIn()

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """All rows at once."""
        with torch.no_grad():
            return function(self.model(name), experience)


@dataclass(frozen=True)
class RewardCase:
    """A task and experience of it, with a row that has left training; models are there for those that declare some."""

    name: str
    task: DemonstratedTask
    batch: Experience

    def rewarded(
        self, part: Any, batch: Experience | None = None, state: State | None = None, step: int = 0
    ) -> Experience:
        """Returns the experience after the reward, with the part's initial state if none is given."""
        scene = Scene(self.task, StandIns(part.models), progress=Progress(step, step + 1))
        after = part(self.batch if batch is None else batch, scene, state)
        if not isinstance(after, Experience):
            raise AssayError(
                f"a reward must return the experience with its rewards; this one returned {type(after).__name__}"
            )
        return after


def suitable_task(part: Any) -> DemonstratedTask:
    """Returns additions, or for a reward that refuses them answers with a mark, or strings with a rubric."""
    tasks: tuple[DemonstratedTask, ...] = (addition(1), scratch(), proxy_strings())
    found = suited(tasks, lambda task: part.init(Scene(task, StandIns(part.models))), "it refuses every task")
    return tasks[0] if isinstance(found[0], Unsuited) else found[0]


def reward_cases(part: Any, task: DemonstratedTask | None = None) -> list[RewardCase]:
    """Returns demonstrations, some of them corrupted, one of them an infrastructure fault; of the first of our tasks
    that the reward accepts, if none is given.
    """
    used = suitable_task(part) if task is None else task
    shown_rows = used.demonstrate(np.array([0, 1, 0, 2, 3, 4]), 0)
    mask = shown_rows.mask.clone()
    mask[4] = False
    action = shown_rows.action.clone()
    if not action.is_floating_point():
        for row in (1, 2):  # row 2 is the wrong one of two answers to one prompt
            action[row] = torch.where(mask[row], action[row].flip(0), action[row])
    batch = replace(shown_rows, mask=mask, action=action, reward=shown_rows.reward * mask)
    return [RewardCase(f"task {used.name}: right and wrong answers, one infrastructure fault", used, batch)]


@law("rewards are finite, one for each decision, and zero where the mask is false")
def rewards(part: Any, case: RewardCase) -> Iterator[str]:
    """The rest of the record is unchanged; a faulty row gets no reward."""
    after, batch = case.rewarded(part), case.batch
    if after.reward.shape != batch.mask.shape or not is_finite(after.reward):
        yield f"rewards have shape {tuple(after.reward.shape)} and are {shown(after.reward)}"
    elif bool((after.reward[~batch.mask] != 0).any()):
        yield f"rewards are {shown(after.reward[~batch.mask])} where the mask is false"
    if after.reward.dtype != batch.reward.dtype:
        yield f"rewards are {after.reward.dtype} in a record of {batch.reward.dtype}"
    for name in ("action", "logp", "terminal", "truncated"):
        if not torch.equal(getattr(after, name), getattr(batch, name)):
            yield f"it rewrites {name}"
    if bool((after.mask & ~batch.mask).any()):
        yield "it brings a row back that has left training"


@law("a row's reward does not depend on the other rows", is_certain)
def alone_in_batch(part: Any, case: RewardCase) -> Iterator[str]:
    """Each row alone; with `compares_group`, each group alone."""
    plain, batch = case.rewarded(part).reward, case.batch
    label = batch.group if compares_group(part) and batch.group is not None else torch.arange(len(batch))
    for one in label.unique():
        rows = (label == one).nonzero().squeeze(1)
        found = case.rewarded(part, batch.rows(rows)).reward
        if gap(found, plain[rows]) > LOOSE:
            yield f"rows {rows.tolist()} get {shown(found.sum(1))} alone and {shown(plain[rows].sum(1))} among others"


@law("the right answer beats a list of all candidates", of_rows)
def shotgun_of_text(part: Any, case: RewardCase) -> Iterator[str]:
    """Only where the task is text, and where the right answer beats each wrong one."""
    task = case.task
    if not isinstance(task, PromptTask):
        return
    item, encode, eos = task.items.item(0, 0), task.tokenizer.encode, task.tokenizer.vocabulary.eos

    def score(completions: list[str]) -> list[float]:
        prompt = [task.tokenizer.vocabulary.bos, *encode(item.prompt)]
        said = [[*encode(one), eos] for one in completions]
        start = torch.zeros(len(said), dtype=torch.int64)
        batch = text.written([prompt] * len(said), said, start, task.tokenizer.vocabulary.pad)
        totals: list[float] = case.rewarded(part, task.judge(batch, 0)).reward.sum(1).tolist()
        return totals

    yield from lists_win(score, item.answer, PLAIN_FORMS)


SAME = invariances(
    lambda part, case, batch: Measured({"the reward": case.rewarded(part, batch).reward}), LOOSE, is_certain
)
KEPT = keeps_inputs(lambda part, case, batch: case.rewarded(part, batch))
STATE = continuing(
    lambda part, case: part.init(Scene(case.task, StandIns(part.models))),
    lambda part, case, state, time: case.rewarded(part, state=state, step=STRIDE * time).reward,
)
LAWS = (rewards, SAME.repeats, KEPT, SAME.padding, SAME.permutation, alone_in_batch, shotgun_of_text, STATE.resumes)
REWARD = Contract("reward", LAWS, reward_cases)


def check_reward(part: Any, task: DemonstratedTask | None = None) -> list[Finding]:
    """Checks the laws of a reward: a part that inherits `Reward`, or a function of rows (or of completions)."""
    is_part = getattr(part, "slot", None) == "reward"
    return REWARD.check(part, reward_cases(part, task)) if is_part else REWARD_FUNCTION.check(RewardFunction(part))
