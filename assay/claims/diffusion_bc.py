"""Claims of diffusion-bc: its loss and its paths by hand, measured claims. Axes: B, T decisions, K = 10 steps."""

from functools import partial
from math import exp
from typing import Any

import torch
from torch import Tensor

from assay.claims import UNMASKED, Claims, Edit, Exact, built, has_two_modes, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.methods.diffusion_bc import recipe
from assay.models.heads.diffusion import DiffusionPolicy, alphas
from assay.parts import Log


def alphas_by_hand(num: int) -> list[float]:
    """Returns alpha_k = exp(-0.1 / K - 9.9 (2 k - 1) / (2 K^2)) of k = 1, ..., K."""
    return [exp(-0.1 / num - 9.9 * (2 * k - 1) / (2 * num**2)) for k in range(1, num + 1)]


def noise_of(actor: Any, seen: Tensor, k: Tensor, point: Tensor, num: int) -> Tensor:
    """Returns the predicted noise at step k of the path."""
    times = steps.times((k.double() / num).unsqueeze(-1))
    found: Tensor = actor.noise.net(torch.cat((seen, times.expand(*seen.shape[:-1], 4), point), -1))
    return found


def loss_by_hand(seen: probes.Seen, num: int = 10) -> Tensor:
    data, uniform = seen.experience, seen.uniform(2, 3, tag=3)
    k = num - (num * uniform[..., 0]).long()
    total = torch.tensor(alphas_by_hand(num)).double().cumprod(0)[k - 1].unsqueeze(-1)
    noise = steps.normal(uniform[..., 1:])
    point = total.sqrt() * (data.action - steps.CENTRE) / steps.HALF + (1 - total).sqrt() * noise
    found = noise_of(seen.models["actor"], data.context["observation"], k, point, num)
    return (found - noise).square().sum(-1)[data.mask].mean()


def walk_gap(num: int = 10) -> float:
    """Returns the largest gap of sampled actions to denoising by hand, with noise and without any."""
    actor: Any = built(recipe(), probes.BOX_SPEC).models["actor"]
    seen = probes.transitions(num=64).context["observation"][:, 0]
    uniform = torch.rand(64, 2 * num, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    alpha, gap = torch.tensor(alphas_by_hand(num)).double(), 0.0
    total = alpha.cumprod(0)
    for given in (uniform, None):
        noise = torch.zeros(64, num, 2).double() if given is None else steps.normal(given).view(64, num, 2)
        point = noise[:, 0]
        for place, k in enumerate(range(num, 0, -1)):
            eps = noise_of(actor, seen, torch.full((64,), k), point, num)
            mean = (point - (1 - alpha[k - 1]) / (1 - total[k - 1]).sqrt() * eps) / alpha[k - 1].sqrt()
            point = mean.clamp(-1.0, 1.0)
            if k > 1:
                point = point + (1 - alpha[k - 1]).sqrt() * noise[:, place + 1]
        action, _ = actor.act({"observation": seen}, given)
        gap = probes.worst(gap, float((action.detach() - (steps.CENTRE + steps.HALF * point.detach())).abs().max()))
    return gap


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the formula", recipe, loss_by_hand, partial(probes.transitions, num=64),
                      probes.BOX_SPEC, 1e-6),
        same_gradient("with another number of steps its gradient is that of the formula", partial(recipe, steps=4),
                      partial(loss_by_hand, num=4), partial(probes.transitions, num=64), probes.BOX_SPEC, 1e-6,
                      of="steps"),
        Exact("an action is the end of ten denoising steps", walk_gap, at_most=1e-5),
        reads_dataset(lambda: recipe(log=Log(3))),
        *has_two_modes(recipe),
    ),
    mutants=(
        Edit("the clean action is regressed", DiffusionPolicy.misfit, "point) - noise)", "point) - goal)"),
        Edit("noise of one size", DiffusionPolicy.misfit, "(1.0 - total).sqrt() * noise", "noise"),
        Edit("steps are not scaled back", DiffusionPolicy.denoised, " / alpha.sqrt())", ")"),
        Edit("a schedule of equal steps", alphas, "(2.0 * k - 1.0) / steps**2", "1.0 / steps"),
        UNMASKED,
    ),
)
