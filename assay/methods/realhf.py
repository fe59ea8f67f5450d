"""realhf: ppo with a mesh of devices for each call of a model; `assay plan` finds it, training does not use it.

    seconds(plan) = end of the last call;   a call starts when its inputs are there and its devices are free
    move: one call gets another mesh, kept with probability min(1, exp(-beta (seconds' - seconds)))

Mei et al. 2024. loss = ppo's. The best mesh of a call depends on what else runs: generation gains little from more
devices, so side by side wins. From all calls on all devices every single move is worse, so a search that only climbs
stays there. Studied as a planner: `assay plan METHOD --model ... --gpus N` searches such plans from measured step times
within the memory of the GPUs; `assay train realhf` is ppo.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns ppo: a plan says where its calls are computed, not what."""
    return replace(recipes.ppo(preset), name="realhf")


METHOD = Method(
    paper="arXiv:2406.14088",
    recipe=recipe,
    family="systems",
    base=recipes.ppo,
    studied="a mesh for each call is planned (assay plan) and not run: assay train realhf is ppo",
    departures=(
        "a planner only (assay plan): plans are scored on a virtual clock, with measured or estimated seconds work / "
        "n^scaling and a limit of memory, and are not run; assay train realhf is ppo",
        "one iteration instead of five, without pipelines; meshes are halves, quarters, ...",
        "moving weights costs the same whatever the meshes, and nothing only if they are equal: in the authors' code "
        "it is free between equal layouts on different devices",
        "beta is 0.5 for a second of a plan of about 50 (0.2 on two devices, where it is 75); every difference counts",
        "not measured: plans from measured step times against runs in this order; placement is not built",
    ),
)
