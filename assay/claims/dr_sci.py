"""Rewards, replaced prompts and chosen traces by hand; what is gamed where a rubric tempts."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Expect, Final, Item, Measured, by_hand, probes
from assay.claims.testbeds.language.lab import lab
from assay.method import PLACES, Recipe, Scene, recipes
from assay.methods.dr_sci import AnswerAndRubric, Covering, Replacing, covering, recipe, ungated, weights_of
from assay.parts import Visited

RUBRIC = (
    {"item": "e", "kind": "Essential"},
    {"item": "i", "kind": "important"},
    {"item": "o", "kind": "optional"},
    {"item": "p", "kind": "pitfall"},
    {"item": "q", "weight": -2.0},
)
TASK = probes.listed(Item("q", "7", "7", {"rubric": RUBRIC, "pass_rate": 0.5}))
TABLE = (
    ("eio", 0, 2.0 / 4.5), ("7", 0, 2.5 / 4.5), ("eio7", 0, 1.0), ("p7", 0, 2.0 / 4.5), ("eq", 0, 0.0),
    ("ip", 0, 0.2 / 4.5), ("x", 0, 0.0), ("op7", 0, 2.3 / 4.5),
)  # fmt: skip
"""Answers and rewards: items weigh 1, 0.7 and 0.3, the answer 2.5; pitfalls take 0.5 and 2."""
PLAIN = {"eio": 2.0 / 3, "7": 1.0 / 3, "eio7": 1.0, "p7": 0.5 / 3, "eq": 0.0, "ip": 0.2 / 3, "x": 0.0, "op7": 0.8 / 3}


def wrong_rewards() -> float:
    """Returns how far rewards are from those by hand, of both recipes, and metrics from their counts."""
    wrong = probes.worst(
        probes.table_gap(recipe(), TASK, TABLE),
        probes.table_gap(ungated(), TASK, [(text, start, PLAIN[text]) for text, start, _ in TABLE]),
    )
    rows, scene = probes.completed(TASK, [text for text, _, _ in TABLE], [0] * len(TABLE)), Scene(TASK)
    for part in recipe().rewards:
        rows = part(rows, scene, part.init(scene))
    found = [sum(value for value, _ in scene.metrics[name]) for name in ("gamed", "at_zero")]
    return probes.worst(wrong, probes.distance(torch.tensor(found), [1.0, 1.0]))


def separation() -> float:
    """Returns by how much the best wrong answer is paid more than the worst right one without pitfalls, over 200
    random rubrics.
    """
    draw, worst = np.random.default_rng(0), -1.0
    for _ in range(200):
        names = "abcdef"[: draw.integers(1, 7)]
        items = [{"item": name, "weight": float(draw.uniform(0.1, 3.0))} for name in names]
        task = probes.listed(Item("q", "!", "!", {"rubric": items, "pass_rate": 0.5}))
        rows, scene = probes.completed(task, [names, "!"], [0, 0]), Scene(task)
        for part in recipe().rewards:
            rows = part(rows, scene, part.init(scene))
        best, least = rows.reward.sum(1).tolist()
        worst = max(worst, best - least)
    return worst


def judged() -> float:
    """Returns how far a chat model's judgement is from what it means: of the second answer nothing is known."""
    rows, scene = probes.completed(TASK, ["x", "7", "7"], [0, 0, 0]), Scene(TASK)
    verifier, part = recipe().rewards
    assert isinstance(part, AnswerAndRubric)
    part = replace(part, judge=part.judge.with_judge(lambda prompts: ["Met: 1, 4", "?", "Met: none"]))  # type: ignore[attr-defined]
    found = part(verifier(rows, scene, verifier.init(scene)), scene, part.init(scene))
    there = found.mask.any(1).tolist() == [True, False, True]
    return probes.distance(found.reward.sum(1), [0.5 / 4.5, 0.0, 2.5 / 4.5]) if there else np.inf


def pool(rates: list[Any], num_starts: int = 2) -> tuple[Replacing, Scene, dict[str, Any]]:
    """Returns the rule, a scene and its state for prompts with these pass rates."""
    facts = [{"rubric": RUBRIC, "pass_rate": rate} for rate in rates]
    items = [Item(chr(97 + place), "7", "7", own) for place, own in enumerate(facts)]
    scene, rule = Scene(probes.listed(*items), num_starts=num_starts, starts=np.arange(len(rates))), Replacing()
    return rule, scene, rule.init(Visited(np.arange(len(rates)), [()] * len(rates)), scene)


def wrong_pool() -> float:
    """Returns how many pools are wrong: prompts of rate 1 left out, those above 0.625 in it, at least as many as a
    batch, and mastered ones replaced by the easiest that waits, as long as one does.
    """
    rule, scene, state = pool([0.25, 1.0, 0.9, 0.6, 0.7, 0.625])
    wrong = int(state["pool"] != [2, 4] or state["waiting"] != [5, 3, 0])
    visits = (
        ([(), (), (1.0,), (), (0.625, 1.0), ()], [2, 4]),  # one visit is not enough, nor is a mean of 0.8125
        ([(), (), (0.0, 0.875, 1.0), (), (1.0, 0.625), ()], [5, 4]),  # 0.9375 of the last two
        ([(), (), (1.0, 1.0), (), (1.0, 1.0), (1.0, 0.75)], [5, 3]),
        ([(), (), (), (1.0, 1.0), (), (1.0, 1.0)], [0, 3]),  # none waits for the second
    )
    for shares, expected in visits:
        chosen = rule.choose(Visited(np.arange(6), shares), scene, state)
        wrong += int(state["pool"] != expected) + int(sorted(chosen) != sorted(expected))
    few = pool([0.2, 0.3, 0.1], 2)[2]
    return float(wrong + int(few["pool"] != [1, 0] or few["waiting"] != [2]))


def wrong_traces() -> float:
    """Returns how many choices of traces, and of the source's demonstrations, are wrong."""
    wrong = int(covering([list(b"abcd"), list(b"abcde"), list(b"xyzw"), list(b"wxyz")], 2) != [1, 2])
    wrong += int(covering([list(b"abcdabc"), list(b"bcda"), list(b"ab")], 9) != [0]) + int(covering([], 1) != [])
    task = probes.listed(*(Item(name, "7", told) for name, told in zip("qrs", ("ab", "abcd", "abcde"), strict=True)))
    source = Covering(batch=3, num=1, among=3)
    state = source.init(Scene(task))
    rows = next(source(Scene(task), state))
    return float(wrong + int(rows.column("start").tolist() != [2] * 3) + int(state["next"] != 3))


def refused() -> float:
    """Returns how many rows are accepted whose rubric or pass rate is missing or malformed."""
    bad: tuple[dict[str, Any], ...] = (
        {"pass_rate": 0.5}, {"rubric": RUBRIC}, {"rubric": RUBRIC, "pass_rate": 1.0}, {"rubric": "e", "pass_rate": 0.5},
        {"rubric": [{"item": "e", "kind": "nice"}], "pass_rate": 0.5}, {"rubric": [{"item": "e"}], "pass_rate": 0.5},
        {"rubric": [RUBRIC[3]], "pass_rate": 0.5}, {"rubric": [{"kind": "optional"}], "pass_rate": 0.5},
    )  # fmt: skip
    return float(sum(not probes.is_refused(recipe(), probes.listed(Item("q", "7", "7", one))) for one in bad))


LAB = "lab:hardest=0.7"
"""No prompt waits: the pool stays as it is."""
OURS, UNGATED = recipe(PLACES), ungated(PLACES)


def paid(ours: Recipe) -> Recipe:
    """Returns the recipe for rewards that are given."""
    return replace(ours, rewards=())


CLAIMS = Claims(
    claims=(
        Exact("for given rewards its gradient is grpo's",
              lambda: probes.formula_gap(paid(recipe()), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("answers are paid their weighted items less pitfalls, from 0 to 1, with the answer as the heaviest item, "
              "or as one of weight 1", wrong_rewards, at_most=1e-6),
        Exact("no rubric pays a wrong answer as much as a right one that meets nothing else", separation, at_most=-0.1,
              illustrates=True),
        Exact("a chat model's items are paid; rows of which it says nothing leave training", judged, at_most=1e-6),
        Exact("mastered prompts are replaced by the easiest that waits, and the pool keeps its size", wrong_pool,
              equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(recipe(), lab()),
              equals=0.0),
        Exact("traces are chosen by the 4-grams that they add", wrong_traces, equals=0.0, of="dr-sci-traced"),
        Exact("rows without rubric or pass rate, or with a malformed one, are refused", refused, equals=0.0,
              of="refusals"),
        Measured("where a rubric rewards an easy flourish that no right answer has, fewer answers end wrong with 0.8 "
                 "of their rubric than where the answer is an item like others, by 0.1", LAB, OURS, UNGATED,
                 Final("gamed"), expect=Expect.BELOW, margin=0.1, seeds=5, minutes=20.0, steps=60, looks=3,
                 about=About.HEADLINE),
        Measured("where a rubric rewards an easy flourish it is right more often than grpo on answers alone at equally "
                 "many generated tokens", LAB, OURS, recipes.grpo(PLACES),
                 AtEqual("pass_rate", reached="decisions_total"), seeds=5, minutes=20.0, steps=60, looks=2),
    ),
    mutants=(
        Edit("pitfalls pay", weights_of, 'float(one["weight"]) if "weight" in one else KINDS[str(one["kind"]).lower()]',
             'abs(float(one["weight"]) if "weight" in one else KINDS[str(one["kind"]).lower()])'),
        Edit("the rubric alone", AnswerAndRubric.apply, "answer * is_right + sum(told)", "sum(told)"),
        Edit("the hardest first", Replacing.init, "(-rates[place], place)", "(rates[place], place)"),
        Edit("all visits count", Replacing.choose, "[-self.window :]", "[:]"),
        Edit("traces by their length", covering, "len(own - seen)", "len(own)"),
    ),
)
