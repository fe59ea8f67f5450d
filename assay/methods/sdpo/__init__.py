"""sdpo: the policy, given a correct answer of the group as context, distils itself token by token.

    loss = sum_t D(pi(.|x, y_<t), q(.|x, f, y_<t)),   q = the same model (or its target network) after the feedback f
    for D = KL(pi || q) a policy gradient with advantages A_t(v) = log q(v) - log pi(v) for every token v

Huebotter et al. 2026. An outcome does not say which token was wrong; a model that can read feedback knows it in
hindsight. y is the policy's own; q costs one more forward pass and nothing is sampled from it.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Copy, Phase, Recipe
from assay.methods.sdpo.objectives import Distil, jensen_shannon, reverse_kl
from assay.methods.sdpo.source import ShownTwice
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.recipes.defaults import LANGUAGE, Defaults

LOGITS_A, TEACHER_A = torch.tensor([[1.0, -0.5, 0.3, -2.0], [-1.0, 0.5, 2.0, 0.0]], dtype=torch.float64)


def recipe(world: Defaults = LANGUAGE, rate: float = 0.05) -> Recipe:
    base = recipes.grpo(world)
    stages = (replace(base.stages[0], objective=(Distil(jensen_shannon),)),)
    return replace(base, name="sdpo", stages=stages, copies={"teacher": Copy(of="actor", rate=rate)})


def reading(one: Recipe, steps: int = 200) -> Recipe:
    """Returns the recipe after a phase in which the small model learns to use an answer in its context."""
    phase = Phase("in-context", replace(recipes.sft(), actor=one.actor, source=ShownTwice(32, 4)), steps)
    return replace(one, before=(phase,))


def pull(learner: Recipe, arm: int) -> torch.Tensor:
    """Returns d loss / d logits of one pull, with the teacher's log-ratio as its credit."""
    record, logq = probes.bandit_experience([arm], [1.0], LOGITS_A), TEACHER_A.log_softmax(-1)
    columns = {"teacher_logp": logq.view(1, 1, -1), "advantage": logq[arm] - record.logp}
    return probes.gradient(learner, record.add(columns), probes.table_of(LOGITS_A.unsqueeze(0)))["body.table"][0]


def by_divergence() -> Recipe:
    return replace(recipe(), stages=(replace(recipe().stages[0], objective=(Distil(reverse_kl),)),))


def by_sampled_tokens(world: Defaults = LANGUAGE) -> Recipe:
    base = recipe(world)
    return replace(base, stages=(replace(base.stages[0], objective=(PolicyGradient(trust=NoTrust()),)),))


def distance_of_expected_steps() -> torch.Tensor:
    tokens = torch.stack([pull(by_sampled_tokens(), arm) for arm in range(4)])
    return (LOGITS_A.softmax(-1) @ tokens - pull(by_divergence(), 0)).norm()


def spread_over_sampled_tokens() -> torch.Tensor:
    return torch.stack([pull(by_divergence(), arm) for arm in range(4)]).var(0).sum()


METHOD = Method(
    "arXiv:2601.20802", recipe, worlds=(LANGUAGE,), default_task="sorting-5",
    family="distillation",
    base=recipes.grpo,
    variants={"sampled-tokens": by_sampled_tokens},
    departures=(
        "feedback is a correct answer of the same group, the paper's setting without text from the environment",
        "it is shown as a solved example before the prompt, without words around it; all logits instead of the top 100",
        "the teacher scores once per step, when answers are gathered",
        "a small model cannot read feedback by itself: the claims have a phase that teaches it, for both sides",
    ),
    claims=(
        Exact("its step is what the token's log-ratio as credit gives on average",
              distance_of_expected_steps, equals=0.0),
        Exact("and does not depend on which token was sampled", spread_over_sampled_tokens, equals=0.0),
        Measured("scores higher than grpo at equal samples", "sorting-6", reading(recipe()), reading(recipes.grpo()),
                 seeds=5, steps=40, warmup=0),
    ),
)  # fmt: skip
