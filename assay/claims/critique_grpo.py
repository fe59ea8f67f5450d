"""Refined answers by hand: what is asked again, what stays, and how it is weighed. Axes: B sequences, T decisions."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, AtEqual, Claims, Edit, Exact, Item, Measured, addition, by_hand, probes
from assay.claims.refining import is_refined, length_of, with_refined, wrong_rows
from assay.method import READING, Experience, Recipe, recipes, with_policy
from assay.methods.critique_grpo import OfTask, recipe
from assay.parts import FixedLength, ForeignWeight, Guided, Refined, Shaped, TrueAnswer, Unclipped, bounded_ratio
from assay.parts.rollouts.refined import best_of, last_members

WRONG, RIGHT = ("1", "2", "3", "4", "5", "6", "x", "no"), ("8", "a8", "b8", "c8", "d8", "e8", "f8", "g8")
AGAIN = {"1": "00", "4": "so 7", "6": "7"}
"""What is written after a wrong answer; "0" after the others. After right ones it is "9", and "8" after the second."""
TASK = probes.listed(Item("q", "7", "7", {"feedback": "not so"}), Item("p", "8", "8", {"feedback": "not so"}))


TOLD, PRAISED = "this is wrong: the right answer is 7\n", "this is right: the answer is 8\n"


def said(text: str, wrong: str = TOLD) -> list[str]:
    """Returns the answers to a text: to a prompt, or to one with an attempt and what is said of it."""
    script = {"q": list(WRONG), "p": list(RIGHT)}
    script |= {f"q\n\n{one}\n\n{wrong}\n": [AGAIN.get(one, "0")] for one in WRONG}
    script |= {f"p\n\n{one}\n\n{PRAISED}\n": ["8" if one == "a8" else "9"] for one in RIGHT}
    return script.get(text, [""] * 8)


def misplaced(ours: Recipe) -> float:
    """Returns how many rows of a wrong and of a right group are not those worked out by hand."""
    new = [AGAIN.get(one, "0") for one in WRONG]
    lost = length_of(WRONG[-1], *new[:3], *new[4:], RIGHT[-1], *["9"] * 7)
    groups = {
        1: [*((one, place) for place, one in enumerate(RIGHT[:7])), ("8", 1 + 2**20)],
        0: [*((one, place) for place, one in enumerate(WRONG[:7])), ("so 7", 3 + 2**20)],
    }
    return wrong_rows(ours, TASK, said, groups, lost)


def of_task(ours: Recipe) -> float:
    """Returns how many rows are others where the task's feedback is shown; 1 more if a task without any is accepted."""
    assert isinstance(ours.rollout, Refined)
    theirs = replace(ours, rollout=replace(ours.rollout, feedback=OfTask()))
    groups = {0: [*((one, place) for place, one in enumerate(WRONG[:7])), ("so 7", 3 + 2**20)]}
    lost = length_of(WRONG[-1], *(AGAIN.get(one, "0") for one in WRONG if one != "4"))
    found = wrong_rows(theirs, TASK, partial(said, wrong="not so"), groups, lost)
    return found + (not probes.is_refused(theirs, probes.listed(Item("q", "7", "7"))))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, advantage = seen.experience, by_hand.centred(seen.experience).unsqueeze(1)
    prob = seen.logp().exp()
    gain = torch.where(is_refined(data), prob / (prob + 0.1), by_hand.ratio(seen)) * advantage
    bonus = 0.001 * by_hand.mean_of_decisions(by_hand.entropy(seen), data)
    return -by_hand.sum_in_sequences(gain, data) / 6 - bonus


def gap(ours: Recipe) -> float:
    """Returns the gap to the formula where every fourth row was refined, and where none was."""
    made = [partial(lambda one: with_refined(one()), one) for one in probes.ANY_OUTCOME]
    return probes.formula_gap(ours, [*made, *probes.ANY_OUTCOME], loss_by_hand)


@dataclass(frozen=True)
class Plain(ForeignWeight):
    """The probability itself."""

    def __call__(self, logp: Tensor, batch: Experience) -> Tensor:
        return bounded_ratio(logp)


UNSHAPED = with_policy(recipe(READING), "critique-grpo-unshaped", Guided(Unclipped(), Plain(), FixedLength()))


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's", lambda: gap(recipe()), at_most=1e-9),
        Exact("the best refinement of all answers takes the last one's place on the bare prompt, and the others count",
              lambda: misplaced(recipe()), equals=0.0),
        Exact("with the task's feedback that is shown; a task without any is refused", lambda: of_task(recipe()),
              equals=0.0, of="options"),
        Exact("a form that the task cannot write is refused", lambda: 1.0 - probes.is_refused(
            replace(recipe(), rollout=Refined(form="\N{SNOWMAN}")), addition(1)), equals=0.0, of="refusals"),
        Measured("where the start is right once in 10,000 it is right more often than grpo at equally many generated "
                 "tokens", "reading:digits=4", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5, minutes=4.0, steps=50, looks=2,
                 about=About.HEADLINE),
        Measured("shaped weights learn faster than the probability itself: mean pass rate over the run",
                 "reading:digits=4", recipe(READING), UNSHAPED, Area("pass_rate"), seeds=5, minutes=4.0, steps=50,
                 looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("the first member goes", last_members, "sample == -groups.lowest(-sample, by_group)",
             "sample == groups.lowest(sample, by_group)"),
        Edit("the worst refinement", best_of, "torch.where(among_B, -score_B", "torch.where(among_B, score_B"),
        Edit("all are told that they are wrong", TrueAnswer.__call__, "self.right if is_right",
             "self.wrong if is_right"),
        Edit("unshaped", Shaped.__call__, "prob / (prob + self.gamma)", "prob"),
        Edit("shaping without gradient", Guided.__call__, "weight = self.weight(logp, batch)",
             "weight = self.weight(logp.detach(), batch) * (1.0 + logp - logp.detach())"),
    ),
)
