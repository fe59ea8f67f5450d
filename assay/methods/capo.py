"""capo: a judge lists the wrong steps of every answer, and their tokens get less reward than the others.

    R_t = 2 r - [t is in a wrong step];   A_t = (R_t - mean) / (deviation + epsilon) over all tokens of the group

Xie et al. 2025. An outcome pays all steps of an answer alike. Several critiques of one answer vote; a step is wrong if
half of them say so. A token's advantage is its own R: nothing flows back from later steps. Groups that are all right,
or all wrong, learn from their wrong steps alone.

Axes: B rows, T tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Credit, Experience, Method, Preset, Recipe, Scene, State, groups, recipes
from assay.parts import StepMarks, TextSteps, some_scores
from assay.parts.aggregations import decisions_per_episode


@dataclass(frozen=True)
class MarkedCredit(Credit):
    """advantage_t = (R_t - mean) / (deviation + epsilon), R_t = `whole` * outcome - `wrong` * [the step is wrong].

    A step is wrong if a share of at least `agree` of the opinions says so: 1/2 is the majority, 1 all, 1/votes any.
    Mean and population deviation are over the tokens of the group, or, with `of_rows`, each answer counts as one.
    Degenerate: equal R give 0.
    """

    whole: float = 2.0
    wrong: float = 1.0
    agree: float = 0.5
    of_rows: bool = False
    epsilon: float = 1e-4
    centred: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {
        "episodes": "tokens are compared within a group, and without groups every row is one, parts of an episode too"
    }
    reads: ClassVar[Mapping[str, str]] = {"step_score": "BT"}
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"step_score": some_scores}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    def __post_init__(self) -> None:
        if not 0.0 < self.agree <= 1.0:
            raise AssayError(f"MarkedCredit.agree is {self.agree}. Use a share of the votes above 0 and up to 1")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        mask, by_group = experience.mask, groups.row_groups(experience)
        flagged = (1.0 - experience.column("step_score") >= self.agree - 1e-6) & mask
        paid_BT = self.whole * groups.outcome(experience).unsqueeze(1) - self.wrong * flagged
        size = decisions_per_episode(experience).unsqueeze(1) if self.of_rows else torch.ones_like(mask[:, :1])
        weight = mask / size.to(paid_BT.dtype)

        def mean(value_BT: Tensor) -> Tensor:
            total = groups.total((value_BT * weight).sum(1), by_group) / groups.total(weight.sum(1), by_group)
            return total[by_group.index].nan_to_num(0.0).unsqueeze(1)

        low, high = (groups.lowest(torch.where(mask, one, torch.inf).amin(1), by_group)[:, None] for one in (
            paid_BT, -paid_BT))  # fmt: skip
        centred = (paid_BT - groups.inside(mean(paid_BT), low, -high)) * mask
        scene.log("flagged", float(flagged.sum()), float(mask.sum()))
        return experience.add({"advantage": centred / (mean(centred.square()).sqrt() + self.epsilon)})


def recipe(
    preset: Preset = LANGUAGE, votes: int = 4, agree: float = 0.5, wrong: float = 1.0, of_rows: bool = False,
    noise: float = 0.0,
) -> Recipe:  # fmt: skip
    """Returns grpo whose tokens lose reward in steps that enough votes of a judge call wrong."""
    marks = StepMarks(steps=TextSteps(length=1), votes=votes, noise=noise)
    credit = (marks, MarkedCredit(wrong=wrong, agree=agree, of_rows=of_rows))
    return replace(recipes.grpo(preset), name="capo", credit=credit)


METHOD = Method(
    paper="arXiv:2508.02298",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="key-decisions",
    family="credit assignment",
    base=recipes.grpo,
    departures=(
        "the judge is a program that compares steps with the field `steps` of a prompt, or with --judge a chat model, "
        "asked `votes` times; the authors' is a model of 70B, and steps end with a blank line there, here with a line",
        "mean and deviation are over the tokens of a group, which weighs long answers; whether the authors' are could "
        "not be read (`of_rows` counts each answer once)",
        "on tasks whose tokens cannot write a line break a step is one token",
    ),
    pilots=("seeds 0 and 1 were looked at with 60 steps while the testbed was chosen",),
)
