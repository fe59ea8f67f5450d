"""Runs terms once: what they ask for, the loss, and its gradients. Axes: B sequences, T decisions."""

from __future__ import annotations
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
import numpy as np
import torch
from torch import Tensor, nn
from assay.claims.laws.laws import Memo, shown
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Loss, Need, Scored
from assay.engine.engine import own_decisions
from assay.ops import random
from assay.claims.laws.benches import Bench

GIVEN_IF_NEEDED = {"value": Need.VALUE, "logp_ref": Need.REFERENCE}
"""Columns that the engine adds only if a part declares that it needs them."""
ESTIMATES = ("value", "logp_ref", "advantage", "return")
"""Added columns through which gradient could leak into what was fixed before the update."""



# ---------------------------------------------------------------------------------------------------- inputs
@dataclass(frozen=True)
class TermCase:
    """A batch with the actor's outputs, and the bench that it belongs to."""

    name: str
    batch: Experience
    bench: Bench
    memo: Memo[Trial] = field(default_factory=Memo, init=False, compare=False, repr=False)



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
