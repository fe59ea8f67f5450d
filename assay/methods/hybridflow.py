"""hybridflow: ppo as one sequential program over groups of workers; where each model lives is a value beside it.

    plan: model -> devices;   together: sum of all calls on n devices;   split: disjoint groups work side by side
    training shard -> generation shard: a rank receives 1/t_g - 1/t of the weights if its groups are strided

Sheng et al. 2024. loss = ppo's, whatever the plan: rows are cut over the workers, computed and joined in order, and
sums and counts are added, never means. The plan decides the time alone, so it can be searched: `assay plan` does so,
with a mesh for each model; `assay train hybridflow` is ppo, and `--shards S --ranks N` cut its rows over workers.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns ppo: the program has no word about devices."""
    return replace(recipes.ppo(preset), name="hybridflow")


METHOD = Method(
    paper="arXiv:2409.19256",
    recipe=recipe,
    family="systems",
    base=recipes.ppo,
    studied="a mesh for each model is planned (assay plan) and not run: all ranks hold all models, and assay train "
    "hybridflow is ppo",
    departures=(
        "a group of workers is `--shards S --ranks N` (docs/scale.md): all ranks hold all models; plans with models on "
        "different devices are those of assay plan, scored on a virtual clock and not run",
        "seconds of a call on n devices are work / n^scaling: plans are compared, a cluster is not predicted",
        "plans are enumerated: halves, quarters, ... of the devices for each of four models",
        "of the two layouts of the actor only tensor slices are counted, without pipelines",
        "not measured: the share of a step that goes into dispatch; plans are compared on a virtual clock",
    ),
)
