"""Updates of small networks on a GPU as CUDA graphs: what lies between a batch and its clipped gradient is one launch.

A network of a robot is small: launching its kernels one by one takes longer than they do. Axes of batches: B rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience, Fit, Sums
from assay.core.settings import has_schedule
from assay.core.slots import Steady
from assay.core.spaces import Spec
from assay.engine.engine import Engine, StageView
from assay.engine.placement import Placement
from assay.engine.stacked.graphs import Columns, Replays, columns_of, record_of
from assay.engine.updates import Update
from assay.ops import random_torch

AHEAD = 256
"""Updates whose random words are computed at once."""
Entry = tuple[str, tuple[float | None, float | None]]
"""A metric's name with its sum and count where they are constants of the code; None where the device computes them."""


@dataclass
class CapturedView(StageView):
    """The view of a captured stage: the word of the update is read on the device, since a graph keeps constants."""

    word: Tensor

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns the numbers that `StageView.uniform` returns, bit for bit."""
        rows = self.batch.column("row").view(-1, 1)
        word = random_torch.folded(random_torch.folded(self.word, tag), rows)
        places = torch.arange(math.prod(shape[1:]), device=rows.device)
        return random_torch.as_open_float32(random_torch.folded(word, places)).reshape(tuple(shape))


class CapturedEngine(Engine):
    """An engine whose gradients are computed by graphs, one for each stage and shape of its batches.

    A stage computes as ever if its losses have a schedule, its models grow, its optimizer needs to see gradients on the
    host, or its losses ask the host what to do. The numbers are the same, to the rounding of the kernels chosen.
    """

    def __init__(self, recipe: Recipe, spec: Spec, seed: int, placement: Placement, graphs: bool = True) -> None:
        super().__init__(recipe, spec, seed, placement)
        self.replays = Replays(graphs and self.flats["actor"].values.is_cuda)
        self.apart = {stage.name for stage in recipe.stages if not self.is_capturable(stage, recipe)}
        """Names of the stages that are not captured."""
        self.words: dict[int, Tensor] = {}
        self.word: Tensor | None = None
        self.entries: dict[str, list[Entry]] = {}

    def is_capturable(self, stage: Stage, recipe: Recipe) -> bool:
        """Returns whether nothing known beforehand speaks against a graph of the stage."""
        grows = any(self.flats[name].grown for name in stage.trains)
        is_whole = not (self.placement.micro_batch or self.placement.tokens or self.placement.shards > 1)
        is_steady = isinstance(stage.optimizer, Steady)
        return is_whole and is_steady and not (grows or recipe.shared or has_schedule(stage.terms))

    def slopes(self, stage: Stage, batch: Experience, result: Update) -> tuple[list[Tensor], list[Fit]]:
        """Returns `Engine.slopes`, clipped where a graph has computed them."""
        if self.updates == 0 or stage.name in self.apart:  # the first update looks for flaws of the losses
            return super().slopes(stage, batch, result)
        inputs = {**columns_of(batch), "word": self.draws()}
        try:
            found = dict(self.replays((stage.name,), inputs, partial(self.traced, stage)))
        except torch.OutOfMemoryError:  # a RuntimeError too, but no reason to compute without a graph
            raise
        except RuntimeError:  # a loss that reads a number on the host, which a graph cannot
            self.apart.add(stage.name)
            return super().slopes(stage, batch, result)
        finally:
            self.word = None
        result.sums.update(self.metrics(stage, found.pop("metrics")))
        return list(found.values()), []

    def traced(self, stage: Stage, inputs: Columns) -> Columns:
        """Computes clipped gradients as a function of tensors, and the numbers of all metrics as 'metrics'.

        Keeps the names of the metrics and the constants among them, which a graph does not return.
        """
        columns = dict(inputs)
        self.word = columns.pop("word")
        batch = record_of(columns)
        result = Update(stage.name, batch)
        gradients, _ = super().slopes(stage, batch, result)
        if gradients:
            super().clip(stage, gradients, result)
        self.entries[stage.name], numbers = separated(result.sums, batch.mask.device)
        none = torch.empty(0, dtype=torch.float64, device=batch.mask.device)
        metrics = torch.stack(numbers) if numbers else none
        return {"metrics": metrics, **{f"gradient.{place}": gradient for place, gradient in enumerate(gradients)}}

    def metrics(self, stage: Stage, numbers: Tensor) -> Sums:
        """Returns the (sum, count) of the latest replay by name."""
        rest = iter(numbers.clone().unbind())  # the next replay writes to the same place
        sums: Sums = {}
        for name, entry in self.entries[stage.name]:
            own, count = (next(rest) if one is None else torch.tensor(one) for one in entry)
            sums.setdefault(name, []).append((own, count))
        return sums

    def clip(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Clips as ever, unless a graph has done so."""
        if f"gradient_norm/{stage.name}" not in result.sums:
            super().clip(stage, gradients, result, fits)

    def view(self, stage: Stage, part: Experience) -> StageView:
        """Returns the view of the stage's terms."""
        found = super().view(stage, part)
        return found if self.word is None else CapturedView(**vars(found), word=self.word)

    def draws(self) -> Tensor:
        """Returns the word [1] of this update's random numbers, computed ahead."""
        chunk, place = divmod(self.updates, AHEAD)
        if chunk not in self.words:
            updates = chunk * AHEAD + torch.arange(AHEAD, device=self.placement.device)
            path: list[int | Tensor] = [*self.draw.path, updates]
            self.words = {chunk: random_torch.words((self.draw.seed,), path, self.placement.device)}
        return self.words[chunk][place].clone()  # a graph writes later words to where it first read one


def separated(sums: Sums, device: torch.device) -> tuple[list[Entry], list[Tensor]]:
    """Returns the entries of metrics, and their numbers that are computed on the device, in order, float64."""
    entries, numbers = list[Entry](), list[Tensor]()
    for name, pairs in sums.items():
        for pair in pairs:
            # A tensor of the host is a constant of the code: nothing that a batch decides gets there without waiting.
            own, count = (None if number.device.type == device.type else float(number) for number in pair)
            entries.append((name, (own, count)))
            numbers += [number.detach().double() for number in pair if number.device.type == device.type]
    return entries, numbers

