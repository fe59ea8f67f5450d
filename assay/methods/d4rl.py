"""d4rl: one learner on fixed datasets of fixed tasks, scored between an untrained and an expert policy.

    score = 100 (return - low) / (high - low),   return = undiscounted sum of rewards, mean over held-out episodes

Fu et al. 2020. Data of one task differ in who made them: uniform actions (random), an agent half way (medium), all that
it gathered until then (medium-replay), at its end (expert), both (medium-expert), or scripts that walk about without
the task (play). The last checkpoint counts, by its mode; a cut episode bootstraps. The recipe is iql, the variants are
compared with it on the same rows: `assay compare d4rl d4rl:bc d4rl:td3-bc d4rl:cql --task 'mini-pendulum-*'`.

The references of D4RL's 147 datasets are in `assay.statistics.references`, its files are read by `--data`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from assay.method import CONTINUOUS, Method, Preset, Recipe, cloned, cql, iql, td3_bc


def recipe(preset: Preset = CONTINUOUS, learner: Callable[[Preset], Recipe] = iql) -> Recipe:
    """Returns an offline learner; its data are the task's own dataset, or files."""
    return replace(learner(preset), name="d4rl")


METHOD = Method(
    paper="arXiv:2004.07219",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="one-goal-play",
    family="offline",
    base=iql,
    variants={
        "bc": partial(recipe, learner=cloned),
        "td3-bc": partial(recipe, learner=td3_bc),
        "cql": partial(recipe, learner=cql),
    },
    departures=(
        "a benchmark: the recipe is iql's; what is new are tasks, datasets, the score and the references",
        "datasets are made here, of pendulum, cartpole and a point maze, by the agents that assay/datasets/mini.py "
        "states: scores here are not D4RL's, whose references are of its own environments",
        "medium is half way between uniform actions and the end of training, both measured (a third of the return); "
        "medium-expert has equally many episodes, which are equally long (equally many rows)",
        "files: the last row stays, and so does a row before a cut (its own reader drops both); an unfinished last "
        "episode is cut (left out). `assay data alter FILE d4rl-rows` gives its reader's rows",
        "no AntMaze, Adroit, kitchen, Flow or CARLA; MuJoCo's data are made by `assay data make Hopper-v5 medium`",
    ),
    pilots=(
        "one seed (0) of one-goal-play after the claim's 500 steps: 4.7 against -2.9 of cloning, near that of "
        "uniform actions; the claim was stated before and was not changed",
    ),
)
