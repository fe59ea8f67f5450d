"""rlgf: a guide writes the beginning of an answer and the policy learns from there on (PPO++), or the other way round.

    y ~ roll-in, h uniform in 1 .. |y| - 1 with probability beta, else h = 0;   answer = [y_<=h, roll-out's rest]
    PPO++:      roll-in guide, roll-out policy, ppo on decisions after h
    AggreVaTeD: roll-in policy, roll-out guide: actor on decisions up to h, V on those after h, which is the guide's

Chang et al. 2023. A reward at the end of a long answer is never met from the prompt. After most of a good answer by
another it is, and what is learned there is what earlier decisions are then paid by. The other way round a decision is
paid what the guide makes of it. A guide is sampled only: no probability of it is used.

Axes: B rows, T columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from assay.method import DISCARDED, LANGUAGE, AssayError, Copy, Experience, Method, Origin, Phase, Preset, Recipe
from assay.method import ResumableTask, Rollout, Scene, State, concatenate, first_decisions, has_turns, model_name
from assay.method import random, recipes
from assay.parts import Among, Clip, Column, OfState, PolicyGradient, Td, TokenMean, group_rows

GUIDED = 23
"""The coordinates of the guide's random numbers, and with 1 and 2 more of who rolls in and how far."""


STEPS = 180
"""Steps that the guide learns, unless it is given: on the default task it is right two times in three."""


def check_rolled(task: Any, who: str, prob: float) -> None:
    """Raises AssayError for a task whose answers cannot be continued by another, and for what is no probability."""
    if not 0.0 <= prob <= 1.0:
        raise AssayError(f"{who}.prob_in is {prob}. Use a probability from 0 to 1")
    if not isinstance(task, ResumableTask) or has_turns(task):
        told = f"{who} continues answers of another, and those of task '{task.name}' are played in turns"
        raise AssayError(f"{told}. Use a task of single answers, or JSON lines with the fields 'prompt' and 'answer'")


def rolled(part: Any, scene: Scene, first: Any, then: Any) -> tuple[Experience, Experience]:
    """Returns answers to each start of which `first` wrote the first h decisions and `then` the rest, its decisions;
    and these beginnings, with the decisions of `first`.

    With probability `prob_in`, row by row, h is uniform in 1 .. n - 1, n the decisions of a whole answer by `first`;
    else, and if n is 1, it is 0. What `first` wrote counts as spent, but for what the policy decided in a row.
    """
    task, policy = scene.task, scene.actor
    assert isinstance(task, ResumableTask)
    rows, samples = group_rows(scene.starts, part.group_size)
    own = {one: scene.draw if one is policy else scene.draw.at(GUIDED) for one in (first, then)}
    is_in = random.uniform(scene.draw.at(GUIDED + 1), rows, samples) < part.prob_in
    begun = first_decisions(task.begin(rows, scene.split), torch.zeros(len(rows)))
    if is_in.any():
        told = task.play(first, rows[is_in], samples[is_in], own[first], split=scene.split, greedy=False)
        where = torch.from_numpy(random.uniform(scene.draw.at(GUIDED + 2), rows[is_in], samples[is_in]))
        num = told.mask.sum(1)
        given = torch.where(num > 1, 1 + (where * (num - 1)).long(), 0)
        scene.log(DISCARDED, float(num.sum() - (given.sum() if first is policy else 0)))
        order = np.argsort(np.argsort(is_in, kind="stable"), kind="stable")
        both = concatenate([begun.rows(torch.from_numpy(~is_in)), first_decisions(told, given)])
        begun = both.rows(torch.from_numpy(order))
    return task.resume(then, begun, samples, own[then], split=scene.split), begun


@dataclass(frozen=True)
class RolledIn(Rollout):
    """Gathers answers that the guide begins and the policy finishes: with probability `prob_in` the first h decisions
    are the guide's, which are context: mask false.

    h is uniform in 1 .. n - 1, n the length of a whole answer of the guide, drawn for each row. All that the guide
    wrote counts as spent. Degenerate: `prob_in` 0 is `Episodes`; an answer of one decision has no beginning. Source:
    arXiv:2306.11816, roll-in of PPO++. Assumes that the guide shares the policy's tokens.
    """

    num_starts: int = 64
    group_size: int = 4
    prob_in: float = 0.8
    guide: str = model_name("teacher")
    not_a_part: ClassVar[str] = "the laws have no second policy: its method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if answers cannot be continued."""
        check_rolled(scene.task, "RolledIn", self.prob_in)
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        return rolled(self, scene, scene.models.model(self.guide), scene.actor)[0]


@dataclass(frozen=True)
class RolledOut(Rollout):
    """Gathers answers that the policy begins and the guide finishes: with probability `prob_in` the first h decisions
    are the policy's, else none. All are decisions; `foreign` [B, T] marks the guide's, whose log-probability is 0. Rows
    are HINTED, so that what the guide wrote counts as spent.

    h as in `RolledIn`, n the length of a whole answer of the policy, whose rest counts as spent. Degenerate: `prob_in`
    0 is the guide alone. Source: arXiv:2306.11816, AggreVaTeD, in the authors' code. Assumes as `RolledIn`.
    """

    num_starts: int = 64
    group_size: int = 4
    prob_in: float = 0.8
    guide: str = model_name("teacher")
    writes: ClassVar[Mapping[str, str]] = {"foreign": "BT: another than the policy decided"}
    not_a_part: ClassVar[str] = RolledIn.not_a_part

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if answers cannot be continued."""
        check_rolled(scene.task, "RolledOut", self.prob_in)
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        rows, begun = rolled(self, scene, scene.actor, scene.models.model(self.guide))
        answer, foreign = rows.column("answer"), rows.mask
        logp = torch.zeros_like(rows.logp)
        logp[answer & ~foreign] = begun.logp[begun.mask]
        origin = torch.full((len(rows),), int(Origin.HINTED))
        return rows.with_columns(mask=answer, logp=logp, source=origin).add({"foreign": foreign})


def guided(ours: Recipe, preset: Preset) -> Recipe:
    """Returns the recipe after a phase in which a guide of the policy's size learns from demonstrations; with --teacher
    the phase is left out.
    """
    shown = recipes.sft(preset)
    shown = replace(shown, stages=(replace(shown.stages[0], optimizer=preset.optimizer),))
    phase = Phase("guide", shown, STEPS, hands={"actor": "teacher"}, from_scratch=True)
    return replace(ours, before=(phase, *ours.before))


def rolled_in(preset: Preset, prob: float) -> Recipe:
    """Returns PPO++ of a guide that it has to be given."""
    rollout, copies = RolledIn(prob_in=prob), {"teacher": Copy(of="actor")}
    return replace(recipes.ppo(preset), name="rlgf", rollout=rollout, copies=copies, steps=300)


def rolled_out(preset: Preset, prob: float) -> Recipe:
    """Returns AggreVaTeD of a guide that it has to be given."""
    base, own = rolled_in(preset, prob), Among(TokenMean(), "foreign", holds=False)
    policy, value = base.stages
    policy = replace(policy, objective=(PolicyGradient(trust=Clip(0.2, 0.2), aggregate=own),), regularizers=())
    value = replace(value, critic=(Td(Column(), of=OfState(), aggregate=Among(TokenMean(), "foreign")),))
    return replace(base, rollout=RolledOut(prob_in=prob), stages=(policy, value))


def recipe(preset: Preset = LANGUAGE, prob: float = 0.8) -> Recipe:
    """Returns PPO++: ppo after beginnings of the guide, with probability `prob`."""
    return guided(rolled_in(preset, prob), preset)


def aggrevated(preset: Preset = LANGUAGE, prob: float = 0.8) -> Recipe:
    """Returns AggreVaTeD: the policy's beginnings, paid by what the guide makes of them."""
    return guided(rolled_out(preset, prob), preset)


def d2lols(preset: Preset = LANGUAGE, prob: float = 0.8, steps: int = 20) -> Recipe:
    """Returns PPO++ after `steps` steps of AggreVaTeD, each with a critic of its own."""
    first = Phase("aggrevated", rolled_out(preset, prob), steps)
    return guided(replace(rolled_in(preset, prob), before=(first,)), preset)


METHOD = Method(
    paper="arXiv:2306.11816",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="key-decisions:length=12,keys=12,accepted=5",
    family="guidance",
    base=recipes.ppo,
    variants={"aggrevated": aggrevated, "d2lols": d2lols},
    departures=(
        "the guide is a copy of the policy's size after a few steps on demonstrations, so that it is right two times "
        "in three on the default task, or the model of --teacher; the paper's is GPT-3",
        "AggreVaTeD is that of the authors' code: all of the policy's decisions are trained, through GAE over the "
        "guide's; the text has one decision between roll-in and roll-out",
        "the mix of both in every step (LOLS) is not here, D2LOLS is",
        "settings are ppo's of the preset: discount 1 and not 0.99, no value clipping, no KL to the start in the "
        "reward (0.001), no likelihood of reference texts (0.1); AggreVaTeD without entropy bonus",
    ),
    pilots=(
        "on sixteen decisions instead of twelve it ended at 0.91 after a guide of 0.52, and at 0.34 after one of 0.65: "
        "places that are seldom begun at drift until no beginning of its own is right",
        "on twelve decisions, which a start solves once in 4,096, ppo without a guide ended at 0.48 after 1.3 million "
        "tokens, this at 0.95 (one seed each); on ten and on eight ppo was as good",
    ),
)
