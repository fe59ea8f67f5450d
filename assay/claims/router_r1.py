"""Costs, their ranks and the reward of conversations by hand; against the best single expert."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Exact, Expect, Final, Item, Measured, by_hand, probes
from assay.claims.testbeds.language.experts import best_alone, experts
from assay.core.record import InfraFault, Outcome, PolicyFault
from assay.method import BIGRAMS, Experience, Recipe, Scene, Score
from assay.methods.router_r1 import Routed, calls_of, cheapness, recipe
from assay.rollouts.text import ByteTokenizer
from assay.tasks.language.dialogue import DialogueTask, laid_out
from assay.tasks.language.partners import Reply
from assay.tasks.language.queries import queries


@dataclass(frozen=True)
class Desk:
    """A reply has as many letters as the utterance ends with; "7" is the right answer; "lost" is no answer."""

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the only question."""
        return Item("q\n", "7", "answer 7", {"prices": {"small": 100.0, "large": 300.0}})

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns letters, or the end."""
        if said[-1].startswith("answer"):
            return Reply("", Score(float(said[-1].endswith("7"))))
        ends: dict[str, Outcome] = {"stop": PolicyFault("no answer"), "lost": InfraFault("lost")}
        return Reply("", ends[said[-1]]) if said[-1] in ends else Reply("x" * int(said[-1][-1]))


DESK = DialogueTask("desk", Desk(), ByteTokenizer(), 8, 4, max_tokens=16, max_reply=9)


def talks(*said: str) -> Experience:
    """Returns conversations, a row each; utterances are separated by "/"."""
    item = DESK.items_of(torch.arange(1), 0)[0]
    rows = [DESK.demonstration(replace(item, demonstration=one.replace("/", "\n"))) for one in said]
    return laid_out(rows, torch.zeros(len(rows), dtype=torch.int64), DESK.tokenizer.vocabulary.pad)


COSTS = {0: "answer 7", 100: "small: 1/answer 7", 400: "small: 4/answer 7", 900: "ask large 2/so large: 1/answer 7"}
TABLES: tuple[tuple[tuple[tuple[str, float], ...], ...], ...] = (
    tuple(((COSTS[cost], 0.7 + 0.3 * cheap),) for cost, cheap in zip((0, 100, 400, 100, 900), (0.5, 0, 0, 0.5, 0),
                                                                     strict=True)),
    tuple(((COSTS[cost], 0.7 + 0.3 * cheap),) for cost, cheap in zip((900, 100, 400, 100, 0), (0.5, 1, 0.5, 1, 1),
                                                                     strict=True)),
    (((COSTS[100], 0.85), (COSTS[900], 0.85), ("small: 1/answer 8", 0.0), ("stop", -1.0), ("tiny: 1/answer 7", -1.0),
      ("smaller: 1/answer 7", -1.0), ("small: 1/stop", -1.0), ("lost", 0.0)), ((COSTS[0], 1.0),)),
)
"""Updates of (conversation, reward) that follow each other."""


def gap_of_rewards(alpha: float) -> float:
    """Returns the largest distance from the tables of alpha 0.3; from the score, or -1, where alpha is 0."""
    found = []
    for table in TABLES:
        steps = [talks(*(said for said, _ in step)) for step in table]
        for paid, step in zip(probes.rewarded_in_turn(recipe(alpha=alpha), DESK, steps), table, strict=True):
            right = [min(reward, 1.0) if alpha else float(reward > 0) - (reward < 0) for _, reward in step]
            found.append(probes.distance(paid, right))
    return max(found)


def remembered(ours: Recipe) -> float:
    """Returns how far the queue after an update is from the 1,000 costs before the last, and those of its rows that
    were not lost; and r_c from that of the last 1,000.
    """
    part, scene = ours.rewards[-1], Scene(DESK)
    state = {"roots": [30.0, *[20.0] * 998, 10.0]}
    part(DESK.judge(talks(COSTS[400], "lost"), 0), scene, state)
    late = abs(cheapness(100.0, [*[50.0] * 9, *[10.0] * 999]) - 0.5)
    return probes.distance(torch.tensor(state["roots"]), [*[20.0] * 998, 10.0, 20.0]) + late


def losses(seen: probes.Seen) -> dict[str, Tensor]:
    return by_hand.ppo_losses(by_hand.with_kl(seen, 0.001), 1.0, 1.0, 0.003 * by_hand.entropy(seen))


def replies_decided(ours: Recipe) -> float:
    """Returns how many tokens of replies are decisions, or of utterances are none."""
    task = experts()
    (rows,), _, _ = probes.gathered(ours, task, starts=8)
    said = [[one for one in row["messages"] if one["role"] == "assistant"] for row in task.texts(rows, 0)]
    return float(sum(abs(len(own) - int(mask.sum())) for own, mask in zip(said, rows.mask, strict=True)))


def credit_through_replies(ours: Recipe) -> float:
    """Returns how far advantages move if the values at the tokens of replies do."""
    (rows,), _, _ = probes.gathered(ours, experts(), starts=8)
    found = [
        ours.credit[1](rows.add({"value": torch.where(rows.mask, 0.5, there)}), Scene(experts())).column("advantage")
        for there in (0.0, 9.0)
    ]
    return float((found[0] - found[1]).abs().max()) + float(not rows.mask.any())


def refusals(ours: Recipe) -> float:
    """Returns how many are not refused: a task without conversations, one without prices, an alpha above 1."""
    return float(not probes.is_refused(ours, probes.listed(Item("q", "7", "7")))) + (
        not probes.is_refused(ours, queries(3))) + probes.is_refused(ours, DESK)


CLAIMS = Claims(
    claims=(
        Exact("its gradients are ppo's with lambda 1 and 0.001 KL in the reward", lambda: probes.formula_gap(
            replace(recipe(), rewards=()), probes.ANY_OUTCOME, losses), at_most=1e-9),
        Exact("costs 0, 100, 400, 100, 900 in this order are worth .5, 0, 0, .5, 0, and only to right answers",
              lambda: gap_of_rewards(0.3), at_most=1e-6),
        Exact("with alpha 0 costs change nothing", lambda: gap_of_rewards(0.0), equals=0.0, tolerance=0.0,
              of="options"),
        Exact("the last 1,000 costs are remembered, and none of a fault of the infrastructure",
              lambda: remembered(recipe()), at_most=1e-6),
        Exact("what experts reply is no decision", lambda: replies_decided(recipe()), equals=0.0, illustrates=True),
        Exact("credit skips what experts reply", lambda: credit_through_replies(recipe()), equals=0.0),
        Exact("a task without conversations, or without prices, is refused", lambda: refusals(recipe()), equals=0.0,
              of="refusals"),
        Measured("where a question needs two experts it is right more often than the best single expert, each prompt "
                 "having its own", "experts:hops=2", recipe(BIGRAMS), best_alone(2), Final("pass_rate"), margin=0.2,
                 seeds=5, minutes=4.0, steps=60, looks=2, about=About.HEADLINE),
        Measured("with alpha 0.7 answers cost less than with alpha 0", "experts:hops=2", recipe(BIGRAMS, 0.7),
                 recipe(BIGRAMS, 0.0), Average("route_cost", 0.2), Expect.BELOW, margin=2.0, seeds=5, minutes=4.0,
                 steps=60, looks=2),
    ),
    mutants=(
        Edit("wrong answers are paid for being cheap", Routed.apply, "if score[row] > 0 else 0.0", ""),
        Edit("costs, not their roots", cheapness, "cost**0.5", "cost"),
        Edit("the last reply is another's", calls_of, "talk[1::2]", "talk[:-1:2]"),
        Edit("the price alone", Routed.apply, "* len(task.tokenizer.encode(reply))", ""),
        Edit("names inside of words", calls_of, "(?<!\\w)(?:{names})(?!\\w)", "(?:{names})"),
    ),
)
