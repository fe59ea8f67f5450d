"""What orpo-occupancy's parts compute, against formulas of their own. Axes: B, T, S states, A actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Origin
from assay.core.slots import Scene
from assay.engine.evaluation import scores
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.tomato import STAY, tomato

TOMATO = tomato()
VISITED = probes.of_origins(probes.fragments(), Origin.POLICY, Origin.DATASET)


def rooted(d: Tensor, there: Tensor) -> Tensor:
    """(e^d - 1) / sqrt(c), c the mean over samples without a hundredth at each end."""
    excess = d.exp() - 1.0
    kept = sorted(excess[there].tolist())
    kept = kept[len(kept) // 100 : len(kept) - len(kept) // 100]
    return excess / (sum(kept) / len(kept)) ** 0.5


def losses_by_hand(
    seen: probes.Seen, worth: Callable[[Tensor, Tensor], Tensor] = rooted, weight: float = 0.2
) -> dict[str, Tensor]:
    data, mask, base = seen.experience, seen.experience.mask, (torch.arange(64) % 2 == 1).unsqueeze(1)
    logit = seen.models["discriminator"].body.table[data.context["state"], data.action, 0]
    told = by_hand.logistic(logit, 1.0)[mask & ~base].mean() + by_hand.logistic(logit, 0.0)[mask & base].mean()
    paid = data.reward - (weight * worth(logit.detach(), mask)).clamp(-10.0, 10.0) * mask
    penalised = replace(seen, experience=replace(data, reward=paid))
    return {"discriminator": told, **by_hand.ppo_losses(penalised, 0.99, 0.95, 0.003 * by_hand.entropy(seen))}


by_chi_square = partial(losses_by_hand, worth=lambda d, there: d.exp() - 1.0)
by_kl = partial(losses_by_hand, worth=lambda d, there: d)
clipped = partial(losses_by_hand, weight=30.0)


def answers_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data = seen.experience
    d = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0).sum(1)
    paid = 0.2 * rooted(d, data.mask.any(1)).unsqueeze(1) * (data.terminal | data.truncated)
    return by_hand.ppo_of_tokens(replace(seen, experience=replace(data, reward=data.reward - paid)))


# ---------------------------------------------------------------------------------------------------- tables
def occupancy(logits_SA: Tensor, P_SAS: Tensor, discount: float = 0.9) -> Tensor:
    """Discounted visits [S, A] of a softmax table from state 0; they sum to 1."""
    policy = logits_SA.softmax(-1)
    moves = torch.einsum("sa,sax->sx", policy, P_SAS)
    eye = torch.eye(len(moves), dtype=torch.float64)
    return (1 - discount) * torch.linalg.solve(eye - discount * moves.T, eye[0]).unsqueeze(1) * policy


def direction_gap(recipe: Recipe) -> Tensor:
    """1 - cosine of the gradient of sqrt(chi2) of the visits and the policy gradient of the recipe's penalty, d fixed,
    on a random table.
    """
    draw = torch.Generator().manual_seed(0)
    P, logits, other = (torch.rand(*size, generator=draw).double() for size in ((4, 3, 4), (4, 3), (4, 3)))
    P, logits = P / P.sum(-1, keepdim=True), (3.0 * logits).requires_grad_()
    mu, base = occupancy(logits, P), occupancy(3.0 * other, P)
    d = (mu.detach() / base).log().view(1, 12, 1)
    cost = -probes.last_paid(recipe, probes.outcomes(*[0.0] * 12), lambda context, action: d).view(4, 3)
    wanted = ((mu.square() / base).sum() - 1.0).sqrt()
    one, other = (torch.autograd.grad(of, logits, retain_graph=True)[0] for of in (wanted, (mu * cost).sum()))
    return 1.0 - torch.cosine_similarity(one.flatten(), other.flatten(), dim=0)


def hacked(recipe: Recipe) -> float:
    """Proxy minus true return of an episode that goes around to the sprinkler and stays, as rewarded and as logged,
    minus all decisions but the first two, each time.
    """
    first, scene, way = np.zeros(1, np.int64), Scene(TOMATO), torch.tensor([STAY, 1, 2, STAY, 0, STAY])
    seen = TOMATO.play(Scripted(lambda at: way[at["state"] // 8]), first, first, Draw(0), split=0, greedy=True)
    for part in recipe.rewards[:2]:
        seen = part(seen, scene)
    logged = scene.metrics["reward/proxy"][0][0] - scene.metrics["reward/true"][0][0]
    return float((seen.reward * seen.mask).sum() - seen.column("score")[0]) + logged - 2.0 * (TOMATO.spec.horizon - 2)


def best_true_return(sweep: Sequence[Recipe], seed: int, steps: int = 60) -> float:
    """The largest true return on held-out starts among these recipes, each trained on the proxy from one base."""
    first = sweep[0].before[0]
    base = probes.trained(first.recipe, TOMATO, seed, first.steps).actor
    loops = [probes.trained(replace(recipe, before=()), TOMATO, seed, steps, base) for recipe in sweep]
    return max(float(scores(loop.actor, TOMATO, num=50, greedy=False).mean()) for loop in loops)
