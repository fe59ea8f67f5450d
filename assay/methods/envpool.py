"""envpool: ppo on environments in processes, stepped on as soon as M of N have answered.

    synchronous   T steps take sum_t max_i x_it seconds,   x_it the time of step t of environment i
    M of N        a call of the policy serves the first M that have answered; loss and rows are ppo's

Weng et al. 2022. A slow environment holds up no other. Rows are filed by environment and time, every environment takes
the same number of steps, and the stream of each equals its serial replay: the numbers are those of the synchronous run.
One capability with srl-system, the stepping of Gymnasium's environments in processes: here half of four are waited for.
"""

from dataclasses import replace

from assay.method import CONTROL, Method, Preset, Recipe, recipes


def recipe(preset: Preset = CONTROL) -> Recipe:
    """Returns ppo: how its environments are stepped is an option of the run."""
    return replace(recipes.ppo(preset), name="envpool")


METHOD = Method(
    paper="arXiv:2206.10558",
    recipe=recipe,
    default_task="CartPole-v1",
    family="systems",
    base=recipes.ppo,
    options={"env_workers": 4, "env_ready": 2},
    departures=(
        "processes and pipes instead of C++ threads: ratios are claimed, frames a second are not; EnvPool's own "
        "environments are tasks envpool:ID",
        "every environment takes equally many steps before an update: no row is preferred for being fast, and the last "
        "ones of a fragment are waited for",
        "the policy computes all N rows at each call, so that results do not depend on which M were ready",
        "built-in tasks are stepped as one array and wait for nothing: on these it is ppo, and the run says so",
    ),
)
