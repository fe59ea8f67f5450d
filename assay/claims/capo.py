"""Step credit by hand, and what judges say of given steps. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, marked, probes
from assay.claims.marked import SCORED
from assay.method import PLACES, Experience, Recipe, recipes
from assay.methods.capo import MarkedCredit, recipe
from assay.parts import FromReference, StepMarks


def advantage_by_hand(data: Experience, agree: float, of_rows: bool) -> Tensor:
    """Returns the advantage of each token, row by row."""
    found, total = torch.zeros_like(data.reward), by_hand.outcome(data)
    for rows in by_hand.rows_of_groups(data):
        paid = []
        for row in rows:
            wrong = 1.0 - data.column("step_score")[row, data.mask[row]] > agree - 1e-3
            paid.append(2.0 * total[row] - wrong.double())
        every = torch.cat(paid)
        weight = torch.cat([torch.full_like(one, 1.0 / len(one) if of_rows else 1.0) for one in paid])
        mean = (weight * every).sum() / weight.sum()
        deviation = ((weight * (every - mean) ** 2).sum() / weight.sum()).sqrt()
        for row, one in zip(rows, paid, strict=True):
            found[row, data.mask[row]] = (one - mean) / (deviation + 1e-4)
    return found


def gap(ours: Recipe, agree: float = 0.5, of_rows: bool = False) -> float:
    """Returns the gap to clipped ratios with this advantage, the mean over sequences of means."""

    def loss(seen: probes.Seen) -> Tensor:
        advantage = advantage_by_hand(seen.experience, agree, of_rows)
        return -by_hand.mean_of_sequences(by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.2), seen.experience)

    return probes.formula_gap(ours, SCORED, loss)


def two_answers(ours: Recipe) -> Tensor:
    """Returns the advantages of a right answer whose second and third token are wrong, and of a wrong one whose third
    and fourth are.
    """
    data = probes.sequences(num=2, group_size=2)
    mask = torch.zeros_like(data.mask)
    mask[:, 1:5] = True
    score = torch.ones_like(data.reward)
    score[0, 2:4], score[1, 3:5] = 0.0, 0.0
    reward = torch.zeros_like(data.reward)
    reward[0, 4] = 1.0
    found = ours.credit[-1](replace(data, mask=mask, reward=reward).add({"step_score": score}))
    return found.column("advantage")[:, 1:5]


def chat(prompts: Sequence[str]) -> list[str]:
    """A judge that finds the second and the fourth step of the first answer wrong if it is asked about all of it, and
    the last step of the third; what it says of the fourth cannot be read.
    """
    shown = all(part in prompts[0] for part in ("Question:\nq\n", "answer:\n72\n", "1. 48/2=24\n2. so\n3. 25"))
    said = ["Wrong steps: none", "wrong step: 3, 12", "Wrong: 1"]
    first = "Wrong steps: 1\nBetter:\nWrong steps: 2 and 4." if shown else "nothing"
    return [first, *said][: len(prompts)]


HEARD: tuple[tuple[float, ...] | None, ...] = ((1, 0, 1, 0, 1, 1, 1), (1,), (1, 1, 0), None)

NOISY, ONE = (recipe(PLACES, votes=votes, noise=0.2) for votes in (7, 1))


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's", lambda: gap(recipe()), at_most=1e-9),
        Exact("with each answer counted once, and a vote of all, its gradient is the formula's",
              lambda: gap(recipe(agree=1.0, of_rows=True), 1.0, True), at_most=1e-9),
        *marked.judge_claims(recipe, (
            "a chat model's list of wrong steps is read; rows of which it says nothing leave training", chat,
            HEARD)),
        Exact("a right answer with two wrong tokens and a wrong one with two have the advantages worked out by hand",
              lambda: probes.distance(two_answers(recipe()), torch.tensor([
                  [1.3416, 0.4472, 0.4472, 1.3416], [-0.4472, -0.4472, -1.3416, -1.3416]])), at_most=3e-4,
              illustrates=True),
        Measured("with seven votes of a judge that is wrong one time in five it is right more often than grpo after "
                 "as many generated tokens, where 2 of 16 tokens decide", "key-decisions:length=16", NOISY,
                 recipes.grpo(PLACES), AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5,
                 minutes=8.0, steps=30, about=About.HEADLINE),
        Measured("seven votes are right more often than a single one", "key-decisions:length=16", NOISY, ONE,
                 AtEqual("pass_rate", reached="decisions_total"), seeds=5, minutes=8.0, steps=30, looks=2,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("wrong steps are paid", MarkedCredit.apply, "- self.wrong * flagged", "+ self.wrong * flagged"),
        Edit("right steps are flagged", MarkedCredit.apply, "1.0 - experience.column", "experience.column"),
        Edit("any number will do", FromReference.judged, "some[-1] in known", "some[0] in known"),
        Edit("one opinion", StepMarks.opinions, "range(self.votes)", "range(1)"),
    ),
)
