"""copg: contrasts regularised rewards of pairs, from any policy, without importance weights.

    d(y) = R(y) - beta (log pi(y) - log pi_ref(y)),   loss = mean over pairs of (d(y) - d(y'))^2 / (4 beta)

Flet-Berliac et al. 2024. The two samples of a pair are each other's baseline. The loss is correct for samples of any
policy, because at its minimum, pi_ref exp(R / beta) / Z, all y have the same d.
"""

from dataclasses import replace

from assay.method import EVERY, LANGUAGE, PREFERENCES, Method, Preset, Recipe, Stage, recipes
from assay.parts import RegressLogRatio


def recipe(preset: Preset = LANGUAGE, beta: float = 0.1) -> Recipe:
    """Returns dpo without pairs by rank: log-ratios are regressed to rewards."""
    objective = RegressLogRatio(beta)
    stage = Stage("pairs", trains=("actor",), objective=(objective,), optimizer=preset.optimizer)
    return replace(recipes.dpo(preset), name="copg", credit=(), stages=(stage,))


METHOD = Method(
    paper="arXiv:2406.19185",
    recipe=recipe,
    presets=(*EVERY, PREFERENCES),
    family="preference",
    base=recipes.dpo,
    departures=("scaled by 1 / (4 beta): on-policy the step is that of rloo with the same KL; all pairs of a group",
             "pairs are sampled from the current policy at every step unless a file of pairs is the task"),
)
