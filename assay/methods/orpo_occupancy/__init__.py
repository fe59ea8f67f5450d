"""orpo-occupancy: PPO on a proxy reward minus a divergence of visited state-actions from a base policy's.

    reward_t = proxy_t - clip(weight * D(d_t), limit),   d = log mu_pi(s, a) - log mu_base(s, a)
    D = d (KL), e^d - 1 (chi2), (e^d - 1) / sqrt(chi2) (here)
    discriminator loss = mean_pi softplus(-d) + mean_base softplus(d); in language d = log pi - log pi_ref

Laidlaw et al. 2024 (not the preference loss of that name). A proxy that correlates with the reward where the base goes
says nothing of where it does not. Small steps away at every action can lead far from there; the divergence of the
visits bounds what is lost, (J(pi, R) - J(base, R)) / sd >= (proxy gain / sd - sqrt((1 - r^2) chi2)) / r.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, by_hand, probes, same_gradient
from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Phase, Recipe, Stage
from assay.core.record import Origin
from assay.core.verifier import Verifier
from assay.methods.orpo_occupancy import claims
from assay.methods.orpo_occupancy.parts import OfAnswers, Penalty, SeenReward, chi_square, root_chi_square
from assay.models.heads.value import ActionValue
from assay.ops.divergences import k1, k2
from assay.parts.predictions import OfAction
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rewards.learned import FromModel
from assay.parts.rollouts.episodes import Fragments
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.targets.labels import Label, told_apart
from assay.recipes.defaults import EVERY, LANGUAGE, TABLE, Defaults

BASE, OF = Logged((Log(episodes=50, noise=0.8),)), OfAction("discriminator")
CLASSES = (Label(1.0), Label(0.0, int(Origin.DATASET)))


def recipe(
    world: Defaults = TABLE, weight: float = 0.2, divergence: Callable[[Tensor], Tensor] = root_chi_square
) -> Recipe:
    paid = FromModel(OfAnswers() if world.tokens else OF, Penalty(divergence, weight), adds=True)
    base = recipes.ppo(world)
    base = replace(
        base, name="orpo-occupancy", copies={"reference": Copy(of="actor")}, rewards=(Verifier(), SeenReward(), paid)
    )
    if world.tokens:
        return base
    assert isinstance(world.fragments, Fragments)
    gathered = world.fragments.num_envs * world.fragments.steps
    visits = Retained(Replay(gathered, batch=256, updates=4, warmup=1), BASE, kept=0.5)
    apart = Stage("discriminator", (OF.model,), critic=told_apart(OF, *CLASSES), optimizer=Adam(0.05), source=visits)
    return replace(
        base,
        critics={**base.critics, "discriminator": replace(world.value, head=ActionValue(1))},
        stages=(apart, *base.stages),
        before=(Phase("base", replace(recipes.bc(world), source=BASE), 60),),
    )


def action_kl(weight: float) -> Recipe:
    """The rival: weight / (1 - discount) * KL(pi(. | s) || base(. | s)) in the loss, no penalty in the reward."""
    base = recipe(weight=0.0)
    term = KlToReference(weight / (1.0 - TABLE.gae.discount), k2)
    policy = replace(base.stages[1], regularizers=(*base.stages[1].regularizers, term))
    return replace(base, name="action-kl", rewards=base.rewards[:-1], stages=(policy, *base.stages[2:]))


METHOD = Method(
    "arXiv:2403.03185", recipe, worlds=EVERY, default_task="tomato", family="safe", base=recipes.ppo,
    mutants=(
        Edit("the penalty is paid", Penalty.__call__, "(-self.weight * cost)", "(self.weight * cost)"),
        Edit("the root is of the whole mean", root_chi_square, "int(trim * len(kept))", "0"),
        Edit("no root", root_chi_square, "centre.sqrt()", "centre"),
        Edit("the true reward is used", SeenReward.apply, "return seen", "return experience"),
        Edit("classes change places", recipe, "*CLASSES", "*CLASSES[::-1][:1]"),
        Edit("answers without the reference", OfAnswers.__call__, "rows.logp - base", "rows.logp"),
    ),
    departures=(
        "the base is its recorded decisions, drawn again every step, not rolled out; the policy starts as its clone",
        "rewards use the discriminator as the step before left it; the authors train it first",
        "visits are counted undiscounted, of the last step's decisions; no total variation, no Wasserstein",
        "the constant -1 in D is free only at a fixed horizon: with early ends it pays for length",
        "a 3 x 3 grid with three tomatoes; both weights swept over 1.5 decades around their best on seeds 100 and 101",
    ),
    claims=(
        same_gradient("the base is cloned from its log first: minus the mean log-probability of its decisions",
                      lambda: recipe().before[0].recipe,
                      lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)),
        same_gradient("its gradients are the discriminator's, and ppo's with the penalty (e^d - 1) / sqrt(chi2)",
                      recipe, claims.losses_by_hand, lambda: claims.VISITED),
        same_gradient("with chi2 it pays -weight (e^d - 1)", lambda: recipe(divergence=chi_square),
                      claims.by_chi_square, lambda: claims.VISITED),
        same_gradient("with KL it pays -weight d", lambda: recipe(divergence=k1), claims.by_kl, lambda: claims.VISITED),
        same_gradient("no decision pays or is paid more than the limit", lambda: recipe(weight=30.0), claims.clipped,
                      lambda: claims.VISITED),
        same_gradient("answers pay by the product of their tokens' ratios, once", lambda: recipe(LANGUAGE),
                      claims.answers_by_hand),
        Exact("infinite ratios pay nothing", lambda: probes.last_paid(recipe(), probes.outcomes(0.0), lambda *given:
              torch.full((1, 1, 1), torch.inf)), equals=0.0),
        Exact("the penalty's policy gradient points along that of sqrt(chi2) of the visits",
              lambda: claims.direction_gap(recipe()), equals=0.0, tolerance=1e-9),
        Exact("the sprinkler looks worth 1 a decision and is worth 0; both are logged, the score is the true one",
              lambda: claims.hacked(recipe()), equals=0.0),
        Measured("best true return over weights is above that of a KL of actions; refuted where that matches it", "",
                 lambda seed: claims.best_true_return([recipe(weight=weight) for weight in (0.1, 0.3, 1.0)], seed),
                 lambda seed: claims.best_true_return([action_kl(weight) for weight in (0.01, 0.03, 0.1)], seed),
                 margin=10.0, seeds=5, minutes=4.0),
    ),
)  # fmt: skip
