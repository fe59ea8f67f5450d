"""The engine: models, their copies and optimizers, and one optimizer step on the terms of a stage.

Every term gives a sum and a count. The engine divides by the count of the whole update batch, so that micro-batches,
padding and row order cannot change an update. A gradient that is not finite never reaches an optimizer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Draw, Experience, Fit, Loss, Need, Scored, State, Sums
from assay.core.slots import Annotation, Grower, Steady, View
from assay.core.spaces import Spec
from assay.engine.batching import by_length, by_reach, whole_units, widen
from assay.engine.flat import Flat, Gradient, fits_of, merged, share_frozen
from assay.engine.placement import Placement as Placement
from assay.engine.placement import arrange
from assay.ops import random
from assay.ops.bfloat16 import prepare_bfloat16, uses_bfloat16

ONE = torch.ones(())


def own_decisions(view: View, batch: Experience) -> tuple[Tensor, Tensor]:
    """What `View.sampled` returns: the actor's reparameterised decisions in the columns of `batch.now`."""
    actor, now = view.model("actor"), batch.now
    action, logp = actor.sample(now.context, view.uniform((*now.mask.shape, actor.num_draws), tag=1))
    return action, logp


@dataclass
class StageView:
    """What a term may look at: the models, and the actor's scores of the batch, computed once."""

    models: Mapping[str, nn.Module]
    batch: Experience
    needs: frozenset[Need | Annotation]
    draw: Draw

    @cached_property
    def scored(self) -> Scored:
        """The actor on the batch."""
        scored: Scored = self.model("actor").score(self.batch, self.needs)
        return scored

    @cached_property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """The actor's own decisions in all columns but the last."""
        return own_decisions(self, self.batch)

    def model(self, name: str) -> Any:
        """A model by name."""
        if name not in self.models:
            raise AssayError(f"a term asks for the model '{name}'; this recipe has {', '.join(self.models)}")
        return self.models[name]

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Uniform numbers of this update and tag; a row keeps its numbers in whichever micro-batch it is."""
        row = self.batch.column("row").cpu().numpy().reshape(-1, 1)
        rest = np.arange(int(np.prod(shape[1:])))[None]
        values = random.as_open_float32(random.uniform(self.draw.at(tag), row, rest)).reshape(tuple(shape))
        return values.to(self.batch.mask.device)


@dataclass
class Update:
    """What one optimizer step did: (sum, count) metrics, and what was wrong with it.

    `fault` says why a step was refused (its gradient is not finite), `leaks` names terms whose loss moves with
    decisions that the mask leaves out. A step without any decision is skipped and no fault. On a GPU a fault becomes
    known when the update is settled; until then it keeps its batch, in which can be seen what was not finite.
    """

    stage: str = ""
    batch: Experience | None = None
    sums: Sums = field(default_factory=dict)
    fault: str = ""
    leaks: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Reads the gradient's norm, for which the host waits; one that is not finite is a fault and no metric."""
        batch, name = self.batch, f"gradient_norm/{self.stage}"
        self.batch = None
        if batch is not None and name in self.sums and not bool(torch.isfinite(self.sums[name][0][0])):
            del self.sums[name]
            self.fault = f"the gradient of stage '{self.stage}' is not finite{origin_of_fault(batch, self.sums)}"


class Engine:
    """Models, copies and optimizers of a recipe for one task."""

    def __init__(self, recipe: Recipe, spec: Spec, seed: int, placement: Placement) -> None:
        recipe.check()
        self.placement = placement
        self.draw = Draw(seed, (5,))
        specs = {"actor": recipe.actor, **recipe.critics}
        self.models: dict[str, nn.Module] = {}
        for index, (name, model) in enumerate(specs.items()):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(random.seed_for_torch(Draw(seed, (6, index))))
                self.models[name] = model.build(spec).to(placement.device)
        for name, copy in recipe.copies.items():
            with torch.random.fork_rng(devices=[]):
                built = share_frozen(specs[copy.of].build(spec), self.models[copy.of])
                self.models[name] = built.to(placement.device)
        self.bfloat16 = uses_bfloat16(self.models.values(), placement.precision, placement.device)
        if self.bfloat16:
            prepare_bfloat16()
        arranged = [arrange(built, placement) for built in self.models.values()]
        self.split = by_reach if all(arranged) else by_length
        self.flats = {name: Flat(model) for name, model in self.models.items()}
        for name, copy in recipe.copies.items():
            self.models[name].load_state_dict(self.models[copy.of].state_dict())
            self.models[name].requires_grad_(False)
        for stage in recipe.stages:
            self.check_growth(stage)
        self.optimizers = {
            stage.name: stage.optimizer.init([self.flats[name].values for name in stage.trains])
            for stage in recipe.stages
        }
        self.gates = {name: copy.gate.init() for name, copy in recipe.copies.items() if copy.gate is not None}
        self.updates = 0

    def check_growth(self, stage: Stage) -> None:
        """Refuses a stage whose model grows, but whose optimizer only moves parameters."""
        growing = [name for name in stage.trains if self.flats[name].grown]
        if growing and not isinstance(stage.optimizer, Grower):
            raise AssayError(
                f"stage '{stage.name}' trains '{growing[0]}', which is stepped by the gradient of its outputs; "
                f"{type(stage.optimizer).__name__} moves parameters only: set optimizer=Boost()"
            )

    # ------------------------------------------------------------------------------------------------ state
    def snapshot(self) -> State:
        """Weights, optimizers, update count."""
        return {
            "models": {name: flat.snapshot() for name, flat in self.flats.items()},
            "optimizers": self.optimizers,
            "gates": self.gates,
            "updates": self.updates,
        }

    def restore(self, state: State) -> None:
        """Overwrites all of it in place."""
        for name, flat in self.flats.items():
            flat.restore(state["models"][name])
        for name, mine in self.optimizers.items():
            overwrite(mine, state["optimizers"][name])
        for name in self.gates:
            self.gates[name] = state["gates"][name]
        self.updates = int(state["updates"])

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], recipe: Recipe) -> None:
        """Starts models from weights under their full names ("actor.layers.0.weight"); copies follow what they copy,
        unless weights are there for them too.
        """
        copies = recipe.copies
        for name in sorted(self.flats, key=lambda name: name in copies):
            flat = self.flats[name]
            if name in copies:
                flat.follow(self.flats[copies[name].of], 1.0)
            for own, place in zip(flat.names, flat.split(flat.values), strict=True):
                given = weights.get(f"{name}.{own}")
                if given is not None and given.shape != place.shape:
                    raise AssayError(
                        f"the weight {name}.{own} was handed on with shape {list(given.shape)}, this model's is "
                        f"{list(place.shape)}; give both phases the same model"
                    )
                if given is not None:
                    place.copy_(given)
            for own, module in flat.grown.items():
                growth = {key: weights.get(f"{name}.{own}.{key}") for key in module.growth()}
                if all(tensor is not None for tensor in growth.values()):
                    module.regrow(growth)

    # ------------------------------------------------------------------------------------------------ columns
    @torch.no_grad()
    def annotate(self, experience: Experience, needs: frozenset[Need | Annotation]) -> Experience:
        """Adds the columns that parts declared and that are not there yet: `value`, `logp_ref`, those of annotations;
        and `row`, the place in this batch, from which a row has its random numbers in whichever micro-batch it is.
        """
        columns = {"row": torch.arange(len(experience), device=experience.mask.device)}
        if Need.VALUE in needs and "value" not in experience.extra:
            columns["value"] = self.over("value", experience, lambda critic, part: critic(part.context))
        if Need.REFERENCE in needs and "logp_ref" not in experience.extra:
            columns["logp_ref"] = self.over(
                "reference", experience, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp
            )
        for need in needs:
            if not isinstance(need, Need) and need.column not in experience.extra:
                columns[need.column] = need(experience, partial(self.over, need.model))
        return experience.add(columns)

    def model(self, name: str) -> Any:
        """Returns the model called `name`."""
        if name not in self.models:
            raise AssayError(f"a part asks for the model '{name}'; this recipe has {', '.join(self.models)}")
        return self.models[name]

    @torch.no_grad()
    def over(self, name: str, experience: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """function(model, rows) on each micro-batch, put together where the record is."""
        model, home, num = self.model(name), experience.mask.device, experience.num_columns
        parts = [function(model, part) for part in self.micro_batches(experience, None)]
        if not self.placement.at_once:
            return torch.cat(parts).to(home)
        plan = self.split(experience, frozenset(), self.placement.at_once, self.placement.micro_batch)
        return torch.cat([widen(part, num) for part in parts]).to(home)[torch.argsort(torch.cat(plan)).to(home)]

    # ------------------------------------------------------------------------------------------------ one step
    def micro_batches(self, batch: Experience, together: frozenset[str] | None) -> Iterator[Experience]:
        """Parts of at most `micro_batch` rows, on the models' device; rows that belong together are not separated."""
        size = self.placement.micro_batch
        if self.placement.at_once:
            index = self.split(batch, together or frozenset(), self.placement.at_once, size)
            parts: Iterable[Experience] = (batch.rows(rows.to(batch.mask.device)).trim() for rows in index)
        elif not size or size >= len(batch):
            parts = (batch,)
        elif together:
            parts = (batch.rows(rows) for rows in whole_units(batch, together, size))
        else:
            parts = (batch.rows(slice(first, first + size)) for first in range(0, len(batch), size))
        is_elsewhere = batch.mask.device.type != torch.device(self.placement.device).type
        # All parts move before the first is used: a copy from the host's memory waits for the device.
        yield from [part.to(self.placement.device) for part in parts] if is_elsewhere else parts

    def update(self, stage: Stage, batch: Experience) -> Update:
        """One optimizer step of a stage: gradient of sum over terms of (sum / count), clipped, checked, applied."""
        counts = [term.count(batch) for term in stage.terms]
        parameters = [tensor for name in stage.trains for tensor in self.flats[name].tensors]
        growing = [(name, module) for name in stage.trains for module in self.flats[name].grown.values()]
        result = Update(stage.name, batch)
        total: Gradient | None = None
        fits: list[list[Fit]] = []
        together = frozenset(term.together for term in stage.terms if term.together is not None)
        for part in self.micro_batches(batch, together):
            for _, module in growing:
                module.record()
            loss = self.loss(stage, part, counts, result)
            outputs = [(name, module, *kept) for name, module in growing for kept in module.recorded()]
            if loss is None:
                continue
            leaves = [*parameters, *(output for *_, output in outputs)] if outputs else parameters
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
            if outputs:
                slopes = zip(gradients[len(parameters) :], outputs, strict=True)
                filled = [torch.zeros_like(output) if slope is None else slope for slope, (*_, output) in slopes]
                fits.append(fits_of(outputs, filled, part.mask))
            if total is None:
                total = Gradient([self.flats[name] for name in stage.trains])
            total.add(gradients[: len(parameters)])
        if total is not None:
            self.apply(stage, total.flat, result, merged(fits))
        if total is None or not total.flat[0].is_cuda:
            result.settle()  # nothing to wait for
        return result

    def loss(self, stage: Stage, part: Experience, counts: Sequence[Tensor], result: Update) -> Tensor | None:
        """The stage's loss on one micro-batch, divided by the whole batch's counts; None without gradient.

        The first update of a run also looks for gradient at masked decisions.
        """
        view = self.view(stage, part)
        total: Tensor | None = None
        with self.autocast():
            for term, count in zip(stage.terms, counts, strict=True):
                value: Loss = term(part, view)
                share = value.sum / count.clamp(min=1)
                total = share if total is None else total + share
                name = type(term).__name__
                for metric, entry in value.metrics.items():
                    result.sums.setdefault(metric, []).append(entry)
                result.sums.setdefault(f"loss/{name}", []).append((value.sum.detach(), value.count))
                if self.updates == 0 and Need.LOGP in term.needs and leaks(value.sum, view.scored.logp, part.mask):
                    result.leaks.append(name)
        return total if total is not None and total.requires_grad else None

    def view(self, stage: Stage, part: Experience) -> StageView:
        """What the stage's terms look at on one micro-batch."""
        return StageView(self.models, part, stage.needs, self.draw.at(self.updates))

    def apply(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Clips and steps by one flat gradient for each model. One that is not finite becomes NaN everywhere, which a
        steady optimizer ignores; it never reaches another.
        """
        everything = [*gradients, *(fit.gradient for fit in fits)]
        norm = torch.stack([g.norm() for g in everything]).norm() if len(everything) > 1 else everything[0].norm()
        result.sums[f"gradient_norm/{stage.name}"] = [(norm, ONE)]
        if fits or not isinstance(stage.optimizer, Steady):
            result.settle()
            if result.fault:
                return
        limit = stage.optimizer.clip_norm or torch.inf
        scale = torch.where(norm.isfinite(), (limit / norm.double()).clamp(max=1.0), torch.nan)
        for gradient in everything:
            gradient.mul_(scale.to(gradient.dtype))
        with torch.no_grad():
            state = self.optimizers[stage.name]
            stage.optimizer.step([self.flats[name].values for name in stage.trains], gradients, result.sums, state)
            if fits:
                assert isinstance(stage.optimizer, Grower)
                stage.optimizer.grow(fits, state)

    @torch.no_grad()
    def follow(self, copies: Mapping[str, Copy]) -> Sums:
        """Moves the copies that are due at this update, as stages are due, and counts the update; says how much of a
        gated copy went.
        """
        sums: Sums = {}
        for name, copy in copies.items():
            if copy.rate and self.updates % copy.every == 0:
                if copy.gate is None:
                    self.flats[name].follow(self.flats[copy.of], copy.rate)
                else:
                    goes = copy.gate(self.models, self.gates[name])
                    self.flats[name].follow_where(goes, self.flats[copy.of], copy.rate)
                    sums[f"followed/{name}"] = [(goes.sum(), torch.tensor(goes.numel()))]
        self.updates += 1
        return sums

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision, where the placement asks for it."""
        if self.placement.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.placement.device).type, dtype=self.placement.precision)


def leaks(loss: Tensor, logp: Tensor, mask: Tensor) -> bool:
    """Whether the loss has a gradient at decisions that the mask leaves out."""
    if not loss.requires_grad or not logp.requires_grad:
        return False
    (slope,) = torch.autograd.grad(loss, logp, retain_graph=True, allow_unused=True, materialize_grads=True)
    return bool((slope[~mask] != 0).any())


def origin_of_fault(batch: Experience, sums: Sums) -> str:
    """Where numbers that are not finite can be seen: columns of the batch and losses."""
    columns = [
        f"column {name} has {int((~torch.isfinite(column[batch.mask])).sum())}"
        for name, column in batch.per_decision()
        if column.is_floating_point() and not bool(torch.isfinite(column[batch.mask]).all())
    ]
    losses = [
        f"{name} is {float(value)}"
        for name, entries in sums.items()
        for value, _ in entries
        if not bool(torch.isfinite(value))
    ]
    found = [*columns, *losses]
    return f" ({'; '.join(found)})" if found else " (losses and columns are finite: it overflowed in the backward pass)"


def overwrite(mine: State, saved: Mapping[str, Any]) -> None:
    """Takes a saved state over: tensors in place, the rest as it is."""
    for name, value in saved.items():
        if isinstance(value, Mapping):
            overwrite(mine[name], value)
        elif isinstance(mine.get(name), Tensor):
            mine[name].copy_(torch.as_tensor(value))
        elif isinstance(value, list) and value and isinstance(value[0], Tensor):
            for place, item in zip(mine[name], value, strict=True):
                place.copy_(item)
        else:
            mine[name] = value
