"""Chains by hand: credit from probes, and what is gathered. Axes: B sequences, T decisions."""

import itertools
import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Exact, Measured, addition, by_hand, probes
from assay.method import PLACES, AssayError, Experience, Recipe, Scene, recipes
from assay.methods.spo import Chain, SegmentCredit, Tree, recipe

EDGES = ((0, 1), (1, 2), (0, 11), (11, 12), (0, -1), (0, -2), (1, -3), (1, -4), (11, -5), (11, -6))
"""Two answers of two segments from node 0, then two probes from each of the nodes 0, 1 and 11: (parent, branch)."""


def in_chains() -> Experience:
    """Returns the rows of three starts; the last probe has no decision."""
    data, row = probes.sequences(num=30), torch.arange(30)
    parent, branch = (torch.tensor([edge[side] for edge in EDGES])[row % 10] for side in (0, 1))
    away = 100 * (row // 10)
    below = torch.where(branch < 0, branch - away, branch + away)
    sure = (row.unsqueeze(1) + torch.arange(7)) % 4 == 0
    logp = torch.where(sure, -0.05, data.logp)
    edges = replace(data, logp=logp, group=row // 10, parent=parent + away, branch=below)
    return edges.add({"probe": row % 10 >= 4})


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, outcome, there = seen.experience, by_hand.outcome(seen.experience), seen.experience.mask.any(1)
    advantage = torch.zeros_like(data.reward)
    for first in (0, 10, 20):
        value = {
            node: torch.stack([outcome[first + row] for row in rows if there[first + row]]).mean()
            for node, rows in ((0, (4, 5)), (1, (6, 7)), (11, (8, 9)))
        }
        for row, (parent, branch) in enumerate(EDGES[:4]):
            worth = outcome[first + row] + value.get(branch, torch.tensor(0.0))
            advantage[first + row] = worth - value[parent]
    kept = replace(data, mask=data.mask & (data.logp < math.log(0.9)) & (advantage.abs() > 1e-8))
    gain = by_hand.clipped(by_hand.ratio(seen), by_hand.whitened(advantage, kept), low=0.2, high=0.2)
    return -by_hand.mean_of_decisions(gain, kept)


def wrong_chains(recipe: Recipe) -> float:
    """Returns what is wrong with chains of answers up to 40 tokens: segments that do not end after their fifth decision
    below 0.9, or not where the next one begins; nodes without four probes; probes that do not continue the answer
    before their cut; log-probabilities of another context.
    """
    task = replace(addition(1), max_tokens=40)
    (found,), actor, _ = probes.gathered(recipe, task, starts=2)
    with torch.no_grad():
        logp = actor.score(found, frozenset()).logp
    assert found.parent is not None
    assert found.branch is not None
    wrong = float(not ((logp - found.logp) * found.mask).abs().max() <= 1e-4)
    probe, starts, samples = found.column("probe"), found.column("start"), found.column("sample")
    cuts: dict[int, list[int]] = {}
    longest = places = 0
    for start in range(2):
        prompt = task.begin(np.array([start]), 0).context["tokens"][0].tolist()
        for sample in range(8):
            mine = (~probe & (starts == start) & (samples == sample)).nonzero().flatten().tolist()
            node, before, longest = int(found.parent[mine[0]]), prompt, max(longest, len(mine))
            for row in mine:
                decided, unsure = found.action[row][found.mask[row]].tolist(), found.logp[row] < math.log(0.9)
                tokens = found.context["tokens"][row][: len(before) + len(decided)].tolist()
                wrong += int(found.parent[row]) != node or tokens != before + decided
                sure = unsure[found.mask[row]].tolist()
                wrong += row != mine[-1] and (sum(sure) != 5 or not sure[-1])
                wrong += row == mine[-1] and sum(sure) > 5 and len(mine) < 8
                cuts[node], node, before = before, int(found.branch[row]), before + decided
            wrong, places = wrong + (not bool(found.terminal[mine[-1]].any())), places + len(mine) - 1
    for node, before in cuts.items():
        rows = (probe & (found.parent == node)).nonzero().flatten().tolist()
        wrong += len(rows) != 4
        for row in rows:
            wrong += found.context["tokens"][row][: len(before)].tolist() != before
            wrong += int(found.mask[row].nonzero()[0]) != len(before) or not bool(found.terminal[row].any())
    wrong += len(cuts) != places + 2  # the nodes of two starts and all cuts differ
    (short,), _, _ = probes.gathered(recipe, replace(task, max_tokens=8), starts=8)
    wrong += not bool(short.mask.any(1).all())  # an answer that ends at a cut has no empty segment after it
    return wrong + wrong_labels(found) + float(int(probe.sum()) != 4 * len(cuts)) + float(longest < 3)


def wrong_labels(found: Experience) -> float:
    """Returns what is wrong with the nodes and random numbers of two starts: two probes share an end or random numbers,
    an end is a node, or the nodes of both starts would meet in longer chains.
    """
    probe, starts, samples = found.column("probe"), found.column("start"), found.column("sample")
    parent, branch = found.parent, found.branch
    assert parent is not None
    assert branch is not None
    ends = branch[probe].tolist()
    wrong = float(len(set(ends)) != len(ends) or max(ends) >= 0 or int(parent.min()) < 0)
    wrong += int(branch[~probe & (starts == 0)].max()) >= int(parent[starts == 1].min())
    for start in range(2):
        own = samples[probe & (starts == start)].tolist()
        wrong += len(set(own)) != len(own) or min(own) < 8
    return wrong


def accepted(recipe: Recipe) -> float:
    """Returns 0 if eight segments of 5 decisions are accepted for answers up to 40 tokens, and those of 4 are not."""
    scene, chain = Scene(replace(addition(1), max_tokens=40)), recipe.rollout
    assert isinstance(chain, Chain)
    replace(chain, segment=5).init(scene)
    with suppress(AssayError):
        replace(chain, segment=4).init(scene)
        return 1.0
    return 0.0


EPISODES = probes.token_episodes(lambda tokens: tokens[0] * tokens[1] + 0.3 * tokens[1], num_tokens=2, horizon=2)


LOGITS_SA = torch.tensor([[0.4, -0.2], [1.0, 0.1], [-0.3, 0.5]], dtype=torch.float64)


PARENT_B, BRANCH_B = torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(1, 7)


LEVEL_BT = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [0, 1]])


def distance_from_exact_gradient() -> torch.Tensor:
    """Returns the distance from the exact gradient over all trees of two levels with two children: level means times
    2.
    """
    logits = LOGITS_SA.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for a, b, *rest in itertools.product(range(2), repeat=6):
        picked = torch.tensor([[2 * a, 2 * b, *(2 * (a, a, b, b)[i] + token for i, token in enumerate(rest))]])
        record, logp = EPISODES.record(picked, LOGITS_SA), EPISODES.decision_logp(logits)[0, picked[0]] * LEVEL_BT
        edges = replace(record, mask=LEVEL_BT > 0, reward=record.reward * LEVEL_BT, parent=PARENT_B, branch=BRANCH_B)
        weight = SegmentCredit()(edges).column("advantage") * torch.tensor([1.0, 0.5])
        total = total + logp.sum().detach().exp() * (weight * logp).sum()
    (slope,) = torch.autograd.grad(total, logits)
    return (slope - probes.exact_table_gradient(EPISODES, LOGITS_SA)).norm()


CLAIMS = Claims(
    equivalent={"Chain.__call__: task.spec.horizon + 1 -> task.spec.horizon - 1": "an answer has at most half as many "
                "segments as decisions, so nodes still differ; random numbers follow their labels"},
    claims=(
        Exact("off-policy its gradient is the formula's: values of probes, uncertain decisions, whitened",
              lambda: probes.formula_gap(recipe(), in_chains(), loss_by_hand), at_most=1e-9),
        Exact("chains are cut after every c-th uncertain decision, with 4 probes at every cut",
              lambda: wrong_chains(recipe()), equals=0.0),
        Exact("segments too short for the task's limit are refused", lambda: accepted(recipe()), equals=0.0),
        Exact("in trees the level means of credit have the exact gradient", distance_from_exact_gradient, equals=0.0),
        Measured("where 2 of 16 tokens decide chains learn faster than grpo on as many trained answers, with seven "
                 "times the samples: mean pass rate over the run", "key-decisions:length=16", recipe(PLACES),
                 recipes.grpo(PLACES), Area("pass_rate"), seeds=5, minutes=10.0, steps=40, looks=3,
                 about=About.HEADLINE),
        Measured("chains score higher than grpo on as many trained answers", "sorting-5", recipe(), recipes.grpo(),
                 seeds=5, minutes=8.0, steps=100, warmup=60, about=About.MECHANISM),
        Measured("trees score higher than grpo on as many sampled tokens", "sorting-5",
                 recipe(rollout=Tree(25, (4, 4), 3)), recipes.grpo(), seeds=5, minutes=4.0, steps=100, warmup=60,
                 about=About.HEADLINE),
    ),
)
