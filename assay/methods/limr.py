"""limr: a first run records each prompt's curve of success; the second begins again on those near the mean curve.

    s_i = 1 - sum_k (r_ik - mean_k)^2 / sum_k (1 - mean_k)^2,   r_ik = share right at visit k of prompt i
    kept: prompts with s_i >= 0.6;   rest: grpo, from the start's weights

Li et al. 2025 (LIMR). Few prompts are said to carry a run: those whose curve looks like the run's. A prompt that is
always right has s = 0 whatever the others do. One that is never right is dropped only where the mean curve is high:
of a constant mean, above 0.387. What is kept is near the mean, not what learns.

Axes: P prompts, K visits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.method import LANGUAGE, AssayError, Method, Phase, Preset, Recipe, Scene, State, random, recipes, with_pool
from assay.parts import Passes, PoolRule, Visited, in_passes

HANDED = "curves"
"""The name under which the first run passes on its table of visits."""


def impact(shares_PK: np.ndarray) -> np.ndarray:
    """Returns s of each prompt, [P]; 0 for all if every prompt is always right."""
    mean = shares_PK.mean(0)
    room = np.square(1.0 - mean).sum()
    return 1.0 - np.square(shares_PK - mean).sum(1) / room if room > 0 else np.zeros(len(shares_PK))


def scores_of(visits: Sequence[Sequence[float]]) -> np.ndarray:
    """Returns `impact` of the prompts of a table, -inf for those that were not visited; curves are as long as the
    shortest of the others.
    """
    there = [place for place, own in enumerate(visits) if len(own)]
    score = np.full(len(visits), -np.inf)
    if there:
        length = min(len(visits[place]) for place in there)
        score[there] = impact(np.array([visits[place][:length] for place in there]))
    return score


@dataclass(frozen=True)
class NearTheMean(PoolRule):
    """The prompts whose curve of an earlier run has at least the score `threshold` (`impact`), in shuffled passes.

    With `chance` as many prompts, drawn at random from the pool: the rival of
    the paper. Degenerate: a threshold of -inf, or no earlier run, keeps all.
    """

    threshold: float = 0.6
    chance: bool = False

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns the places that are kept; AssayError if none is, or if the first run had another pool."""
        if HANDED not in scene.handed:  # outside of a run there is no earlier one
            return {"next": 0, "kept": list(range(len(seen.starts)))}
        curves = scene.handed[HANDED]
        if not np.array_equal(curves["starts"], seen.starts):
            raise AssayError(
                f"curves are of {len(curves['starts'])} prompts, the pool has {len(seen.starts)}. Set curriculum.size "
                "and before.curves.curriculum.size to one number"
            )
        score = scores_of(curves["visits"])
        kept = np.flatnonzero(score >= self.threshold)
        if not len(kept):
            raise AssayError(f"no prompt has an impact of {self.threshold} (most: {score.max():.2f}). Lower threshold")
        if self.chance:
            kept = np.sort(random.permutation(scene.draw.at(9), len(score))[: len(kept)])
        return {"next": 0, "kept": kept.tolist()}

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        scene.log("kept_prompts", float(len(state["kept"])))
        return in_passes(state["kept"], scene, state)


def recipe(preset: Preset = LANGUAGE, rule: NearTheMean = NearTheMean(), passes: int = 16, size: int = 128) -> Recipe:
    """Returns grpo on prompts chosen by the curves of a first run of some passes over the pool."""
    base = recipes.grpo(preset)
    first = with_pool(base, "limr-curves", Passes(), size)
    assert first.rollout is not None
    steps = -(-passes * size // first.rollout.num_starts)
    phase = Phase("curves", first, steps, hands={}, data={"curriculum": HANDED})
    return replace(with_pool(base, "limr", rule, size), before=(phase,))


def by_chance(preset: Preset = LANGUAGE) -> Recipe:
    """As many prompts, drawn at random."""
    return recipe(preset, NearTheMean(chance=True))


METHOD = Method(
    paper="arXiv:2502.11886",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="dirty",
    family="curriculum",
    base=recipes.grpo,
    variants={"limr-random": by_chance},
    departures=(
        "both runs are grpo, the paper's are ppo; 16 visits of each prompt of a pool of 128, the paper has 21 of 8,523",
        "a prompt is right above 1/2; every prompt has as many visits, so that no missing one is filled",
        "the first run's tokens are not in the second's budget, as in the paper; the run's folder has both",
        "not measured: the full set as a rival, for its cost",
    ),
)
