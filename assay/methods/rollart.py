"""rollart: grpo whose trajectories run by themselves: no turn waits for the others, no batch for the slowest.

    barrier at each turn   sum_t max_i x_it seconds,   x_it the time of turn t of trajectory i
    trajectories apart     max_i sum_t x_it <= that;   equal for one trajectory, one turn, or constant times
    age                    version trained - version at the trajectory's start <= alpha = 1;   loss = grpo's

Gao et al. 2025. The first trajectories to end are the short ones, so a batch of the first B, or one that drops what is
too old, is trained on short episodes. Here a trajectory belongs to a step before it starts, and a step waits for all of
its own; the next step overlaps.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo: the ratio to the policy that sampled makes older turns usable."""
    return replace(recipes.grpo(preset), name="rollart")


METHOD = Method(
    paper="arXiv:2512.22560",
    recipe=recipe,
    default_task="twenty-questions-2",
    family="systems",
    base=recipes.grpo,
    studied="trajectories apart are on a virtual clock alone: in a run the turns of a piece wait for each other, and "
    "rewards for the whole step; assay train rollart is grpo sampled in pieces beside training, as asyncflow",
    options={"gatherers": 4, "pieces": 2, "lag": 1},
    departures=(
        "nothing is dropped and no more trajectories are started than are trained: work is not handed out before its "
        "weights are new enough, so every start is trained once",
        "one version samples a trajectory: weights are not swapped between its turns",
        "pieces of a step's starts are sampled apart; with as many pieces as starts, single trajectories",
        "all samplers are alike: turns are not routed to different hardware, rewards are not computed elsewhere",
        "times by a virtual clock: 64 trajectories of 10 turns with log-normal times of mean 1",
    ),
)
