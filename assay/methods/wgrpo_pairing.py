"""wgrpo-pairing: grpo on two prompts, one that is rarely right and one that is rarely wrong.

    q+ = argmin p,  q- = argmax p  over the prompts with 0 < p < 1;   rest: grpo, every batch half q+ and half q-

Pang et al. 2026. The rare event of a group has the largest advantage: sqrt((1 - p) / p) for a success, its inverse for
a failure. The paper also weighs the outcomes, +1 and -lambda, before they are standardised in the group: an affine map
of two values, which changes nothing. The sum of |A| is larger in a group of the highest variance: 7.5 for four right of
eight, 4.9 for one. What is left is the choice of two prompts, which push in opposite directions.

Axes: B rows.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from assay.method import LANGUAGE, Curriculum, Experience, Method, Preset, Recipe, RepeatingTask, Scene, State, groups
from assay.method import recipes
from assay.parts import Revisits, next_starts


@dataclass(frozen=True)
class Pair(Curriculum):
    """Proposes two prompts by turns: of those that are sometimes right and sometimes wrong, the one whose success rate
    is nearest to `first`, then the one of the others nearest to `second`. 0 and 1 are a hard and an easy one that are
    neither hopeless nor mastered; 1/2 and 1/2 have the highest variance.

    Rates come from the last visit of each of the task's first `pool` starts, so that the pair changes when one of it is
    learnt; with `once`, from the first visit. The rows of a file repeat, so that a start is counted by its row, and a
    file of fewer rows is the pool. An answer is right above 1/2. Degenerate: while fewer than two such starts are
    known, further ones follow.
    """

    pool: int = 64
    first: float = 0.0
    second: float = 1.0
    once: bool = False
    reads_shares: ClassVar[bool] = True

    def init(self, scene: Scene) -> State:
        """Returns an empty table of rates, and the number of a file's rows, 0 if prompts do not repeat."""
        return {"next": 0, "rates": {}, "rows": scene.task.num_training if isinstance(scene.task, RepeatingTask) else 0}

    def pair(self, state: State) -> list[int]:
        """Returns the two starts; fewer if there are not yet two."""
        if len(state["rates"]) < min(self.pool, state["rows"] or self.pool):
            return []
        mixed = {int(start): rate for start, rate in state["rates"].items() if 0.0 < rate < 1.0}
        chosen: list[int] = []
        for rate in (self.first, self.second):
            free = sorted(mixed.keys() - set(chosen))
            chosen += [min(free, key=lambda start: abs(mixed[start] - rate))] if free else []
        return chosen

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns both starts by turns, or the next ones of the task."""
        pair = self.pair(state)
        return np.resize(pair, scene.num_starts) if len(pair) == 2 else next_starts(scene, state, scene.num_starts)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Stores the share of right answers of every start that has a decision."""
        if len(self.pair(state)) == 2 and self.once:
            return
        there = experience.mask.any(1)
        start, right = experience.column("start")[there], groups.is_right(experience)[there]
        start = start % state["rows"] if state["rows"] else start
        rates = {str(one): float(right[start == one].double().mean()) for one in start.unique().tolist()}
        state["rates"] = {**state["rates"], **rates}


def recipe(preset: Preset = LANGUAGE, pick: Pair = Pair()) -> Recipe:
    """Returns grpo on two prompts, which `pick` chooses by their success rates."""
    base = recipes.grpo(preset)
    assert base.rollout is not None
    return replace(base, name="wgrpo-pairing", curriculum=pick, rollout=Revisits(base.rollout.num_starts))


def variance(preset: Preset = LANGUAGE, pool: int = 64) -> Recipe:
    """The two prompts whose success rate is nearest to one half."""
    return recipe(preset, Pair(pool, 0.5, 0.5))


METHOD = Method(
    paper="arXiv:2602.03452",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="levels",
    family="curriculum",
    base=recipes.grpo,
    variants={"variance": variance},
    departures=(
        "read from the abstract and notes; no code. Outcomes are not weighed: that changes nothing (claimed below)",
        "rates come from the first steps of the run, which train, instead of from a pass over two pools before it",
        "the pair is chosen again at every update, as in the abstract; notes on the paper say once (`once`)",
        "not measured: two hard or two easy prompts; the rival is the pair of the highest variance",
    ),
    pilots=(
        "two designs were tried on 3 pilot seeds: with `once` pass@8 was 0.66 against the rival's 0.67",
    ),
)
