"""A recipe's loss on given tensors, without a model. Axes: B sequences, T decisions.

    loss = sum over terms of (sum of the term / count of the term)

For trainers with their own model: score the experience, pass the log-probabilities, call backward on the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.core.record import Draw, Experience, Loss, Need, Progress, Scored
from assay.core.slots import Term
from assay.core.spaces import Context
from assay.ops import random

CREDIT = frozenset({"advantage", "chosen"})
"""Columns that show that the credit of an experience has been computed."""


class NoModelError(AssayError):
    """Raised if a term needs a model that was not given."""


@dataclass(frozen=True)
class TensorView:
    """The view of a term if there is no model: the given tensors, under the names of the models."""

    scored: Scored
    outputs: Mapping[str, Callable[[Context], Tensor]]

    def model(self, name: str) -> Any:
        """Returns a function that returns the tensor given in place of the model's output."""
        if name not in self.outputs:
            given = ", ".join(self.outputs) or "none"
            raise NoModelError(f"a term needs the model '{name}' (given: {given}). Use probes.gradient")
        return self.outputs[name]

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """Raises NoModelError: sampling needs an actor."""
        raise NoModelError("a term needs the actor's own decisions. Use probes.gradient, which takes models")

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns the uniform numbers of this tag."""
        return random.uniform_tensor(Draw(0, (tag,)), shape)


@dataclass(frozen=True)
class Probe:
    """A recipe's loss on one experience.

    `sums` and `counts` are each term's, by class name: a trainer that splits a batch adds both over its parts and
    divides at the end. `metrics` are (sum, count) too; `means` divides them. `left_out` names critic losses that need
    a model; `experience` has the columns that credit wrote.
    """

    loss: Tensor
    sums: Mapping[str, Tensor]
    counts: Mapping[str, Tensor]
    metrics: Mapping[str, tuple[Tensor, Tensor]]
    experience: Experience
    left_out: tuple[str, ...] = field(default=())

    @property
    def means(self) -> dict[str, float]:
        """Returns the metrics as numbers."""
        return {name: float(value.detach()) / max(1.0, float(count)) for name, (value, count) in self.metrics.items()}


def loss(
    recipe: Recipe,
    experience: Experience,
    logp: Tensor,
    *,
    entropy: Tensor | None = None,
    logits: Tensor | None = None,
    logp_ref: Tensor | None = None,
    value: Tensor | None = None,
    stage: str | None = None,
) -> Probe:
    """Returns the credit, objectives, regularizers and critic losses of a recipe on given tensors.

    `logp` [B, T] is that of the current policy, `experience.logp` that of the behaviour policy. Gradient flows into
    `logp`, `entropy`, `logits` and `value`; never into `logp_ref`. Credit is computed unless the column `advantage`
    (or `chosen`) is set; constraints have their initial multipliers; schedules are at their start
    (`recipe.at(progress)` moves them). All stages are summed unless `stage` names one. Masked entries of `logp`,
    `entropy` and `logp_ref` are ignored; `value` is used in the column after a truncated decision.
    """
    recipe = recipe.at_limit(experience.num_columns).at(Progress())
    stages = [chosen for chosen in recipe.stages if stage in (None, chosen.name)]
    if not stages:
        names = ", ".join(chosen.name for chosen in recipe.stages)
        raise AssayError(f"recipe '{recipe.name}' has no stage '{stage}'; it has {names}")
    given = {"logp": logp, "entropy": entropy, "logp_ref": logp_ref, "value": value}
    check_shapes(experience, given)
    mask = experience.mask
    if logp_ref is not None:
        experience = experience.add({"logp_ref": torch.where(mask, logp_ref.detach(), 0)})
    if value is not None:
        experience = experience.add({"value": value.detach()})
    check_needs(recipe, stages, experience, entropy, logits)
    experience = credited(recipe, experience)
    scored = Scored(torch.where(mask, logp, 0), None if entropy is None else torch.where(mask, entropy, 0), logits)
    outputs: dict[str, Callable[[Context], Tensor]] = {} if value is None else {"value": lambda context: value}
    return evaluated(stages, experience, TensorView(scored, outputs))


def evaluated(stages: Sequence[Stage], experience: Experience, view: TensorView) -> Probe:
    """Returns the terms of the stages, added as the engine adds them."""
    total = view.scored.logp.new_zeros(())
    sums: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    metrics: dict[str, tuple[Tensor, Tensor]] = {}
    left_out: list[str] = []
    for stage in stages:
        for term in stage.terms:
            name = free_name(term.title, [*sums, *left_out])
            value = term_or_none(term, term in stage.critic, experience, view)
            if value is None:
                left_out.append(name)
                continue
            sums[name], counts[name] = value.sum, term.count(experience)
            total = total + value.sum / counts[name].clamp(min=1)
            for metric, (amount, count) in value.metrics.items():
                old_amount, old_count = metrics.get(metric, (0.0, 0))
                metrics[metric] = (amount + old_amount, count + old_count)
    return Probe(total, sums, counts, metrics, experience, tuple(left_out))


def term_or_none(term: Term, is_critic: bool, experience: Experience, view: TensorView) -> Loss | None:
    """Returns the term's value, or None for a critic loss that needs a model, since no given tensor can replace it."""
    try:
        return term(experience, view)
    except NoModelError:
        if is_critic:
            return None
        raise


def free_name(name: str, taken: Sequence[str]) -> str:
    """Returns the name, numbered from the second of its kind on."""
    same = sum(other.split(" ")[0] == name for other in taken)
    return name if not same else f"{name} {same + 1}"


def credited(recipe: Recipe, experience: Experience) -> Experience:
    """Returns the experience after the recipe's credit and constraints, in the loop's order; unchanged if credit is
    set.
    """
    if not CREDIT.isdisjoint(experience.extra):
        return experience
    for part in recipe.credit:
        experience = part(experience)
    for constraint in recipe.constraints:
        experience = constraint(experience)
    return experience


def advantages(recipe: Recipe, experience: Experience) -> Tensor:
    """Returns the advantage of each row's first column, [B]: that of answers of one decision."""
    return credited(recipe, experience).column("advantage")[:, 0]


def decision_weights(
    recipe: Recipe, experience: Experience, logp: Tensor, *, logp_ref: Tensor | None = None, value: Tensor | None = None
) -> Tensor:
    """Returns -d loss / d logp of the objectives, [B, T]: how strongly the recipe raises (or lowers) each recorded
    decision.
    """
    objectives = tuple(replace(stage, regularizers=(), critic=()) for stage in recipe.stages if stage.objective)
    return -slopes(replace(recipe, stages=objectives), experience, logp, logp_ref=logp_ref, value=value)


def slopes(
    recipe: Recipe, experience: Experience, logp: Tensor, *, logp_ref: Tensor | None = None, value: Tensor | None = None
) -> Tensor:
    """Returns d loss / d logp of all terms, [B, T]."""
    logp = logp.detach().requires_grad_()
    total = loss(recipe, experience, logp, logp_ref=logp_ref, value=value).loss
    return torch.autograd.grad(total, logp, allow_unused=True, materialize_grads=True)[0]


def derivative(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """Returns d sum f(x) / d x at a point, of its shape."""
    point = point.detach().clone().requires_grad_()
    return torch.autograd.grad(function(point).sum(), point)[0]


def distance(found: Tensor | Sequence[float], expected: Tensor | Sequence[float]) -> float:
    """Returns the largest |found - expected|; infinite for numbers of another shape or that are not numbers."""
    ours, theirs = (torch.as_tensor(one, dtype=torch.float64) for one in (found, expected))
    if ours.shape != theirs.shape:
        return torch.inf
    return float((ours - theirs).abs().max().nan_to_num(torch.inf))


def worst(*values: float) -> float:
    """Returns the largest of several errors; infinite if one is not a number, which Python's `max` may pass over."""
    return float(torch.tensor(values, dtype=torch.float64).nan_to_num(torch.inf, torch.inf, -torch.inf).max())


def auc(value: Tensor, is_right: Tensor) -> float:
    """Returns P(a right row has a larger value than a wrong one), ties a half; 1/2 if all are right or all wrong."""
    right, wrong = value[is_right].unsqueeze(1), value[~is_right]
    better = (right > wrong).double() + (right == wrong).double() / 2
    return float(better.mean()) if better.numel() else 0.5


def check_shapes(experience: Experience, given: Mapping[str, Tensor | None]) -> None:
    """Raises AssayError unless every tensor has one number for each decision."""
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != experience.mask.shape:
            shapes = f"{tuple(tensor.shape)}, the experience {tuple(experience.mask.shape)}"
            raise AssayError(f"{name} has shape {shapes}; give one number for each decision")


def check_needs(
    recipe: Recipe, stages: Sequence[Stage], experience: Experience, entropy: Tensor | None, logits: Tensor | None
) -> None:
    """Raises AssayError if the recipe reads a column or tensor that was not given."""
    needs = frozenset().union(*(stage.needs for stage in stages))
    if CREDIT.isdisjoint(experience.extra):
        needs = needs.union(*(part.needs for part in recipe.credit))
    there = {
        Need.LOGP: True,
        Need.ENTROPY: entropy is not None,
        Need.LOGITS: logits is not None,
        Need.VALUE: "value" in experience.extra,
        Need.REFERENCE: "logp_ref" in experience.extra,
    }
    for column in sorted(need.column for need in needs if not isinstance(need, Need)):
        if column not in experience.extra:
            raise AssayError(f"recipe '{recipe.name}' reads the column '{column}'; add it to the experience")
    for need in sorted((need for need in needs if isinstance(need, Need)), key=lambda need: need.name):
        if need in (Need.HIDDEN, Need.CANDIDATES, Need.UNIFORM):
            raise AssayError(f"recipe '{recipe.name}' reads {need.value}; use probes.gradient, which takes the actor")
        if not there[need]:
            name = "logp_ref" if need is Need.REFERENCE else need.name.lower()
            raise AssayError(f"recipe '{recipe.name}' reads {need.value}; give it to probes.loss as {name}=...")
