"""Answers that hidden states of the start tell apart. Axes: B and N rows, T decisions, W width, D sketch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, State
from assay.core.slots import Annotation, Over, Prepare, Scene
from assay.ops import groups, random
from assay.ops.later import one_later
from assay.parts.rewards.function import on_last_decision


def projection(width: int, dims: int) -> Tensor:
    """Returns a sparse random matrix [W, D]: sqrt(3 / D) times +1, 0, -1 with probabilities 1/6, 2/3, 1/6."""
    point = random.uniform_tensor(Draw(0, (31, dims)), (width, dims)).double()
    return ((point > 5 / 6).double() - (point < 1 / 6).double()) * (3.0 / dims) ** 0.5


@dataclass(frozen=True)
class Sketch(Annotation):
    """The column `sketch` [B, T, D]: the last hidden state of the frozen start after each decision, projected at random
    to `dims` numbers, so that no [B, T, W] is kept.
    """

    dims: int = 4
    model: str = "start"
    column: str = "sketch"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column."""

        def project(actor: Any, rows: Experience) -> Tensor:
            later = one_later(rows)
            hidden = actor.score(later, frozenset({Need.LOGP, Need.HIDDEN})).hidden
            if hidden is None:
                raise AssayError("Sketch needs an actor of tokens, which has hidden states. Use a language task")
            short = hidden.double() @ projection(hidden.shape[-1], self.dims).to(hidden.device)
            return (short * later.mask.unsqueeze(-1))[:, 1:]

        return over(experience, project)


def leverage(phi_BD: Tensor, by_group: groups.Groups, ridge: float) -> Tensor:
    """Returns phi^T (ridge I + sum of the group's phi phi^T)^-1 phi of each row, phi without the group's mean, [B].

    In [0, 1); the group's sum is at most D and at most its size - 1. Degenerate: 0 for a group of one or of equal rows.
    """
    there = (by_group.share > 0).unsqueeze(1)
    mean = torch.stack([groups.mean(column, by_group) for column in phi_BD.unbind(1)], 1)
    centred = torch.where(there, phi_BD - mean, 0.0)
    outer = centred.unsqueeze(2) * centred.unsqueeze(1)
    sigma = ridge * torch.eye(phi_BD.shape[1]).to(outer) + outer.new_zeros(by_group.num, *outer.shape[1:]).index_add_(
        0, by_group.index, outer
    )
    return (centred * torch.linalg.solve(sigma[by_group.index], centred)).sum(1)


def some_sketch(experience: Experience) -> Tensor:
    """Returns two numbers of every decision, [B, T, 2]: a sketch for the laws."""
    return torch.stack((experience.logp, experience.reward), -1) * experience.mask.unsqueeze(-1)


@dataclass(frozen=True)
class Elliptical(Prepare):
    """Adds beta * leverage of the mean sketch of the row to the reward of its last decision, in groups with an outcome
    above 1/2 (arXiv:2510.11686). Logs the deviation of the leverage: about 0 where D is not below the group size - 1.
    """

    beta: float = 0.01
    ridge: float = 0.01
    sketch: Annotation = Sketch()
    reads_shares: ClassVar[bool] = True
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"sketch": some_sketch}

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """The sketch."""
        return frozenset({self.sketch})

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `reward`; `score` keeps the task's own."""
        by_group, mask = groups.row_groups(experience), experience.mask
        phi = (experience.column("sketch").double() * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(
            min=1
        )
        bonus = leverage(phi, by_group, self.ridge)
        scene.log("leverage_deviation", float(groups.deviation(bonus, by_group).mean()))
        solved = groups.any_of((groups.outcome(experience) > 0.5) & (by_group.share > 0), by_group)
        paid = on_last_decision(experience, torch.where(solved, self.beta * bonus, 0.0)).reward
        return replace(experience, reward=experience.reward + paid)


def coreset(phi_ND: Tensor, ridge: float = 0.01) -> Iterator[int]:
    """Yields the rows of a pool in the order in which to verify them: each time that with the largest phi^T S^-1 phi, S
    the sum over those before; phi is centred over the pool, and S^-1 changes by rank one (Sherman-Morrison).
    """
    phi = phi_ND.double() - phi_ND.double().mean(0)
    inverse = torch.eye(phi.shape[1], dtype=phi.dtype) / ridge
    free = torch.ones(len(phi), dtype=torch.bool)
    for _ in range(len(phi)):
        value = ((phi @ inverse) * phi).sum(1)
        best = int(torch.where(free, value, -torch.inf).argmax())
        yield best
        free[best] = False
        direction = inverse @ phi[best]
        inverse = inverse - torch.outer(direction, direction) / (1.0 + phi[best] @ direction)
