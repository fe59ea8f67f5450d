"""copg: contrasts regularised rewards of pairs, from any policy, without importance weights.

    d(y) = R(y) - beta (log pi(y) - log pi_ref(y)),   loss = mean over pairs of (d(y) - d(y'))^2 / (4 beta)

Flet-Berliac et al. 2024. The two samples of a pair are each other's baseline. The loss is correct for samples of any
policy, because at its minimum, pi_ref exp(R / beta) / Z, all y have the same d.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Area, Edit, Exact, Expect, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe, Stage
from assay.methods.copg.base import with_kl_loss
from assay.parts.objectives.regression import RegressLogRatio
from assay.recipes.defaults import EVERY, LANGUAGE, PREFERENCES, STALE, TABLE, Defaults

EPISODES = probes.token_episodes(lambda tokens: 0.3 * tokens[0] + tokens[0] * tokens[1], num_tokens=2, horizon=2)
REFERENCE_SA, NOW_SA = torch.linspace(-0.5, 0.7, 6).view(3, 2), torch.linspace(1.0, -1.0, 6).view(3, 2)
BETA = 0.5


def recipe(world: Defaults = LANGUAGE, beta: float = 0.1) -> Recipe:
    objective = RegressLogRatio(beta)
    stage = Stage("pairs", trains=("actor",), objective=(objective,), optimizer=world.optimizer)
    return replace(recipes.dpo(world), name="copg", credit=(), stages=(stage,))


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, log_ratio = seen.experience, seen.logp() - seen.logp("reference").detach()
    d = by_hand.outcome(data) - 0.1 * log_ratio.sum(1)
    groups = [d[(data.group == label) & data.mask.any(1)] for label in range(4)]
    pairs = [torch.combinations(one).diff(dim=1).square().mean() for one in groups]
    return torch.stack(pairs).mean() / (4 * 0.1)


def gradient(learner: Recipe, at_SA: torch.Tensor) -> torch.Tensor:
    others = {"behaviour_SA": NOW_SA, "reference_SA": REFERENCE_SA}
    return probes.expected_table_gradient(learner, EPISODES, at_SA, 2, **others)


def gradient_at_the_optimum() -> torch.Tensor:
    return gradient(recipe(beta=BETA), probes.posterior(EPISODES, REFERENCE_SA, BETA).table).norm()


def loss_of_a_pair() -> torch.Tensor:
    data = probes.outcomes(1.0, 0.25)
    return probes.loss(recipe(), data, data.logp, logp_ref=data.logp).loss


def distance_after(learner: Recipe, seed: int) -> float:
    """Returns KL(pi || pi*) on the paper's kind of bandit, whose arms a fixed behaviour policy pulls."""
    draw = torch.Generator().manual_seed(seed)
    reward, behaviour = torch.rand(10, generator=draw), 2 * torch.randn(1, 10, generator=draw)
    arms = probes.bandit_episodes(reward)
    return probes.distance_from_posterior(learner, arms, BETA, behaviour, steps=400, members=32, seed=seed)


METHOD = Method(
    "arXiv:2406.19185",
    recipe,
    worlds=(*EVERY, PREFERENCES),
    default_task="addition",
    family="preference",
    base=recipes.dpo,
    departures=("scaled by 1 / (4 beta): on-policy the step is that of rloo with the same KL; all pairs of a group",
             "pairs are sampled from the current policy at every step unless a file of pairs is the task"),
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipe, loss_by_hand),
        Exact("its loss for outcomes of 1 and 0.25, both as likely as in the reference, is 0.75^2 / 0.4",
              loss_of_a_pair, equals=1.40625),
        Exact("no gradient at the optimum, whatever the behaviour policy", gradient_at_the_optimum, equals=0.0),
        Measured("off-policy it ends nearer the optimum than with a value baseline", "",
                 lambda seed: distance_after(recipe(TABLE, BETA), seed),
                 lambda seed: distance_after(with_kl_loss(recipes.reinforce(TABLE), BETA), seed),
                 expect=Expect.BELOW, seeds=20, minutes=10.0, looks=3),
        Measured("from answers of 40 updates ago it learns faster than dpo: mean pass rate over the run", "stale",
                 recipe(STALE).set("rollout.delay", 40), recipes.dpo(STALE).set("rollout.delay", 40),
                 Area("pass_rate"), seeds=5, minutes=2.0, steps=100),
    ),
    mutants=(
        Edit("no reference", RegressLogRatio.__call__, "view.scored.logp - old", "view.scored.logp"),
        Edit("ratios to the acting policy", RegressLogRatio.__call__,
             'batch.column("logp_ref") if self.reference else batch.logp', "batch.logp"),
        Edit("a mean within sequences", RegressLogRatio.__call__,
             "* batch.mask).sum(1)", "* batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)"),
        Edit("rewards alone are centred", RegressLogRatio.__call__, "wanted if self.pairs else reward", "reward"),
    ),
)  # fmt: skip
