"""Rubrics and refined answers by hand. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Item, Measured, by_hand, probes
from assay.claims.refining import is_refined, length_of, with_refined, wrong_rows
from assay.method import READING, Recipe, Scene, recipes
from assay.methods.rgr_grpo import MissedItems, RubricShare, recipe, weights_of
from assay.parts import Best, ByPattern, pattern_of

RUBRIC = ({"item": "a"}, {"item": "two b", "pattern": "b.*b", "weight": 3}, {"item": "(", "weight": 0.5})
TASK = probes.listed(*(Item(name, "7", "7", {"rubric": RUBRIC}) for name in "qpr"))

TABLE = (("a", 0, 1 / 4.5), ("bab", 0, 4 / 4.5), ("b(", 1, 0.5 / 4.5), ("xyz", 1, 0.0), ("bb(a", 0, 1.0))
"""Answers, their prompts and rewards."""

OWN = {
    "q": ("x", "a", "bb", "b", "bb", "(", "a(", "bba("),  # the last one goes though it is the best of all
    "p": ("x", "ab(b", "a", "a", "a", "a", "a", "x"),
    "r": ("a", "x", "x", "x", "x", "x", "x", "x"),
}
SEEN = {"q\n\nbb\n\nmissed:\na\n(\n\n": "c", "r\n\na\n\nmissed:\ntwo b\n(\n\n": "bab"}
"""What is written after the best answers of two prompts; that of the third meets everything."""


def said(text: str) -> Sequence[str]:
    """Returns the answers to a text."""
    return OWN.get(text, [SEEN.get(text, "?")] * 8)


def misplaced(ours: Recipe) -> float:
    """Returns how many rows of the three groups are not those worked out by hand."""
    own = {start: [(one, place) for place, one in enumerate(OWN[name])] for start, name in enumerate("qpr")}
    groups = {2: [*own[2][:7], ("bab", 2**20)], 0: [*own[0][:7], ("c", 2 + 2**20)], 1: own[1]}
    return wrong_rows(ours, TASK, said, groups, length_of("bba(", "x"))


def chat(prompts: Sequence[str]) -> list[str]:
    """A chat model that finds the first and third item met if it is shown an answer, and cannot be read at another."""
    shown = "Question:\nq\n" in prompts[0] and "Answer:\na\n" in prompts[0] and "1. a\n2. two b\n3. (" in prompts[0]
    return ["Met: 2\nafter all,\nMET: 1 and 3" if shown else "", "met: none", "I do not know", "Met: 3, 9", "met:1"]


def gap_of_chat(ours: Recipe) -> float:
    """Returns how far rewards are from a chat model's; the third row, of which nothing is known, leaves training."""
    (part,) = ours.rewards
    assert isinstance(part, RubricShare)
    rows = probes.completed(TASK, [one for one, _, _ in TABLE], [0] * 5, faults=[4])
    asked = replace(part, judge=part.judge.with_judge(chat))  # type: ignore[attr-defined]
    scene = Scene(TASK)
    found = asked(rows, scene)
    there = torch.tensor([True, True, False, True, True]).unsqueeze(1) & rows.mask
    return probes.worst(
        probes.distance(found.reward.sum(1), [1.5 / 4.5, 0.0, 0.0, 0.5 / 4.5, 0.0]),
        float(not torch.equal(found.mask, there)),
        probes.distance(found.column("met"), [5.0, 0.0, 0.0, 4.0, 1.0]),
        probes.distance(scene.metrics["unjudged"][0], (1.0, 5.0)),
    )


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, advantage = seen.experience, by_hand.standardised(seen.experience).unsqueeze(1)
    prob = seen.logp().exp()
    own = by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.2)
    return -by_hand.mean_of_sequences(torch.where(is_refined(data), prob / (prob + 0.1) * advantage, own), data)


def gap(ours: Recipe) -> float:
    """Returns the gap to the formula where every fourth row was refined, and where none was."""
    made = [partial(lambda one: with_refined(one()), one) for one in probes.ANY_OUTCOME]
    return probes.formula_gap(replace(ours, rewards=()), [*made, *probes.ANY_OUTCOME], loss_by_hand)


def accepted(ours: Recipe) -> float:
    """Returns how many tasks without a rubric, with an empty item, or with a weight of 0, are not refused."""
    bad: tuple[Any, ...] = (None, [], [{"text": "a"}], [{"item": "a", "weight": 0}, {"item": "b"}])
    tasks = [probes.listed(Item("q", "7", "7", {"rubric": one} if one is not None else {})) for one in bad]
    return float(sum(not probes.is_refused(ours, task) for task in tasks))


CLAIMS = Claims(
    claims=(
        Exact("for given rewards its gradient is the formula's", lambda: gap(recipe()), at_most=1e-9),
        Exact("answers get the weighted share of the items that they meet", lambda: probes.table_gap(
            recipe(), TASK, TABLE), at_most=1e-6),
        Exact("the best answer but the last is refined by what it misses, whatever comes of it, unless it misses "
              "nothing", lambda: misplaced(recipe()), equals=0.0),
        Exact("a chat model's list of items is paid; rows of which it says nothing leave training",
              lambda: gap_of_chat(recipe()), at_most=1e-6),
        Exact("without refinements its gradient is grpo's", lambda: probes.formula_gap(
            replace(recipe(refined=False), rewards=()), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9,
              of="grpo-rubric"),
        Exact("tasks without a rubric, or with a malformed one, are refused", lambda: accepted(recipe()), equals=0.0,
              of="refusals"),
        Measured("where the start is right once in 10,000 it is right more often than grpo on answers alone at "
                 "equally many generated tokens", "reading:digits=4", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5, minutes=4.0, steps=50, looks=2,
                 about=About.HEADLINE),
        Measured("it is right more often than grpo on the rubric alone at equally many generated tokens",
                 "reading:digits=4", recipe(READING), recipe(READING, refined=False),
                 AtEqual("pass_rate", reached="decisions_total"), seeds=5, minutes=4.0, steps=30, looks=2,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("items count alike", weights_of, 'one.get("weight", 1.0)', "1.0"),
        Edit("the text of an item", pattern_of, 'if "pattern" in item', "if False"),
        Edit("met items are shown", MissedItems.__call__, "if not bits >> place & 1", "if bits >> place & 1"),
        Edit("the last member too", Best.__call__, "& ~last_members(experience)", ""),
        Edit("from the beginning", ByPattern.__call__, "re.search(", "re.match("),
    ),
)
