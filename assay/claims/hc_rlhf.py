"""hc-rlhf's losses by hand, and how often its test passes a policy at the limit, over all possible tests.

Axes: B sequences, T decisions.
"""

from dataclasses import replace
from math import comb, log, sqrt

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Item, Measured, by_hand, cartpole, probes
from assay.claims import refuses
from assay.engine import evaluation
from assay.method import TABLE, AssayError, Experience, Recipe
from assay.methods.hc_rlhf import CostCertificate, LowestBound, Pessimistic, augmented_cost, recipe
from assay.parts import TaskCost
from assay.tasks.control.hazards import hazards

FACTOR = 4.0 * 1.345030374 / sqrt(15) + 2.0 * 1.281975213 / sqrt(2000)
"""Of the deviation: 4 t(0.9, 14) / sqrt(15) for 15 episodes, 2 t(0.9, 1999) / sqrt(2000) for the later test."""


# ---------------------------------------------------------------------------------------------------- training
def costly(seed: int) -> Experience:
    """Returns sequences with costs of about 10 a decision, also where nothing is decided."""
    data = probes.sequences(seed)
    cost = 20.0 * torch.rand(data.mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return replace(data, cost=cost.unsqueeze(-1))


def costs_of(data: Experience) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the cost of each row, and mean and deviation (n - 1) over the rows with a decision."""
    assert data.cost is not None
    cost = torch.stack([row[mask].sum() for row, mask in zip(data.cost[..., 0], data.mask, strict=True)])
    there = cost[data.mask.any(1)]
    return cost, there.mean(), there.std()


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    _, mean, deviation = costs_of(costly(1))
    price = 0.01 * (mean + FACTOR * deviation - 1.0)
    cost, mean, deviation = costs_of(data)
    inflated = cost + FACTOR * (cost.square() - 2 * mean * cost) / (2 * deviation)
    onto_last = replace(data, mask=data.mask.any(1, keepdim=True), reward=inflated.unsqueeze(1))
    advantage = (by_hand.against_others(data) - price * by_hand.against_others(onto_last)) / (1.0 + price)
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)


def gap(ours: Recipe) -> float:
    """Returns the distance of the recipe's gradient from the formula's, after one batch beyond the limit."""
    return probes.formula_gap(ours, costly(0), loss_by_hand, earlier=(costly(1),))


def distance_from_gradient_of_the_bound(factor: float = 0.7) -> Tensor:
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    cost, prob = torch.tensor([0.0, 2.0, 5.0, 1.0]).double(), logits.softmax(-1)
    mean = prob @ cost
    deviation = (prob @ (cost - mean).square()).sqrt()
    augmented = augmented_cost(cost, float(mean.detach()), float(deviation.detach()), factor)
    exact, ours = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in
                   (mean + factor * deviation, prob.detach() @ (augmented * prob.log())))  # fmt: skip
    return (exact - ours).norm()


# ---------------------------------------------------------------------------------------------------- the test
def certificate_of(ours: Recipe) -> CostCertificate:
    """Returns the recipe's certificate."""
    assert isinstance(ours.certificate, CostCertificate)
    return ours.certificate


def distance_of_bound(ours: Recipe) -> float:
    """Costs 0, 1, 0 and 1, of which the last is two rows of one episode, and a row that left training: the bound, and
    the verdicts just below and above it.
    """
    record = probes.bandit_experience([0] * 6, [0.0] * 6, torch.zeros(1))
    cost = record.reward.new_tensor([0.0, 1.0, 0.0, 0.4, 0.6, 9.0]).view(6, 1, 1)
    there = torch.arange(6).unsqueeze(1) < 5
    record = record.with_columns(cost=cost, mask=there, episode=torch.tensor([0, 1, 2, 3, 3, 4]))
    product = 50.0 - (0.05 * 50.0**2 * 49.0**2) ** 0.25
    coin = coin_bound(0.5, 4 / log(20.0))
    found = 0.0
    for largest, upper in ((50.0, product), (1.0, coin)):
        test = replace(certificate_of(ours), largest=largest)
        verdicts = [replace(test, limit=upper + step)(record).holds for step in (-1e-4, 1e-4)]
        found += abs(test(record).numbers["upper"] - upper) + (verdicts != [False, True])
    return found


def coin_bound(mean: float, tries: float) -> float:
    """Returns the greatest q with tries * kl(mean, q) <= 1, on a fine grid."""
    grid = torch.linspace(mean, 1.0, 4_000_001, dtype=torch.float64)[:-1]
    kl = mean * (mean / grid).log() + (1 - mean) * ((1 - mean) / (1 - grid)).log()
    return float(grid[kl <= 1 / tries].max())


def false_certificates(ours: Recipe, prob: float, cost: float, limit: float, num: int) -> float:
    """Returns how often a policy passes whose episodes cost `cost` with this probability, else 0, over all tests of
    `num` episodes.
    """
    test = replace(certificate_of(ours), limit=limit, largest=cost)
    record = probes.bandit_experience([0] * num, [0.0] * num, torch.zeros(1))
    costs = cost * torch.ones(num + 1, num).tril(-1).double().view(num + 1, num, 1, 1)
    held = [test(record.with_columns(cost=one)).holds for one in costs]
    return sum(comb(num, k) * prob**k * (1 - prob) ** (num - k) for k in range(num + 1) if held[k])


RARE = [(0.011, 100.0, 1.0), (0.051, 1.0, 0.05)]
"""Unsafe policies: how often an episode costs something, how much, and the limit of the mean."""


def most_false_certificates(ours: Recipe) -> float:
    """Returns the largest share of tests that an unsafe policy with rare costs passes."""
    return max(false_certificates(ours, *case, num) for case in RARE for num in (30, 50, 200))


def certified_without_a_bound(ours: Recipe) -> bool:
    """Returns whether costs of 0 are certified of a task that does not say how large they can be."""
    record = probes.bandit_experience([0] * 2000, [0.0] * 2000, torch.zeros(1))
    record = record.with_columns(cost=torch.zeros(2000, 1, 1))
    test, known = certificate_of(ours), hazards()
    unknown = replace(known, spec=replace(known.spec, largest_cost=None))
    return test(record, unknown).holds or test(record).holds or not test(record, known).holds


def prompts_of(ours: Recipe, num_rows: int) -> list[str]:
    """Returns the prompts on which the recipe's policy is certified, of a file with this many held-out rows."""
    task = probes.listed(*(Item(str(row), "0", "0") for row in range(num_rows)))
    return task.prompts(evaluation.certified_starts(task, certificate_of(ours).num_starts), 1)


def prompts_misused(ours: Recipe) -> int:
    """Returns how many prompts of files are used twice or in evaluations too, and how many files that are too small
    are accepted.
    """
    wrong = 0
    for num_rows in (27, 256, 285, 286, 300, 2000):
        try:
            found = prompts_of(ours, num_rows)
        except AssayError:
            wrong += num_rows >= 286
            continue
        wrong += (num_rows < 286) + len(found) - len(set(found) - {str(row) for row in range(256)})
    return wrong


def passes_at_the_limit(test: CostCertificate, prompts: list[str] | None = None) -> float:
    """Returns how often a policy at the limit passes, over all possible tests: an episode costs 1 or 0 by its prompt
    alone, 1 for a share `limit` of all prompts. By default every episode has a prompt of its own.
    """
    prompts = [str(row) for row in range(test.num_starts)] if prompts is None else prompts
    distinct, place = np.unique(prompts, return_inverse=True)
    num, record = len(distinct), probes.bandit_experience([0] * len(prompts), [0.0] * len(prompts), torch.zeros(1))
    costs = torch.ones(num + 1, num).tril(-1).double()[:, torch.from_numpy(place)].view(num + 1, -1, 1, 1)
    held = [test(record.with_columns(cost=cost)).holds for cost in costs]
    return sum(comb(num, k) * test.limit**k * (1 - test.limit) ** (num - k) for k in range(num + 1) if held[k])


BANDIT = probes.CostlyBandit(torch.tensor([0.0, 0.6, 1.0]).double(), torch.tensor([0.05, 0.2, 0.6]).double())


LIMIT = 0.3


def trials(
    seed: int, now: float = 4.0, later: float = 2.0, tested: bool = True, num: int = 40, steps: int = 80
) -> probes.HandedOut:
    one = recipe(TABLE, CostCertificate(LIMIT, num_starts=100, largest=1.0), now, later, rate=0.3)
    one = one if tested else replace(one, certificate=None)
    return probes.handed_out(replace(one, rewards=()), BANDIT, LIMIT, trials=num, steps=steps, pulls=64, seed=seed)


def unsafe(now: float, later: float, tested: bool = True) -> Computed:
    """Returns the side that is the share of unsafe policies; small, the reward of three trials without the test."""
    return Computed(lambda seed: trials(seed, now, later, tested).unsafe,
                    small=lambda seed: reward_of_three(seed, now, later, tested))  # fmt: skip


def solved(now: float, later: float) -> Computed:
    """Returns the side that is the share of trials with a policy; small as that of `unsafe`."""
    return Computed(lambda seed: trials(seed, now, later).solved,
                    small=lambda seed: reward_of_three(seed, now, later, True))  # fmt: skip


def reward_of_three(seed: int, now: float, later: float, tested: bool) -> float:
    """Returns the mean reward of the policies of three short trials, and the share of them that the test passes."""
    passed = trials(seed, now, later, tested, num=3, steps=10).solved
    return trials(seed, now, later, False, num=3, steps=10).reward + passed


CLAIMS = Claims(
    claims=(
        Exact("the augmented cost has the gradient of mean + factor * deviation",
              distance_from_gradient_of_the_bound, equals=0.0),
        Exact("its gradient is that of rloo with the priced cost", lambda: gap(recipe()), at_most=1e-6),
        Exact("the test is the lower of Chernoff's and the product's bound of whole episodes",
              lambda: distance_of_bound(recipe()), at_most=1e-6),
        Exact("a policy whose costs are rare passes the test at most as often as delta says",
              lambda: most_false_certificates(recipe()), at_most=0.1, of="theory"),
        Exact("without a largest cost nothing is certified", lambda: certified_without_a_bound(recipe()), equals=0.0,
              of="refusals"),
        Exact("a file's prompts are certified once, and apart from evaluations; too few are refused",
              lambda: prompts_misused(recipe()), equals=0.0),
        refuses("a task without costs is refused", recipe, cartpole, hazards, of=""),
        Measured("it hands out an unsafe policy less often than delta", "", unsafe(4.0, 2.0), 0.1,
                 expect=Expect.BELOW, seeds=5, minutes=1.0, about=About.HEADLINE),
        Measured("a plain multiplier without the test hands out an unsafe policy more often than delta", "",
                 unsafe(0.0, 0.0, tested=False), 0.1, seeds=5, minutes=1.0,
                 about=About.COMPONENT),
        Measured("pessimism finds more solutions than a plain multiplier with the test", "",
                 solved(4.0, 2.0), solved(0.0, 0.0), seeds=5, minutes=2.0,
                 about=About.MECHANISM),
    ),
    mutants=(
        Edit("the whole failure for each bound", LowestBound.__call__, "failure / len(self.bounds)", "failure"),
        Edit("an unknown largest cost is 1", CostCertificate.most, "else math.inf", "else 1.0"),
        Edit("a decision's largest cost is an episode's", TaskCost.most, "largest * task.spec.horizon", "largest"),
        Edit("a file's prompts are counted round and round", evaluation.certified_starts,
             "isinstance(task, PromptedTask)", "False"),
        Edit("prompts of evaluations are used again", evaluation.certified_starts, "prompt not in known", "True"),
        Edit("the mean is held at the limit", Pessimistic.level, "mean + factor * deviation", "mean"),
    ),
)
