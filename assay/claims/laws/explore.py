"""Laws of exploration: which distribution acts while experience is gathered. Axes: B sequences, T decisions."""

from __future__ import annotations
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
import torch
from assay.claims.laws.handed import Handed, reads_models
from assay.claims.laws.rollout import built
from assay.core.errors import AssayError
from assay.core.slots import ALONE, ModelSpec
from assay.core.spaces import Spec
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.bounded import Deterministic
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.claims.laws.cases import CHOICES, OTHER_UNITS, TORQUES, in_other_units, is_rescalable, normal
from assay.claims.laws.laws import (
    LOOSE,
    Contract,
    Unsuited,
    gap,
    is_finite,
    law,
    runs,
    shown,
    suited,
)


# ---------------------------------------------------------------------------------------------------- exploration
@dataclass(frozen=True)
class ExploreCase:
    """An actor to explore around, and contexts for it."""

    name: str
    model: ModelSpec
    spec: Spec

    def explorer(self, part: Any) -> Any:
        """Returns the exploring actor."""
        return self.explorer_among(Handed(part.models, self.spec), part)

    def explorer_among(self, models: Handed, part: Any) -> Any:
        """Returns the exploring actor, with these models."""
        scene = ALONE.given(models=models)
        return part.wrap(built(self.model, self.spec), scene, part.init(scene))

    def contexts(self, num: int, same: bool) -> dict[str, torch.Tensor]:
        """Returns N observations, all different or all the same."""
        seen = normal("explored", (1 if same else num, 3)).float()
        return {"observation": seen.expand(num, 3)}


def explore_cases(part: Any) -> list[ExploreCase] | list[Unsuited]:
    """Returns the actors that the exploration can wrap."""
    cases = [
        ExploreCase("choices, action values", Policy(Perceptron((8,)), Greedy()), CHOICES),
        ExploreCase("torques, deterministic", Policy(Perceptron((8,)), Deterministic()), TORQUES),
    ]

    def acts(case: ExploreCase) -> None:
        explorer = case.explorer(part)
        explorer.act(case.contexts(2, False), torch.full((2, explorer.num_draws), 0.001))

    reason = "it suits neither action values nor a deterministic actor"
    return suited(cases, acts, reason, (AttributeError, AssayError, RuntimeError))


@law("it explores")
def explores(part: Any, case: ExploreCase) -> Iterator[str]:
    """With many uniform numbers some action differs from the mode."""
    explorer = case.explorer(part)
    middle = ((torch.arange(400) + 0.5) / 400).unsqueeze(1).expand(400, explorer.num_draws)
    action, _ = explorer.act(case.contexts(400, True), middle)
    if torch.equal(action, explorer.act(case.contexts(400, True), None)[0]):
        yield "400 decisions in a row are the mode"


@law("rows are independent and equal inputs give equal decisions")
def rows_alone(part: Any, case: ExploreCase) -> Iterator[str]:
    """Each row alone decides as among the others."""
    explorer, context = case.explorer(part), case.contexts(8, False)
    uniform = (torch.arange(8 * explorer.num_draws).view(8, -1) * 0.37 + 0.05) % 1.0
    action, logp = explorer.act(context, uniform)
    alone = [
        explorer.act({name: one[k : k + 1] for name, one in context.items()}, uniform[k : k + 1]) for k in range(8)
    ]
    actions, logps = torch.cat([one for one, _ in alone]), torch.cat([one for _, one in alone])
    if gap(actions, action) > LOOSE or gap(logps, logp) > LOOSE or not is_finite(logp):
        yield "a row alone decides otherwise, or a log-probability is not finite"


@law("the recorded log-probability is that of the exploring actor")
def mixture(part: Any, case: ExploreCase) -> Iterator[str]:
    """Choices occur as often as recorded; different torques cannot all have the log-probability of the mode."""
    explorer, side = case.explorer(part), 100
    middle = (torch.arange(side) + 0.5) / side
    uniform = torch.cartesian_prod(*[middle] * explorer.num_draws).reshape(-1, explorer.num_draws)
    action, logp = explorer.act(case.contexts(len(uniform), True), uniform)
    if action.is_floating_point():
        if bool((logp == logp[0]).all()):
            yield f"{len(uniform)} different actions are all recorded with log-probability {float(logp[0]):g}"
        return
    for choice in action.unique().tolist():
        share, recorded = float((action == choice).float().mean()), float(logp[action == choice][0].exp())
        if not abs(share - recorded) <= 0.02:
            yield f"choice {choice} is taken in {share:.3f} of the cases and recorded with probability {recorded:.3f}"


@law("actions in other units are explored alike")
def rescaled(part: Any, case: ExploreCase) -> Iterator[str]:
    """Bounds times 2^-6 and 2^7, and shifted, around an actor of equal weights."""
    if not is_rescalable(case.spec):
        return
    uniform = torch.tensor([0.05, 0.5, 0.8, 0.999]).unsqueeze(1).expand(4, case.explorer(part).num_draws)
    action, logp = case.explorer(part).act(case.contexts(4, True), uniform)
    for factor, shift in OTHER_UNITS:
        there = replace(case, spec=in_other_units(case.spec, factor, shift))
        other, noted = there.explorer(part).act(case.contexts(4, True), uniform)
        if gap((other - shift) / factor, action) > LOOSE or gap(noted, logp) > LOOSE:
            yield f"with half-ranges times {factor:g} it takes {shown((other - shift) / factor)}, not {shown(action)}"


def used(part: Any, case: ExploreCase) -> Handed:
    """Acts once; returns the models that were handed."""
    models = Handed(part.models, case.spec)
    explorer = case.explorer_among(models, part)
    explorer.act(case.contexts(2, False), torch.full((2, explorer.num_draws), 0.3))
    return models


EXPLORE = Contract("explore", (runs, explores, rows_alone, mixture, rescaled, reads_models(used)), explore_cases)
check_explore = EXPLORE.check
"""Checks the laws of exploration around an actor."""
