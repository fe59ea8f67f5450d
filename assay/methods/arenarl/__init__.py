"""arenarl: ranks each group by a seeded knock-out with a pairwise judge; the rank is the reward.

    reward_i = 1 - rank_i / (n - 1),   then grpo's advantage and loss

Amap and Tongyi Lab 2026. A judge compares two answers more reliably than it scores one. All members first meet an
anchor; that seeds a bracket where strong meets weak: 2 (n - 1) matches instead of the n (n - 1) / 2 of a round robin.
"""

import itertools
from dataclasses import replace

import torch

from assay import recipes
from assay.claims.claim import Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.core.verifier import Verifier
from assay.methods.arenarl.arena import Arena, JudgedAlone, OutcomeJudge, PairwiseJudge
from assay.methods.arenarl.tournaments import AnchorOnly, Match, Pairs, RoundRobin, SeededElimination, Topology
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

NOISY = OutcomeJudge(noise=0.5)
SCORED_ALONE = replace(recipes.grpo(), name="grpo-judged-alone", rewards=(Verifier(), JudgedAlone(NOISY)))


def recipe(world: Defaults = LANGUAGE, judge: PairwiseJudge = OutcomeJudge()) -> Recipe:
    return replace(recipes.grpo(world), name="arenarl", rewards=(Verifier(), Arena(judge)))


def judged(quality: torch.Tensor, noise: torch.Tensor) -> Match:
    scores = quality.unsqueeze(1) + noise
    return lambda pairs: [(float(scores[one, other]), float(scores[other, one])) for one, other in pairs]


def worst_place_of_the_best() -> float:
    """Returns the worst rank of the best member over all orders of six members, with a judge without errors."""
    orders = (torch.tensor(order).double() for order in itertools.permutations(range(6)))
    return max(SeededElimination()(6, judged(order, torch.zeros(6, 6)))[int(order.argmax())] for order in orders)


def matches_beyond_two_each() -> int:
    """Returns matches minus 2 (n - 1), summed over groups of 2 to 16."""
    asked: list[tuple[int, int]] = []

    def match(pairs: Pairs) -> list[tuple[float, float]]:
        asked.extend(pairs)
        return [(float(one), float(other)) for one, other in pairs]

    for num in range(2, 17):
        SeededElimination()(num, match)
    return len(asked) - sum(2 * (num - 1) for num in range(2, 17))


def accuracy(topology: Topology, seed: int) -> float:
    """Returns the correlation with the true ranks: groups of 16, noise of half a deviation on every score."""
    draw, found = torch.Generator().manual_seed(seed), []
    for _ in range(200):
        quality, noise = torch.randn(16, generator=draw), 0.5 * torch.randn(16, 16, generator=draw)
        rank = torch.tensor(topology(16, judged(quality, noise)))
        found.append(float(torch.corrcoef(torch.stack((rank, (-quality).argsort().argsort().float())))[0, 1]))
    return sum(found) / len(found)


def round_robin(world: Defaults = LANGUAGE) -> Recipe:
    """Returns arenarl with a round robin instead of the knock-out."""
    return replace(recipes.grpo(world), rewards=(Arena(topology=RoundRobin()),))


METHOD = Method(
    "arXiv:2601.06487", recipe, worlds=EVERY, default_task="sorting-5",
    family="preference",
    base=recipes.grpo,
    variants={"round-robin": round_robin},
    departures=("the judge is a program, the task's own reward with noise, or a user's function of two descriptions",
             "the anchor is the group's first sample, not a greedy one; no KL; equal standings share their rank"),
    claims=(
        Exact("a judge without error lets the best win, whatever the order", worst_place_of_the_best, equals=0.0),
        Exact("it takes 2 (n - 1) matches", matches_beyond_two_each, equals=0.0),
        Measured("ranks within 0.1 as well as a round robin, 30 matches for 120", "",
                 lambda seed: accuracy(SeededElimination(), seed), lambda seed: accuracy(RoundRobin(), seed),
                 expect=Expect.WITHIN, margin=0.1, seeds=5, minutes=0.1),
        Measured("ranks better than the anchor alone", "", lambda seed: accuracy(SeededElimination(), seed),
                 lambda seed: accuracy(AnchorOnly(), seed), seeds=5, minutes=0.1),
        Measured("with the same noisy judge, scores higher than grpo on single scores", "sorting-5",
                 recipe(judge=NOISY), SCORED_ALONE, seeds=5, minutes=4.0, steps=100, warmup=60),
    ),
)  # fmt: skip
