"""How distinct an answer is from the others of its group. Axes: B rows, T decisions, N rows of a group, U tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Prepare, Scene
from assay.ops import groups


def distinctness(answers: list[Tensor]) -> Tensor:
    """Returns d [N] of the answers of one group: the mean of the mean distance 1 - cos of token counts to the others,
    and of whether no other answer is the same. Degenerate: an answer without others has 0.
    """
    if len(answers) < 2:
        return torch.zeros(len(answers), dtype=torch.float64)
    distinct, token = torch.unique(torch.cat(answers), dim=0, return_inverse=True)
    tokens = token.cpu().split([len(answer) for answer in answers])
    counts_NU = torch.stack([torch.bincount(own, minlength=len(distinct)).double() for own in tokens])
    unit = counts_NU / counts_NU.norm(dim=1, keepdim=True)
    distance = (1.0 - unit @ unit.T).clamp(min=0.0).fill_diagonal_(0.0)
    texts = [tuple(answer.flatten().tolist()) for answer in answers]
    unique = torch.tensor([float(texts.count(one) == 1) for one in texts], dtype=torch.float64)
    return (distance.sum(1) / (len(answers) - 1) + unique) / 2


@dataclass(frozen=True)
class Distinct(Prepare):
    """reward <- reward + bonus * d_i where the answer is right, and `entropy_weight` [B] = -n softmax(tau d)_i over the
    group's right answers, n its answers; 0 for wrong ones.

    d_i in [0, 1] is the `distinctness` among all answers of the group (DSDR, arXiv:2602.19895). Right is an outcome
    above 1/2. The order of right and wrong answers stays while bonus < 1. Degenerate: equal answers have d = 0.
    """

    bonus: float = 0.001
    tau: float = 5.0
    writes: ClassVar[tuple[str, ...]] = ("entropy_weight",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the bonus at the end of each right answer, writes the column, and logs the mean d."""
        by_group, mask = groups.row_groups(experience), experience.mask
        right, there = groups.outcome(experience) > 0.5, mask.any(1)
        found = torch.zeros(len(experience), dtype=torch.float64)
        for label in by_group.index[there].unique().tolist():
            rows = ((by_group.index == label) & there).nonzero().squeeze(1).tolist()
            found[rows] = distinctness([experience.action[row][mask[row]] for row in rows])
        distinct = found.to(experience.reward)
        share = torch.where(right & there, (self.tau * distinct).exp(), 0.0)
        total, size = (groups.total(one, by_group)[by_group.index] for one in (share, there.to(share)))
        scene.log("distinctness", float(distinct.sum()), float(there.sum()))
        paid = (self.bonus * distinct * right).unsqueeze(1) * ((experience.terminal | experience.truncated) & mask)
        weight = -size * share / torch.where(total > 0, total, 1.0)
        return replace(experience, reward=experience.reward + paid).add({"entropy_weight": weight})
