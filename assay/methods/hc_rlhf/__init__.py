"""hc-rlhf: trains for a pessimistic cost bound, then certifies the policy on held-out starts or returns none.

    train:  multiplier <- max(0, multiplier + rate * (mean + factor * deviation - limit)),   A <- A - multiplier C
    test:   return the policy only if  mean + t(1 - delta, m - 1) s / sqrt(m) <= limit  on m held-out episodes

Chittepu et al. 2025. A multiplier holds the cost near the limit, so about half of its policies are unsafe. The test
bounds that share by delta, however training went; pessimism makes trained policies pass the test.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.core.slots import Reward
from assay.engine import evaluation
from assay.methods.hc_rlhf import claims
from assay.methods.hc_rlhf.certificates import CostCertificate, Pessimistic, pessimistic
from assay.parts.rewards.cost import LengthCost, TaskCost
from assay.recipes.constrained import constrained
from assay.recipes.defaults import CONTROL, EVERY, TABLE, Defaults
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.hazards import hazards

BANDIT = probes.CostlyBandit(torch.tensor([0.0, 0.6, 1.0]).double(), torch.tensor([0.05, 0.2, 0.6]).double())
LIMIT = 0.3


def recipe(world: Defaults = CONTROL, test: CostCertificate = CostCertificate(), now: float = 4.0, later: float = 2.0,
           rate: float = 0.01, cost: Reward = TaskCost()) -> Recipe:  # fmt: skip
    base = constrained(recipes.rloo(world), pessimistic(test, now, later, rate), cost)
    return replace(base, name="hc-rlhf", certificate=test, steps=2 * world.steps)


def trials(seed: int, now: float = 4.0, later: float = 2.0, tested: bool = True) -> probes.HandedOut:
    one = recipe(TABLE, CostCertificate(LIMIT, num_starts=100), now, later, rate=0.3)
    one = one if tested else replace(one, certificate=None)
    return probes.handed_out(replace(one, rewards=()), BANDIT, LIMIT, trials=40, steps=80, pulls=64, seed=seed)


METHOD = Method(
    "arXiv:2506.08266", recipe, worlds=EVERY, default_task="hazards",
    family="safe",
    base=recipes.rloo,
    variants={"certified-length": partial(recipe, cost=LengthCost())},
    departures=(
        "reward and cost are the task's own, not models of preferences; the guarantee is of that cost",
        "a certificate needs 30 held-out prompts that no evaluation uses; each counts once",
        "no KL to a reference; the multiplier itself is updated instead of its logarithm",
    ),
    claims=(
        Exact("the augmented cost has the gradient of mean + factor * deviation",
              claims.distance_from_gradient_of_the_bound, equals=0.0),
        Exact("its gradient is that of rloo with the priced cost", lambda: claims.gap(recipe()), at_most=1e-6),
        Exact("the test is Student's bound of whole episodes", lambda: claims.distance_of_bound(recipe()), equals=0.0),
        Exact("a file's prompts are certified once, and apart from evaluations; too few are refused",
              lambda: claims.prompts_misused(recipe()), equals=0.0),
        Exact("at the limit, a valid bound on the prompts of a file passes at most delta of the time",
              lambda: claims.passes_on_a_file(recipe(), 290), at_most=0.1),
        Exact("a task without costs is refused", lambda: not probes.is_refused(recipe(), hazards())
              and probes.is_refused(recipe(), cartpole()), equals=1.0),
        Measured("hands out an unsafe policy less often than delta", "", lambda seed: trials(seed).unsafe, 0.1,
                 expect=Expect.BELOW, seeds=5, minutes=1.0),
        Measured("a plain multiplier without the test does so more often", "",
                 lambda seed: trials(seed, 0.0, 0.0, tested=False).unsafe, 0.1, seeds=5, minutes=1.0),
        Measured("pessimism finds more solutions than a plain multiplier with the test", "",
                 lambda seed: trials(seed).solved, lambda seed: trials(seed, 0.0, 0.0).solved, seeds=5, minutes=2.0),
    ),
    mutants=(
        Edit("a file's prompts are counted round and round", evaluation.certified_starts,
             "isinstance(task, PromptedTask)", "False"),
        Edit("prompts of evaluations are used again", evaluation.certified_starts, "prompt not in known", "True"),
        Edit("the mean is held at the limit", Pessimistic.level, "mean + factor * deviation", "mean"),
    ),
)  # fmt: skip
