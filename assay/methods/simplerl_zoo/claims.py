"""The loss by hand, and the advantages of groups of answers with and without a box."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import Scene

RIGHT, WRONG, BOXED = "so it is 7", "so it is 8", r"\boxed{8}"
MIXED = (RIGHT, RIGHT, BOXED, BOXED, WRONG, WRONG, WRONG, WRONG)
UNBOXED = (RIGHT, RIGHT, RIGHT, RIGHT, WRONG, WRONG, WRONG, WRONG)


def loss_by_hand(seen: probes.Seen) -> Tensor:
    terms = 1e-4 * by_hand.k3(seen) - 0.001 * by_hand.entropy(seen)
    loss = by_hand.token_loss(seen, by_hand.standardised(seen.experience))
    return loss + by_hand.mean_of_decisions(terms, seen.experience)


def advantages(ours: Recipe, said: Sequence[str]) -> dict[str, float]:
    """Returns the advantage of each different answer of one group."""
    task, rows = probes.answered(said)
    for part in (*ours.rewards, *ours.credit):
        rows = part(rows, Scene(task))
    last = (rows.column("advantage") * rows.terminal).sum(1)
    return dict(zip(said, last.tolist(), strict=True))


def distance(ours: Recipe, said: Sequence[str], expected: tuple[float, float, float]) -> float:
    """Returns how far the advantages of a right, a boxed wrong and a wrong answer are from the expected ones."""
    found = advantages(ours, said)
    pairs = zip((RIGHT, BOXED, WRONG), expected, strict=True)
    return max(abs(found[answer] - value) for answer, value in pairs if answer in found)


def boxed_and_right(ours: Recipe) -> float:
    """Returns the advantage of a right answer in a box over that of the next one."""
    found = sorted(advantages(ours, (*MIXED[:7], r"\boxed{7}=7")).values())
    return found[-1] - found[-2]


def distance_of_shares(ours: Recipe) -> float:
    """Returns how far the logged shares of behaviours are from 1/4, 1/8, 1/8, 1/8 of eight answers."""
    said = ("Wait, 7", "2. Try again: 7", "I check: 7", "First, 7", "for each 7", "7", "a waiter 7", "checks 7")
    num = {"backtracking": 2, "verification": 1, "subgoals": 1, "enumeration": 1, "other": 3}
    expected = {f"mode/{name}": each / 8 for name, each in num.items()}
    return probes.log_gap(ours.credit[0], expected, *probes.answered(said))
