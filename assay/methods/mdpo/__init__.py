"""mdpo: several gradient steps on the surrogate with a KL to the acting policy, instead of a clip or constraint.

    loss = mean_t [ -rho_t A_t + KL(pi || pi_old) / step ],   step = 1 - k/K at iteration k of K

Tomar et al. 2020. Mirror descent in policy space: the exact solution of each iteration is pi_old exp(step A) / Z.
trpo makes the KL a constraint, ppo a clip; with a uniform policy in place of pi_old the solution is sac's.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.schedules import Linear
from assay.methods.mdpo.objectives import MirrorDescent
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import CONTROL, EVERY, Defaults

OLD_A = torch.tensor([0.7, -0.4, 0.1, -1.0], dtype=torch.float64)
ADVANTAGE_A = torch.tensor([1.5, -0.5, 0.2, -2.0], dtype=torch.float64)


def recipe(world: Defaults = CONTROL, step_size: float | Linear = Linear(1.0, 0.0)) -> Recipe:
    base = recipes.ppo(world)
    objective = PolicyGradient(trust=MirrorDescent(step_size))
    policy = replace(base.stages[0], objective=(objective,), regularizers=())
    return replace(base, name="mdpo", stages=(policy, *base.stages[1:]))


def expected_gradient(new_A: torch.Tensor, old_A: torch.Tensor, step_size: float, credit: float = 1.0) -> torch.Tensor:
    """Returns d/d logits of the expected loss: every arm once, weighted by the acting policy's probability."""
    arms = probes.bandit_experience(range(4), [0.0] * 4, old_A).add({"advantage": credit * ADVANTAGE_A.unsqueeze(1)})
    push_A = 4.0 * probes.decision_weights(recipe(step_size=step_size), arms, new_A.log_softmax(-1).unsqueeze(1))[:, 0]
    pull_A = old_A.softmax(-1) * push_A
    return new_A.softmax(-1) * pull_A.sum() - pull_A


def slope_at_solution(old_A: torch.Tensor) -> torch.Tensor:
    return expected_gradient(old_A + 0.5 * ADVANTAGE_A, old_A, 0.5).abs().max()


def distance_from_kl() -> torch.Tensor:
    """Returns the gradient without credit minus that of KL(pi || pi_old) / step, computed from the whole
    distributions.
    """
    logits = (OLD_A.flip(0) * 2.0).requires_grad_()
    log_ratio = logits.log_softmax(-1) - OLD_A.log_softmax(-1)
    (slope,) = torch.autograd.grad((logits.softmax(-1) * log_ratio).sum() / 0.3, logits)
    return (expected_gradient(logits.detach(), OLD_A, 0.3, credit=0.0) - slope).abs().max()


def distance_from_policy_gradient() -> torch.Tensor:
    exact = probes.exact_bandit_gradient(OLD_A, ADVANTAGE_A)
    return (expected_gradient(OLD_A, OLD_A, 0.3) + exact).abs().max()


METHOD = Method(
    paper="arXiv:2005.09814",
    recipe=recipe,
    worlds=EVERY,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=(
        "the KL is estimated from the recorded decisions, without bias; the authors' is in closed form",
        "minibatches, epochs and the value network's steps are ppo's here; the authors take m full-batch steps",
        "on-policy only: the off-policy variant is not built",
    ),
    claims=(
        Exact("the loss is stationary at pi_old exp(step A) / Z", lambda: slope_at_solution(OLD_A), equals=0.0),
        Exact("from a uniform policy that is sac's softmax", lambda: slope_at_solution(0.0 * OLD_A), equals=0.0),
        Exact("its proximity term has the gradient of KL(pi || pi_old)", distance_from_kl, equals=0.0),
        Exact("its first step is the policy gradient: the KL needs several", distance_from_policy_gradient, equals=0.0),
        Measured("several steps an iteration score higher than one", "cartpole", recipe(),
                 replace(recipe(), source=FreshSequences()), seeds=5, minutes=3.0),
        Measured("mean return over the run is no lower than ppo's, by 25 of 500", "cartpole", recipe(), recipes.ppo(),
                 metric=Average("evaluation"), margin=-25.0, seeds=5, minutes=3.0),
    ),
)  # fmt: skip
