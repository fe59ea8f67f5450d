"""What the corrections make of accepted and rejected answers, and the losses by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import ALONE, Scene
from assay.methods.noisy_rlvr.parts import Forward
from assay.parts.rewards.text import Matches

TASK = probes.labelled("easy", "hard", fact="kind")


def distance_from_worths(ours: Recipe, *worths: tuple[float, float]) -> float:
    """Compares what an accepted and a rejected answer get, of an easy and of a hard prompt; a row that left training
    gets nothing.
    """
    rows = probes.completed(TASK, ["7", "8", "7"] * 2, [0] * 3 + [1] * 3, faults=[2, 5])
    expected = [number for pair in worths for number in (*pair, 0.0)]
    return probes.distance(probes.rewarded(ours, TASK, rows), expected)


def distance_of_appeals(forward: Callable[..., Recipe]) -> float:
    """The estimate of the paper's example; then two steps with all 3 rejected answers, of which 1 was right, and 2
    accepted: 1/3, then 2 rejected, none right, and 2 accepted: 0; the mean 1/6 is the second step's rate.
    """
    (sampled,) = forward(share=0.1).rewards
    (part,) = forward(share=1.0, reward=Matches(r"^\w")).rewards  # rejects a right answer that begins with a space
    assert isinstance(sampled, Forward) and isinstance(part, Forward)  # noqa: PT018
    state = part.init(ALONE)
    for said in (["7", "7", " 7", ".", "."], ["7", "7", ".", "."]):
        rows = probes.completed(TASK, [*said, "."], [0] * (len(said) + 1), faults=[len(said)])
        rewarded = part(rows, Scene(TASK), state).reward.sum(1)
    apart = [sampled.rate_of(4, 100) - 40 / 140, part.rate(state) - 1 / 6, float(rewarded[0]) - 1 / 6]
    return max(map(abs, [*apart, float(rewarded[2]) + 5 / 6]))


def against_others(seen: probes.Seen) -> torch.Tensor:
    return by_hand.grpo_loss(seen, by_hand.against_others(seen.experience))


def signed(seen: probes.Seen) -> torch.Tensor:
    return by_hand.grpo_loss(seen, by_hand.outcome(seen.experience))
