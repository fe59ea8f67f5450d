"""neorl2: offline learners on logs of cautious controllers of tasks with one real difficulty each, scored against both.

    score = 100 (return - low) / (high - low);   a learner counts where it is above the controller's score by a margin

Gao et al. 2025. A delay, disturbances, a budget or slow dynamics, and data of a PID controller at 50 to 80 % of an
expert: few algorithms do better than what made their data. The tasks are `near-*`, any other task has the difficulties
by name (`delayed=4:HalfCheetah-v5`), and the published numbers are in `assay.statistics.references`. The recipe is
td3-bc, which beats the data of most of their tasks, with every network on states standardised by the log, since flows
of 100 and positions of 1 stand side by side.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from assay.method import CONTINUOUS, Method, Preset, Recipe, cloned, cql, iql, td3_bc
from assay.models import Policy, StandardisedByData


def standardised(preset: Preset) -> Preset:
    """Returns the preset with all networks on states with the data's mean 0 and deviation 1."""
    body = StandardisedByData(preset.offline.body)
    actor, value = Policy(body), replace(preset.value, body=body)
    return replace(preset, actor=actor, value=value, offline=replace(preset.offline, body=body, standardised=False))


def recipe(preset: Preset = CONTINUOUS, learner: Callable[[Preset], Recipe] = td3_bc) -> Recipe:
    """Returns an offline learner on standardised states; its data are the task's own log, or files."""
    return replace(learner(standardised(preset)), name="neorl2")


METHOD = Method(
    paper="arXiv:2503.19267",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="near-dmsd",
    family="offline",
    base=td3_bc,
    variants={
        "bc": partial(recipe, learner=cloned),
        "iql": partial(recipe, learner=iql),
        "cql": partial(recipe, learner=cql),
    },
    departures=(
        "a benchmark: the recipe is td3-bc's; what is new are tasks, logs, the score and the published tables",
        "of the seven tasks Pipeline and DMSD are here, from their equations; RocketRecovery, Fusion and Simglucose "
        "need models that are not at hand, RandomFrictionHopper and SafetyHalfCheetah are MuJoCo's; three near-real "
        "versions of pendulum and cartpole stand for a delay, a disturbance and a budget",
        "controllers see one observation (Pipeline's holds 26 flows): their integral term is a mean over it, or 0; a "
        "tenth of their actions is uniform; each seed of a run has another log (one fixed pair of files)",
        "the last checkpoint counts; in their table a cell is the best of several settings by its return in the task",
        "mopo, combo, rambo, mobile and mcq are not among the learners",
        "scores here are of these tasks and are not NeoRL-2's",
    ),
)
