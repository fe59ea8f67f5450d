"""What the corrections make of accepted and rejected answers."""

from __future__ import annotations

from collections.abc import Callable

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.parts.rewards.text import Matches

TASK = probes.labelled("0-easy", "2-hard")


def distance_from_worths(ours: Recipe, *worths: tuple[float, float]) -> float:
    """Compares what an accepted and a rejected answer get, of an easy and of a hard prompt; a row that left training
    gets nothing.
    """
    rows = probes.completed(TASK, ["7", "8", "7"] * 2, [0] * 3 + [1] * 3, faults=[2, 5])
    return probes.distance(probes.rewarded(ours, TASK, rows), [one for pair in worths for one in (*pair, 0.0)])


def distance_of_appeals(forward: Callable[..., Recipe]) -> float:
    """Two steps in which all rejected answers are checked again: of 3 one was right, and 2 were accepted, 1/3; then of
    2 none, and 2 were accepted, 0, so that the mean is 1/6. The last row of each step has left training.
    """
    ours = forward(share=1.0, reward=Matches(r"^\w"))  # rejects a right answer that begins with a space
    steps = [
        probes.completed(TASK, [*said, "."], [0] * (len(said) + 1), faults=[len(said)])
        for said in (["7", "7", " 7", ".", "."], ["7", "7", ".", "."])
    ]
    first, second = probes.rewarded_in_turn(ours, TASK, steps)
    expected = [*[1 / 3] * 2, *[-2 / 3] * 3, 0.0], [*[1 / 6] * 2, *[-5 / 6] * 2, 0.0]
    return max(probes.distance(first, expected[0]), probes.distance(second, expected[1]))
