"""arenarl: ranks each group by a seeded knock-out with a pairwise judge; the rank is the reward.

    reward_i = 1 - rank_i / (n - 1),   then grpo's advantage and loss

Amap and Tongyi Lab 2026. A judge compares two answers more reliably than it scores one. All members first meet an
anchor; that seeds a bracket where strong meets weak: 2 (n - 1) matches instead of the n (n - 1) / 2 of a round robin.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Exact, Expect, Final, Measured, Method, same_gradient
from assay.core.recipe import Recipe
from assay.core.verifier import Verifier
from assay.methods.arenarl.arena import Arena, JudgedAlone
from assay.methods.arenarl.claims import (
    change_of_a_match,
    gap_of_an_upset,
    gap_to_table,
    judged,
    loss_by_hand,
    matches_beyond_two_each,
    spread_of_equals,
)
from assay.methods.arenarl.tournaments import AnchorOnly, RoundRobin, SeededElimination, Topology
from assay.parts.rewards.judges import OutcomeJudge, PairwiseJudge
from assay.recipes.defaults import EVERY, LANGUAGE, PLACES, Defaults

NOISY = OutcomeJudge(noise=0.5)
SCORED_ALONE = replace(recipes.grpo(PLACES), name="grpo-judged-alone", rewards=(Verifier(), JudgedAlone(NOISY)))


def recipe(world: Defaults = LANGUAGE, judge: PairwiseJudge = OutcomeJudge()) -> Recipe:
    return replace(recipes.grpo(world), name="arenarl", rewards=(Verifier(), Arena(judge)))


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
    return replace(recipes.grpo(world), rewards=(Verifier(), Arena(topology=RoundRobin())))


METHOD = Method(
    "arXiv:2601.06487", recipe, worlds=EVERY, default_task="sorting-5",
    family="preference",
    base=recipes.grpo,
    variants={"round-robin": round_robin},
    departures=("the judge is a program, the task's own reward with noise, or a user's function of two descriptions",
             "the anchor is the group's first sample, not a greedy one; no KL",
             "equal mean scores share their rank; in the authors' code sample numbers decide"),
    claims=(
        same_gradient("off-policy its gradient is grpo's with ranks for rewards", recipe, loss_by_hand),
        Exact("advantages of groups of 6 and 8 are those by hand, ties included", lambda: gap_to_table(recipe()),
              at_most=2e-3),
        Exact("equal scores give equal rewards, in every tournament of 1 to 16", spread_of_equals, equals=0.0),
        Exact("an upset beats the seeding, and of a tie the better seed advances", gap_of_an_upset, equals=0.0),
        Exact("it takes 2 (n - 1) matches", matches_beyond_two_each, equals=0.0),
        Exact("a match is the same from both sides and when repeated, and noise is half a deviation",
              lambda: change_of_a_match(NOISY), at_most=0.02),
        Measured("ranks within 0.1 as well as a round robin, 30 matches for 120", "",
                 lambda seed: accuracy(SeededElimination(), seed), lambda seed: accuracy(RoundRobin(), seed),
                 expect=Expect.WITHIN, margin=0.1, seeds=5, minutes=0.1),
        Measured("ranks better than the anchor alone", "", lambda seed: accuracy(SeededElimination(), seed),
                 lambda seed: accuracy(AnchorOnly(), seed), seeds=5, minutes=0.1),
        Measured("with the same noisy judge and as many scores, its true score is above that of grpo on their mean",
                 "judge:noise=0", recipe(PLACES, NOISY), SCORED_ALONE, Final("true_score"), seeds=5, minutes=10.0,
                 steps=60, looks=2),
    ),
)  # fmt: skip
