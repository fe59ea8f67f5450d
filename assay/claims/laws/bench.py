"""Benches for loss terms: small real models for one kind of task, and a view whose actor outputs are leaves.

The leaves hold the outputs of the bench's own actor on the batch, so that log-probabilities, logits, entropies and the
reference are consistent; they are leaves so that each gradient can be read. They are columns `scored.*` of the batch:
rows, padding and precision apply to them as to the record. Axes: B sequences, T decisions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.claims.laws.cases import (
    CHOICES,
    CONTROL_LAYOUTS,
    NUMBERED,
    SPECS,
    TOKEN_LAYOUTS,
    TOKENS,
    TORQUES,
    build,
    in_other_units,
    normal,
    with_path,
)
from assay.claims.laws.laws import Memo, shown
from assay.core.columns import axes_of
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Loss, Need, Scored
from assay.core.slots import Annotation, ModelSpec, Over
from assay.core.spaces import Spec, Vocabulary
from assay.engine.engine import own_decisions
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bins import Bins
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy, Temperature
from assay.ops import random

COPIED = {"reference": "actor", "target": "actor", "old": "actor", "teacher": "actor"}
"""Copies whose names do not say what they copy; `x_target` copies `x`."""
GIVEN_IF_NEEDED = {"value": Need.VALUE, "logp_ref": Need.REFERENCE}
"""Columns that the engine adds only if a part declares that it needs them."""
ESTIMATES = ("value", "logp_ref", "advantage", "return")
"""Added columns through which gradient could leak into what was fixed before the update."""
LEAST_LOGP = -50.0
"""The lowest log-probability of the actor and the reference on the laws' decisions."""
SMALL = {"hidden": (8,), "width": 8, "layers": 1, "heads": 2}
"""Small sizes, for fast checks."""


@dataclass(frozen=True, eq=False)
class Bench:
    """Models for one kind of task; `copies` says which name copies which model."""

    name: str
    spec: Spec
    models: Mapping[str, ModelSpec]
    copies: Mapping[str, str] = field(default_factory=dict)

    def source_of(self, name: str) -> str | None:
        """Returns the model that a copy copies, or None if the name is not a copy."""
        named = {**COPIED, **self.copies}.get(name, name.removesuffix("_target") if name.endswith("_target") else None)
        return named if named in self.models and name not in self.models else None

    def model(self, name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Returns a model, the same object each time."""
        return self.built(name, dtype)

    def over(self, name: str) -> Over:
        """Returns the function with which an annotation computes its column by this model, here on all rows at once."""
        return lambda experience, function: function(self.model(name), experience)

    @lru_cache(maxsize=256)  # noqa: B019 - benches live as long as the process
    def built(self, name: str, dtype: torch.dtype) -> nn.Module:
        """Returns a model with perturbed parameters, so that nothing is zero by chance; copies differ from it."""
        source = self.source_of(name)
        if source is None and name not in self.models:
            raise AssayError(f"bench '{self.name}' has no model '{name}'. It has {', '.join(self.models)}")
        if dtype != torch.float64:
            return copy.deepcopy(self.model(name)).to(dtype)
        with random.seeded(5):
            module = self.models[source or name].build(self.spec).double()
        with torch.no_grad():
            for place, parameter in enumerate(module.parameters()):
                parameter.add_(normal(f"{source or name} {place}", parameter.shape), alpha=0.3)
                if source is not None:
                    parameter.add_(normal(f"{name} {place}", parameter.shape), alpha=0.1)
        return module.requires_grad_(source is None)


@lru_cache(maxsize=64)
def in_units(bench: Bench, factor: float, shift: float) -> Bench:
    """Returns the bench with actions in other units: the same weights, the same decisions."""
    return replace(bench, spec=in_other_units(bench.spec, factor, shift))


FEW = Perceptron((8,))
CRITICS: dict[str, ModelSpec] = {
    "value": Critic(FEW),
    "q": Critic(FEW, ActionValue()),
    "temperature": Temperature(0.7),
}
STANDARD: tuple[Bench, ...] = (
    Bench("tokens", TOKENS, {"actor": Policy(Transformer(8, 1, 2)), "value": Critic(Transformer(8, 1, 2))}),
    Bench("torques, Gaussian", TORQUES, {"actor": Policy(FEW), **CRITICS}),
    Bench("torques, squashed", TORQUES, {"actor": Policy(FEW, SquashedGaussian()), **CRITICS}),
    Bench("torques, deterministic", TORQUES, {"actor": Policy(FEW, Deterministic()), **CRITICS}),
    Bench("choices, categorical", CHOICES, {"actor": Policy(FEW), "value": Critic(FEW)}),
    Bench("choices, action values", CHOICES, {"actor": Policy(FEW, Greedy()), "value": Critic(FEW)}),
    Bench("numbered states", NUMBERED, {"actor": Policy(Table()), "value": Critic(Table())}),
)


RANGE = 110.0
"""Reach of the values of rewards within 1 at discount 0.99."""


def benches_of(recipe: Recipe) -> list[Bench]:
    """Returns benches with a recipe's own models, made small, on every kind of task that they can be built for."""
    models = {name: smaller(spec) for name, spec in {"actor": recipe.actor, **recipe.critics}.items()}
    copies = {name: one.of for name, one in recipe.copies.items()}
    found = []
    for spec in SPECS:
        kind = type(spec.action).__name__ + ("" if spec.goal is None else " with goals")
        bench = Bench(f"{recipe.name} on {kind}", spec, models, copies)
        try:
            built = [bench.model(name) for name in models]
        except AssayError:
            continue
        found += [bench] if built else []
    return found


def smaller(spec: Any) -> Any:
    """Returns a model spec, its body and its head, with their sizes cut down; bins whose range is a task's have one."""
    if not is_dataclass(spec) or isinstance(spec, type):
        return spec
    if isinstance(spec, Bins):
        return spec if spec.low < spec.high else replace(spec, low=-RANGE, high=RANGE)
    below = {f.name: getattr(spec, f.name) for f in fields(spec) if f.init}
    return replace(spec, **{name: SMALL.get(name, smaller(value)) for name, value in below.items()})


# ---------------------------------------------------------------------------------------------------- inputs
@dataclass(frozen=True)
class TermCase:
    """A batch with the actor's outputs, and the bench that it belongs to."""

    name: str
    batch: Experience
    bench: Bench
    memo: Memo[Trial] = field(default_factory=Memo, init=False, compare=False, repr=False)


def some_numbers(batch: Experience, name: str, axes: str) -> Tensor:
    """Returns the column where it is there, else numbers on its decisions, [B, T], or on its rows if its axes are B."""
    there = batch.extra.get(name)
    if there is not None:
        return there
    return normal(name, (len(batch),)) if axes == "B" else normal(name, batch.mask.shape) * batch.mask


def columns_read(part: Any) -> dict[str, str]:
    """Returns the axes by name of the columns that a part reads; '' where it does not state them."""
    reads = getattr(part, "reads", ())
    return {name: axes_of(reads, name) for name in reads}


OF_DATA: dict[str, Callable[[Experience], Tensor]] = {"success": lambda batch: batch.terminal}
"""Columns that data may have beside those of the record, and their values in the laws."""


def term_cases(term: Any, bench: Bench) -> list[TermCase]:
    """Returns the bench's batches as this term will see them: recorded log-probabilities near the current ones.

    A term that reads a column which another part writes, and for which not all numbers will do, says how the laws are
    to fill it:

        fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"name": function of the batch}
    """
    layouts = TOKEN_LAYOUTS if isinstance(bench.spec.action, Vocabulary) else CONTROL_LAYOUTS
    needs = frozenset(getattr(term, "needs", frozenset()))
    read = columns_read(term).items()
    fills = {name: partial(some_numbers, name=name, axes=axes) for name, axes in read} | getattr(term, "fills", {})
    fills = OF_DATA | fills
    batches = [scored_batch(bench, place, needs) for place in range(len(layouts))]
    return [
        TermCase(f"{bench.name}: {layout.name}", batch.add({name: fill(batch) for name, fill in fills.items()}), bench)
        for layout, batch in zip(layouts, batches, strict=True)
    ]


def two_actions(batch: Experience) -> Tensor:
    """Returns the actions 1 and 2 with some log-probabilities as candidates of every decision, [B, T, 2, 2]."""
    logq = torch.nn.functional.logsigmoid(normal("candidates", (*batch.mask.shape, 2))) - 1.0
    return torch.stack((torch.tensor([1.0, 2.0]).to(logq).expand_as(logq), logq), -1) * batch.mask[..., None, None]


@lru_cache(maxsize=256)
def scored_batch(bench: Bench, place: int, needs: frozenset[Need | Annotation]) -> Experience:
    """Returns a layout's experience with the columns `scored.*` and the annotations that are needed."""
    layout = (TOKEN_LAYOUTS if isinstance(bench.spec.action, Vocabulary) else CONTROL_LAYOUTS)[place]
    batch = with_path(build(bench.spec, layout), bench.model("actor"))
    with torch.no_grad():
        noted = {need.column: need(batch, bench.over(need.model)) for need in needs if not isinstance(need, Need)}
        batch = batch.add(noted if Need.CANDIDATES not in needs else noted | {"candidates": two_actions(batch)})
        scored: Scored = bench.model("actor").score(batch, needs)  # type: ignore[operator]
        reference: Scored = bench.model("reference").score(batch, needs)  # type: ignore[operator]
    # A token that the actor forbids has a log-probability of -1e9, to which float32 cannot add what moved.
    scored, reference = (replace(one, logp=one.logp.clamp(min=LEAST_LOGP)) for one in (scored, reference))
    outputs = {f"scored.{f.name}": value for f in fields(Scored) if (value := getattr(scored, f.name)) is not None}
    recorded = (scored.logp + 0.3 * normal(layout.name + "moved", scored.logp.shape)) * batch.mask
    return replace(batch, logp=recorded).add({**outputs, "logp_ref": reference.logp})


def fitting(term: Any, benches: Sequence[Bench]) -> tuple[list[TermCase], list[str]]:
    """Returns the cases of the benches that a term runs on, and why it does not run on the others. Benches that differ
    only in what the term does not read count once."""
    cases: list[TermCase] = []
    refusals: list[str] = []
    seen: set[Any] = set()
    for bench in benches:
        try:
            mine = term_cases(term, bench)
            asked = evaluate(term, mine[0]).asked
        except (Exception, SystemExit) as error:
            refusals.append(f"{bench.name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        key = looks_at(term, bench, asked)
        if key not in seen:
            seen.add(key)
            cases += mine
    return cases, refusals


def looks_at(term: Any, bench: Bench, asked: frozenset[str]) -> Any:
    """Returns the properties of a bench that a term depends on: the world alone if it reads only the record."""
    columns = {Need.LOGP, Need.VALUE, Need.REFERENCE}
    spread = frozenset(getattr(term, "needs", frozenset())) & (frozenset(Need) - columns)
    if not asked and not spread:
        return isinstance(bench.spec.action, Vocabulary)
    models = [bench.models[bench.source_of(name) or name] for name in sorted(asked)]
    return repr((bench.spec, models, bench.models["actor"] if spread else None))


# ---------------------------------------------------------------------------------------------------- trying
class BenchView:
    """A view over leaves and the bench's models; remembers which models were asked for."""

    def __init__(self, bench: Bench, record: Experience, scored: Scored) -> None:
        self.bench, self.record, self.scored = bench, record, scored
        self.asked: dict[str, nn.Module] = {}

    def model(self, name: str) -> Any:
        """Returns a model in the batch's precision; copies get no gradient, as in the engine."""
        return self.asked.setdefault(name, self.bench.model(name, self.record.reward.dtype))

    @cached_property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """Returns the actor's own decisions."""
        return own_decisions(self, self.record)

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns uniform numbers of each row and tag, whichever rows are with it."""
        row = self.record.column("row").numpy().reshape(-1, 1)
        rest = np.arange(int(np.prod(shape[1:])))[None]
        values = random.as_open_float32(random.uniform(Draw(3).at(tag), row, rest)).reshape(tuple(shape))
        return values.to(self.record.reward.dtype)


@dataclass(frozen=True)
class Trial:
    """The result of a term: its loss, and the gradient of its sum in every leaf by name.

    `policy`: the actor's outputs, [B, T, ...]. `parameters`: trained models. `recorded`: columns, only in a watched
    trial. `context`: gradients in the observations, watched too.
    """

    sum: Tensor
    count: Tensor
    metrics: Mapping[str, tuple[float, float]]
    policy: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    recorded: Mapping[str, Tensor]
    context: Mapping[str, Tensor]
    asked: frozenset[str]


def seen_by(term: Any, batch: Experience) -> tuple[Experience, dict[str, Tensor]]:
    """Returns the record for a term, in its own memory and with declared columns only, and the leaves."""
    needs = frozenset(getattr(term, "needs", frozenset()))
    scored = {name for name in batch.extra if name.startswith("scored.")}
    hidden = scored | {name for name, need in GIVEN_IF_NEEDED.items() if need not in needs}
    record = replace(batch, extra={name: value for name, value in batch.extra.items() if name not in hidden})
    return record.map(torch.clone), {name.removeprefix("scored."): leaf(batch.extra[name]) for name in sorted(scored)}


def evaluate(term: Any, case: TermCase, batch: Experience | None = None, *, watched: bool = False) -> Trial:
    """Runs a term on a case, once, or on another batch of its bench; `watched`, recorded columns take gradient."""
    if batch is None and not watched:
        return case.memo(term, lambda: evaluate(term, case, case.batch))
    record, outputs = seen_by(term, case.batch if batch is None else batch)
    record = watched_columns(record) if watched else record
    view = BenchView(case.bench, record, Scored(**outputs))
    loss = as_loss(term(record, view))
    trained = {name: value for name, value in parameters_of(view) if value.requires_grad}
    noted = {name: value for name, value in record.per_decision() if value.requires_grad}
    policy, parameters, recorded = gradients(loss.sum, (outputs, trained, noted))
    return Trial(
        sum=loss.sum.detach(),
        count=torch.as_tensor(loss.count).detach(),
        metrics={name: (float(value), float(count)) for name, (value, count) in loss.metrics.items()},
        policy=policy,
        parameters=parameters,
        recorded={name: value for name, value in recorded.items() if not name.startswith("context.")},
        context={name: value for name, value in recorded.items() if name.startswith("context.")},
        asked=frozenset(view.asked),
    )


def watched_columns(record: Experience) -> Experience:
    """Returns the record with leaves for what was seen and for what models and credit said; labels and actions stay."""
    context = {name: leaf(value) for name, value in record.context.items()}
    extra = {name: leaf(value) if name in ESTIMATES else value for name, value in record.extra.items()}
    return replace(record, context=context, extra=extra, logp=leaf(record.logp), reward=leaf(record.reward))


def columns_of(record: Experience) -> Iterator[tuple[str, Tensor]]:
    """Yields every column by name, those of single rows included."""
    yield from record.per_decision()
    yield from ((f"extra.{name}", value) for name, value in record.extra.items() if value.dim() < 2)


def leaf(value: Tensor) -> Tensor:
    """Returns a copy that takes gradient."""
    return value.detach().clone().requires_grad_(value.is_floating_point())


def as_loss(value: Any) -> Loss:
    """Returns the term's result as a Loss; AssayError for anything else."""
    if not isinstance(value, Loss) or not isinstance(value.sum, Tensor):
        raise AssayError(f"a term must return Loss(sum, count, metrics); this one returned {type(value).__name__}")
    if value.sum.dim() or torch.as_tensor(value.count).dim():
        shapes = f"{tuple(value.sum.shape)} and {tuple(torch.as_tensor(value.count).shape)}"
        raise AssayError(f"a term's sum and count must be single numbers; this one returned shapes {shapes}")
    return value


def parameters_of(view: BenchView) -> Iterator[tuple[str, Tensor]]:
    """Yields parameters, by model and name, of the models that were asked for."""
    for name, module in view.asked.items():
        for key, value in module.named_parameters():
            yield f"{name}.{key}", value


def carried(slopes: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields gradients that are not zero."""
    yield from (f"the gradient in {name} is {shown(slope)}" for name, slope in slopes.items() if bool(slope.any()))


def gradients(total: Tensor, groups: Sequence[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Returns gradients of a number in several groups of leaves; zeros where it does not depend on one."""
    flat = [value for group in groups for value in group.values()]
    found: Sequence[Tensor | None] = [None] * len(flat)
    if total.requires_grad and flat:
        found = torch.autograd.grad(total, flat, allow_unused=True)
    filled = iter(
        [torch.zeros_like(value) if one is None else one.detach() for one, value in zip(found, flat, strict=True)]
    )
    return [{name: next(filled) for name in group} for group in groups]
