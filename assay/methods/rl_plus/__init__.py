"""rl-plus: adds demonstrations to the groups, weighted by multiple importance sampling, more where unlikely.

    loss = mean_i 1/|y_i| sum_t { -min(rho_t A_i, clip(rho_t) A_i)         own answers
                                { -r_t (1 - pi(e_t))^0.5 A_i               demonstrations e
    r_t = 2 pi(e_t) / (pi_old(e_t) + pi_other(e_t)),   pi_other = (pi_old + uniform) / 2

Dong et al. 2025. What the policy never samples cannot be reinforced: grpo sharpens and does not reach beyond its
start. A demonstration enters its group's mean; the balanced ratio needs no model of its author, and has little
variance.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import Origin
from assay.methods.rl_plus.objectives import HybridPolicy
from assay.methods.rl_plus.rollout import WithDemonstrations
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

NOW, OLD, REWARD = torch.tensor([[2, 0.5, -1, -4], [1.5, 1, -0.5, -3], [0.2, -1, 0.5, 3]], dtype=torch.float64)


def mixed(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo with demonstrations of recorded probability 1: naive importance sampling."""
    assert world.episodes is not None
    return replace(recipes.grpo(world), name="grpo-mixed", rollout=WithDemonstrations(world.episodes))


def recipe(world: Defaults = LANGUAGE, focus: float = 0.5, uniform: float = 1.0) -> Recipe:
    policy = replace(mixed(world).stages[0], objective=(HybridPolicy(Clip(), focus, uniform, SequenceMean()),))
    return replace(mixed(world), name="rl-plus", stages=(policy,))


def push(focus: float, uniform: float, source: Origin = Origin.TEACHER, learner: Recipe | None = None) -> torch.Tensor:
    """Returns -d loss / d logp of each arm, times their number; every arm once, its reward as credit."""
    record = probes.bandit_experience(range(4), REWARD, OLD).with_columns(source=torch.full((4,), int(source)))
    record = record.add({"advantage": record.reward, "logp_shown": record.logp})
    logp = NOW.log_softmax(-1).unsqueeze(1)
    return 4 * probes.decision_weights(learner or recipe(LANGUAGE, focus, uniform), record, logp)[:, 0]


def bias_of_two_samplers() -> torch.Tensor:
    """Compares one sample of pi_old and one of pi_other, both weighted by r, with E_pi[reward], in its slope."""
    old = OLD.softmax(-1)
    return ((old + (old + 0.25) / 2) / 2 * push(0.0, 0.25) - NOW.softmax(-1) * REWARD).abs().max()


def second_moment_against_naive() -> torch.Tensor:
    """Returns E r^2 over E (pi / pi_other)^2 where pi_other rarely takes the policy's preferred action."""
    other, now = torch.tensor([1e-3, 0.3, 0.3, 0.399]).double(), NOW.log_softmax(-1)
    ratio = HybridPolicy(uniform=0.25).balanced_ratio(now, OLD.log_softmax(-1))
    return (other * ratio.square()).sum() / (other * (now.exp() / other).square()).sum()


def distance_from_grpo() -> torch.Tensor:
    return (push(0.5, 0.25, Origin.POLICY) - push(0.5, 0.25, learner=recipes.grpo())).norm()


METHOD = Method(
    "arXiv:2508.00222", recipe, EVERY, default_task="countdown",
    family="guidance",
    base=recipes.grpo,
    variants={"grpo-mixed": mixed},
    departures=(
        "eight own answers and one demonstration in a group instead of seven and one",
        "the uniform policy's probability is 1, as in the released code, instead of 1 over the vocabulary",
        "own answers as in the paper (clip, deviation, mean within a sequence), which the released script switches off",
    ),
    claims=(
        Exact("sampling from both and weighing by r is unbiased", bias_of_two_samplers, equals=0.0),
        Exact("r's second moment is below a tenth of the plain ratio's", second_moment_against_naive, at_most=0.1),
        Exact("without demonstrations it is grpo", distance_from_grpo, equals=0.0),
        Measured("scores higher than grpo where right answers are rare", "sorting-10", recipe(), recipes.grpo(),
                 seeds=5, steps=40, warmup=60),
        Measured("scores higher than naive importance sampling of the demonstrations", "sorting-10", recipe(), mixed(),
                 seeds=5, steps=40, warmup=60),
    ),
)  # fmt: skip
