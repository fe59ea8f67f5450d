"""reinflow: learned noise along a flow policy's path gives it a likelihood, so that ppo applies unchanged.

    x_0 ~ N(0, I);   x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;   action = x_K
    log pi(path | s) = log N(x_0; 0, I) + sum_k log N(x_(k+1); x_k + v / K, sigma^2),   loss = ppo's, ratio of paths

Zhang et al. 2025. Exact for any number of steps, one included; sigma is bounded on both sides, and without it the
flow is deterministic. The flow is first cloned from offline data by flow matching; velocity and noise are trained
together.
"""

from dataclasses import replace
from typing import Any

import torch

from assay import recipes
from assay.claims.claim import Exact, Gain, Measured, Method
from assay.core.record import Experience, Need
from assay.methods.reinflow.base import flow_matching, reinflow
from assay.methods.reinflow.claims import nodes, path_gradient_error, small_actor, walked_record
from assay.methods.reinflow.models import Flow
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Policy
from assay.recipes.defaults import CONTINUOUS

LOGP, BODY = frozenset({Need.LOGP}), Perceptron((8, 8))


def paths_of(actor: Policy) -> tuple[Any, Experience]:
    """Returns a small actor and its paths at 5 quadrature nodes of each normal variable."""
    module = small_actor(replace(reinflow(), actor=actor))
    return module, walked_record(module, nodes(module.num_draws, 5)[0])[0]


def gradient_error(steps: int) -> torch.Tensor:
    recipe = reinflow(actor=Policy(BODY, Flow(steps)))
    return path_gradient_error(recipe, lambda end: (2.0 * end[:, 0]).sin() + end[:, 0].square(), num=14)


def one_step_error() -> Any:
    """Compares one step with a Gaussian actor whose observation includes x_0, up to x_0's own density."""
    flow, record = paths_of(Policy(BODY, Flow(1)))
    start, end = record.column("path")[:, 0, :, 0].unbind(1)
    seen = record.context["observation"][:, 0]
    mean = start + flow.velocity((len(seen),), seen, flow.times[0], start.unsqueeze(1))[:, 0]
    gaussian = torch.distributions.Normal(mean, flow.log_std(seen)[:, 0, 0].exp()).log_prob(end)
    given = gaussian + torch.distributions.Normal(0.0, 1.0).log_prob(start)
    return (flow.score(record, LOGP).logp[:, 0] - given).abs().max()


def recorded_error() -> Any:
    actor, record = paths_of(Policy(BODY, Flow(3)))
    return (actor.score(record, LOGP).logp - record.logp).abs().max()


def noise_beyond_bounds() -> torch.Tensor:
    actor, seen = small_actor(reinflow()), 1e3 * torch.linspace(-1.0, 1.0, 30).double().view(10, 3)
    sigma = actor.log_std(seen).exp()
    return torch.maximum(0.08 - sigma, sigma - 0.4).max()


METHOD = Method(
    paper="arXiv:2505.22094",
    recipe=reinflow,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    variants={"flow-matching": flow_matching},
    departures=(
        "the ratio is the path's, as the paper writes it; the code takes the geometric mean of its factors, clip 0.01",
        "steps, noise and the stored end are not clipped, only the executed action: the recorded density is exact",
        "deterministic means from x_0 = 0; the authors still draw x_0. One action per decision, no chunks",
        "no shortcut models, no schedule of the noise bounds, no warm-up of the critic, no distance to the cloned flow",
        "one dataset of a scripted expert with noise, not D4RL or Robomimic",
    ),
    claims=(
        Exact("two steps: the expected update is the return's gradient", lambda: gradient_error(2), at_most=1e-9),
        Exact("one step is a Gaussian that sees x_0", one_step_error, at_most=1e-12),
        Exact("what acting records is what scoring finds", recorded_error, at_most=1e-12),
        Exact("the noise stays inside its bounds", noise_beyond_bounds, at_most=1e-9),
        Measured("raises the return of the flow it starts from", "pendulum", reinflow(), 0.0,
                 metric=Gain(), seeds=5, minutes=3.0, steps=40),
        Measured("learned noise ends above fixed small noise", "pendulum", reinflow(),
                 reinflow(actor=Policy(head=Flow(noise=(0.08, 0.08)))), seeds=5, minutes=6.0, steps=40),
    ),
)  # fmt: skip
