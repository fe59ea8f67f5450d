"""alphaalign's reward on given completions, and the noise of its testbed. Axes: B sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.parts.rewards.function import FromFunction

TASK, THOUGHT = probes.labelled("benign", "harmful", "benign"), "<safety_reasoning>I'm sorry</safety_reasoning>"
SAID = (
    f"{THOUGHT} <answer>7</answer>", "<answer>7", f"{THOUGHT}<answer>No. I Cannot</answer>",
    f"{THOUGHT}<answer>8</answer>",
)  # fmt: skip
"""Answered, answered without the format, refused, answered."""
HELP = [2.0, 1.0, -1.0, 4.0]
"""Helpfulness of one prompt's answers: mean 1.5, deviation 2.0817."""
GIVEN = FromFunction(lambda rows: [*HELP, *HELP, 9.0, 100.0][: len(rows)])


def distance_from_table(ours: Recipe) -> float:
    """The four answers to a benign and to a harmful prompt; a cut one, alone with its prompt; a row that left training
    with a helpfulness of 100: `GIVEN`.
    """
    rows = probes.completed(TASK, [*SAID, *SAID, SAID[0], SAID[0]], [0] * 4 + [1] * 4 + [2, 0], cut=[8], faults=[9])
    benign, harmful = [0.5 + 0.5 / 2.0817, 0.0, -0.5, 0.5 + 2.5 / 2.0817], [0.5, 0.0, 1.5, 0.5]
    return probes.distance(probes.rewarded(ours, TASK, rows), [*benign, *harmful, 0.5, 0.0])


def jittered(total_B: Tensor, uniform_B: Tensor) -> Tensor:
    """Returns totals with normal noise of 0.1, in units ten times as large: a learned score."""
    return 10.0 * (total_B + 0.1 * torch.special.ndtri(uniform_B).to(total_B.dtype))
