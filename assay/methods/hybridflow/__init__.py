"""hybridflow: ppo as one sequential program over groups of workers; where each model lives is a value beside it.

    plan: model -> devices;   together: sum of all calls on n devices;   split: disjoint groups work side by side
    training shard -> generation shard: a rank receives 1/t_g - 1/t of the weights if its groups are strided

Sheng et al. 2024. loss = ppo's, whatever the plan: rows are cut over the workers, computed and joined in order, and
sums and counts are added, never means. The plan decides the time alone, so it can be searched.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes, same_gradient
from assay.claims.probes import by_hand
from assay.claims.systems import placements
from assay.core.recipe import Recipe
from assay.engine import shards
from assay.methods.hybridflow import claims
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    """Returns ppo: the program has no word about devices."""
    return replace(recipes.ppo(world), name="hybridflow")


METHOD = Method(
    paper="arXiv:2409.19256",
    recipe=recipe,
    default_task="addition-1",
    family="systems",
    base=recipes.ppo,
    departures=(
        "a group of workers is `--shards S --ranks N` (docs/scale.md): all ranks hold all models; plans with models on "
        "different devices are scored on a virtual clock, not run",
        "seconds of a call on n devices are work / n^scaling: plans are compared, a cluster is not predicted",
        "plans are enumerated: halves, quarters, ... of the devices for each of four models",
        "of the two layouts of the actor only tensor slices are counted, without pipelines",
    ),
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_tokens, probes.fragments),
        Exact("rows cut over 1, 2, 4 and 8 workers and joined are the rows", claims.rows_changed, equals=0.0),
        Exact("losses of 3 and 5 tokens, 0.2 and 0.4: 0.325 on any number of workers, not the mean of means, 0.3",
              claims.loss_of_two_workers, equals=0.325, tolerance=1e-12),
        Exact("all models together: the sum of all calls", lambda: claims.together() - claims.sum_of_calls(),
              equals=0.0),
        Exact("two halves: 30/2^0.3 + 2 x 12/2^0.6 + 30/2^0.8", lambda: claims.split() - claims.split_by_hand(),
              equals=0.0),
        Exact("four models alone: 30 + 12 + 30", claims.alone, equals=72.0),
        Exact("the best of 2,401 plans trains actor and critic side by side: 52.7256", claims.best_by_model,
              equals=52.7256, tolerance=1e-4),
        Exact("where calls scale perfectly and scores are free, no plan beats all together", claims.gain_if_perfect,
              equals=0.0),
        Exact("4 to 2 slices, strided: a rank receives a quarter of the weights", lambda: claims.received(4, 2, True),
              equals=0.25),
        Exact("in consecutive groups three eighths on average", lambda: claims.received(4, 2, False), equals=0.375),
        Exact("8 to 2 slices: 3/8", lambda: claims.received(8, 2, True), equals=0.375),
        Exact("8 to 4: 1/8", lambda: claims.received(8, 4, True), equals=0.125),
        Exact("strided, every slice that is held is used", lambda: claims.unused(8, 2, True), equals=0.0),
        Exact("consecutive, 2 of 4 ranks hold one that they do not need", lambda: claims.unused(4, 2, False),
              equals=2.0),
        Measured("of random costs the best plan by model is at least 2 % shorter than all together", "",
                 claims.best_over_together, 1.0, margin=0.02, expect=Expect.BELOW, seeds=10, minutes=0.5),
    ),
    mutants=(
        Edit("devices are not held", placements.hold, "free.update(dict.fromkeys(mesh, end))", "None"),
        Edit("only the first device of a mesh is waited for", placements.hold, "for device in mesh",
             "for device in sorted(mesh)[:1]"),
        Edit("calls do not wait for their inputs", placements.Graph.seconds, "default=0.0)", "default=0.0) * 0"),
        Edit("time does not depend on the devices", placements.Call.seconds, "len(mesh)", "1"),
        Edit("the last plan instead of the best", placements.best, "min((", "max(("),
        Edit("models share a mesh", placements.by_model, "placed[call.model]", "chosen[0]"),
        Edit("a row is lost between workers", shards.cut, "unit * shards // (int(unit.max()) + 1)",
             "unit * shards // int(unit.max())"),
    ),
)  # fmt: skip
