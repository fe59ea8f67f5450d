"""The losses of kl-bayes and of matching by hand. Axes: B sequences, T decisions, S states, A actions."""

from functools import partial

import torch

from assay.claims import About, Claims, Computed, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.method import TABLE, Recipe, recipes
from assay.methods.kl_bayes import matching, recipe


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return by_hand.rloo_loss(by_hand.with_kl(seen, 0.1))


def matching_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, seen.logp("reference").detach() - data.logp, 0.0).sum(1)
    log_weight = moved + by_hand.outcome(data) / 0.1
    advantage = by_hand.in_groups(log_weight, data, lambda one: one.exp() / one.exp().mean() - 1.0)
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)


EPISODES = probes.token_episodes(lambda tokens: (3.0, 0.5, 1.0)[sum(tokens)] * tokens[0], num_tokens=2, horizon=2)


REFERENCE_SA, NOW_SA = (torch.linspace(first, -first, 6).double().view(3, 2).requires_grad_() for first in (-0.5, 1.0))


BETA = 0.5


TARGET = probes.posterior(EPISODES, REFERENCE_SA, BETA)


def bias_of_kl_rl() -> torch.Tensor:
    (exact,) = torch.autograd.grad(-BETA * probes.divergence(EPISODES.logp(NOW_SA), TARGET.logp), NOW_SA)
    return probes.compare(recipe(beta=BETA), EPISODES, NOW_SA, 3, reference_SA=REFERENCE_SA, exact=exact).bias.norm()


def bias_of_matching() -> torch.Tensor:
    """Returns the bias of matching on every sequence once, uniformly: the group's estimate of Z is then exact."""
    (exact,) = torch.autograd.grad(probes.divergence(TARGET.logp, EPISODES.logp(NOW_SA)), NOW_SA)
    all_once = EPISODES.record(torch.arange(EPISODES.num_episodes).unsqueeze(0), torch.zeros_like(NOW_SA))
    actor, models = probes.table_of(NOW_SA), {"reference": probes.table_of(REFERENCE_SA)}
    found = probes.gradient(matching(beta=BETA, centre=False), all_once, actor, models=models)
    return (found["body.table"] - exact).norm()


def matching_at_the_posterior() -> torch.Tensor:
    found = probes.at_posterior(matching(beta=BETA), EPISODES, REFERENCE_SA, BETA, 2)
    return found.expected.norm() + found.variance.sum()


def distance_after(learner: Recipe, seed: int, steps: int = 400) -> float:
    reward = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(seed))
    words = probes.token_episodes(lambda tokens: float(reward[tokens]), num_tokens=3, horizon=3)
    return probes.distance_from_posterior(learner, words, BETA, steps=steps, members=16, seed=seed)


def distances(learner: Recipe) -> Computed:
    """Returns the side of `distance_after`."""
    return Computed(partial(distance_after, learner), small=partial(distance_after, learner, steps=10))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of rloo with the KL in its reward", recipe, loss_by_hand),
        same_gradient("the gradient of matching has the posterior's weight as credit", matching, matching_by_hand),
        Exact("the expected step is that of -beta KL(pi || pi*)", bias_of_kl_rl, equals=0.0),
        Exact("matching is the gradient of KL(pi* || pi)", bias_of_matching, equals=0.0, of="posterior-matching"),
        Exact("at pi* no group moves matching", matching_at_the_posterior, equals=0.0, of="posterior-matching"),
        Measured("it ends nearer pi* than reward alone", "", distances(recipe(TABLE, BETA)),
                 distances(recipes.rloo(TABLE)), expect=Expect.BELOW, seeds=5, minutes=0.5,
                 about=About.HEADLINE),
        Measured("matching ends nearer pi* than reward alone",
                 "", distances(matching(TABLE, BETA)),
                 distances(recipes.rloo(TABLE)), expect=Expect.BELOW, seeds=5, minutes=0.5,
                 about=About.COMPONENT),
    ),
)
