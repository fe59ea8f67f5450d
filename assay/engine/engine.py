"""The engine: models, their target networks and optimizers, and one optimizer step on the terms of a stage.

Every term returns a sum and a count. The engine divides by the count of the whole update batch, so that
micro-batches, padding and row order cannot change an update. A gradient that is not finite never reaches an
optimizer.

Axes of batches: B rows, T columns; gradients have the shapes of parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.recipe import Copy, Recipe, Stage, united
from assay.core.record import Draw, Experience, Fit, Loss, Need, State, Sums, widen
from assay.core.slots import Annotation, Grower, ModelSpec, SharedBody, Steady, Term
from assay.core.spaces import Spec, Vocabulary
from assay.engine import optimizer_shards as slices
from assay.engine.batch_shards import ALONE, Ranks, cut, summed
from assay.engine.batching import by_length, by_reach, whole_units
from assay.engine.caches import keep_compiled
from assay.engine.flat import Flat, Gradient, fits_of, merged, share_frozen
from assay.engine.fsdp import Sharding, check_sharded, idle_passes
from assay.engine.optimizer_shards import overwrite
from assay.engine.placement import Placement, arrange
from assay.engine.updates import Slip, Update, clip_scale, slips_of
from assay.engine.views import StageView as StageView
from assay.engine.views import model_named
from assay.engine.views import own_decisions as own_decisions
from assay.ops import random
from assay.ops.bfloat16 import prepare_bfloat16, uses_bfloat16

ONE = torch.ones(())


class Engine:
    """Models, target networks and optimizers of a recipe for one task."""

    def __init__(self, recipe: Recipe, spec: Spec, seed: int, placement: Placement) -> None:
        recipe.check()  # here and not in the loop: an engine is also made without one, by probes
        if placement.compiled or placement.is_on_gpu:
            keep_compiled()
        self.ranks: Ranks = ALONE  # replaced when a run starts its ranks
        self.sliced: list[str] = []  # stages whose optimizer states are slices of this rank
        self.sharding: Sharding | None = None
        # Rows of tokens are split by their length; of control a batch is small unless the user says otherwise.
        at_once = placement.at_once if isinstance(spec.action, Vocabulary) else placement.tokens
        self.placement, self.at_once, self.shared = placement, at_once, frozenset(recipe.shared)
        self.draw = Draw(seed, (5,))
        specs = {"actor": recipe.actor, **recipe.critics}
        self.models: dict[str, nn.Module] = {}
        for index, (name, model) in enumerate(specs.items()):
            # Every model has its own seed: one more critic leaves the actor's initial weights unchanged.
            with random.seeded(random.seed_for_torch(Draw(seed, (6, index)))):
                self.models[name] = self.on_actor(model, recipe.shared.get(name)).build(spec).to(placement.device)
        for name, copy in recipe.copies.items():
            with torch.random.fork_rng(devices=[]):  # a copy draws initial weights too, which are overwritten
                built = share_frozen(specs[copy.of].build(spec), self.models[copy.of])
                self.models[name] = built.to(placement.device)
        self.bfloat16 = uses_bfloat16(self.models.values(), placement.precision, placement.device)
        if self.bfloat16:
            prepare_bfloat16()
        arranged = [arrange(built, placement) for built in self.models.values()]
        self.split = by_reach if all(arranged) else by_length
        self.flats = {name: Flat(model) for name, model in self.models.items()}
        for name, copy in recipe.copies.items():
            # After the flats: from here on values are copied in place, and views stay views.
            self.models[name].load_state_dict(self.models[copy.of].state_dict())
            self.models[name].requires_grad_(False)  # no term can train a copy by mistake
        for stage in recipe.stages:
            self.check_growth(stage, placement.ranks)
        if placement.sharded:
            check_sharded(recipe, self.models)
        self.optimizers = {stage.name: stage.optimizer.init(self.pieces(stage)) for stage in recipe.stages}
        self.gates = {name: copy.gate.init() for name, copy in recipe.copies.items() if copy.gate is not None}
        self.updates = 0  # counts batches; `every` and random numbers of terms go by it

    def on_actor(self, critic: ModelSpec, body: SharedBody | None) -> ModelSpec:
        """Returns the critic with the actor's network as its body if `body` shares it; else as it is."""
        return critic if body is None else replace(cast(Any, critic), body=body.on(self.models["actor"]))

    def pieces(self, stage: Stage) -> list[Tensor]:
        """Returns the flat tensors of the models that a stage trains."""
        return [piece for name in stage.trains for piece in self.flats[name].pieces]

    def check_growth(self, stage: Stage, num_ranks: int) -> None:
        """Raises AssayError if a stage's model grows, but its optimizer only updates parameters or there are ranks."""
        growing = [name for name in stage.trains if self.flats[name].grown]
        if growing and num_ranks > 1:
            raise AssayError(f"'{growing[0]}' is a model that grows; it cannot be trained by ranks. Use --ranks 1")
        if growing and not isinstance(stage.optimizer, Grower):
            raise AssayError(
                f"stage '{stage.name}' trains '{growing[0]}', which is stepped by the gradient of its outputs; "
                f"{type(stage.optimizer).__name__} updates parameters only. Use an optimizer that inherits Grower"
            )

    # ------------------------------------------------------------------------------------------------ state
    def join(self, ranks: Ranks, recipe: Recipe) -> None:
        """Takes steps with these ranks from now on; of the states of elementwise optimizers it keeps its slices."""
        self.ranks, self.sliced = ranks, [stage.name for stage in recipe.stages if stage.optimizer.is_elementwise]
        if self.placement.sharded:
            self.sharding = Sharding(recipe, self.models, self.flats, ranks)
        for name in self.sliced:
            self.optimizers[name] = slices.sliced(
                self.optimizers[name], lambda flat: ranks.slice(flat, self.placement.shards)
            )

    def own_slices(self) -> State:
        """Returns what this rank has slices of, as a part of the tree `snapshot`; it is empty without ranks."""
        return {"optimizers": {name: slices.lists(self.optimizers[name]) for name in self.sliced}}

    def snapshot(self) -> State:
        """Returns weights, optimizer states and the update count; with ranks, this one's slices of the states."""
        return {
            "models": {name: flat.snapshot() for name, flat in self.flats.items()},
            "optimizers": self.optimizers,
            "gates": self.gates,
            "updates": self.updates,
        }

    def restore(self, state: State) -> None:
        """Overwrites weights, optimizer states and the update count in place."""
        self.restore_models(state)
        for name, mine in self.optimizers.items():
            overwrite(mine, state["optimizers"][name])  # in place: graphs and slices know these addresses
        for name in self.gates:
            self.gates[name] = state["gates"][name]
        self.updates = int(state["updates"])

    def restore_models(self, state: State) -> None:
        """Overwrites the weights in place: enough to act with them."""
        for name, flat in self.flats.items():
            flat.restore(state["models"][name])

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], recipe: Recipe) -> None:
        """Initialises models from weights under their full names ("actor.layers.0.weight"). Target networks copy
        their models, unless there are weights for them too.
        """
        copies = recipe.copies
        for name in sorted(self.flats, key=lambda name: name in copies):  # copies last: they copy what was loaded
            flat = self.flats[name]
            if name in copies:
                flat.follow(self.flats[copies[name].of], 1.0)  # also what has grown, which weights by name may lack
                flat.keep_as(self.flats[copies[name].of])
            for own, place in zip(flat.names, flat.split(*flat.pieces), strict=True):
                given = weights.get(f"{name}.{own}")
                if given is not None and given.shape != place.shape:
                    raise AssayError(
                        f"the weight {name}.{own} of an earlier phase has shape {list(given.shape)}, this model's is "
                        f"{list(place.shape)}. Use the same model in both phases"
                    )
                if given is not None:
                    place.copy_(given)
            flat.load_beside(weights, name)

    # ------------------------------------------------------------------------------------------------ columns
    @torch.no_grad()
    def annotate(self, experience: Experience, needs: frozenset[Need | Annotation]) -> Experience:
        """Adds the columns that parts declared and that are missing: `value`, `logp_ref`, those of annotations; and
        `row`, the index in this batch, which gives a row the same random numbers in every micro-batch split.
        """
        columns = {"row": torch.arange(len(experience), device=experience.mask.device)}
        if Need.VALUE in needs and "value" not in experience.extra:
            columns["value"] = self.in_shards("value", experience, lambda critic, part: critic(part.context))
        if Need.REFERENCE in needs and "logp_ref" not in experience.extra:
            columns["logp_ref"] = self.in_shards(
                "reference", experience, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp
            )
        for need in needs:
            if not isinstance(need, Need) and need.column not in experience.extra:
                columns[need.column] = need(experience, partial(self.over, need.model))
        return experience.add(columns)

    def model(self, name: str) -> Any:
        """Returns the model called `name`."""
        return model_named(self.models, name)

    @torch.no_grad()
    def over(self, name: str, experience: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """Evaluates function(model, rows) on each micro-batch and concatenates the results on the record's device."""
        model, home, num = self.model(name), experience.mask.device, experience.num_columns
        with self.autocast():
            parts = [function(model, part) for part in self.micro_batches(experience, None)]
        if not self.at_once:
            return torch.cat(parts).to(home)
        plan = self.split(experience, frozenset(), self.at_once, self.placement.micro_batch)
        return torch.cat([widen(part, num) for part in parts]).to(home)[torch.argsort(torch.cat(plan)).to(home)]

    def in_shards(self, name: str, experience: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """Returns `over`, computed shard by shard, each by its rank; all ranks call it."""
        if self.placement.shards == 1:
            return self.over(name, experience, function)
        parts = cut(experience, frozenset(), self.placement.shards)
        own = [parts[place] for place in self.ranks.mine(len(parts))]
        found = self.ranks.shared([None if part is None else self.over(name, part, function) for part in own])
        columns = [widen(column, experience.num_columns) for column in found if column is not None]
        return torch.cat(columns).to(experience.mask.device)

    # ------------------------------------------------------------------------------------------------ one step
    def micro_batches(self, batch: Experience, together: frozenset[str] | None) -> Iterator[Experience]:
        """Returns parts of at most `micro_batch` rows, on the models' device; rows that belong together stay so."""
        size = self.placement.micro_batch
        if self.at_once:
            index = self.split(batch, together or frozenset(), self.at_once, size)
            parts: Iterable[Experience] = (batch.rows(rows.to(batch.mask.device)).trim() for rows in index)
        elif not size or size >= len(batch):
            parts = (batch,)
        elif together:
            parts = (batch.rows(rows) for rows in whole_units(batch, together, size))
        else:
            parts = (batch.rows(slice(first, first + size)) for first in range(0, len(batch), size))
        is_elsewhere = batch.mask.device.type != torch.device(self.placement.device).type
        # All parts are copied before the first is used: a copy from the host waits for the device.
        yield from [part.to(self.placement.device) for part in parts] if is_elsewhere else parts

    def update(self, stage: Stage, batch: Experience) -> Update:
        """Takes one optimizer step of a stage by the gradient of sum over terms of (sum / count), clipped."""
        return self.update_together((stage,), batch)[0]

    def update_together(self, stages: Sequence[Stage], batch: Experience) -> list[Update]:
        """Takes one optimizer step of each stage, from one forward and backward pass of the sum of their losses;
        critics on the actor's hidden states are trained with the actor.
        """
        results = [Update(stage.name, batch) for stage in stages]  # each keeps the batch until it is settled
        gradients, fits = self.slopes(united(stages), batch, results[0])
        rest, norms = iter(gradients), iter(results[0].norms)
        for stage, result in zip(stages, results, strict=True):
            if gradients:  # without a gradient no optimizer moves, not even by momentum
                own = [next(rest) for _ in self.pieces(stage)]
                result.norms = list(islice(norms, len(own)))
                self.apply(stage, own, result, [fit for fit in fits if fit.name in stage.trains])
            if not gradients or not gradients[0].is_cuda:
                result.settle()  # nothing to wait for
        return results

    def slopes(self, stage: Stage, batch: Experience, result: Update) -> tuple[list[Tensor], list[Fit]]:
        """Returns the gradient of each trained model as one flat tensor, summed over micro-batches, and the fits of
        modules that grow. Both are empty if no term has a gradient.
        """
        # Counts are of the whole batch: a micro-batch that divided by its own would weight its rows differently.
        counts = self.counts(stage, batch)  # once, before the batch is cut
        together = frozenset(term.together for term in stage.terms if term.together is not None)
        fits: list[list[Fit]] = []

        parts = cut(batch, together, self.placement.shards) if self.placement.shards > 1 else [batch]
        passes = partial(self.micro_batches, together=together)

        def own(place: int, into: Update) -> list[Tensor] | None:
            part = parts[place]
            found = None if part is None else self.part_slopes(stage, passes(part), counts, into, fits)
            for other in idle_passes(parts, place, self.ranks.num, passes) if self.sharding else ():
                self.part_slopes(stage, [other], counts, Update(stage.name), [])
            return found

        if len(parts) == 1:
            return own(0, result) or [], merged(fits)
        with self.sharding.use(stage.trains) if self.sharding else contextlib.nullcontext():
            return summed(self.ranks, len(parts), own, lambda: self.no_gradient(stage).flat, result), merged(fits)

    def no_gradient(self, stage: Stage) -> Gradient:
        """Returns the gradient 0 of the models that a stage trains."""
        return Gradient([self.flats[name] for name in stage.trains])

    def part_slopes(
        self,
        stage: Stage,
        parts: Iterable[Experience],
        counts: Sequence[Tensor],
        result: Update,
        fits: list[list[Fit]],
    ) -> list[Tensor] | None:
        """Returns the gradient summed over micro-batches, None if no term has one; appends to the fits."""
        twins = self.sharding.active if self.sharding else {}
        parameters = [tensor for name in stage.trains for tensor in twins.get(name, self.flats[name]).tensors]
        growing = [(name, module) for name in stage.trains for module in self.flats[name].grown.values()]
        total: Gradient | None = None
        for part in parts:
            for _, module in growing:
                module.record()
            loss = self.loss(stage, part, counts, result)
            outputs = [(name, module, *kept) for name, module in growing for kept in module.recorded()]
            if loss is None or not loss.requires_grad:  # the term only measures: its metrics are kept
                continue
            leaves = [*parameters, *(output for *_, output in outputs)] if outputs else parameters
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
            if outputs:
                slopes = zip(gradients[len(parameters) :], outputs, strict=True)
                filled = [torch.zeros_like(output) if slope is None else slope for slope, (*_, output) in slopes]
                fits.append(fits_of(outputs, filled, part.mask))
            # Made here and not before the loop: a stage that only measures allocates no gradient.
            total = total or self.no_gradient(stage)
            total.add(gradients[: len(parameters)])
        return None if total is None else total.flat

    def counts(self, stage: Stage, batch: Experience) -> list[Tensor]:
        """Returns the denominator of each of the stage's terms."""
        return [term.count(batch) for term in stage.terms]

    def loss(self, stage: Stage, part: Experience, counts: Sequence[Tensor], result: Update) -> Tensor | None:
        """Returns the stage's loss on one micro-batch, divided by the whole batch's counts; None without terms."""
        view = self.view(stage, part)
        total: Tensor | None = None
        with self.autocast():
            if self.lends(stage):  # the critic then needs no forward pass of its own
                part = part.with_columns(context={**part.context, "hidden": view.scored.hidden})
            for term, count in zip(stage.terms, counts, strict=True):
                value = self.value(term, part, view)
                share = value.sum / count.clamp(min=1)  # an empty batch gives 0, not NaN
                total = share if total is None else total + share
                name = term.title
                for metric, entry in value.metrics.items():
                    result.sums.setdefault(metric, []).append(entry)
                result.sums.setdefault(f"loss/{name}", []).append((value.sum.detach(), value.count))
                result.slips += self.slips(term, value, view)
        return total

    def value(self, term: Term, part: Experience, view: StageView) -> Loss:
        """Returns one term's loss."""
        return term(part, view)

    def slips(self, term: Term, value: Loss, view: StageView) -> list[Slip]:
        """Returns the flaws of a term's loss. Looked for in a run's first update only: they depend on the code, not on
        the data, and cost backward passes.
        """
        return slips_of(term, value, view) if self.updates == 0 else []

    def view(self, stage: Stage, part: Experience) -> StageView:
        """Returns the view of the stage's terms on one micro-batch."""
        needs = stage.needs | {Need.HIDDEN} if self.lends(stage) else stage.needs
        models = self.sharding.models(self.models) if self.sharding else self.models
        return StageView(models, part, needs, self.draw.at(self.updates))

    def lends(self, stage: Stage) -> bool:
        """Returns whether a stage trains the actor and a critic on its hidden states."""
        return "actor" in stage.trains and not self.shared.isdisjoint(stage.trains)

    def apply(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Clips and steps with one flat gradient per model. A gradient that is not finite, or of a batch without any
        decision, becomes NaN everywhere, which a steady optimizer ignores; other optimizers are not called with it.
        """
        self.clip(stage, gradients, result, fits)
        if fits or not isinstance(stage.optimizer, Steady):
            result.settle()  # the host waits: these optimizers may not see NaN
            if result.is_skipped:
                return
        with torch.no_grad():
            state, shards = self.optimizers[stage.name], self.placement.shards
            slices.step(stage.optimizer, self.pieces(stage), gradients, result.sums, state, self.ranks, shards)
            if fits:  # modules that grow have no parameters for `step` above
                assert isinstance(stage.optimizer, Grower)
                stage.optimizer.grow(fits, state)

    def clip(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Scales the gradients down to a global norm of `clip_norm`, in place, and records the norm before clipping."""
        grown = [fit.gradient for fit in fits]
        # Without shards the gradients are whole.
        norms = torch.cat([*result.norms, *(one.norm().view(1) for one in ([] if result.norms else gradients) + grown)])
        norm = norms.norm() if len(norms) > 1 else norms[0]
        if result.batch is not None:
            # 0 / 0 is NaN: momentum and weight decay must not move weights without a decision. Nothing waits for it.
            norm = norm / result.batch.mask.any()
        result.sums[f"gradient_norm/{stage.name}"] = [(norm, ONE)]
        scale = clip_scale(norm, stage.optimizer.clip_norm)
        for gradient in [*gradients, *grown]:
            gradient.mul_(scale.to(gradient.dtype))

    @torch.no_grad()
    def follow(self, copies: Mapping[str, Copy]) -> Sums:
        """Updates the target networks that are due and counts the update; logs how much of a gated one was updated.

        An update that was skipped counts too: `every` and random numbers go by batches, whatever is in them.
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
        self.updates += 1  # here, because every batch ends with `follow`: stages and copies see the same number
        return sums

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context of mixed precision, if the placement asks for it."""
        if self.placement.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.placement.device).type, dtype=self.placement.precision)
