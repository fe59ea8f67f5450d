"""Claims of copg: its loss by hand, exact and measured claims, mutants.

Axes: B sequences, T decisions, S states, A actions.
"""

from dataclasses import replace
from functools import partial

import torch

from assay.claims import About, Area, Claims, Computed, Edit, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.method import STALE, TABLE, Copy, Recipe, divergences, recipes
from assay.methods.copg import recipe
from assay.parts import KlToReference, RegressLogRatio, SequenceSum


def with_kl_loss(recipe: Recipe, coefficient: float) -> Recipe:
    """Returns the recipe with coefficient * KL(pi || reference) in its first stage's loss, as k2 (see KlToReference).

    On on-policy data its gradient is the KL's, decision by decision; the effect of a decision on the KL of later ones
    is left out, as is common. With one decision per episode there is no such effect.
    """
    penalty = KlToReference(coefficient, divergences.k2, SequenceSum())
    stage = replace(recipe.stages[0], regularizers=(*recipe.stages[0].regularizers, penalty))
    copies = {**recipe.copies, "reference": Copy(of="actor")}
    return replace(recipe, copies=copies, stages=(stage, *recipe.stages[1:]))


EPISODES = probes.token_episodes(lambda tokens: 0.3 * tokens[0] + tokens[0] * tokens[1], num_tokens=2, horizon=2)


REFERENCE_SA, NOW_SA = torch.linspace(-0.5, 0.7, 6).view(3, 2), torch.linspace(1.0, -1.0, 6).view(3, 2)


BETA = 0.5


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, log_ratio = seen.experience, seen.logp() - seen.logp("reference").detach()
    d = by_hand.outcome(data) - 0.1 * log_ratio.sum(1)
    pairs = [torch.combinations(d[rows]).diff(dim=1).square().mean() for rows in by_hand.rows_of_groups(data)]
    return torch.stack(pairs).mean() / (4 * 0.1)


def gradient(learner: Recipe, at_SA: torch.Tensor) -> torch.Tensor:
    others = {"behaviour_SA": NOW_SA, "reference_SA": REFERENCE_SA}
    return probes.expected_table_gradient(learner, EPISODES, at_SA, 2, **others)


def loss_of_a_pair() -> torch.Tensor:
    data = probes.outcomes(1.0, 0.25)
    return probes.loss(recipe(), data, data.logp, logp_ref=data.logp).loss


def distance_after(learner: Recipe, seed: int, steps: int = 400) -> float:
    """Returns KL(pi || pi*) on the paper's kind of bandit, whose arms a fixed behaviour policy pulls."""
    draw = torch.Generator().manual_seed(seed)
    reward, behaviour = torch.rand(10, generator=draw), 2 * torch.randn(1, 10, generator=draw)
    arms = probes.bandit_episodes(reward)
    return probes.distance_from_posterior(learner, arms, BETA, behaviour, steps=steps, members=32, seed=seed)


def distances(learner: Recipe) -> Computed:
    """Returns the side of `distance_after`."""
    return Computed(partial(distance_after, learner), small=partial(distance_after, learner, steps=10))


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipe, loss_by_hand),
        Exact("its loss for outcomes of 1 and 0.25, both as likely as in the reference, is 0.75^2 / 0.4",
              loss_of_a_pair, equals=1.40625),
        Measured("off-policy it ends nearer the optimum than with a value baseline", "",
                 distances(recipe(TABLE, BETA)), distances(with_kl_loss(recipes.reinforce(TABLE), BETA)),
                 expect=Expect.BELOW, seeds=20, minutes=10.0, looks=3, about=About.MECHANISM),
        Measured("from answers of 40 updates ago it learns faster than dpo: mean pass rate over the run", "stale",
                 recipe(STALE).set("rollout.delay", 40), recipes.dpo(STALE).set("rollout.delay", 40),
                 Area("pass_rate"), seeds=5, minutes=2.0, steps=100, about=About.HEADLINE),
    ),
    mutants=(
        Edit("no reference", RegressLogRatio.__call__, "view.scored.logp - old", "view.scored.logp"),
        Edit("ratios to the acting policy", RegressLogRatio.__call__,
             'batch.column("logp_ref") if self.reference else batch.logp', "batch.logp"),
        Edit("a mean within sequences", RegressLogRatio.__call__,
             "* batch.mask).sum(1)", "* batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)"),
        Edit("rewards alone are centred", RegressLogRatio.__call__, "wanted if self.pairs else reward", "reward"),
    ),
)
