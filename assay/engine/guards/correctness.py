"""Guards: default checks of every run, so that wrong maths cannot hide behind a plausible learning curve.

Those of correctness are here, those of learning in `assay.engine.guards.learning`; `STANDARD` lists all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from statistics import mean, stdev
from typing import Any, ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Grown
from assay.core.verifier import COMPONENT, VERIFIED
from assay.engine.guards.alarms import Alarm as Alarm
from assay.engine.guards.alarms import Alarms as Alarms
from assay.engine.guards.alarms import GuardError as GuardError
from assay.engine.guards.alarms import Moment as Moment
from assay.engine.guards.alarms import Watch as Watch
from assay.engine.guards.alarms import lasts
from assay.engine.guards.learning import (
    EFFECTIVE_SAMPLES,
    FEW_CUT,
    FINITE_WORLDS,
    LIVE_GROUPS,
    CriticExplains,
    FewSkipped,
    HeldOutFollows,
    InsideLimits,
    LivePolicy,
    OrderOne,
    RewardHolds,
    SomethingTrained,
)
from assay.engine.guards.wiring import SoundLosses
from assay.ops import groups


@dataclass(frozen=True)
class SampledEqualsTrained(Watch):
    """Checks that log-probabilities recorded when sampling equal those that training computes from the same weights.

    Checked on `rows` sequences at every step, on eight times as many at step 0. A gap means stale weights, another
    temperature, top-p left on, or a shifted mask: ratios and KL would silently be wrong. For a rollout that truncates
    sampling (`Narrowed`), the recorded log-probability of the model itself is compared (`logp_model`).

    Weights in bfloat16 round: transformers' own log-probabilities of SmolLM2-135M differ from its float32 ones by 0.026
    on average and 0.42 at most (H200), two such computations by 0.032; Qwen2.5-0.5B had 0.009 and 1. So they have a
    limit of their own on the mean (`narrow_limit`), and a share `rare` of their decisions may exceed `narrow_largest`:
    a choice, since the tail of rounding has no bound. Rounding has no sign, wrong settings have one: their mean gap is
    a KL divergence, which `bias_limit` bounds.
    """

    rows: int = 8
    mean_limit: float = 1e-3
    largest_limit: float = 5e-2
    narrow_limit: float = 6e-2
    bias_limit: float = 2e-2
    rare: float = 2e-3
    narrow_largest: ClassVar[float] = 1.0

    @torch.no_grad()
    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        fresh = moment.fresh
        if fresh is None or Need.LOGP not in moment.recipe.needs:
            return []
        own = fresh.own()
        if own.version is not None:  # rows that older weights sampled are not comparable
            own = own.rows((own.version[:, 0] == moment.progress.step).nonzero().squeeze(1))
        some = own.rows(slice(0, self.rows * (8 if moment.progress.step == 0 else 1)))
        if not bool(some.mask.any()):
            return []
        # An actor may have buffers alone.
        somewhere = next(chain(moment.actor.parameters(), moment.actor.buffers()))
        some = some.trim().to(somewhere.device)
        recorded = some.extra.get("logp_model", some.logp)
        signed = (moment.actor.score(some, frozenset({Need.LOGP})).logp - recorded)[some.mask]
        mean, largest = float(signed.abs().mean()), float(signed.abs().max())
        # Rounding of half precision has a tail: no single decision may decide.
        if somewhere.dtype in (torch.bfloat16, torch.float16):
            beyond = float((signed.abs() > self.narrow_largest).float().mean())
            if mean <= self.narrow_limit and abs(float(signed.mean())) <= self.bias_limit and beyond <= self.rare:
                return []
        elif mean <= self.mean_limit and largest <= self.largest_limit:
            return []
        text = (
            f"sampled and trained log-probabilities differ by {mean:.2g} on average, {largest:.2g} at most, at step "
            f"{moment.progress.step}: the sampler does not use the trainer's weights or settings. Check weight "
            "transfer, temperature, top-p, masks and dtype of the actor"
        )
        return [Alarm("sampled equals trained", text, stop=True)]


@dataclass(frozen=True)
class SaneRewards(Watch):
    """Checks that rewards are finite, one for each decision, and not constant for `patience` steps in a row."""

    patience: int = 5

    def init(self) -> State:
        return {"constant": 0}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        fresh = moment.fresh
        if fresh is None:
            return []
        if fresh.reward.shape != fresh.mask.shape:
            text = f"rewards have shape {tuple(fresh.reward.shape)}, decisions {tuple(fresh.mask.shape)}"
            return [Alarm("sane rewards", f"{text}. Return one reward for each decision", stop=True)]
        bad = ~torch.isfinite(fresh.reward) & fresh.mask
        if bool(bad.any()):
            rows = bad.any(1).nonzero().squeeze(1)[:5].tolist()
            text = f"rewards of rows {rows} are NaN or infinite at step {moment.progress.step}"
            return [Alarm("sane rewards", f"{text}. Fix the reward function", stop=True)]
        outcome = groups.outcome(fresh)[fresh.mask.any(1)]
        # Without credit, rewards are not read: imitation may have constant ones.
        constant = len(outcome) > 1 and bool((outcome == outcome[0]).all()) and len(moment.recipe.credit) > 0
        if lasts(constant, state, "constant", self.patience):
            text = (
                f"every sequence got the same reward ({float(outcome[0]):.3g}) for {state['constant']} steps: nothing "
                "can be learnt. Check the verifier, or start from an easier level or a longer warm-up"
            )
            return [Alarm("sane rewards", text)]
        return []


@dataclass(frozen=True)
class MoreThanLength(Watch):
    """Checks that the reward of text that is trained on does not rise by its length alone, as under a length bonus.

    Among the answers to a prompt, reward is regressed on length, at equal scores of the verifier if one gave any.
    Steps are averaged in blocks as by `RewardHolds`. A block is bad if reward (by more than the noise and `share`) and
    length (by `share`) are above those of the first block, the slope times the growth makes up `most` of the rise, and
    length explains `most` of its variance so far. Degenerate: groups of one are compared with each other; equal lengths
    explain nothing, and a reward of two values, as right or wrong, cannot be paid by length.
    """

    patience: int = 2
    least: int = 5
    errors: float = 4.0
    share: float = 0.1
    most: float = 0.8

    def init(self) -> State:
        return {"steps": [], "first": None, "last": None, "products": [], "by_length": 0.0, "above": 0}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        fresh = None if moment.fresh is None else moment.fresh.own()
        if fresh is None or "tokens" not in fresh.context or not moment.recipe.credit or not bool(fresh.mask.any()):
            return []
        state["steps"].append(by_length(fresh.rows(fresh.mask.any(1))))
        size = max(self.least, moment.progress.num_steps // 20)
        if len(state["steps"]) < size:
            return []
        found = [mean(one) for one in zip(*state["steps"], strict=True)]
        error = stdev(one[0] for one in state["steps"]) / math.sqrt(size)
        reward, length, (slope, _) = found[0], found[1], regressed(*found[2:])
        state["steps"] = []
        if state["first"] is None:
            state.update(first=[reward, length, error], last=[length, slope], products=[0.0] * len(found[2:]))
        state["products"] = [so_far + one for so_far, one in zip(state["products"], found[2:], strict=True)]
        _, explained = regressed(*state["products"])
        first, (before, steepness) = state["first"], state["last"]
        state["by_length"] += (slope + steepness) / 2.0 * (length - before)
        state["last"] = [length, slope]
        rise = reward - first[0]
        noise = max(self.errors * math.hypot(error, first[2]), self.share * max(abs(first[0]), abs(reward)))
        is_longer = length >= (1.0 + self.share) * first[1]
        is_length = state["by_length"] >= self.most * rise and explained >= self.most
        if not lasts(rise > noise and is_longer and is_length, state, "above", self.patience):
            return []
        text = (
            f"the reward that is trained on rose from {first[0]:.3g} to {reward:.3g} at step {moment.progress.step} as "
            f"answers grew from {first[1]:.3g} to {length:.3g} tokens, and by no more than length pays, which is "
            f"{explained:.0%} of what tells equally right answers to a prompt apart: a length bonus is trained. Take "
            "length out of the reward"
        )
        return [Alarm("more than length", text)]


def by_length(rows: Experience) -> list[float]:
    """Returns mean reward, mean length, and mean products of (reward, length, score) apart from their groups' means: 0
    where the reward has two values or fewer. The score is the verifier's; one that is the reward counts as none.
    """
    reward = groups.outcome(rows).double()
    own = rows.extra.get(COMPONENT + "verifier")  # of several rewards of the user's, the task's own
    score = reward if own is None else own.nan_to_num().double()
    if own is None and VERIFIED in rows.extra:
        score = rows.extra["score"].double()
    values = torch.stack([reward, rows.mask.sum(1).double(), score * bool((score != reward).any())])
    by_group = groups.row_groups(rows)
    if by_group.num == len(rows):
        by_group = groups.groups_of(torch.zeros_like(reward), len(rows), reward.device)
    apart = values - torch.stack([groups.mean(one, by_group) for one in values])
    products = (apart @ apart.T / len(rows)) * (len(reward.unique()) > 2)
    return [*values[:2].mean(1).tolist(), *products.flatten().tolist()]


def regressed(*products: float) -> tuple[float, float]:
    """Returns the slope of reward on length and the share that it explains, at equal scores; 0 where none varies."""
    reward, both, paid, _, length, longer, _, _, score = products
    if score > 0.0:
        reward, both, length = reward - paid**2 / score, both - paid * longer / score, length - longer**2 / score
    if reward <= 1e-9 * products[0] or length <= 1e-9 * products[4]:
        return 0.0, 0.0
    return both / length, both**2 / (reward * length)


SMALL_NORM = 1e-6
"""A gradient below it need not move a float32 weight: Adam's epsilon is of its size, as in a policy that saturated."""


@dataclass(frozen=True)
class WeightsMove(Watch):
    """Checks that the sampling weights change after an update with a gradient, do not change at learning rate 0, and
    are finite: a finite gradient times a step size may still overflow.
    """

    def init(self) -> State:
        return {"checksum": None}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        state["checksum"] = checksum(moment.actor)
        return []

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        before = state["checksum"]
        if before is None:
            return []
        trained = [
            stage.name
            for stage in moment.recipe.stages
            if "actor" in stage.trains and stage.optimizer.learning_rate != 0
        ]
        # A stage without an update has no norm: nothing was to move.
        norms = [moment.metrics.get(f"gradient_norm/{name}", 0.0) for name in trained]
        after = checksum(moment.actor)
        if not math.isfinite(after):
            text = f"the actor's weights are not finite after step {moment.progress.step}. Lower the learning rate"
            return [Alarm("weights move", text, stop=True)]
        if not any(norm > SMALL_NORM for norm in norms) or before != after:
            return []
        text = (
            f"the actor's weights did not change at step {moment.progress.step} although its gradient is not zero: "
            "the sampler keeps old weights or the optimizer trains a copy"
        )
        return [Alarm("weights move", text, stop=True)]


def checksum(actor: Any) -> float:
    """Returns a number that changes with the weights and with everything that has grown."""
    grown = [tensor for module in actor.modules() if isinstance(module, Grown) for tensor in module.growth().values()]
    return float(
        sum(
            parameter.detach().double().sum() + parameter.detach().double().square().sum()
            for parameter in (*actor.parameters(), *grown)
        )
    )


@dataclass(frozen=True)
class FiniteSteps(Watch):
    """Counts updates skipped because of a gradient that is not finite; stops the run after `patience` in a row."""

    patience: int = 3

    def init(self) -> State:
        return {"in_a_row": 0, "total": 0}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        if not moment.faults:
            state["in_a_row"] = 0
            return []
        state["in_a_row"] += 1
        state["total"] += len(moment.faults)
        stop = state["in_a_row"] >= self.patience
        text = f"step {moment.progress.step}: {moment.faults[0]}; the update was skipped ({state['total']} so far)"
        return [Alarm("finite steps", text + ("; the run stops, its state is saved" if stop else ""), stop=stop)]


STANDARD: tuple[Watch, ...] = (
    SampledEqualsTrained(),
    SaneRewards(),
    LIVE_GROUPS,
    EFFECTIVE_SAMPLES,
    WeightsMove(),
    SoundLosses(),
    FiniteSteps(),
    LivePolicy(),
    SomethingTrained(),
    OrderOne(),
    FewSkipped(),
    CriticExplains(),
    FEW_CUT,
    InsideLimits(),
    RewardHolds(),
    HeldOutFollows(),
    MoreThanLength(),
    FINITE_WORLDS,
)
