"""What orpo-occupancy's parts compute, against formulas of their own. Axes: B, T, S states, A actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin, Scored
from assay.core.slots import Scene
from assay.engine.evaluation import scores
from assay.ops.random import uniform_tensor
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.tomato import FIRST, STAY, tomato

MU, BASE = torch.tensor([0.2, 0.3, 0.5]).double(), torch.tensor([0.5, 0.3, 0.2]).double()
RATIO = (MU / BASE).log()
VISITS = (0, 0, 1, 1, 1, 2, 2, 2, 2, 2)
"""Ten decisions in the proportions of MU."""
TOMATO = tomato()


@dataclass(frozen=True)
class Known:
    """A model whose output for an action, and whose log-probability of it, is given."""

    value_A: Tensor

    def __call__(self, context: Any, action: Tensor) -> Tensor:
        """[1, B, T]."""
        return self.value_A[action].unsqueeze(0)

    def score(self, rows: Experience, needs: Any) -> Scored:
        """[B, T]."""
        return Scored(self.value_A[rows.action] * rows.mask)

    def model(self, name: str) -> Known:
        """Itself, under every name."""
        return self

    def over(self, name: str, rows: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """All rows at once."""
        return function(self, rows)


def taken(action: Sequence[Sequence[int]], there: Sequence[Sequence[int]] | None = None) -> Experience:
    """These decisions, with reward 0; all of them where nothing else is said."""
    choice = torch.tensor(action)
    mask = torch.ones_like(choice).bool() if there is None else torch.tensor(there).bool()
    zero, no = torch.zeros(choice.shape, dtype=torch.float64), torch.zeros_like(mask)
    return Experience({"state": 0 * choice}, choice, mask, zero, zero, no, no)


def paid(recipe: Recipe, rows: Experience, model: Known) -> Tensor:
    """What the recipe's last reward adds, [B, T]."""
    return recipe.rewards[-1](rows, Scene(models=model)).reward


def penalty_gap(recipe: Recipe, worth_A: Sequence[float], weight: float) -> Tensor:
    """Largest gap to -weight * D on MU's visits, beside a masked row and one whose ratio is infinite."""
    rows = taken([*([action] for action in VISITS), [3], [4]], [*([1] for _ in VISITS), [0], [1]])
    found = paid(recipe, rows, Known(torch.cat([RATIO, torch.tensor([9.0, torch.inf]).double()])))
    wanted = [-weight * worth_A[action] for action in VISITS]
    return (found.squeeze(1) - torch.tensor([*wanted, 0.0, 0.0])).abs().max()


def answer_gap(recipe: Recipe) -> Tensor:
    """Largest gap of the penalty on answers of 3 and 2 tokens, a cut one and a fault, to -weight * (e^d - 1) / sqrt(c),
    d from the products of their probabilities.
    """
    rows = taken([[0, 1, 2], [1, 1, 0], [2, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    rows = replace(rows, logp=MU.log()[rows.action] * rows.mask, truncated=rows.mask & (rows.action == 2))
    ratio = torch.tensor([1.0, 1.0, MU[2] / BASE[2]]).double()  # 0.4 * 1 * 2.5, 1 * 1, 2.5
    worth = (ratio - 1.0) / (ratio - 1.0).mean().sqrt()
    wanted = torch.zeros(4, 3, dtype=torch.float64)
    wanted[[0, 1, 2], [2, 1, 0]] = -recipe.rewards[-1].weight * worth  # type: ignore[attr-defined]
    return (paid(recipe, rows, Known(BASE.log())) - wanted).abs().max()


def at_the_reference(recipe: Recipe) -> Tensor:
    """Largest penalty on answers of a policy that is still the reference."""
    rows = taken([[0, 1, 2], [2, 1, 0]])
    return paid(recipe, replace(rows, logp=MU.log()[rows.action]), Known(MU.log())).abs().max()


def visited() -> Experience:
    """Returns random fragments, of which every other row counts as the base's for the discriminator."""
    data = probes.fragments()
    origin = torch.tensor([int(Origin.POLICY), int(Origin.DATASET)]).repeat(len(data) // 2)
    return replace(data, source=origin)


def cloning_by_hand(seen: probes.Seen) -> Tensor:
    return -seen.logp()[seen.experience.mask].mean()


def losses_by_hand(seen: probes.Seen, weight: float = 0.2) -> dict[str, Tensor]:
    data, mask = seen.experience, seen.experience.mask
    logit = seen.models["discriminator"].body.table[data.context["state"], data.action, 0]
    base = (torch.arange(len(data)) % 2 == 1).unsqueeze(1)
    told = -logit.sigmoid().log()[mask & ~base].mean() - (1 - logit.sigmoid()).log()[mask & base].mean()
    excess = logit.detach().exp() - 1.0
    kept = sorted(excess[mask].tolist())
    kept = kept[len(kept) // 100 : len(kept) - len(kept) // 100]
    scale = (sum(kept) / len(kept)) ** 0.5
    paid = data.reward - (weight * excess / scale).clamp(-10.0, 10.0) * mask
    losses = by_hand.ppo(replace(data, reward=paid), seen.logp(), by_hand.entropy(seen), seen.value(), 0.99, 0.95)
    return {"discriminator": told, **losses}


# ---------------------------------------------------------------------------------------------------- tables
def occupancy(logits_SA: Tensor, P_SAS: Tensor, discount: float = 0.9) -> Tensor:
    """Discounted visits [S, A] of a softmax table from state 0; they sum to 1."""
    policy = logits_SA.softmax(-1)
    moves = torch.einsum("sa,sax->sx", policy, P_SAS)
    eye = torch.eye(len(moves), dtype=torch.float64)
    return (1 - discount) * torch.linalg.solve(eye - discount * moves.T, eye[0]).unsqueeze(1) * policy


def random_table(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Transitions [4, 3, 4] and the logits of two policies."""
    draws = [
        uniform_tensor(Draw(seed, (tag,)), shape).double() for tag, shape in enumerate(((4, 3, 4), (4, 3), (4, 3)))
    ]
    return draws[0] / draws[0].sum(-1, keepdim=True), 3.0 * draws[1], 3.0 * draws[2]


def direction_gap(recipe: Recipe) -> float:
    """1 - cosine of the gradient of sqrt(chi2) of the visits and the policy gradient of the recipe's penalty, d fixed;
    the largest of five tables.
    """
    worst = 0.0
    for seed in range(5):
        P, start, other = random_table(seed)
        base, logits = occupancy(other, P), start.clone().requires_grad_()
        mu = occupancy(logits, P)
        chi = (mu.square() / base).sum() - 1.0
        ratio = (mu.detach() / base).log().flatten()
        cost = -paid(recipe, taken([[cell] for cell in range(12)]), Known(ratio)).view(4, 3)
        slopes = [torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (chi.sqrt(), (mu * cost).sum())]
        worst = max(worst, 1.0 - float((slopes[0] * slopes[1]).sum() / (slopes[0].norm() * slopes[1].norm())))
    return worst


def hacked(recipe: Recipe) -> float:
    """Proxy minus true return of an episode under the sprinkler, as rewarded and as logged, minus the horizon each."""
    task, first = TOMATO, np.zeros(1, np.int64)
    right, scene = Scripted(lambda context: torch.where(context["state"] // 8 == FIRST, 1, STAY)), Scene(TOMATO)
    played = task.play(right, first, first, Draw(0), split=0, greedy=True)
    seen = recipe.rewards[1](recipe.rewards[0](played, scene), scene)
    logged = scene.metrics["reward/proxy"][0][0] - scene.metrics["reward/true"][0][0]
    return float((seen.reward * seen.mask).sum() - seen.column("score")[0]) + logged - 2.0 * task.spec.horizon


def proxy_gap(recipe: Recipe) -> float:
    """Largest gap of what is paid to the share of tomatoes that look wet afterwards, decision by decision of a walk
    past tomatoes and sprinkler.
    """

    def walk(context: Any) -> Tensor:
        return (3 * (context["state"] // 8) + context["state"] % 8 + 3) % 5

    first, scene = np.zeros(1, np.int64), Scene(TOMATO)
    played = TOMATO.play(Scripted(walk), first, first, Draw(0), split=0, greedy=True)
    found, worst = recipe.rewards[1](recipe.rewards[0](played, scene), scene), 0.0
    state = played.context["state"][0].tolist()
    for time in played.mask[0].nonzero().flatten().tolist():
        cell, wet = divmod(state[time + 1], 8)
        wanted = 1.0 if cell == 5 else bin(wet).count("1") / 3
        worst = max(worst, abs(float(found.reward[0, time]) - wanted))
    return worst + float((found.reward * ~found.mask).abs().sum())


# ---------------------------------------------------------------------------------------------------- training
def best_true_return(sweep: Sequence[Recipe], seed: int, steps: int = 60) -> float:
    """The largest true return on held-out starts among these recipes, each trained on the proxy from one base."""
    first = sweep[0].before[0]
    base = probes.trained(first.recipe, TOMATO, seed, first.steps).actor
    loops = [probes.trained(replace(recipe, before=()), TOMATO, seed, steps, base) for recipe in sweep]
    return max(float(scores(loop.actor, TOMATO, num=50, greedy=False).mean()) for loop in loops)
