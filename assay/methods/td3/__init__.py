"""td3: twin critics, smoothed targets, a delayed deterministic actor.

    y = r + discount * (1 - terminal) * min_i Q'_i(s', clip(mu'(s') + clip(noise, -0.5, 0.5)))
    critics: sum_i (Q_i(s, a) - y)^2 / 2,   actor every second update: -Q_1(s, mu(s))

Fujimoto et al. 2018.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.spaces import Box, Spec
from assay.recipes.defaults import CONTINUOUS

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,), (2.0,)), horizon=10)


def largest_action() -> torch.Tensor:
    """Returns the largest action for a large network output: it stays inside the task's bounds."""
    actor: Any = recipes.td3().actor.build(SPEC)
    return (
        actor.decide({"observation": 1e3 * torch.randn(64, 3, generator=torch.Generator().manual_seed(0))}).abs().max()
    )


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    data, models = seen.experience, seen.models
    now, after = data.context["observation"][:, 0], data.context["observation"][:, 1]
    low, high = torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 0.5])

    def decide(name: str, observation: torch.Tensor) -> torch.Tensor:
        return (low + high) / 2 + (high - low) / 2 * models[name].body({"observation": observation}).tanh()

    def q(name: str, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return models[name]({"observation": observation.unsqueeze(1)}, action.unsqueeze(1)).squeeze(-1)

    uniform = seen.uniform(1, 2, tag=2)[:, 0].double()
    noise = (0.2 * 2**0.5 * torch.erfinv(2 * uniform - 1)).clamp(-0.5, 0.5) * (high - low) / 2
    next_action = torch.minimum(torch.maximum(decide("actor_target", after) + noise, low), high)
    ends, here = data.terminal[:, 0].double(), data.mask[:, 0]
    target = data.reward[:, 0] + 0.99 * (1 - ends) * q("q_target", after, next_action).min(0).values
    error = (q("q", now, data.action[:, 0]) - target.detach())[:, here]
    return {"critic": error.square().sum(0).mean() / 2, "actor": -q("q", now, decide("actor", now))[0, here].mean()}


METHOD = Method(
    paper="arXiv:1802.09477",
    recipe=recipes.td3,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    departures=(
        "Adam 1e-3 for both networks, as in the paper (their later code has 3e-4)",
        "8 steps alternate with 8 updates",
        "noise decays from the half-range to a tenth of it over a fifth of the steps; theirs starts with random ones",
    ),
    claims=(
        Exact(
            "its gradients are those of the formulas",
            lambda: probes.formula_gap(recipes.td3(), probes.transitions(), losses_by_hand, probes.BOX_SPEC),
            at_most=1e-6,
        ),
        Exact("actions stay inside the bounds", largest_action, at_most=2.0),
        Measured("swings the pendulum up: return above -300", "pendulum", recipes.td3(), -300.0, seeds=5, minutes=5),
    ),
)
