"""Token rewards from marks by hand, against the same marks summed at the end.

Axes: B sequences, T decisions, S spans of an answer.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, marked, probes
from assay.claims.marked import SCORED, steps_by_hand
from assay.method import PLACES, Experience, Recipe
from assay.methods.text2grad import marks_in, recipe
from assay.parts import Signed


def with_marks(data: Experience, summed: bool) -> Experience:
    """Returns the experience with a mark on the last token of each step, or their sum at the end, as its reward."""
    reward = torch.zeros_like(data.reward)
    for row in range(len(data)):
        steps = steps_by_hand(data, row)
        for step in steps:
            reward[row, steps[-1][-1] if summed else step[-1]] += 2.0 * data.column("step_score")[row, step[0]] - 1.0
    return replace(data, reward=reward)


def gap(ours: Recipe, summed: bool = False) -> float:
    """Returns the gap to ppo's losses with the marks as rewards; in both, 0.05 KL is taken from every token."""

    def losses(seen: probes.Seen) -> dict[str, Tensor]:
        marks = replace(seen, experience=with_marks(seen.experience, summed))
        return by_hand.ppo_of_tokens(by_hand.with_kl(marks, 0.05))

    return probes.formula_gap(ours, SCORED, losses)


def chat(prompts: Sequence[str]) -> list[str]:
    """A critic that marks the first and third word of the first answer and the second of the third, if it is shown all
    of the first; the second answer has no bad words, and for the fourth one line is missing.
    """
    shown = "Question:\nq\n" in prompts[0] and "answer:\n72\n" in prompts[0] and "1. 48/2=24\n2. so" in prompts[0]
    first = "Good: none\nBad: 2\n\n**Good:** 1, 3 and 99\nBAD: 4, 5" if shown else ""
    return [first, "good: 1\nbad: none", "Good:\nBad: 2", "Good: 1"][: len(prompts)]


HEARD: tuple[tuple[float, ...] | None, ...] = ((1, 0.5, 1, 0, 0, 0.5, 0.5), (1,), (0.5, 0, 0.5), None)


CLAIMS = Claims(
    claims=(
        Exact("its gradients are those of the formulas", lambda: gap(recipe()), at_most=1e-9),
        Exact("with the marks summed at the end its gradients are those of the formulas",
              lambda: gap(recipe(summed=True), True), at_most=1e-9, of="text2grad-summed"),
        *marked.judge_claims(recipe, (
            "a chat model's lists of good and bad words are read; an answer without both lists leaves training", chat,
            HEARD)),
        Measured("where 2 of 64 tokens decide and one mark in ten is wrong it is right more often than with the same "
                 "marks summed at the end", "key-decisions:length=64", recipe(PLACES, noise=0.1),
                 recipe(PLACES, noise=0.1, summed=True), Final("pass_rate"), margin=0.1, seeds=5, looks=2, minutes=8.0,
                 steps=60, about=About.HEADLINE),
    ),
    mutants=(
        Edit("marks of 0 and 1", Signed.__call__, "2.0 * score_S - 1.0", "score_S"),
        Edit("the first list counts", marks_in, "one[-1]", "one[0]"),
        Edit("one list is enough", marks_in, "not all(found)", "not any(found)"),
    ),
)
