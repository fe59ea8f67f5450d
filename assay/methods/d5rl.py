"""d5rl: one learner on logs of three provenances of one task, scored after the log and along online fine-tuning.

    offline: the learner on the log -> online: the same losses on half old and half new rows, from all its weights
    report: the score at the switch, the dip below it, the end, the gain, the mean of the online evaluations

Rafailov et al. 2024. A script's log is narrow and good, play is broad and has no task (its rewards are the task's, put
in afterwards), noisy logs are in between: which learner is best depends on who made the data, and what is best offline
may fall first online. Task and reward are the same for `one-goal-scripted`, `one-goal-play` and `one-goal-noisy`, and
each log has 4,800 decisions. `assay.statistics.fine_tuning` makes the report of a curve.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from assay.method import CONTINUOUS, Method, Phase, Preset, Recipe, cloned, cql, iql, logged, recipes, td3_bc
from assay.parts import Retained


def recipe(preset: Preset = CONTINUOUS, learner: Callable[[Preset], Recipe] = iql) -> Recipe:
    """Returns the offline learner, with rewards in the task's units, which the online phase has too."""
    return replace(learner(preset), name="d5rl", source=logged(preset))


def fine_tuned(
    preset: Preset = CONTINUOUS,
    learner: Callable[[Preset], Recipe] = iql,
    explored: Callable[[Preset], Recipe] = recipes.sac,
) -> Recipe:
    """Returns the learner online after its offline phase; it explores as `explored` does."""
    first, settings = recipe(preset, learner), preset.off_policy
    replay = replace(settings.replay, batch=preset.offline.batch, warmup=preset.offline.batch)
    handed = {name: name for name in ("actor", *first.critics, *first.copies)}
    return replace(
        first,
        rollout=explored(preset).rollout,
        source=Retained(replay, logged(preset), 0.5),
        before=(Phase("offline", first, first.steps, handed),),
        steps=settings.steps * 180 // 1_000,
    )


METHOD = Method(
    paper="arXiv:2408.08441",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="one-goal-play",
    family="offline to online",
    base=iql,
    variants={
        "bc": partial(recipe, learner=cloned),
        "td3-bc": partial(recipe, learner=td3_bc),
        "cql": partial(recipe, learner=cql),
        "fine-tuned": fine_tuned,
        "td3-bc-fine-tuned": partial(fine_tuned, learner=td3_bc, explored=recipes.td3),
        "cql-fine-tuned": partial(fine_tuned, learner=cql),
    },
    departures=(
        "a benchmark: the recipe is iql's; what is new are logs of three provenances and the report of two phases",
        "a point maze with one hidden goal stands for A1, the Franka kitchen and WidowX, which are not here; no "
        "images; scores here are not D5RL's",
        "demonstrations are a script's; the evaluation's starts are the training task's for all logs, so that the "
        "scripted log, from the far end alone, is the one out of whose range they are",
        "one fine-tuning for all: offline losses on half old and half new rows; cal-ql and wsrl have theirs",
        "2,000 offline updates, 1,440 decisions online (500,000 each); rewards are 0 and 1 and not rescaled",
    ),
)
