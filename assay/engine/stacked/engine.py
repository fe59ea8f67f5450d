"""The engine of S seeds at once: `Engine` with parameters [S, ...] and batches [S, B, ...]. Axes: S seeds, M metrics.

The optimizer step, the target networks and the sum of a stage's losses are `Engine`'s own code. The overridden
methods differ: losses, counts and columns are mapped over the seeds by `torch.func.vmap`, each seed is clipped by its
own gradient norm and draws its own random numbers. On CUDA everything between two optimizer steps is one graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from assay.core.errors import AssayError
from assay.core.optimizers import Adam, Descent
from assay.core.recipe import Recipe, Stage
from assay.core.record import Draw, Experience, Fit, Loss, Need, State, Sums
from assay.core.settings import has_schedule
from assay.core.slots import Annotation, Term
from assay.engine.batch_shards import Ranks
from assay.engine.engine import Engine, StageView
from assay.engine.placement import Placement
from assay.engine.stacked.flat import StackedFlat, stacked, unstacked
from assay.engine.stacked.graphs import Columns, Replays, columns_of, record_of
from assay.engine.updates import Slip, Update, clip_scale
from assay.ops import random_torch

ALONE = "Run its seeds one by one (assay train --seeds)."
MARKS = 4096
"""Coordinates of random numbers whose hashes are computed once."""
AHEAD = 256
"""Updates whose random words are computed at once."""
ELEMENTWISE = (Adam, Descent)
"""Optimizers that act elementwise, so that all seeds can be one long vector."""


@dataclass
class StackedView(StageView):
    """The view of one seed inside the mapped losses: random numbers are hashed on the device."""

    word: Tensor
    marks: Tensor
    """Hashes of the first coordinates, computed once."""

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns the numbers that `StageView.uniform` returns, bit for bit."""
        # The hash of numpy would need the seed on the host, which mapped code cannot read. Rows are 0 to B - 1,
        # because a stack has no micro-batches.
        row, rest = (
            self.marks[:num] if num <= len(self.marks) else random_torch.marks(num, self.marks.device)
            for num in (shape[0], math.prod(shape[1:]))
        )
        word = random_torch.folded(self.word, tag)
        return random_torch.uniform(word, row.unsqueeze(1), rest).view(tuple(shape))


class Holder(nn.Module):
    """All models as one module, so that `functional_call` substitutes a seed's parameters in all of them at once."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleDict(deepcopy(dict(models)))

    def forward(self, function: Callable[[], Any]) -> Any:
        """Returns function(), evaluated with the substituted parameters."""
        return function()


class StackedEngine(Engine):
    """The engines of S seeds of one recipe as one; `engines` give the initial state, `write` copies it back."""

    # Not Engine.__init__: nothing is built or drawn here, all state comes from the engines.
    def __init__(self, recipe: Recipe, engines: Sequence[Engine], placement: Placement, graphs: bool = True) -> None:
        check(recipe, engines, placement)
        self.ranks, self.sharding = Ranks(), None
        self.engines, self.placement, self.at_once, self.shared = engines, placement, 0, frozenset()
        self.seeds = tuple(engine.draw.seed for engine in engines)
        self.holder = Holder(engines[0].models).to(placement.device).requires_grad_(False)
        self.models = dict(self.holder.models.items())
        flats = {
            name: StackedFlat([engine.flats[name] for engine in engines], placement.device, name not in recipe.copies)
            for name in engines[0].flats
        }
        self.flats = dict(flats)
        self.tensors: Columns = {
            f"models.{name}.{own}": tensor
            for name, flat in flats.items()
            for own, tensor in zip(flat.names, flat.tensors, strict=True)
        }
        # Only trained models: copies follow and have no optimizer.
        self.moved = {stage.name: [flats[name] for name in stage.trains] for stage in recipe.stages}
        self.optimizers = {
            name: stacked([engine.optimizers[name] for engine in engines], some, placement.device)
            for name, some in self.moved.items()
        }
        self.updates, self.gates = engines[0].updates, {}
        self.marks = random_torch.marks(MARKS, placement.device)
        self.words: dict[int, Tensor] = {}
        self.replays = Replays(graphs and torch.device(placement.device).type == "cuda")
        # A graph keeps the constants of the captured call, so a loss with a schedule cannot be captured.
        self.moving = {stage.name for stage in recipe.stages if has_schedule(stage.terms)}
        self.names: dict[str, list[str]] = {}
        self.totals: dict[str, Tensor] = {}

    @torch.no_grad()
    def write(self, place: int, kept: State | None = None) -> None:
        """Copies what one seed has learned to its own engine, now or as of the snapshot `kept`."""
        state = kept or self.snapshot()
        models = {name: {own: part[place] for own, part in some.items()} for name, some in state["models"].items()}
        optimizers = {name: unstacked(some, self.moved[name], place) for name, some in state["optimizers"].items()}
        self.engines[place].restore({**state, "models": models, "optimizers": optimizers})

    # ------------------------------------------------------------------------------------------------ mapped methods
    def mapped(self, function: Callable[..., Any], *given: Any) -> Any:
        """Returns function(...) of each seed, evaluated with its parameters; `given` and results have the axis S."""

        # Parameters are an argument, since vmap maps arguments and not attributes.
        def one(tensors: Columns, *own: Any) -> Any:
            return functional_call(self.holder, tensors, (partial(function, *own),))

        return vmap(one)(self.tensors, *given)

    @torch.no_grad()
    def annotate(self, experience: Experience, needs: frozenset[Need | Annotation]) -> Experience:
        """Applies `Engine.annotate` to each seed."""

        def one(columns: Columns) -> Columns:
            return columns_of(Engine.annotate(self, record_of(columns), needs))

        names = ", ".join(sorted(need.column for need in needs if not isinstance(need, Need)))
        with refused(f"one of the columns ({names})"):
            return record_of(self.mapped(one, columns_of(experience)))

    def counts(self, stage: Stage, batch: Experience) -> list[Tensor]:
        """Returns the counts of each seed, [S] for each term."""
        return vmap(lambda columns: Engine.counts(self, stage, record_of(columns)))(columns_of(batch))

    def loss(self, stage: Stage, part: Experience, counts: Sequence[Tensor], result: Update) -> Tensor | None:
        """Returns the sum of all seeds' losses. No seed's loss depends on another's parameters, so the gradient of
        the sum is the gradient of each.
        """

        def one(columns: Columns, own_counts: list[Tensor], word: Tensor) -> tuple[Tensor, Sums]:
            self.word, own = word, Update(stage.name, None)
            total = Engine.loss(self, stage, record_of(columns), own_counts, own)
            return torch.zeros(()) if total is None else total, own.sums

        losses, sums = self.mapped(one, columns_of(part), list(counts), self.word)
        result.sums.update(sums)
        return losses.sum()

    def value(self, term: Term, part: Experience, view: StageView) -> Loss:
        """Returns one term's loss of the mapped seed."""
        with refused(type(term).__name__):
            return super().value(term, part, view)

    def view(self, stage: Stage, part: Experience) -> StackedView:
        """Returns the view of the stage's terms for the mapped seed."""
        return StackedView(self.models, part, stage.needs, Draw(0), self.word, self.marks)

    def slips(self, term: Term, value: Loss, view: StageView) -> list[Slip]:
        """Returns none: mapped code cannot branch on values; `flawed` checks it for one seed."""
        return []

    def flawed(self, stage: Stage, batch: Experience) -> list[Slip]:
        """Returns the flaws of the losses, as found by the first seed's own engine."""
        own = record_of({name: column[0].cpu() for name, column in columns_of(batch).items()})
        result = Update(stage.name, None)
        self.engines[0].loss(stage, own, self.engines[0].counts(stage, own), result)
        return result.slips

    # ------------------------------------------------------------------------------------------------ one update
    def slopes(self, stage: Stage, batch: Experience, result: Update) -> tuple[list[Tensor], list[Fit]]:
        """Returns clipped gradients, laid out as the values of the stage's models; metrics are summed on the device."""
        result.batch = None  # no waiting for the norms: `StackedLoop` reads those of the whole step at its end
        if self.updates == 0:
            result.slips += self.flawed(stage, batch)
        inputs = {**columns_of(batch), "word": self.draws()}
        captures = stage.name not in self.moving
        found = self.replays(("stage", stage.name), inputs, partial(self.traced, stage), captures)
        if stage.name in self.totals:
            self.totals[stage.name] += found["metrics"]
        else:
            self.totals[stage.name] = found["metrics"].clone()  # the next replay writes to the same place
        return [column for name, column in found.items() if name != "metrics"], []

    def traced(self, stage: Stage, inputs: Columns) -> Columns:
        """Computes `Engine.slopes`, clipped, as a function of tensors: gradients by place, and the (sum, count) of
        all metrics [2 M, S] as 'metrics'. Stores the metrics' names, which a graph cannot return.
        """
        columns, result = dict(inputs), Update(stage.name, None)
        self.word = columns.pop("word")
        gradients, _ = super().slopes(stage, record_of(columns), result)
        if gradients:
            self.clip_each(stage, gradients, result)
        self.names[stage.name] = [name for name, entries in result.sums.items() for _ in entries]
        numbers = [number for entries in result.sums.values() for entry in entries for number in entry]
        metrics = torch.stack([number.detach().double() for number in numbers])
        return {"metrics": metrics, **{f"gradient.{place}": gradient for place, gradient in enumerate(gradients)}}

    def clip(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Does nothing: `slopes` has clipped already, inside its graph."""

    def clip_each(self, stage: Stage, gradients: list[Tensor], result: Update) -> None:
        """Clips each seed by its own norm, in place; a seed's gradient that is not finite is replaced by zeros."""
        both = zip(self.moved[stage.name], gradients, strict=True)
        parts = [flat.by_seed(gradient) for flat, gradient in both]
        # Norms by model, then over models, in the order of a single engine.
        each = torch.stack([torch.cat(some, 1).norm(dim=1) for some in parts])
        norm = each.norm(dim=0) if len(each) > 1 else each[0]
        result.sums[f"gradient_norm/{stage.name}"] = [(norm, torch.ones_like(norm))]
        if stage.optimizer.clip_norm:
            scale = clip_scale(norm, stage.optimizer.clip_norm).to(norm.dtype).unsqueeze(1)
            for part in (part for some in parts for part in some):
                part.mul_(scale)
        for gradient in gradients:
            # NaN would make Adam skip the step for all seeds. The loop sees the norm and removes the seed.
            gradient.nan_to_num_(0.0, 0.0, 0.0)

    def draws(self) -> Tensor:
        """Returns the words [S] of this update's random numbers, those of single engines; computed ahead."""
        chunk, place = divmod(self.updates, AHEAD)
        if chunk not in self.words:
            updates = chunk * AHEAD + torch.arange(AHEAD, device=self.placement.device)
            self.words = {chunk: random_torch.words(self.seeds, (5, updates), self.placement.device)}
        return self.words[chunk][place].clone()  # a graph writes later words to where it first read one

    def sums(self) -> list[dict[str, list[list[float]]]]:
        """Returns [sum, count] of the metrics of each seed since the last call; the host waits for the device here."""
        found: list[dict[str, list[list[float]]]] = [{} for _ in self.engines]
        for stage, total in self.totals.items():
            table = total.view(-1, 2, len(self.engines)).permute(2, 0, 1).tolist()
            for own, rows in zip(found, table, strict=True):
                for name, entry in zip(self.names[stage], rows, strict=True):
                    own.setdefault(name, []).append(entry)
        self.totals = {}
        return found


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Raises AssayError for errors inside: this code cannot be stacked, since mapped code may not read values, as
    `if` and `float` do. Out-of-memory errors pass unchanged.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise AssayError(f"{what} cannot be stacked ({str(error).strip().splitlines()[0]}). {ALONE}") from error


def check(recipe: Recipe, engines: Sequence[Engine], placement: Placement) -> None:
    """Raises AssayError if something cannot be mapped over seeds, before compute is spent."""
    if placement.micro_batch or placement.tokens:
        raise AssayError("a stack needs whole batches. Leave micro_batch and tokens at 0.")
    for stage in recipe.stages:
        if not isinstance(stage.optimizer, ELEMENTWISE):
            kind = type(stage.optimizer).__name__
            raise AssayError(f"{kind} of stage '{stage.name}' steps one seed at a time. {ALONE}")
    for name in recipe.shared:
        raise AssayError(f"critics.{name} shares the actor's network, which cannot be stacked. {ALONE}")
    for name, flat in engines[0].flats.items():
        if len(flat.pieces) > 1:
            raise AssayError(f"the model '{name}' has parameters of several dtypes, which cannot be stacked. {ALONE}")
        if flat.grown:
            raise AssayError(f"the model '{name}' grows, which cannot be stacked. {ALONE}")
        first, *others = (unlearned(engine, name) for engine in engines)
        for own, tensor in first.items():
            if any(not torch.equal(tensor, other[own]) for other in others):
                raise AssayError(f"{name}.{own} is not learned, but differs between seeds. {ALONE}")
    for name, copy in recipe.copies.items():
        if copy.gate is not None:
            raise AssayError(f"the target network '{name}' has a gate, which decides seed by seed. {ALONE}")


def unlearned(engine: Engine, name: str) -> dict[str, Tensor]:
    """Returns a model's buffers and frozen parameters: a stack has one of each for all seeds."""
    model, flat = engine.models[name], engine.flats[name]
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {own: tensor for own, tensor in everything.items() if own not in flat.names}
