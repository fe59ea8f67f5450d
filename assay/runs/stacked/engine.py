"""S engines as one: parameters [S, ...], batches [S, B, ...], each stage's loss mapped over the seeds.

Terms, models, copies and optimizers are those of a single engine, and so is what sums a stage's losses
(`Engine.loss`); `torch.func` puts a seed's parameters in the models' place. Each seed is clipped by its own gradient's
norm. On CUDA everything between two optimizer steps is one graph. Axes: S seeds, P parameters, M metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from assay.engine.engine import Engine, Placement, StageView, Update
from assay.runs.stacked import hashes
from assay.core.optimizers import Adam, Descent
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import Annotation
from assay.runs.stacked.graphs import Columns, columns_of, record_of
from assay.runs.stacked.layout import Layout, copied, stacked, unstacked
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, State

ALONE = "run its seeds one by one (assay train --seeds)"
Parameters = dict[str, dict[str, Tensor]]
"""Tensors by model and name."""
MARKS = 4096
"""Coordinates of random numbers whose hashes are made once."""
ELEMENTWISE = (Adam, Descent)
"""Optimizers that move each number by its own gradient, whoever its neighbours are."""


@dataclass
class SeedView(StageView):
    """The view of one seed: its random numbers come from a hash on the device, not from the host."""

    word: Tensor
    marks: Tensor
    """Those of the first coordinates, made once."""

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """The numbers that `StageView.uniform` gives, bit for bit."""
        row, rest = (
            self.marks[:num] if num <= len(self.marks) else hashes.marks(num, self.marks.device)
            for num in (shape[0], math.prod(shape[1:]))
        )
        return hashes.uniform(hashes.folded(self.word, tag), row.unsqueeze(1), rest).view(tuple(shape))


class SeedEngine(Engine):
    """One seed of a stack while losses are mapped: models that hold its parameters, and the word of its draws.

    It is made anew for each batch and has only what annotating and summing losses need.
    """

    def __init__(self, models: Mapping[str, nn.Module], placement: Placement, word: Tensor, marks: Tensor) -> None:
        self.models, self.placement, self.word, self.marks = dict(models), placement, word, marks
        self.updates = 1  # update 0 would look for masked gradient and wait for the device: `StackedLoop` does it

    def over(self, name: str, experience: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """function(model, batch): a stack's batches go through whole."""
        return function(self.models[name], experience)

    def view(self, stage: Stage, part: Experience) -> SeedView:
        """What the stage's terms look at."""
        return SeedView(self.models, part, stage.needs, Draw(0), self.word, self.marks)


class Models(nn.Module):
    """All models as one module, so that `functional_call` can put parameters into each of them at once."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleDict(deepcopy(dict(models)))

    def forward(self, function: Callable[[Mapping[str, nn.Module]], Any]) -> Any:
        """function(models)."""
        return function(dict(self.models.items()))


class Stack:
    """The engines of S seeds of one recipe as one; `engines` give the start and take back what was learned."""

    def __init__(self, recipe: Recipe, engines: Sequence[Engine], placement: Placement) -> None:
        check(recipe, engines, placement)
        self.engines, self.placement = engines, placement
        self.models = Models(engines[0].models).to(placement.device).requires_grad_(False)
        self.marks = hashes.marks(MARKS, placement.device)
        self.layouts = {name: Layout(flat, len(engines)) for name, flat in engines[0].flats.items()}
        self.moved = {stage.name: [self.layouts[name] for name in stage.trains] for stage in recipe.stages}
        self.values = {
            name: layout.stacked([engine.flats[name].values for engine in engines]).to(placement.device)
            for name, layout in self.layouts.items()
        }
        self.optimizers: dict[str, State] = {
            name: stacked([engine.optimizers[name] for engine in engines], layouts, placement.device)
            for name, layouts in self.moved.items()
        }
        self.updates = engines[0].updates

    # ------------------------------------------------------------------------------------------------ engines
    @torch.no_grad()
    def write(self, place: int, kept: State | None = None) -> None:
        """Gives one engine what its seed has learned, now or when a snapshot was taken."""
        engine, state = self.engines[place], kept or self.state
        for name, flat in engine.flats.items():
            flat.values.copy_(self.layouts[name].row(state["values"][name], place))
        for name, memory in state["optimizers"].items():
            engine.optimizers[name] = unstacked(memory, self.moved[name], place)
        engine.updates = state["updates"]

    @property
    def state(self) -> State:
        """All that moves, as it is."""
        return {"values": self.values, "optimizers": self.optimizers, "updates": self.updates}

    def snapshot(self) -> State:
        """Copies of all that moves."""
        return copied(self.state)

    # ------------------------------------------------------------------------------------------------ one update
    def annotate(self, columns: Columns, needs: frozenset[Need | Annotation]) -> Columns:
        """`Engine.annotate` for each seed."""
        nothing = torch.zeros((), dtype=torch.int64)

        def one(parameters: Parameters, own: Columns) -> Columns:
            return self.bound(parameters, nothing, lambda engine: columns_of(engine.annotate(record_of(own), needs)))

        try:
            found: Columns = vmap(one)(self.parameters(), columns)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            names = ", ".join(sorted(need.column for need in needs if not isinstance(need, Need)))
            raise AssayError(f"the columns {names} cannot be stacked ({first_line(error)}); {ALONE}") from error
        return found

    def gradients(self, stage: Stage, columns: Columns, word: Tensor) -> tuple[Columns, list[str]]:
        """Clipped gradients of the stage's models ('gradient.NAME', laid out as their values), and (sum, count) of its
        metrics [S, M, 2] ('metrics') in the order of the names. Only metrics where no loss has a gradient.
        """
        names: list[str] = []
        moves = False

        def loss(trained: Parameters, fixed: Parameters, own: Columns, drawn: Tensor) -> tuple[Tensor, Tensor]:
            def run(engine: SeedEngine) -> tuple[Tensor, Tensor]:
                nonlocal moves
                batch = record_of(own)
                result = Update(stage.name, None)
                total = engine.loss(stage, batch, [term.count(batch) for term in stage.terms], result)
                moves = total is not None
                names[:] = [name for name, entries in result.sums.items() for _ in entries]
                sums = [number.double() for some in result.sums.values() for entry in some for number in entry]
                return torch.zeros(()) if total is None else total, torch.stack(sums).view(-1, 2)

            return self.bound({**fixed, **trained}, drawn, run)

        fixed = self.parameters()
        trained = {name: fixed.pop(name) for name in stage.trains}
        try:
            slopes, metrics = vmap(grad(loss, has_aux=True))(trained, fixed, columns, word)
        except RuntimeError as error:
            raise self.refusal(stage, columns, word, error) from error
        if not moves:
            return {"metrics": metrics}, names
        norm = norms([[part.reshape(len(part), -1) for part in slopes[name].values()] for name in stage.trains])
        limit = stage.optimizer.clip_norm
        # A seed that is not finite is stepped again alone; here it must not make an optimizer refuse all of them.
        found = {f"gradient.{name}": self.layouts[name].joined(slopes[name]).nan_to_num_() for name in stage.trains}
        if limit:
            scale = torch.where(norm > limit, limit / norm, 1.0).unsqueeze(1)
            for name in stage.trains:
                for part in self.layouts[name].parts(found[f"gradient.{name}"]):
                    part.mul_(scale)
        own = torch.stack((norm, torch.ones_like(norm)), -1).double()
        return {**found, "metrics": torch.cat((metrics, own.unsqueeze(1)), 1)}, [*names, f"gradient_norm/{stage.name}"]

    def parameters(self) -> Parameters:
        """The models' parameters [S, ...]."""
        return {name: layout.split(self.values[name]) for name, layout in self.layouts.items()}

    def bound(self, parameters: Parameters, word: Tensor, function: Callable[[SeedEngine], Any]) -> Any:
        """function(engine) of one seed whose models hold these parameters."""
        named = {f"models.{model}.{own}": part for model, parts in parameters.items() for own, part in parts.items()}
        return functional_call(
            self.models, named, (lambda models: function(SeedEngine(models, self.placement, word, self.marks)),)
        )

    @torch.no_grad()
    def move(self, stage: Stage, slopes: Columns) -> None:
        """The optimizer's step, for all seeds at once."""
        values = [self.values[name] for name in stage.trains]
        along = [slopes[f"gradient.{name}"] for name in stage.trains]
        stage.optimizer.step(values, along, {}, self.optimizers[stage.name])

    @torch.no_grad()
    def follow(self, copies: Mapping[str, Copy]) -> None:
        """Moves the copies that are due, and counts the update."""
        for name, copy in copies.items():
            if copy.rate and self.updates % copy.every == 0:
                self.values[name].lerp_(self.values[copy.of], copy.rate)
        self.updates += 1

    def refusal(self, stage: Stage, columns: Columns, word: Tensor, error: RuntimeError) -> Exception:
        """Names the term that cannot be mapped; what is no fault of a term stays as it is."""
        if isinstance(error, torch.OutOfMemoryError):
            return error
        guilty = stage.terms
        if len(stage.terms) > 1:
            guilty = tuple(term for term in stage.terms if not self.can_map(alone(stage, term), columns, word))
        names = ", ".join(type(term).__name__ for term in guilty or stage.terms)
        return AssayError(f"{names} of stage '{stage.name}' cannot be stacked ({first_line(error)}); {ALONE}")

    def can_map(self, stage: Stage, columns: Columns, word: Tensor) -> bool:
        """Whether the stage's terms go through."""
        try:
            self.gradients(stage, columns, word)
        except (RuntimeError, AssayError):
            return False
        return True


def norms(parts: Sequence[Sequence[Tensor]]) -> Tensor:
    """The norm of each seed's gradient [S]: first of each model, as the single engine has it."""
    each = torch.stack([torch.cat(list(some), 1).norm(dim=1) for some in parts])
    return each.norm(dim=0) if len(each) > 1 else each[0]


def first_line(error: Exception) -> str:
    """What went wrong, without the rest of the story."""
    return str(error).strip().splitlines()[0]


def alone(stage: Stage, term: Any) -> Stage:
    """The stage with this one term."""
    return replace(stage, objective=(term,), regularizers=(), critic=())


# ---------------------------------------------------------------------------------------------------- checks
def check(recipe: Recipe, engines: Sequence[Engine], placement: Placement) -> None:
    """Refuses what cannot be mapped over seeds, before compute is spent."""
    if placement.micro_batch or placement.tokens:
        raise AssayError("a stack takes whole batches; leave micro_batch and tokens at 0")
    for stage in recipe.stages:
        if not isinstance(stage.optimizer, ELEMENTWISE):
            kind = type(stage.optimizer).__name__
            raise AssayError(f"{kind} of stage '{stage.name}' steps one seed at a time; {ALONE}")
    for name, flat in engines[0].flats.items():
        if flat.grown:
            raise AssayError(f"the model '{name}' grows, which cannot be stacked; {ALONE}")
        first, *others = (unlearned(engine, name) for engine in engines)
        for own, tensor in first.items():
            if any(not torch.equal(tensor, other[own]) for other in others):
                raise AssayError(f"{name}.{own} is not learned, but another one for each seed; {ALONE}")
    for name, copy in recipe.copies.items():
        if copy.gate is not None:
            raise AssayError(f"the copy '{name}' follows through a gate, seed by seed; {ALONE}")


def unlearned(engine: Engine, name: str) -> dict[str, Tensor]:
    """A model's buffers and frozen parameters: a stack has one of each for all seeds."""
    model, flat = engine.models[name], engine.flats[name]
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {own: tensor for own, tensor in everything.items() if own not in flat.names}
