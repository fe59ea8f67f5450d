"""What open-rs's reward is on given completions."""

from math import cos, pi

import torch

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.slots import Scene
from assay.methods.open_rs.parts import CosineLength
from assay.parts.rewards.combine import WeightedSum
from assay.tasks.language.thinking import thinking

TASK = thinking()
ANSWER = TASK.items_of(torch.tensor([0]), 0)[0].answer
LENGTHS = torch.tensor([0, 1792, 3584])


def parts_of(recipe: Recipe) -> tuple[CosineLength, float, float]:
    """The cosine reward, its weight, and that of the format."""
    (total,) = recipe.rewards
    assert isinstance(total, WeightedSum)
    cosine = total.components["cosine"].reward
    assert isinstance(cosine, CosineLength)
    return cosine, total.components["cosine"].weight, total.components["format"].weight


def worth(recipe: Recipe, is_right: bool, lengths: torch.Tensor) -> torch.Tensor:
    return parts_of(recipe)[0].worth(torch.full(lengths.shape, is_right), lengths)


def distance_from_table(ours: Recipe, other_order: Recipe) -> torch.Tensor:
    found = [worth(ours, True, LENGTHS), worth(ours, False, LENGTHS), worth(other_order, False, LENGTHS)]
    return (torch.cat(found) - torch.tensor([1, 0.75, 0.5, 0, -0.25, -0.5, -1, -0.75, -0.5])).abs().max()


def change_beyond_the_limit(ours: Recipe) -> torch.Tensor:
    """At 3584, 5376 and 7168 tokens against 0.5 and -0.5; unclamped, 7168 would pay 1 and 0."""
    long = torch.tensor([3584, 5376, 7168])
    return (worth(ours, True, long) - 0.5).abs().max() + (worth(ours, False, long) + 0.5).abs().max()


def least_lead_of_right(ours: Recipe) -> torch.Tensor:
    """Least reward of a right answer without the tag minus the largest of a wrong one with it."""
    lengths, (_, weight, tag) = torch.arange(0, 4000), parts_of(ours)
    return weight * worth(ours, True, lengths).min() - (weight * worth(ours, False, lengths).max() + tag)


def distance_from_formula(ours: Recipe) -> float:
    """Right with 0 and 4 steps, wrong, two tags, right but cut, no tag, fault; the end token is counted."""
    said = [f";{ANSWER}", f"....;{ANSWER}", "..;a", f";;{ANSWER}", f"..;{ANSWER}", "abc", f";{ANSWER}"]
    rows = probes.completed(TASK, said, [0] * 7, cut=[4], faults=[6])
    rewarded = ours.rewards[0](rows, Scene(TASK))
    found = rewarded.reward.sum(1).tolist()

    def scaled(short: float, long: float, num: int) -> float:
        return 2.0 * (long + (short - long) * (1.0 + cos(pi * num / 11)) / 2.0)

    expected = [
        1 + scaled(1, 0.5, 5), 1 + scaled(1, 0.5, 9), 1 + scaled(0, -0.5, 5), scaled(0, -0.5, 6), 1 + 2 * -0.5,
        scaled(0, -0.5, 4), 0.0,
    ]  # fmt: skip
    is_on_last = float((rewarded.reward * ~(rewarded.terminal | rewarded.truncated)).abs().max())
    return max(abs(one - other) for one, other in zip(found, expected, strict=True)) + is_on_last


def lead_of_short(ours: Recipe) -> torch.Tensor:
    """Advantage of the shortest of four right answers minus that of the longest."""
    rows = probes.completed(TASK, [f"{'.' * num};{ANSWER}" for num in (0, 2, 4, 6)], [0] * 4)
    credited = probes.credited(ours, ours.rewards[0](rows, Scene(TASK)))
    advantage = credited.column("advantage").sum(1) / credited.mask.sum(1)
    return advantage[0] - advantage[-1]
