"""Guards of learning: a run that is correct and learns nothing says so. None of them stops it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from assay.core.record import Need, State
from assay.core.verifier import VERIFIED
from assay.engine.guards.alarms import Alarm, Moment, Watch, lasts
from assay.ops import groups


# --------------------------------------------------------------------------------------------- limits of one metric
@dataclass(frozen=True)
class Limit(Watch):
    """Checks one metric of the step's updates: raises `text` where `is_bad` holds, for `patience` steps in a row.

    `text` is formatted with the metric's `value`, the `step`, and the `steps` in a row, which are counted in the state
    under `counts`; without that name every bad step raises it. Degenerate: a step without the metric changes nothing.
    """

    name: str
    metric: str
    is_bad: Callable[[float], bool]
    text: str
    counts: str = ""
    patience: int = 5

    def init(self) -> State:
        return {self.counts: 0} if self.counts else {}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        value = moment.metrics.get(self.metric)
        if value is None:
            return []
        is_bad = self.is_bad(value)
        if not (lasts(is_bad, state, self.counts, self.patience) if self.counts else is_bad):
            return []
        text = self.text.format(value=value, step=moment.progress.step, steps=state.get(self.counts))
        return [Alarm(self.name, text)]


LIVE_GROUPS = Limit(
    name="live groups",
    metric="zero_advantage_groups",
    is_bad=lambda share: 1.0 - share < 0.05,
    counts="below",
    text="{value:.0%} of the groups had zero advantage for {steps} steps: the task is too easy, too hard or solved. "
    "Change its level, raise the group size, or stop",
)
EFFECTIVE_SAMPLES = Limit(
    name="effective samples",
    metric="effective_samples",
    is_bad=lambda share: not share >= 0.3,
    text="the effective sample size is {value:.0%} of the batch at step {step}: the policy has moved far from the one "
    "that sampled. Use fewer epochs, a smaller learning rate, or fresher data",
)
"""(sum ratio)^2 / (n * sum ratio^2): where it is small, a few decisions dominate an update. NaN is reported too."""
FEW_CUT = Limit(
    name="few cut",
    metric="cut",
    is_bad=lambda share: share > 0.5,
    counts="above",
    text="{value:.0%} of the answers were cut at the length limit for {steps} steps: they are judged unfinished. Raise "
    "the limit (--max-tokens), or train a warm-up that ends its answers",
)

FINITE_WORLDS = Limit(
    name="finite worlds",
    metric="lost_worlds",
    is_bad=lambda share: not share <= 1e-3,
    text="{value:.2%} of the decisions at step {step} ended an episode: numbers of the simulator were not finite. "
    "Lower the learning rate, or use a smaller time step in the model",
)


@dataclass(frozen=True)
class InsideLimits(Watch):
    """Checks the metrics that the recipe's parts watch (`core.metrics`): each part states its limit and its alarm."""

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        step, metrics = moment.progress.step, moment.metrics
        limited = [one for one in moment.recipe.watched.values() if one.text and one.name in metrics]
        return [
            Alarm(one.guard, one.text.format(value=metrics[one.name], step=step))
            for one in limited
            if not metrics[one.name] <= one.most
        ]


# ---------------------------------------------------------------------------------------- what takes more than a limit
@dataclass(frozen=True)
class LivePolicy(Watch):
    """Checks that the entropy of the sampled decisions does not collapse before the task is learnt.

    Entropy is the mean of -log p of the policy's own decisions. Collapsed is below `least` of the first step's, or
    for continuous actions a standard deviation below `narrow` of the first. A policy that has gained half of the way
    from the first mean outcome to the best outcome seen may be as sure as it likes.
    """

    least: float = 0.05
    narrow: float = 0.01
    patience: int = 5

    def init(self) -> State:
        return {"first": None, "outcome": None, "best": None, "below": 0}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        fresh = None if moment.fresh is None else moment.fresh.own()
        if fresh is None or Need.LOGP not in moment.recipe.needs or not bool(fresh.mask.any()):
            return []
        entropy = -float(fresh.logp[fresh.mask].mean())
        outcome = groups.outcome(fresh)[fresh.mask.any(1)]
        average, best = float(outcome.mean()), float(outcome.max())
        if state["first"] is None:
            state.update(first=entropy, outcome=average, best=best)
        state["best"] = max(best, state["best"])
        # Differential entropy has no zero: it is compared with the first by a difference, not by a ratio.
        if fresh.action.is_floating_point():
            is_sure = entropy < state["first"] + fresh.action[0, 0].numel() * math.log(self.narrow)
        else:
            is_sure = entropy < self.least * state["first"]
        # Sure of what is right is what training is for.
        is_solved = 2.0 * average >= state["outcome"] + state["best"] and average > state["outcome"]
        if not lasts(is_sure and not is_solved, state, "below", self.patience):
            return []
        text = (
            f"the entropy of a decision fell from {state['first']:.3g} to {entropy:.3g} nats with a mean outcome of "
            f"{average:.3g} (first {state['outcome']:.3g}, best {state['best']:.3g}): it repeats one behaviour. Check "
            "the sign of the entropy term, raise its coefficient, or lower the learning rate"
        )
        return [Alarm("live policy", text)]


@dataclass(frozen=True)
class SomethingTrained(Watch):
    """Checks that some stage is trained: its learning rate is not 0 for `patience` steps, and by the middle of the run
    some gradient was not 0. Steps without updates (a source that is filled first) count only for the second.
    """

    patience: int = 5

    def init(self) -> State:
        return {"still": 0, "trained": 0}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        stages, step = moment.recipe.stages, moment.progress.step + 1
        moving = [stage.name for stage in stages if not is_zero(stage.optimizer.learning_rate)]
        state["trained"] += any(moment.metrics.get(f"gradient_norm/{name}", 0.0) > 0.0 for name in moving)
        if lasts(bool(moment.tried) and not moving, state, "still", self.patience):
            names = ", ".join(stage.name for stage in stages)
            text = f"nothing is trained: the learning rate of every stage ({names}) is 0 for {state['still']} steps"
            return [Alarm("something is trained", f"{text}. Set --set STAGE.learning_rate=...")]
        # At one step alone: before it replay may still fill, after it a schedule may have ended.
        middle = max(2 * self.patience, moment.progress.num_steps // 2)
        if state["trained"] or step != middle or not stages:
            return []
        text = f"no weight has moved in {step} steps: every gradient was 0, or no update was made. Check the rewards"
        return [Alarm("something is trained", f"{text}, the source's warm-up and the stages' `every`")]


@dataclass(frozen=True)
class OrderOne(Watch):
    """Checks once that observations are of order one for networks that take them as they are.

    The size of a number is its root mean square over the first experience; the largest of them must be between `least`
    and `most`. A body that works on numbers of any size says so: `scale_free = True`. Degenerate: contexts without an
    observation of numbers, and data from files, are not looked at.
    """

    least: float = 0.01
    most: float = 100.0

    def init(self) -> State:
        return {"seen": False}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        fresh, body = moment.fresh, getattr(moment.recipe.actor, "body", None)
        is_plain = fresh is not None and "observation" in fresh.context and "image" not in fresh.context
        if state["seen"] or fresh is None or not is_plain or not bool(fresh.mask.any()):
            return []
        state["seen"] = True
        size = float(fresh.context["observation"][fresh.mask].double().square().mean(0).sqrt().max())
        if getattr(body, "scale_free", False) or self.least <= size <= self.most:
            return []
        text = f"the largest number of an observation has the size {size:.3g}: networks begin for numbers of order one"
        return [Alarm("observations of order one", f"{text}. Use --normalize obs, or other units")]


@dataclass(frozen=True)
class FewSkipped(Watch):
    """Checks that at most the share `most` of all updates of the run is skipped; looks when `least` were tried, and
    then whenever their number has doubled.
    """

    most: float = 0.01
    least: int = 20

    def init(self) -> State:
        return {"tried": 0, "skipped": 0, "next": self.least}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        state["tried"] += moment.tried
        state["skipped"] += len(moment.faults)
        if state["tried"] < state["next"]:
            return []
        state["next"] = 2 * state["tried"]  # else a few early faults would be told at every step
        share = state["skipped"] / state["tried"]
        if share <= self.most:
            return []
        text = (
            f"{state['skipped']} of {state['tried']} updates ({share:.0%}) were skipped: their gradients are not "
            "finite. Look for NaN or infinity in observations and rewards, or lower the learning rate"
        )
        return [Alarm("few skipped", text)]


@dataclass(frozen=True)
class CriticExplains(Watch):
    """Checks that the critic explains some variance of the returns in the second half of the run.

    share = 1 - var(return - value) / var(return), at least -1, as an average over about `patience` steps. Degenerate:
    without the columns `value` and `return`, or with equal returns, it is not computed.
    """

    patience: int = 10

    def init(self) -> State:
        return {"share": 0.0, "steps": 0, "below": 0}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        fresh = moment.fresh
        if fresh is None or not {"value", "return"} <= fresh.extra.keys() or int(fresh.mask.sum()) < 2:
            return []
        target, value = fresh.extra["return"][fresh.mask].double(), fresh.extra["value"][fresh.mask].double()
        spread = float(target.var())
        if spread <= 0.0:
            return []
        share = max(-1.0, 1.0 - float((target - value).var()) / spread)
        state["steps"] += 1
        # An average that forgets: a critic that is bad at first is no alarm.
        state["share"] += (share - state["share"]) / min(state["steps"], self.patience)
        # A critic needs time; early in a run it explains nothing by right.
        is_late = 2 * (moment.progress.step + 1) > moment.progress.num_steps and state["steps"] >= self.patience
        if not lasts(is_late and state["share"] <= 0.0, state, "below", self.patience):
            return []
        text = (
            f"the critic explains {state['share']:.0%} of the variance of the returns at step {moment.progress.step}: "
            "its values are no better than a constant. Raise its learning rate or epochs, or check its targets"
        )
        return [Alarm("critic explains", text)]


@dataclass(frozen=True)
class RewardHolds(Watch):
    """Checks that the reward that is trained on keeps half of what it has gained.

    The reward of a step is that of an answer or an episode, mean of a decision times mean length, as the recipe's
    reward parts gave it: not the task's score. Steps are averaged in blocks of a twentieth of the run, `least` steps
    at least. A block has fallen if it is below the middle of the first and the best one, and below the best by more
    than `errors` standard errors and by the share `share`. Raises its alarm after `patience` such blocks in a row.
    Degenerate: steps without experience of their own, or in which no episode ended, are left out.
    """

    patience: int = 3
    least: int = 5
    errors: float = 4.0
    share: float = 0.1

    def init(self) -> State:
        return {"rewards": [], "first": None, "best": None, "deviation": 0.0, "below": 0}

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        reward, length = (moment.metrics.get(name) for name in ("reward_per_decision", "length"))
        if reward is None or length is None:
            return []
        # The mean of a decision alone would rise where episodes become shorter.
        state["rewards"].append(reward * length)
        size = max(self.least, moment.progress.num_steps // 20)
        if len(state["rewards"]) < size:
            return []
        now, error = mean(state["rewards"]), stdev(state["rewards"]) / math.sqrt(size)
        state["rewards"] = []
        if state["best"] is None:
            state.update(first=now, best=now, deviation=error)
        best, first = state["best"], state["first"]
        noise = max(self.errors * math.hypot(error, state["deviation"]), self.share * max(abs(best), abs(now)))
        # Half of the gain is lost and it is more than noise: a run that learns may meet one of the two.
        has_fallen = 2.0 * now < first + best and best - now > noise
        if now > best:
            state.update(best=now, deviation=error)
        if not lasts(has_fallen, state, "below", self.patience):
            return []
        text = (
            f"the reward that is trained on fell from {best:.3g} to {now:.3g} (mean of {size} steps), began at "
            f"{first:.3g}, and has been low for {state['below'] * size} steps at step {moment.progress.step}: training "
            "makes it worse, unless its starts become harder. Check the sign and the range of the reward, lower the "
            "learning rate, or add a KL term"
        )
        return [Alarm("reward holds", text)]


@dataclass(frozen=True)
class HeldOutFollows(Watch):
    """Checks that the held-out score is at most `most` below the score of the policy's own rows in training: where it
    is further below, the policy knows its prompts by heart. Raises its alarm at evaluation 1, 2, 4, 8, ... in a row.

    Compared are scores of a verifier from 0 to 1. Degenerate: other scores, as returns, are not compared.
    """

    most: float = 0.3

    def init(self) -> State:
        """Returns no score yet, and the number of evaluations in a row below the limit, 0."""
        return {"score": None, "below": 0}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        """Keeps the mean score of the step's own rows."""
        fresh = None if moment.fresh is None else moment.fresh.own()
        if fresh is not None and VERIFIED in fresh.extra and bool(fresh.mask.any()):
            score = fresh.extra["score"][fresh.mask.any(1)]
            state["score"] = float(score.mean()) if bool(((score >= 0.0) & (score <= 1.0)).all()) else None
        return []

    def evaluated(self, scores: Sequence[float], state: State) -> list[Alarm]:
        held_out = sum(scores) / max(1, len(scores))
        is_known = state["score"] is not None and all(0.0 <= score <= 1.0 for score in scores)
        below = state["below"] = state["below"] + 1 if is_known and state["score"] - held_out > self.most else 0
        # At powers of two: a run of a thousand evaluations has ten such alarms.
        if below == 0 or below & (below - 1):
            return []
        text = (
            f"the score is {state['score']:.2f} on training prompts and {held_out:.2f} on held-out ones: the policy "
            "knows its prompts by heart, or held-out prompts are of another kind. Train on more different prompts, or "
            "for fewer steps"
        )
        return [Alarm("held-out score follows", text)]


def is_zero(value: Any) -> bool:
    """Returns whether a setting is the number 0."""
    return isinstance(value, int | float) and value == 0
