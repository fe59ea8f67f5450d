"""Formulas by hand, and all pulls of a bandit of three arms. Axes: B sequences, T decisions, A arms."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, Experience, Recipe, recipes
from assay.methods.remax import TO_GO, AgainstGreedy, recipe, single
from assay.parts import WithGreedy

PEAKED, FLAT, FLAT_WRONG = torch.tensor([
    [(0.9, 0.05, 0.05), (1.0, 0.2, 0.0)], [(0.4, 0.3, 0.3), (1.0, 0.2, 0.0)], [(0.4, 0.3, 0.3), (0.0, 0.2, 1.0)],
]).double()  # fmt: skip
"""Probabilities and rewards of three arms: the likeliest one, the greedy answer, is the best; in the last the worst."""


def loss_by_hand(seen: probes.Seen, *, to_go: bool = False) -> Tensor:
    data, outcome = seen.experience, by_hand.outcome(seen.experience)
    gain = torch.zeros_like(data.logp)
    for row, greedy in enumerate(data.column("greedy_outcome")):
        places = data.mask[row].nonzero().flatten().tolist()
        penalty = 0.05 * (data.logp[row] - seen.logp("reference")[row]).detach()
        for place, column in enumerate(places):
            later = places[place:]
            ahead = (outcome[row] - greedy).clamp(-5.0, 5.0)
            own = 0.99 ** len(later) * ahead - penalty[column]
            gain[row, column] = (data.reward[row] - penalty)[later].sum() - greedy if to_go else own
    return -by_hand.mean_of_decisions(gain * seen.logp(), data)


def greedy_sequences() -> Experience:
    """Returns sequences of which one is ahead of its greedy answer by 9."""
    greedy = torch.sin(torch.arange(20.0).double()) - 9.0 * (torch.arange(20) == 2)
    return probes.sequences(num=20).add({"greedy_outcome": greedy})


def pulls(ours: Recipe, arms: Tensor, shift: float = 0.0) -> Tensor:
    """Returns the step of the logits after each pull, [A pulled, A]."""
    logits, reward = arms[0].log(), arms[1] + shift
    given = {"greedy_outcome": reward[:1]}
    data = [probes.bandit_experience([arm], reward[arm : arm + 1], logits).add(given) for arm in range(len(reward))]
    return -torch.stack([probes.bandit_gradient_of(ours, one, logits) for one in data])


def mean(ours: Recipe, arms: Tensor) -> Tensor:
    """Returns the expected step."""
    return arms[0] @ pulls(ours, arms)


def variance(ours: Recipe, arms: Tensor, shift: float = 0.0) -> float:
    """Returns the trace of the variance of one pull."""
    steps = pulls(ours, arms, shift)
    return float(arms[0] @ steps.square().sum(1) - (arms[0] @ steps).square().sum())


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, greedy_sequences),
        same_gradient("the gradient of the sums over later decisions is their formula's", TO_GO,
                      partial(loss_by_hand, to_go=True), greedy_sequences),
        Exact("greedy answers do not learn, and their tokens are counted",
              lambda: probes.greedy_gap(recipe(), (1.0, 0.0, 0.5), (0, 1, 2)), equals=0.0),
        Exact("it is unbiased: the expected step is that without a baseline", lambda: max(
              probes.distance(mean(TO_GO(), one), mean(single(), one)) for one in (PEAKED, FLAT_WRONG)), at_most=1e-12,
              of="remax-to-go"),
        Exact("where a peaked policy is greedily right its variance is 18.57 times that without a baseline",
              lambda: variance(TO_GO(), PEAKED) / variance(single(), PEAKED), equals=18.57, tolerance=0.01,
              illustrates=True),
        Exact("where a flat policy is greedily wrong its variance is that without a baseline",
              lambda: variance(TO_GO(), FLAT_WRONG) / variance(single(), FLAT_WRONG), equals=1.0, tolerance=1e-5,
              illustrates=True),
        Exact("a constant in the rewards does not change its variance",
              lambda: abs(variance(TO_GO(), FLAT, 2.0) - variance(TO_GO(), FLAT)), at_most=1e-12, of="remax-to-go"),
        Measured("where rewards have an offset of the prompt it learns faster than without a baseline, at equally many "
                 "generated answers: mean true score", "judge", recipe(PLACES, AgainstGreedy(1.0, kl=0.0)),
                 single(PLACES), Area("true_score"), seeds=10, minutes=6.0, steps=60, looks=2, about=About.MECHANISM),
        Measured("where rewards have an offset of the prompt it learns faster than rloo with two answers, at equally "
                 "many generated answers: mean true score", "judge", recipe(PLACES, AgainstGreedy(1.0, kl=0.0)),
                 recipes.rloo(PLACES).set("group_size", 2), Area("true_score"), seeds=10, minutes=6.0, steps=60,
                 looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the last decision is not discounted", AgainstGreedy.apply, "self.discount**left",
             "self.discount**(left - 1)"),
        Edit("samples instead of the greedy answer", WithGreedy.__call__, "greedy=True", "greedy=False"),
        Edit("greedy tokens are free", WithGreedy.__call__, "scene.log(DISCARDED, float(greedy.mask.sum()))", "pass"),
    ),
)
