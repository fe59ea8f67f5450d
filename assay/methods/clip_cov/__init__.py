"""clip-cov: grpo without the policy gradient of the few tokens that would cost most entropy.

    c_t = (log pi(a_t) - mean log pi) (A_t - mean A);  A_t <- 0 for a random share of the tokens with low < c_t < high
    kl_cov instead adds to the loss: coefficient * |log pi(a_t) - log pi_old(a_t)| on the share with the largest c_t

Cui et al. 2025. A step changes the entropy by minus the covariance of log-probability and advantage; few tokens make
up most of it.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.clip_cov.credit import DropHighCovariance, MarkHighCovariance
from assay.methods.clip_cov.regularizers import KlWhereMarked
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Unclipped
from assay.parts.regularizers.divergence import EntropyBonus
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

SHARE = 0.01
LOGITS_A, REWARD_A = torch.tensor([1.5, 0.2, -0.7], dtype=torch.float64), torch.tensor([0.2, 1.0, 0.0])
PULLS = probes.bandit_experience([0, 2, 0, 1, 0, 2, 0, 1], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], LOGITS_A)
PULLS = PULLS.add({"start": PULLS.group, "sample": torch.arange(8)})  # type: ignore[dict-item]


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = recipes.grpo(world)
    return replace(base, name="clip-cov", credit=(*base.credit, DropHighCovariance(SHARE)))


def kl_cov(world: Defaults = LANGUAGE) -> Recipe:
    base, sequences = recipes.grpo(world), SequenceMean()
    objective = PolicyGradient(trust=Unclipped(), aggregate=sequences)
    stage = replace(base.stages[0], objective=(objective,), regularizers=(KlWhereMarked(aggregate=sequences),))
    return replace(base, name="kl-cov", stages=(stage,), credit=(*base.credit, MarkHighCovariance(SHARE)))


def watched(one: Recipe) -> Recipe:
    """Returns the recipe with its entropy among the metrics, without an entropy bonus."""
    stage = one.stages[0]
    return replace(one, stages=(replace(stage, regularizers=(*stage.regularizers, EntropyBonus(0.0))),))


def entropy_slope_plus_covariance() -> torch.Tensor:
    """Returns the slope of the entropy along the expected policy gradient, plus Cov(log pi, step)."""
    step, logits = -probes.expected_gradient(recipes.rloo(), LOGITS_A, REWARD_A, members=2), LOGITS_A.clone()
    logp = logits.requires_grad_().log_softmax(-1)
    mean = (logp.exp() * logp).sum()
    (slope,) = torch.autograd.grad(-mean, logits, retain_graph=True)
    return (slope * step).sum() + (logp.exp() * (logp - mean) * step).sum()


def distance_from_grpo_elsewhere() -> torch.Tensor:
    ours, theirs = (probes.decision_weights(one, PULLS, PULLS.logp) for one in (recipe(), recipes.grpo()))
    left_out = probes.credited(recipe(), PULLS).column("dropped")
    return (ours - theirs * ~left_out).abs().max() + abs(int(left_out.sum()) - 1)


METHOD = Method(
    paper="arXiv:2505.22617",
    recipe=recipe,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    variants={"kl-cov": kl_cov},
    departures=(
        "covariances are computed once per step, on all fresh tokens with their recorded log-probabilities",
        "the share is 1 % instead of 0.02 %: a step here has 1500 tokens, not millions",
    ),
    claims=(
        Exact("entropy falls by Cov(log pi, step)", entropy_slope_plus_covariance, equals=0.0),
        Exact("one token is left out, the others are grpo's", distance_from_grpo_elsewhere, equals=0.0),
        Measured("keeps more entropy than grpo", "sorting-5", watched(recipe()), watched(recipes.grpo()),
                 Average("entropy", 0.2), seeds=5, steps=100, warmup=60),
        Measured("so does kl_cov", "sorting-5", watched(kl_cov()), watched(recipes.grpo()),
                 Average("entropy", 0.2), seeds=5, steps=100, warmup=60),
    ),
)  # fmt: skip
