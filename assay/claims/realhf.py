"""Exact claims of realhf, on the simulated update of four models on four devices."""

import itertools
import math
from dataclasses import replace

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.claims.systems.graphs import GOOD, PERFECT, POOR
from assay.methods.realhf import recipe
from assay.runs import placements
from assay.runs.placements import PlannedCall, Graph, best, by_call, by_model, meshes, searched
from assay.runs.placements import together as all_together

FOUR = meshes(4)


EVERY, LEFT, RIGHT = frozenset(range(4)), frozenset({0, 1}), frozenset({2, 3})


FOUND = {
    "generate": EVERY, "reward": frozenset({0}), "reference": frozenset({1}), "value": RIGHT, "train actor": LEFT,
    "train critic": RIGHT,
}  # fmt: skip
"""The best plan of POOR by enumeration."""


def together() -> float:
    """Returns the time of all calls on all devices."""
    return POOR.seconds(all_together(POOR, 4))


def best_of_four() -> float:
    """Returns the time of the best plan."""
    return POOR.seconds(FOUND)


def best_by_hand() -> float:
    """Returns its distance from the formula."""
    return best_of_four() - (30 / 4**0.3 + 12 + 0.5 + 30 / 2**0.8)


def shorter_nearby() -> int:
    """Returns how many plans with one or two other meshes are shorter."""
    pairs = itertools.combinations_with_replacement(FOUND, 2)
    others = ({**FOUND, one: a, two: b} for one, two in pairs for a in FOUR for b in FOUR)
    return sum(POOR.seconds(plan) < best_of_four() - 1e-9 for plan in others)


def gap_on_two() -> float:
    """Returns the longest time that five searches find on two devices, minus that of enumeration.

    Single moves cost more there than on four devices: at beta 0.5 two searches of eight find it, at 0.2 all eight.
    """
    two = meshes(2)
    found = [searched(POOR, two, all_together(POOR, 2), seed, beta=0.2, moves=1_000)[0] for seed in range(5)]
    return max(found) - best(POOR, by_call(POOR, two))[0]


def stays() -> float:
    """Returns how far a search that only climbs gets from all calls on all devices, in 300 moves."""
    return together() - searched(POOR, FOUR, all_together(POOR, 4), seed=0, beta=math.inf, moves=300)[0]


def held_by_moving() -> float:
    """Returns the time of a call of 2 seconds that waits for weights to leave its mesh."""
    use, other = PlannedCall("use", "m", 1.0, 0.0), PlannedCall("b", "b", 2.0, 0.0, ("use",))
    graph = Graph((use, PlannedCall("train", "m", 1.0, 0.0, ("use",), "use"), other), moving=0.5)
    return graph.seconds({"use": LEFT, "train": RIGHT, "b": LEFT})


def gain_over_models() -> float:
    """Returns by how much the best plan by call is shorter than the best by model."""
    return best(POOR, by_model(POOR, FOUR))[0] - best_of_four()


def overlapping() -> float:
    """Returns the time of two calls of 1 second on {0, 1} and {1, 2}, over that on disjoint meshes."""
    graph = Graph((PlannedCall("a", "a", 1.0, 0.0), PlannedCall("b", "b", 1.0, 0.0)))
    return graph.seconds({"a": LEFT, "b": frozenset({1, 2})}) / graph.seconds({"a": LEFT, "b": RIGHT})


def moved() -> float:
    """Returns what moving adds: 0 on equal meshes, else the cost, once."""
    graph = Graph((PlannedCall("use", "m", 1.0, 0.0), PlannedCall("train", "m", 1.0, 0.0, ("use",), "use")), moving=0.5)
    here = graph.seconds({"use": LEFT, "train": LEFT}) - 2.0
    assert here == 0.0, here
    return graph.seconds({"use": LEFT, "train": RIGHT}) - 2.0


def gain_if_perfect() -> float:
    """Returns by how much a search is shorter than all together where calls scale perfectly."""
    start = all_together(PERFECT, 4)
    return PERFECT.seconds(start) - searched(replace(PERFECT, moving=0.0), FOUR, start, seed=0, moves=500)[0]


def found(seed: int) -> float:
    """Returns the time that a search finds."""
    return searched(POOR, FOUR, all_together(POOR, 4), seed)[0]


def climbed(seed: int) -> float:
    """Returns the time at which a search that only climbs stays."""
    return searched(POOR, FOUR, all_together(POOR, 4), seed, beta=math.inf)[0]


def found_if_good(seed: int) -> float:
    """Returns the time that a search finds where calls scale better."""
    return searched(GOOD, FOUR, all_together(GOOD, 4), seed)[0]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_tokens, probes.fragments),
        Exact("all calls on all devices take the sum, 55.2551", together, equals=55.2551, tolerance=1e-4),
        Exact("the plan that enumeration of 117,649 found takes 49.5231", best_of_four, equals=49.5231,
              tolerance=1e-4),
        Exact("the plan that enumeration found is generation, two scores side by side, moving, training on halves",
              best_by_hand, equals=0.0, tolerance=1e-9, of="placements"),
        Exact("no plan with one or two other meshes is shorter than that of enumeration", shorter_nearby, equals=0.0),
        Exact("four devices have 7 meshes", lambda: len(placements.meshes(4)), equals=7.0),
        Exact("from all together every single move is worse: climbing stays there", stays, equals=0.0, of="placements"),
        Exact("moving weights holds both meshes", held_by_moving, equals=3.5),
        Exact("on two devices the search finds the best of 729 plans", gap_on_two, equals=0.0, tolerance=1e-9),
        Exact("the best plan with a mesh for each call is shorter than that with one for each model", gain_over_models,
              at_least=3.0, of="placements"),
        Exact("two calls on meshes that share a device take twice as long as on disjoint ones", overlapping,
              equals=2.0, of="placements"),
        Exact("moving to an equal mesh is free, to another it is not", moved, equals=0.5, of="placements"),
        Exact("if calls scale perfectly and moving is free, nothing is gained", gain_if_perfect, equals=0.0,
              of="placements"),
        Measured("a search from all together ends 5 seconds below one that only climbs", "", found, climbed,
                 expect=Expect.BELOW, margin=5.0, seeds=5, minutes=0.5, about=About.MECHANISM),
        Measured("where calls scale better the gain is small: a search ends within 1 of 43.2",
                 "", found_if_good, 43.1683, expect=Expect.WITHIN, margin=1.0, seeds=5, minutes=0.2,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("devices are not held", placements.hold, "free.update(dict.fromkeys(mesh, end))", "None"),
        Edit("calls do not wait for their inputs", placements.Graph.seconds, "default=0.0)", "default=0.0) * 0"),
        Edit("moving is free", placements.Graph.seconds, "begin, self.moving)", "begin, 0.0)"),
        Edit("moving holds one mesh", placements.Graph.seconds, "mesh | plan[call.weights_of]", "mesh"),
        Edit("every call is moved", placements.Graph.seconds, "plan[call.weights_of] != mesh", "True"),
        Edit("it only climbs", placements.searched, " or draw.random() < math.exp(-beta * (new - now))", ""),
        Edit("worse plans are preferred", placements.searched, "new <= now or", "new >= now or"),
        Edit("the last plan instead of the best", placements.searched, "if now < least:", "if True:"),
        Edit("no mesh of a half", placements.meshes, "range(num.bit_length())", "(0, num.bit_length() - 1)"),
        Edit("time does not depend on the devices", placements.PlannedCall.seconds, "len(mesh)", "1"),
    ),
)
