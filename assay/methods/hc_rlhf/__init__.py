"""hc-rlhf: trains for a pessimistic cost bound, then certifies the policy on held-out starts or returns none.

    train:  multiplier <- max(0, multiplier + rate * (mean + factor * deviation - limit)),   A <- A - multiplier C
    test:   return the policy only if  mean + t(1 - delta, m - 1) s / sqrt(m) <= limit  on m held-out episodes

Chittepu et al. 2025. A multiplier holds the cost near the limit, so about half of its policies are unsafe. The test
bounds that share by delta, however training went; pessimism makes trained policies pass the test.
"""

from dataclasses import replace
from math import comb

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.hc_rlhf.certificates import CostCertificate, HoeffdingBound, augmented_cost, pessimistic
from assay.recipes.constrained import constrained
from assay.recipes.defaults import CONTROL, EVERY, TABLE, Defaults

BANDIT = probes.CostlyBandit(torch.tensor([0.0, 0.6, 1.0]).double(), torch.tensor([0.05, 0.2, 0.6]).double())
LIMIT = 0.3


def recipe(world: Defaults = CONTROL, test: CostCertificate = CostCertificate(), now: float = 4.0, later: float = 2.0,
           rate: float = 0.01) -> Recipe:  # fmt: skip
    base = constrained(recipes.rloo(world), pessimistic(test, now, later, rate))
    return replace(base, name="hc-rlhf", certificate=test, steps=2 * world.steps)


def distance_from_gradient_of_the_bound(factor: float = 0.7) -> torch.Tensor:
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    cost, prob = torch.tensor([0.0, 2.0, 5.0, 1.0]).double(), logits.softmax(-1)
    mean = prob @ cost
    deviation = (prob @ (cost - mean).square()).sqrt()
    augmented = augmented_cost(cost, float(mean.detach()), float(deviation.detach()), factor)
    exact, ours = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in
                   (mean + factor * deviation, prob.detach() @ (augmented * prob.log())))  # fmt: skip
    return (exact - ours).norm()


def passes_at_the_limit(test: CostCertificate) -> float:
    """Returns how often a policy whose episodes cost 1 with probability `limit` passes, over all possible tests."""
    num = test.num_starts
    record = probes.bandit_experience([0] * num, [0.0] * num, torch.zeros(1))
    costs = torch.ones(num + 1, num).tril(-1).double().view(num + 1, num, 1, 1)
    held = [test(record.with_columns(cost=cost)).holds for cost in costs]
    return sum(comb(num, k) * test.limit**k * (1 - test.limit) ** (num - k) for k in range(num + 1) if held[k])


def trials(seed: int, now: float = 4.0, later: float = 2.0, tested: bool = True) -> probes.HandedOut:
    one = recipe(TABLE, CostCertificate(LIMIT, num_starts=100), now, later, rate=0.3)
    one = one if tested else replace(one, certificate=None)
    return probes.handed_out(replace(one, rewards=()), BANDIT, LIMIT, trials=40, steps=80, pulls=64, seed=seed)


METHOD = Method(
    "arXiv:2506.08266", recipe, worlds=EVERY, default_task="hazards",
    family="safe",
    base=recipes.rloo,
    departures=(
        "reward and cost are the task's own, not models of preferences; the guarantee is of that cost",
        "no KL to a reference; the multiplier itself is updated instead of its logarithm",
    ),
    claims=(
        Exact("the augmented cost has the gradient of mean + factor * deviation",
              distance_from_gradient_of_the_bound, equals=0.0),
        Exact("at the limit, Hoeffding's test passes at most delta of the time",
              lambda: passes_at_the_limit(CostCertificate(0.2, 0.1, 50, HoeffdingBound())), at_most=0.1),
        Exact("Student's does so a little more often where costs are skewed",
              lambda: passes_at_the_limit(CostCertificate(0.1, 0.1, 50)), at_least=0.1),
        Measured("hands out an unsafe policy less often than delta", "", lambda seed: trials(seed).unsafe, 0.1,
                 expect=Expect.BELOW, seeds=5, minutes=1.0),
        Measured("a plain multiplier without the test does so more often", "",
                 lambda seed: trials(seed, 0.0, 0.0, tested=False).unsafe, 0.1, seeds=5, minutes=1.0),
        Measured("pessimism finds more solutions than a plain multiplier with the test", "",
                 lambda seed: trials(seed).solved, lambda seed: trials(seed, 0.0, 0.0).solved, seeds=5, minutes=2.0),
    ),
)  # fmt: skip
