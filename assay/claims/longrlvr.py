"""Rewards of named evidence by hand. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Item, Measured, by_hand, probes, refuses, same_gradient
from assay.claims.testbeds.language.evidence import evidence
from assay.method import PLACES, Recipe
from assay.methods.longrlvr import WithEvidence, f_measure, recipe

TASK = probes.listed(Item("q", "</answer>", "", {"evidence": [3, 7]}), max_tokens=400)
"""A prompt whose evidence is 3 and 7, and whose answer is right if the completion ends with its tag."""


def told(ids: str) -> str:
    """Returns a completion that names these ids."""
    return f"so\n<useful_chunks>{ids}</useful_chunks> then\n<answer>\nA</answer>"


EVERY = ", ".join(map(str, range(32)))

TABLE: Sequence[tuple[str, float]] = (
    ("3,7", 1.0), ("<3>", 5 / 9), ("3 7 9", 10 / 11), ("3,3,7", 10 / 11), ("1,2", 0.0), ("", 0.0), (EVERY, 0.25),
)  # fmt: skip
"""What is named, and F."""

FAULTY = (
    "<answer>A</answer>", told("3,7") + "<answer>A</answer>", "<useful_chunks>3,7</useful_chunks></answer>",
    told("3,7").replace("useful_chunks>3", "useful_chunks><useful_chunks>3"), "3,7</answer>",
)  # fmt: skip


def gap_of_table(ours: Recipe, alone: float = 0.1, joint: float = 0.9) -> float:
    """Returns how far right answers, wrong ones and those that are not written as asked are from the table."""
    right = [(told(ids), 0, 1.0 + (alone + joint) * measure) for ids, measure in TABLE]
    wrong = [(told(ids) + ".", 0, alone * measure) for ids, measure in TABLE]
    return probes.table_gap(ours, TASK, [*right, *wrong, *((said, 0, 0.0) for said in FAULTY)])


def gap_on_testbed(ours: Recipe) -> float:
    """Returns how far answers on the default task are from hand: all evidence in another order and right, two of three
    chunks and a wrong digit, an answer that is too short.
    """
    task = evidence()
    (way, *_), chunks = task.items.ways(0)[0], task.items.chunks(0)  # type: ignore[attr-defined]
    other = next(one for one in "0123456789" if one not in chunks)
    wrong = next(one for one in "0123456789" if one != way[-1])
    said = [way, "".join(reversed(chunks)) + way[-1], chunks[0] + chunks[2] + other + wrong, way[:-1]]
    paid = (2.0, 2.0, 0.1 * 2 / 3, 0.0)
    return probes.table_gap(ours, task, [(one, 0, reward) for one, reward in zip(said, paid, strict=True)])


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, advantage = seen.experience, by_hand.standardised(seen.experience).unsqueeze(1)
    gain = by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.28)
    gain = torch.where(advantage < 0, torch.maximum(gain, 10.0 * advantage), gain)
    return by_hand.mean_of_decisions(0.001 * by_hand.k3(seen) - gain, data)


CLAIMS = Claims(
    claims=(
        same_gradient("for given rewards its gradient is that of the formula", lambda: replace(recipe(), rewards=()),
                      loss_by_hand, (*probes.ANY_OUTCOME, lambda: probes.sequences(spread=6.0))),
        Exact("right, wrong and badly written answers get the rewards worked out by hand",
              lambda: gap_of_table(recipe()), at_most=1e-6),
        Exact("without weights answers alone are paid", lambda: gap_of_table(recipe(alone=0.0, joint=0.0), 0.0, 0.0),
              at_most=1e-6, of="longrlvr-answers"),
        Exact("on its default task answers get the rewards worked out by hand", lambda: gap_on_testbed(recipe()),
              at_most=1e-6, illustrates=True),
        refuses("a task without the field `evidence` is refused", recipe, lambda: probes.listed(Item("q", "7", "7"))),
        Measured("where three of ten chunks hold the evidence it is right more often than by paying answers alone",
                 "evidence", recipe(PLACES), recipe(PLACES, alone=0.0, joint=0.0), Final("pass_rate"), margin=0.1,
                 seeds=5, minutes=6.0, steps=80, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("named twice is named once", f_measure, "hits / len(named)", "hits / len(set(named))"),
        Edit("precision for recall", f_measure, "(beta**2 * precision + recall)", "(precision + beta**2 * recall)"),
        Edit("evidence alone is paid in full", WithEvidence.rescored, "self.alone + self.joint * total_B",
             "self.alone + self.joint"),
        Edit("written anyhow", WithEvidence.rescored, "torch.where(written,", "torch.where(written | True,"),
    ),
)
