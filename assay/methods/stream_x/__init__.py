"""stream-x: one update per decision, nothing stored; traces with step sizes bounded against overshooting.

    z <- discount * lambda * z + grad output;   delta = r + discount * V(s') - V(s)
    w <- w + min(1, 1 / (kappa * max(|delta|, 1) * |z|_1)) * delta * z
    outputs: V(s), and log pi(a|s) + 0.01 * sign(delta) * H(pi(.|s))

Elsayed, Vasan & Mahmood 2024. With sparse weights, layer norm, and running scales of observations and rewards one
untuned setting learns without replay, batches or a target network. Stream Q is `stream_x.base.stream_q`.
"""

import torch

from assay import recipes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.optimizers import ObGD, Traced
from assay.methods.stream_x.base import plain_ac, stream_ac, stream_q
from assay.recipes.defaults import CONTINUOUS, CONTROL

DELTAS_T = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64) ** 3


def longest_step() -> float:
    """Returns the largest |change|_1 * kappa over gradients and errors of all sizes."""
    optimizer, longest = Traced(ObGD(kappa=3.0), 0.8), 0.0
    values = [torch.zeros(7, dtype=torch.float64)]
    state = optimizer.init(values)
    for t, delta in enumerate(DELTAS_T):
        before, gradient = values[0].clone(), 10.0 ** (t % 9 - 4) * torch.sin(torch.arange(7.0).double() + t)
        optimizer.step(values, [gradient], {"td_error": [(delta, torch.ones(()))]}, state)
        longest = max(longest, 3.0 * float((values[0] - before).abs().sum()))
    return longest


def forward_minus_backward() -> torch.Tensor:
    """Returns sum_t delta_t z_t - sum_t (G_t^lambda - V(s_t)) grad V(s_t) of a fixed linear critic."""
    feature_TF = torch.sin(torch.arange(36.0).double()).view(9, 4)
    value_T = feature_TF @ torch.tensor([0.3, -1.0, 0.5, 2.0]).double()
    reward_T, next_T = torch.cos(value_T), torch.cat([value_T[1:], value_T.new_zeros(1)])
    optimizer, moved = Traced(ObGD(kappa=1e-12), 0.9 * 0.7), [torch.zeros(4, dtype=torch.float64)]
    state = optimizer.init(moved)
    for feature, delta in zip(feature_TF, reward_T + 0.9 * next_T - value_T, strict=True):
        optimizer.step(moved, [-feature], {"td_error": [(delta, torch.ones(()))]}, state)
    gain, forward = 0.0, torch.zeros(4, dtype=torch.float64)
    for feature, reward, value, after in reversed(list(zip(feature_TF, reward_T, value_T, next_T, strict=True))):
        gain = reward + 0.9 * (0.3 * after + 0.7 * gain)
        forward += (gain - value) * feature
    return (moved[0] - forward).abs().max()


METHOD = Method(
    paper="arXiv:2410.14606",
    recipe=stream_ac,
    worlds=(CONTROL, CONTINUOUS),
    default_task="cartpole",
    family="value-based",
    base=recipes.a2c,
    aliases=("stream-ac",),
    variants={"stream-q": stream_q},
    departures=(
        "truncated episodes bootstrap (the authors' code ends them), so no time is added to the observations",
        "each unit keeps at least one input: on few inputs the authors' initial first layer is all zero",
        "both contexts of a decision use the current moments; population variance; first contexts not counted",
        "the reward's trace restarts after an episode; a Gaussian's deviation does not depend on the state",
        "stream Q cuts its trace before an exploring decision, as the pseudo-code says, not after it as the code does",
    ),
    claims=(
        Exact("no step is longer than 1 / kappa", longest_step, at_most=1.0 + 1e-9),
        Exact("traces add up to the lambda-return's update", forward_minus_backward, equals=0.0, tolerance=1e-9),
        Measured(
            "untuned, it earns more from a stream than AC(lambda) with Adam",
            "cartpole",
            stream_ac(),
            plain_ac(),
            metric=Average("reward", share=0.2),
            seeds=5,
            minutes=7.0,
            steps=10_000,
        ),
    ),
)
