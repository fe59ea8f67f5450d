"""Forward-backward representations by hand, of `probes.goal_transitions`: F, B, tasks z, and the loss of measures.

Axes: K heads, B rows, A actions, D = 32 numbers.
"""

from math import pi
from typing import Any

import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.probes import steps

SEEN, PLACES = (torch.full((3,), 3.0), torch.zeros(3)), (torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0]))
"""Half range and centre of observations and goals."""
LENGTH_TERM = (
    "Orthonormal.__call__: ((back @ back.T).square() * rows.others()).sum() - 2.0 * ... -> "
    "((back @ back.T).square() * rows.others()).sum() + 2.0 * ...",
    "Orthonormal.__call__: 2.0 * (back.square().sum(-1) * rows.weight).sum() -> 2.0",
    "Orthonormal.__call__: 2.0 * (back.square().sum(-1) * rows.weight).sum() -> "
    "(back.square().sum(-1) * rows.weight).sum()",
    "Orthonormal.__call__: back.square().sum(-1) * rows.weight -> rows.weight",
)
FIXED_LENGTH = dict.fromkeys(LENGTH_TERM, "B has a fixed length, so the gradient of this term is 0 but for rounding")
"""Mutants of the part of the orthonormality loss that only depends on the length of B, with the reason."""


def waves(value: Tensor, half: Tensor, centre: Tensor) -> Tensor:
    """Returns x in half ranges, and sine and cosine of pi, 2 pi and 4 pi times it."""
    unit = (value - centre) / half
    angles = [octave * pi * unit for octave in (1, 2, 4)]
    return torch.cat([unit, *map(torch.sin, angles), *map(torch.cos, angles)], -1)


def backward(model: Any, place: Tensor) -> Tensor:
    """Returns B of positions."""
    return on_sphere(model.back(waves(place, *PLACES)))


def on_sphere(vector: Tensor) -> Tensor:
    """Scales vectors to length sqrt(32)."""
    return 32**0.5 * vector / vector.square().sum(-1, keepdim=True).sqrt()


def forward(model: Any, seen: Tensor, z: Tensor, action: Tensor | None = None) -> Tensor:
    """Returns F of all discrete actions [K, B, 4, D], of one of each row [K, B, D], or of continuous ones [B, A, 2]."""
    rows = torch.cat((waves(seen, *SEEN), z), -1)
    if action is None or action.dim() == 1:
        every: Tensor = model.ahead(rows).view(2, len(rows), 4, 32)
        return every if action is None else every[:, torch.arange(len(rows)), action]
    if action.dim() == 2:
        found: Tensor = model.ahead(torch.cat((rows, steps.in_half_ranges(action)), -1))
        return found
    return torch.stack([forward(model, seen, z, one) for one in action.unbind(1)], 2)


class ByHand:
    """A batch with the tasks z that it is trained on."""

    def __init__(self, seen: probes.Seen, is_discrete: bool) -> None:
        data, self.seen, self.is_discrete = seen.experience, seen, is_discrete
        self.model, self.target, self.here = seen.models["actor"], seen.models["target"], data.mask[:, 0]
        self.now, self.after = data.context["observation"].unbind(1)
        self.action, self.arrived = data.action[:, 0], data.context["achieved"][:, 1]
        uniform = seen.uniform(1, 33, tag=3)[:, 0].double()
        sphere, goal = on_sphere(steps.normal(uniform[:, :32])), backward(self.model, data.context["goal"][:, 0])
        self.z = torch.where(uniform[:, 32:] < 0.5, goal, sphere).detach()

    def pairs(self, next_action: Tensor) -> Tensor:
        """Returns FB's loss with these next actions plus the orthonormality, row by row."""
        here, goes_on = self.here.nonzero().flatten().tolist(), 1.0 - self.seen.experience.terminal[:, 0].double()
        back, onward = backward(self.model, self.arrived), backward(self.target, self.arrived)
        mine = forward(self.model, self.now, self.z, self.action)
        ahead = forward(self.target, self.after, self.z, next_action)
        measure = torch.einsum("kid,jd->kij", mine, back)
        target = (0.9 * goes_on.unsqueeze(1) * torch.einsum("kid,jd->kij", ahead, onward).mean(0)).detach()
        total = torch.zeros((), dtype=torch.float64)
        for i in here:
            others = [j for j in here if j != i]
            squares = (measure[:, i, others] - target[i, others]).square().sum() / 2
            total = total + (squares + (back[i] @ back[others].T).square().sum()) / (len(here) - 1)
            total = total - measure[:, i, i].sum() - 2 * back[i] @ back[i]
        return total / len(here)
