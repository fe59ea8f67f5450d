"""progrpo: lowers the advantage of answers that the policy is already confident in.

    A_i <- A_i - alpha (c_i - mean of the group's c),   c_i = exp(mean of the lowest fifth of log pi_old(y_t))
    in groups with a right answer;   loss = -mean_t min(rho_t A_i, clip(rho_t, 1 - 0.2, 1 + 0.28) A_i)

2026 (arXiv:2602.05281). Group-relative advantages give two right answers the same push, so the likelier one wins. The
paper subtracts the confidence in the question instead of the group's mean; both are the same for all answers of a
group, so they are baselines and change no expected gradient.

Axes: B rows, T decisions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Credit, Experience, Method, Preset, Recipe, Scene, State, groups, recipes
from assay.method import with_token_clip


def confidence_of(experience: Experience, share: float) -> Tensor:
    """Returns exp of the mean of each row's lowest recorded log-probabilities, a share of them, at least one, [B]."""
    mask = experience.mask
    lowest = torch.where(mask, experience.logp, torch.inf).sort(1).values
    num_B = (share * mask.sum(1) + 1e-9).long().clamp(min=1)
    taken = (torch.arange(mask.shape[1], device=mask.device) < num_B.unsqueeze(1)) & lowest.isfinite()
    return torch.where(mask.any(1), (torch.where(taken, lowest, 0.0).sum(1) / num_B).exp(), 0.0)


@dataclass(frozen=True)
class LessWhereConfident(Credit):
    """A <- A - alpha (c - mean c of the group) in groups with a positive outcome, c the confidence in the answer.

    The advantage stays centred. Degenerate: alpha 0 changes nothing.
    """

    alpha: float = 1.0
    lowest: float = 0.2
    reads_shares: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    breaks: ClassVar[dict[str, str]] = {"episodes": "the lowest log-probabilities are those of a row"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`."""
        by_group = groups.row_groups(experience)
        confidence = confidence_of(experience, self.lowest)
        above = confidence - groups.mean(confidence, by_group)
        solved = groups.any_of((groups.outcome(experience) > 0) & (by_group.share > 0), by_group)
        shift = torch.where(solved, -self.alpha * above, 0.0).unsqueeze(1)
        return experience.add({"advantage": (experience.column("advantage") + shift) * experience.mask})


def recipe(preset: Preset = LANGUAGE, alpha: float = 1.0) -> Recipe:
    """Returns grpo with an upper clip of 0.28 and advantages that fall with the confidence in an answer."""
    base = recipes.grpo(preset)
    shifted = replace(base, credit=(*base.credit, LessWhereConfident(alpha)))
    return with_token_clip(shifted, "progrpo", high=0.28)


METHOD = Method(
    paper="arXiv:2602.05281",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    results=(
        "undecided after 20 seeds: at an equal pass rate within 64 tries 0.746 and grpo 0.748, more on ten; an "
        "effect beyond 0.013 is excluded",
    ),
    departures=(
        "the mean confidence of the group stands for the confidence in the question; both are baselines",
        "alpha is 1: the paper's value was not found; 0.3 and 1 were tried on five pilot seeds",
        "groups that are all right are shifted too, as the formula says; a reader's note says that they are not",
        "not measured: an entropy bonus as a rival, for the cost of sweeping its weight",
    ),
)
