"""Tournaments by hand. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Exact, Expect, Final, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, Recipe, Verifier, recipes
from assay.methods.arenarl import AnchorOnly, JudgedAlone, Match, Pairs, RoundRobin, SeededElimination, Topology, recipe
from assay.parts import OutcomeJudge

TABLE = (
    ((0, 0, 0, 0, 0, 0, 0, 0), (0.0,) * 8),
    ((0.1, 0.1, 0.1, 0.1, 0.1, 0.1), (0.0,) * 6),
    ((1, 0, 0, 0, 0, 0, 0, 0), (2.475, *(-0.354,) * 7)),
    ((0, 1, 0, 1, 0, 0, 1, 0), (-0.725, 1.208, -0.725, 1.208, -0.725, -0.725, 1.208, -0.725)),
    ((1, 1, 1, 1, 0, 0, 0, 0), (*(0.935,) * 4, *(-0.935,) * 4)),
    ((0, 1, 2, 3, 4, 5), (-1.336, -0.802, -0.267, 0.802, 0.267, 1.336)),
    ((4, 3, 2, 1, 0), (1.265, 0.632, 0.0, -0.632, -1.265)),
    ((3, 7, 1, 5, 0, 6, 2, 4), (-0.204, 1.429, -1.021, 0.612, -1.429, 1.021, -0.612, 0.204)),
    ((32, 348, 6, 130, 5, 221, 13, 69), (-0.204, 1.429, -1.021, 0.612, -1.429, 1.021, -0.612, 0.204)),
)
"""Qualities of a group and the advantages of its members. Of six, the second best meets the best before the final, and
the third best has a bye: it is no sort. Of five, a bye stands first in the next round. The last row is a monotone map
of the one before.
"""


def gap_to_table(recipe: Recipe) -> float:
    """Returns the largest distance of the recipe's advantages from the table."""
    gaps = []
    for quality, right in TABLE:
        record = probes.bandit_experience([0] * len(quality), [float(one) for one in quality], torch.zeros(2))
        for part in (*recipe.rewards[1:], *recipe.credit):
            record = part(record, ALONE)
        gaps.append((record.column("advantage")[:, 0] - torch.tensor(right)).abs().max())
    return probes.worst(*map(float, gaps))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, outcome = seen.experience, by_hand.outcome(seen.experience)

    def ranked(reward: Tensor) -> Tensor:
        order = reward.argsort(descending=True).argsort()
        # Of three the two best meet first, and the third has a bye into the final.
        place = order if len(reward) == 4 else torch.tensor([0, 2, 1])[order]
        quantile = 1 - place.double() / (len(reward) - 1)
        return (quantile - quantile.mean()) / (quantile.std() + 1e-4)

    return by_hand.grpo_loss(seen, by_hand.in_groups(outcome, data, ranked))


def judged(quality: Tensor, noise: Tensor) -> Match:
    """Returns matches by quality plus noise [own, other]."""
    scores = quality.unsqueeze(1) + noise
    return lambda pairs: [(float(scores[one, other]), float(scores[other, one])) for one, other in pairs]


UPSET = {(1, 0): (3, 0), (2, 0): (2, 0), (3, 0): (1, 0)}, {(1, 0): (5, 6), (2, 3): (2, 2)}, {(0, 2): (9, 1)}
"""Scores of a tournament of four: the anchor, seeded last, beats the first seed; of a tie the better seed advances."""


def gap_of_an_upset() -> float:
    """Returns the distance of the ranks from 0, 2, 1, 3 after an upset and a tie, and of a round robin's from those by
    wins.
    """
    rounds = iter(UPSET)

    def match(pairs: Pairs) -> list[tuple[float, float]]:
        scores = next(rounds)
        return [scores[pair] if pair in scores else scores[pair[::-1]][::-1] for pair in pairs]

    found = [*SeededElimination()(4, match), *RoundRobin()(4, judged(torch.tensor([1, 0, 0, 2]), torch.zeros(4, 4)))]
    return probes.distance(found, (0, 2, 1, 3, 1, 2.5, 2.5, 0))


def change_of_a_match(judge: OutcomeJudge) -> Tensor:
    """Returns the largest change of scores with the sides exchanged, plus the noise's distance from 0.5."""
    record = probes.bandit_experience([0] * 64, [1.0] * 64, torch.zeros(2))
    first, second = (side.flatten() for side in torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij"))
    scores = judge.scores(record, None)  # type: ignore[arg-type]
    forth, back = scores(first, second), scores(second, first).flip(1)
    return (forth - back).abs().max() + (forth.std() - 0.5).abs() + (forth.mean() - 1.0).abs()


def verdicts(quality: Sequence[int]) -> Match:
    """Returns matches by a judge of win, tie and loss: 1, 1/2 and 0."""
    return lambda pairs: [
        (won := (1.0 + (quality[a] > quality[b]) - (quality[a] < quality[b])) / 2, 1.0 - won) for a, b in pairs
    ]


def unequal_equals() -> float:
    """Returns in how many of all groups of 2 to 8 with two levels of quality, and of 2 to 6 with three, a rank differs
    from that of a sort.
    """
    wrong = 0
    for levels, most in ((2, 9), (3, 7)):
        for quality in (one for num in range(2, most) for one in product(range(levels), repeat=num)):
            better = [sum(other > own for other in quality) for own in quality]
            right = [place + (quality.count(own) - 1) / 2 for place, own in zip(better, quality, strict=True)]
            played = [topology(len(quality), verdicts(quality)) for topology in (SeededElimination(), RoundRobin())]
            wrong += any(found != right for found in played)
    return float(wrong)


NOISY = OutcomeJudge(noise=0.5)


SCORED_ALONE = replace(recipes.grpo(PLACES), name="grpo-judged-alone", rewards=(Verifier(), JudgedAlone(NOISY)))


def accuracy(topology: Topology, seed: int) -> float:
    """Returns the correlation with the true ranks: groups of 16, noise of half a deviation on every score."""
    draw, found = torch.Generator().manual_seed(seed), []
    for _ in range(200):
        quality, noise = torch.randn(16, generator=draw), 0.5 * torch.randn(16, 16, generator=draw)
        rank = torch.tensor(topology(16, judged(quality, noise)))
        found.append(float(torch.corrcoef(torch.stack((rank, (-quality).argsort().argsort().float())))[0, 1]))
    return sum(found) / len(found)


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is grpo's with ranks for rewards", recipe, loss_by_hand,
                      probes.sequences),
        Exact("advantages of groups of 6 and 8 are those by hand, ties included", lambda: gap_to_table(recipe()),
              at_most=2e-3),
        Exact("with a judge of win, tie and loss equal members of mixed groups of two and three levels get equal ranks",
              unequal_equals, equals=0.0),
        Exact("an upset beats the seeding, and of a tie the better seed advances", gap_of_an_upset, equals=0.0),
        Exact("a match is the same from both sides and when repeated, and noise is half a deviation",
              lambda: change_of_a_match(NOISY), at_most=0.02),
        Measured("it ranks within 0.1 as well as a round robin, with 30 matches for 120", "",
                 lambda seed: accuracy(SeededElimination(), seed), lambda seed: accuracy(RoundRobin(), seed),
                 expect=Expect.WITHIN, margin=0.1, seeds=5, minutes=0.1, about=About.MECHANISM),
        Measured("it ranks better than the anchor alone", "", lambda seed: accuracy(SeededElimination(), seed),
                 lambda seed: accuracy(AnchorOnly(), seed), seeds=5, minutes=0.1, about=About.COMPONENT),
        Measured("with the same noisy judge and as many scores, its true score is above that of grpo on their mean",
                 "judge:noise=0", recipe(PLACES, NOISY), SCORED_ALONE, Final("true_score"), seeds=5, minutes=10.0,
                 steps=60, looks=2, about=About.HEADLINE),
    ),
)
