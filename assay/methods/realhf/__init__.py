"""realhf: ppo with a mesh of devices for each call of a model, moved in between; the plan is found by search.

    seconds(plan) = end of the last call;   a call starts when its inputs are there and its devices are free
    move: one call gets another mesh, kept with probability min(1, exp(-beta (seconds' - seconds)))

Mei et al. 2024. loss = ppo's. The best mesh of a call depends on what else runs: generation gains little from more
devices, so side by side wins. From all calls on all devices every single move is worse, so a search that only climbs
stays there.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes, same_gradient
from assay.claims.probes import by_hand
from assay.claims.systems import placements
from assay.core.recipe import Recipe
from assay.methods.realhf import claims
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    """Returns ppo: a plan says where its calls are computed, not what."""
    return replace(recipes.ppo(world), name="realhf")


METHOD = Method(
    paper="arXiv:2406.14088",
    recipe=recipe,
    default_task="addition-1",
    family="systems",
    base=recipes.ppo,
    departures=(
        "plans are scored on a virtual clock, not run: seconds of a call on n devices are work / n^scaling",
        "one iteration instead of five, without pipelines or a memory limit; meshes are halves, quarters, ...",
        "moving weights costs the same whatever the meshes, and nothing only if they are equal: in the authors' code "
        "it is free between equal layouts on different devices",
        "beta is 0.5 for a second of a plan of about 50 (0.2 on two devices, where it is 75); every difference counts",
    ),
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_tokens, probes.fragments),
        Exact("all calls on all devices take the sum, 55.2551", claims.together, equals=55.2551, tolerance=1e-4),
        Exact("the plan that enumeration of 117,649 found takes 49.5231", claims.best_of_four, equals=49.5231,
              tolerance=1e-4),
        Exact("which is generation, two scores side by side, moving, training on halves", claims.best_by_hand,
              equals=0.0, tolerance=1e-9),
        Exact("no plan with one or two other meshes is shorter", claims.shorter_nearby, equals=0.0),
        Exact("four devices have 7 meshes", lambda: len(placements.meshes(4)), equals=7.0),
        Exact("from all together every single move is worse: climbing stays there", claims.stays, equals=0.0),
        Exact("moving holds both meshes", claims.held_by_moving, equals=3.5),
        Exact("on two devices the search finds the best of 729 plans", claims.gap_on_two, equals=0.0, tolerance=1e-9),
        Exact("with a mesh for each call it is shorter than with one for each model", claims.gain_over_models,
              at_least=3.0),
        Exact("two calls on meshes that share a device take twice as long as on disjoint ones", claims.overlapping,
              equals=2.0),
        Exact("moving to an equal mesh is free, to another it is not", claims.moved, equals=0.5),
        Exact("if calls scale perfectly and moving is free, nothing is gained", claims.gain_if_perfect, equals=0.0),
        Measured("a search from there ends 5 seconds below one that only climbs", "", claims.found, claims.climbed,
                 expect=Expect.BELOW, margin=5.0, seeds=5, minutes=0.5),
        Measured("where calls scale better the gain is small: within 1 of 43.2", "", claims.found_if_good, 43.1683,
                 expect=Expect.WITHIN, margin=1.0, seeds=5, minutes=0.5),
    ),
    mutants=(
        Edit("devices are not held", placements.hold, "free.update(dict.fromkeys(mesh, end))", "None"),
        Edit("calls do not wait for their inputs", placements.Graph.seconds, "default=0.0)", "default=0.0) * 0"),
        Edit("moving is free", placements.Graph.seconds, "begin, self.moving)", "begin, 0.0)"),
        Edit("moving holds one mesh", placements.Graph.seconds, "mesh | plan[call.weights_of]", "mesh"),
        Edit("every call is moved", placements.Graph.seconds, "plan[call.weights_of] != mesh", "True"),
        Edit("it only climbs", placements.searched, "or draw.random() < math.exp(-beta * (new - now))", ""),
        Edit("worse plans are preferred", placements.searched, "new <= now or", "new >= now or"),
        Edit("the last plan instead of the best", placements.searched, "min(least, now)", "now"),
        Edit("no mesh of a half", placements.meshes, "range(num.bit_length())", "(0, num.bit_length() - 1)"),
        Edit("time does not depend on the devices", placements.Call.seconds, "len(mesh)", "1"),
    ),
)  # fmt: skip
