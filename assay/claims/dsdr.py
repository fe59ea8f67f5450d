"""Dsdr's loss by hand, and its credit on five answers with formulas. Axes: B rows, T decisions, W width."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Average, Claims, Edit, Exact, Expect, Final, Measured, by_hand, probes
from assay.claims import same_gradient
from assay.method import BIGRAMS, Experience, Need, Scene, recipes, text
from assay.methods.dsdr import Distinct, MeanState, TokenCounts, formulas_of, mean_distance, recipe, unique_share
from assay.parts import on_last_decision

COUNTED = partial(recipe, embedding=TokenCounts())
"""The recipe on a policy without hidden states."""

SAID = {
    "so 3+4 = 7 and 2*3=6, 7": ("3+4=7", "2*3=6"), "3 + 4=7, well-known, $5 or $6": ("3+4=7",), "it is 7": (),
    r"$\sqrt{49}$ is \(x\) or \[7^1\]": (r"\sqrt{49}", "7^1"), "(1+6)*1 = 7": ("(1+6)*1=7",),
}  # fmt: skip
"""Answers and their formulas."""
SHARES = (1 / 2, 0.0, 0.0, 1.0, 1.0)
"""The shares of these that no other answer has."""


def apart_by_hand(one: Tensor, other: Tensor) -> float:
    return (1.0 - float(one @ other / one.norm() / other.norm())) / 2.0


def distinct_by_hand(data: Experience, row: int, rows: list[int]) -> float:
    """Returns d of one row among those of its group, pair by pair, by token counts and whole answers."""
    said = {one: data.action[one][data.mask[one]].tolist() for one in rows}
    counts = {one: torch.bincount(torch.tensor(said[one]), minlength=4).double() for one in rows}
    others = [one for one in rows if one != row]
    apart = sum(apart_by_hand(counts[row], counts[one]) for one in others)
    return (apart / len(others) + float(all(said[one] != said[row] for one in others))) / 2


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    right, local = by_hand.outcome(data) > 0.5, torch.zeros(())
    d, estimate = torch.zeros(len(data)).double(), -by_hand.ratio(seen) * seen.logp()
    for rows in by_hand.rows_of_groups(data):
        d[rows] = torch.tensor([distinct_by_hand(data, row, rows) for row in rows], dtype=torch.float64)
        good = [row for row in rows if right[row]]
        weight = (5 * d[good]).softmax(0)
        local = local + len(rows) * sum(w * estimate[i][data.mask[i]].mean() for w, i in zip(weight, good, strict=True))
    paid = by_hand.outcome(data) + 0.001 * d * right
    advantage = by_hand.in_groups(paid, data, lambda one: (one - one.mean()) / (one.std() + 1e-6))
    return by_hand.grpo_loss(seen, advantage, 0.2, 0.28) - 0.001 * local / data.mask.any(1).sum()


def answer_states() -> tuple[Tensor, Tensor, Scene, Experience]:
    """Returns the embeddings of the answers in `SAID` by the shipped recipe and by hand, [B, W], from the states of
    prefixes that are each scored alone with a next token; the scene, and the rows, of which the third is wrong.
    """
    task, rows = probes.answered(list(SAID), max_tokens=40)
    actor = probes.small_policy(task).requires_grad_(False)
    rows = on_last_decision(rows, torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]))
    rows = replace(rows, reward=rows.reward.double())
    scene = Scene(task, probes.Only(actor))
    distinct = recipe().credit[0]
    assert isinstance(distinct, Distinct)
    mine, theirs = distinct.embedding(rows, scene), []
    for row in range(len(rows)):
        states = []
        for column in rows.mask[row].nonzero().flatten().tolist():
            prefix = rows.action[row, : column + 1].tolist()
            one = text.written([prefix], [[5]], torch.zeros(1, dtype=torch.int64), task.tokenizer.vocabulary.pad)
            states.append(actor.score(one, frozenset({Need.LOGP, Need.HIDDEN})).hidden[0, column + 1].double())
        theirs.append(torch.stack(states).mean(0))
    return mine, torch.stack(theirs), scene, rows


def embedding_gap() -> float:
    """Returns how far the embeddings are from those by hand."""
    mine, theirs, _, _ = answer_states()
    return probes.distance(mine, theirs)


def credit_gap() -> float:
    """Returns how far what the shipped recipe pays, and its weights, are from the numbers by hand: d of states and of
    the formulas in `SAID`.
    """
    _, states, scene, rows = answer_states()
    apart = [sum(apart_by_hand(one, other) for other in states) / (len(states) - 1) for one in states]
    d = (torch.tensor(apart) + torch.tensor(SHARES)).double() / 2
    right = [0, 1, 3, 4]
    weight = torch.zeros(5).double()
    weight[right] = -5.0 * (5.0 * d[right]).softmax(0)
    found = recipe().credit[0](rows, scene, {})
    paid = (found.reward - rows.reward).sum(1)
    return probes.worst(
        1000.0 * probes.distance(paid[right], 0.001 * d[right]),
        float(paid[2].abs()), probes.distance(found.column("entropy_weight").double(), weight),
    )  # fmt: skip


def wrong_formulas() -> float:
    """Returns in how many answers other formulas are found."""
    return float(sum(formulas_of(said) != set(own) for said, own in SAID.items()))


def bound_gap() -> float:
    """Returns how far d is from min(0.4, d) of the answers 0, 0, 1 and 2, whose d is 1/6, 1/6, 3/4 and 3/4."""
    data = probes.bandit_experience([0, 0, 1, 2], [1.0] * 4, torch.zeros(3))
    found = [Distinct(most=most).distinctness(data, Scene()) for most in (1.0, 0.4)]
    return probes.worst(
        probes.distance(found[0], (1 / 6, 1 / 6, 3 / 4, 3 / 4)), probes.distance(found[1], (1 / 6, 1 / 6, 0.4, 0.4))
    )


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", COUNTED, loss_by_hand, probes.UNIT_OUTCOME),
        Exact("an answer's embedding is the mean state after its tokens, the last one included", embedding_gap,
              at_most=1e-5),
        Exact("formulas of sums, TeX and brackets are found, words with hyphens and prices are none", wrong_formulas,
              equals=0.0),
        Exact("answers are paid and weighed by their states and formulas", credit_gap, at_most=1e-5, illustrates=True),
        Exact("distinctness has the values by hand, and is at most its bound", bound_gap, at_most=1e-9),
        Measured("fewer groups are without advantage than in grpo, mean over the run", "many-ways", COUNTED(BIGRAMS),
                 recipes.grpo(BIGRAMS), Average("zero_advantage_groups"), Expect.BELOW, minutes=6.0, steps=80, looks=2,
                 about=About.COMPONENT),
        Measured("it is right more often than grpo after as many steps", "many-ways", COUNTED(BIGRAMS),
                 recipes.grpo(BIGRAMS), Final("pass_rate"), minutes=6.0, steps=80, looks=2, about=About.HEADLINE),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo", "many-ways",
                 COUNTED(BIGRAMS), recipes.grpo(BIGRAMS), AtEqual("pass@64"), minutes=6.0, steps=80, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("tau divides", Distinct.apply, "self.tau * distinct", "distinct / self.tau"),
        Edit("weights of all answers", Distinct.apply, "right & there", "there"),
        Edit("repeated formulas count", unique_share, "uses[one] == 1", "uses[one] >= 1"),
        Edit("distances of 1 - cos", mean_distance, "/ 2.0", "/ 1.0"),
        Edit("the sum of states", MeanState.__call__, ".clamp(min=1)", ".clamp(max=1)"),
        Edit("spaces tell formulas apart", formulas_of, '"".join', '" ".join'),
        Edit("one formula an answer", formulas_of, "FORMULA.finditer(answer)", "list(FORMULA.finditer(answer))[:1]"),
        Edit("the deviation of grpo", recipe, '.set("scale.epsilon", 1e-6)', ""),
    ),
)
