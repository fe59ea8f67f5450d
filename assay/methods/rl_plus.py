"""rl-plus: adds demonstrations to the groups, weighted by multiple importance sampling, more where unlikely.

    loss = mean_i 1/|y_i| sum_t { -min(rho_t A_i, clip(rho_t) A_i)         own answers
                                { -r_t (1 - pi(e_t))^0.5 A_i               demonstrations e
    r_t = 2 pi(e_t) / (pi_old(e_t) + pi_other(e_t)),   pi_other = (pi_old + uniform) / 2

Dong et al. 2025. What the policy never samples cannot be reinforced: grpo sharpens and does not reach beyond its
start. A demonstration enters its group's mean; the balanced ratio needs no model of its author, and has little
variance.

Axes: B sequences, T columns.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, LOGP_MODEL, Annotation, AssayError, Box, DemonstratedTask, Discrete, Experience
from assay.method import Method, MultiDiscrete, Need, Origin, Over, Preset, Recipe, Rollout, Scene, Space, State
from assay.method import Vocabulary, concatenate, recipes, with_policy
from assay.parts import Around, Clip, Episodes, ForeignWeight, Guided, SequenceMean, bounded_ratio, is_foreign


@dataclass(frozen=True)
class LogpWhenShown(Annotation):
    """The column `logp_shown`: log pi_old of demonstrated decisions, by the policy that gathered; 0 in own rows."""

    column: str = "logp_shown"
    means: ClassVar[str] = "BT: log-probability of demonstrated decisions under the acting policy"
    model: str = "actor"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns log-probabilities [B, T]; only demonstrations are scored."""
        found, rows = torch.zeros_like(experience.logp), is_foreign(experience).any(1).nonzero().squeeze(1)
        if not len(rows):
            return found

        def score(actor: Any, part: Experience) -> Tensor:
            logp: Tensor = actor.score(part, frozenset({Need.LOGP})).logp
            return logp

        return found.index_copy(0, rows, over(experience.rows(rows), score).to(found.dtype))


@dataclass(frozen=True)
class Balanced(ForeignWeight):
    """Multiple importance sampling of decisions by an unknown author, with emphasis on the unlikely.

        w = r (1 - pi)^focus,   r = 2 pi / (pi_old + pi_other),   pi_other = (pi_old + uniform) / 2

    RL-PLUS (arXiv:2508.00222). pi_other is half the acting policy, half the uniform one, whose probability is the
    column `uniform`. r is the balance heuristic's weight, at most 4/3 of the ratio, and never clipped. (1 - pi)^focus
    has no gradient; it reduces the weight of decisions that are already likely, and focus (gamma) 0 disables it.
    Densities above 1 count as 1 there. `uniform` other than 0 replaces the column: 1 is the released code, with which r
    is at most 4 pi and vanishes on unlikely decisions.
    """

    focus: float = 0.5
    uniform: float = 0.0
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({LogpWhenShown()})
    reads: ClassVar[Mapping[str, str]] = {"uniform": "B"}
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "uniform": lambda batch: torch.full((len(batch),), 0.25, dtype=batch.reward.dtype)
    }

    def __call__(self, logp: Tensor, batch: Experience) -> Tensor:
        old = bounded_ratio(batch.column("logp_shown").detach())
        uniform = self.uniform or batch.column("uniform").unsqueeze(1).to(logp.dtype)
        ratio = 2.0 * bounded_ratio(logp) / (old + 0.5 * (old + uniform))
        return ratio * (1.0 - bounded_ratio(logp.detach()).clamp(max=1.0)) ** self.focus


@dataclass(frozen=True)
class WithDemonstrations(Around):
    """Runs `gather` and adds one row to each group: the task's demonstration of the same start.

    Demonstrations enter the group's statistics, so a group of wrong answers still has a signal. The column `source`
    marks the rows: POLICY for own ones, the task's value for demonstrations, whose recorded log-probability is 0,
    since it is unknown. `uniform` [B] is the probability of an action under the uniform policy: 1 over the number of
    actions, or over the volume of a box. Demonstrations are rewarded like all rows.
    """

    gather: Rollout = Episodes()
    writes: ClassVar[Mapping[str, str]] = {"uniform": "B: probability of an action under the uniform policy"}
    breaks: ClassVar[dict[str, str]] = {"recorded": "the probability of a demonstration's decisions is unknown"}

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no demonstrations."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"WithDemonstrations needs demonstrations; '{task.name}' has none. Use Episodes")
        if not self.gather.num_starts:
            raise AssayError(f"{type(self.gather).__name__} draws its own starts; WithDemonstrations needs groups")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        task, starts = scene.task, scene.starts
        assert isinstance(task, DemonstratedTask)
        own = self.gather(scene, state)
        shown = task.demonstrate(np.unique(starts), 0)
        if LOGP_MODEL in own.extra:  # a column that only some rows have would be dropped
            shown = shown.add({LOGP_MODEL: shown.logp})
        policy = torch.full((len(own),), int(Origin.POLICY))
        both = concatenate([replace(own, source=policy), shown])
        return both.add({"uniform": torch.full((len(both),), uniform_probability(task.spec.action))})


def uniform_probability(actions: Space) -> float:
    """Returns the probability of each action under the uniform policy, or its density per half-range."""
    if isinstance(actions, Box):
        return 0.5**actions.size
    if isinstance(actions, MultiDiscrete):
        return 1.0 / math.prod(actions.sizes)
    assert isinstance(actions, Discrete | Vocabulary)
    return 1.0 / (actions.size if isinstance(actions, Vocabulary) else actions.n)


def mixed(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo with demonstrations of recorded probability 1: naive importance sampling."""
    assert preset.group_rollout is not None
    return replace(recipes.grpo(preset), name="grpo-mixed", rollout=WithDemonstrations(preset.group_rollout))


def recipe(preset: Preset = LANGUAGE, focus: float = 0.5, uniform: float = 0.0) -> Recipe:
    """Returns grpo with demonstrations by the balanced ratio; `uniform` 1 is the released code, 0 the paper."""
    return with_policy(mixed(preset), "rl-plus", Guided(Clip(), Balanced(focus, uniform), SequenceMean()))


METHOD = Method(
    paper="arXiv:2508.00222",
    recipe=recipe,
    default_task="countdown",
    family="guidance",
    base=recipes.grpo,
    variants={"grpo-mixed": mixed},
    departures=(
        "eight own answers and one demonstration in a group instead of seven and one",
        "the uniform policy's probability is 1 / |V|, as in the paper; 1 in the released code (`uniform`)",
        "own answers as in the paper (clip, deviation, mean within a sequence), which the released script switches off",
        "not measured: demonstrations first, and naive mixing at its best learning rate, for the cost of a sweep",
    ),
)
