"""Laws of every term: objectives, regularizers, critic losses. Axes: B sequences, T decisions.

The bound of `finite`: recorded and current log-probabilities of -1e4, one log ratio of +-20 in each row, advantages and
rewards of 1e6, in float32. A ratio beyond exp(88) overflows float32 by itself; the engine then skips the update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.bench import fitting, term_cases
from assay.claims.laws.trials import BenchView, TermCase, Trial, carried, columns_of, evaluate, seen_by
from assay.claims.laws.benches import STANDARD, Bench, in_units
from assay.claims.laws.cases import OTHER_UNITS, extreme, is_rescalable, normal, with_dtype
from assay.claims.laws.invariance import Measured, changed_columns, differing, invariances
from assay.claims.laws.laws import LOOSE, TIGHT, Unsuited, gap, is_finite, law, runs, settled, shown
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.settings import models_read
from assay.engine.batching import whole_units

ROW_COLUMNS = ("group", "episode", "source")
"""Columns whose equal rows a term may ask to keep together."""


def cases_on(term: Any, benches: Sequence[Bench] = STANDARD) -> list[TermCase] | list[Unsuited]:
    """Returns the inputs of a term on the benches that suit it."""
    cases, refusals = fitting(settled(term), benches)
    return cases or [Unsuited("every bench", f"no bench suits it ({'; '.join(refusals)})")]


def measured(part: Any, case: TermCase, batch: Experience | None = None) -> Measured:
    """Returns a term's sum, count, metrics and gradients by name."""
    return results(evaluate(part, case, batch))


def results(trial: Trial) -> Measured:
    """Returns a trial's numbers by name; the policy's gradients are those of rows."""
    whole = {"the sum": trial.sum, "the count": trial.count.double()}
    whole |= {f"the metric {name}": torch.tensor(mean(one)).double() for name, one in trial.metrics.items()}
    whole |= {f"the gradient in model {name}": value for name, value in trial.parameters.items()}
    return Measured({f"the gradient in scored {name}": value for name, value in trial.policy.items()}, whole)


def mean(metric: tuple[float, float]) -> float:
    """Returns a metric's sum divided by its count."""
    return metric[0] / max(1.0, metric[1])


def added(trials: Sequence[Trial], order: Tensor) -> Trial:
    """Returns trials of micro-batches added up; the policy's gradients in the order of the whole."""
    first = trials[0]
    back = torch.argsort(order)
    policy = {name: torch.cat([trial.policy[name] for trial in trials])[back] for name in first.policy}
    parameters = {name: torch.stack([trial.parameters[name] for trial in trials]).sum(0) for name in first.parameters}
    total = torch.stack([trial.sum for trial in trials]).sum()
    count = torch.stack([trial.count.double() for trial in trials]).sum()
    metrics = {
        name: (sum(one.metrics[name][0] for one in trials), sum(one.metrics[name][1] for one in trials))
        for name in first.metrics
    }
    return replace(first, sum=total, count=count, metrics=metrics, policy=policy, parameters=parameters)


def littered(batch: Experience) -> Experience:
    """Returns the batch with other numbers wherever the mask is false, in all columns of decisions."""
    spoken = {
        "logp",
        "reward",
        "extra.advantage",
        "extra.return",
        "extra.logp_ref",
        "extra.scored.logp",
        "extra.scored.entropy",
    }

    def spoilt(name: str, column: Tensor) -> Tensor:
        return (
            torch.where(batch.mask, column, 7.0 + normal(name, column.shape).to(column.dtype))
            if name in spoken
            else column
        )

    columns = {name: spoilt(name, column) for name, column in columns_of(batch)}
    extra = {name: columns[f"extra.{name}"] for name in batch.extra}
    return replace(batch, logp=columns["logp"], reward=columns["reward"], extra=extra)


def with_last_action(batch: Experience) -> Experience:
    """Returns the batch with the first action of each row in its last column too: padding is not an action."""
    rows, first = torch.arange(len(batch)), batch.mask.to(torch.uint8).argmax(1)
    action, context = batch.action.clone(), {name: value.clone() for name, value in batch.context.items()}
    action[:, -1] = action[rows, first]
    if "tokens" in context:
        context["tokens"][:, -1], context["valid"][:, -1] = action[:, -1], True
    return replace(batch, action=action, context=context)


# ---------------------------------------------------------------------------------------------------- laws
@law("it says what it needs and which rows stay together")
def declared(part: Any, case: TermCase) -> Iterator[str]:
    """`needs` is a set of needs and annotations, `together` None or a column of rows."""
    if not isinstance(part.needs, frozenset) or not all(is_need(need) for need in part.needs):
        yield f"needs is {part.needs!r}, not a frozenset of Need or of annotations"
    if part.together is not None and part.together not in ROW_COLUMNS:
        yield f"together is {part.together!r}; it is None or one of {', '.join(ROW_COLUMNS)}"


def is_need(need: Any) -> bool:
    """Returns whether it is a need that the engine knows, or an annotation (a callable with column and model)."""
    named = all(isinstance(getattr(need, name, None), str) for name in ("column", "model"))
    return isinstance(need, Need) or (named and callable(need))


@law("every model that it reads is a setting of it")
def names(part: Any, case: TermCase) -> Iterator[str]:
    """Models by `view.model`; the actor may also be read by `view.scored` and `view.sampled`."""
    hidden = evaluate(part, case).asked - {"actor", *models_read(part)}
    yield from (
        f"it reads the model '{name}': add a setting `{name}: str = model_name(...)`" for name in sorted(hidden)
    )


@law("inputs are not modified")
def unmodified(part: Any, case: TermCase) -> Iterator[str]:
    """The batch, the actor's outputs and the models are as they were."""
    asked = evaluate(part, case).asked
    weights = {name: {key: one.clone() for key, one in case.bench.model(name).state_dict().items()} for name in asked}
    record, outputs = seen_by(part, case.batch)
    before = record.map(torch.clone)
    part(record, BenchView(case.bench, record, Scored(**outputs)))
    yield from changed_columns(before, record)
    for name, saved in weights.items():
        now = case.bench.model(name).state_dict()
        yield from (
            f"{key} of model {name} changed" for key, value in saved.items() if not torch.equal(value, now[key])
        )


@law("sums and gradients over micro-batches add up to the whole")
def micro_batches(part: Any, case: TermCase) -> Iterator[str]:
    """Splits that keep whole what must stay together, down to single units."""
    plain = measured(part, case)
    together = frozenset() if part.together is None else frozenset({part.together})
    for size in (1, 3):
        splits = list(whole_units(case.batch, together, size))
        parts = [evaluate(part, case, case.batch.rows(rows)) for rows in splits]
        for detail in differing(results(added(parts, torch.cat(splits))), plain):
            yield f"in {len(splits)} micro-batches {detail}; a term must not divide by what a micro-batch holds"


@law("`count` gives the returned count, needs no model, and is not negative")
def count(part: Any, case: TermCase) -> Iterator[str]:
    """The denominator that the engine asks for before it splits the batch."""
    trial, alone = evaluate(part, case), torch.as_tensor(part.count(case.batch))
    if gap(alone, trial.count) > TIGHT or float(alone) < 0:
        yield f"count(batch) is {shown(alone)}, the loss returned {shown(trial.count)}"


@law("a decision in the last column is in the sum and in the count, or in neither")
def last_column(part: Any, case: TermCase) -> Iterator[str]:
    """Every row decides there too, or none does: nothing may be counted that is not summed. Refusing is fine."""
    last = torch.zeros_like(case.batch.mask)
    last[:, -1] = case.batch.mask.any(1)
    filled = with_last_action(littered(case.batch))
    # Near ratio one: a loss may rightly drop a decision that is far from the recorded policy.
    filled = replace(filled, logp=torch.where(last, filled.column("scored.logp") - 0.1, filled.logp))
    try:
        more = evaluate(part, case, replace(filled, mask=case.batch.mask | last))
    except AssayError:
        return
    less = evaluate(part, case, replace(filled, mask=case.batch.mask & ~last))
    if not (more.sum.any() or less.sum.any()):  # a coefficient of 0 hides what is summed
        return
    if gap(more.sum, less.sum) <= TIGHT and gap(more.count, less.count) > TIGHT:
        counts = f"the count goes from {shown(less.count)} to {shown(more.count)}"
        yield f"with {int(last.sum())} more decisions there {counts}, and the sum stays"


@law("an empty mask gives sum 0 and count 0, and no gradient")
def empty(part: Any, case: TermCase) -> Iterator[str]:
    """No decision at all."""
    none = replace(case.batch, mask=torch.zeros_like(case.batch.mask)).add(
        {"chosen": torch.zeros_like(case.batch.column("chosen"))}
    )
    trial = evaluate(part, case, none)
    if float(trial.sum) != 0.0 or float(trial.count) != 0.0:
        yield f"sum is {shown(trial.sum)}, count {shown(trial.count)}"
    yield from carried({**trial.policy, **trial.parameters})


@law("masked decisions change nothing and carry no gradient")
def masked(part: Any, case: TermCase) -> Iterator[str]:
    """Other numbers stand where the mask is false."""
    other, hole = measured(part, case, littered(case.batch)), ~case.batch.mask
    yield from differing(other, measured(part, case))
    for name, gradient in other.columns.items():
        if bool((gradient[hole] != 0).any()):
            yield f"{name} is {shown(gradient[hole])} where the mask is false"


@law("large but finite inputs give finite sums, metrics and gradients")
def finite(part: Any, case: TermCase) -> Iterator[str]:
    """See the module's docstring for the bound."""
    far = extreme(case.batch)
    deep = torch.full_like(far.logp, -1e4) * far.mask
    trial = evaluate(part, case, with_dtype(far.add({"scored.logp": deep}), torch.float32))
    numbers = {
        "the sum": trial.sum,
        **{f"the metric {name}": torch.tensor(mean(one)) for name, one in trial.metrics.items()},
    }
    numbers |= {f"the gradient in {name}": value for name, value in {**trial.policy, **trial.parameters}.items()}
    yield from (
        f"{name} is {shown(value[~torch.isfinite(value)])}" for name, value in numbers.items() if not is_finite(value)
    )


@law("actions in other units give the same sum, metrics and gradients")
def rescaled(part: Any, case: TermCase) -> Iterator[str]:
    """Bounds and recorded actions times 2^-6, and shifted, with equal weights."""
    if not is_rescalable(case.bench.spec):
        return
    factor, shift = OTHER_UNITS[0]
    others = term_cases(part, in_units(case.bench, factor, shift))
    (other,) = [one for one in others if one.name == case.name]
    for detail in differing(measured(part, other), measured(part, case), LOOSE):
        yield f"with half-ranges times {factor:g} {detail}"


SAME = invariances(measured, plain=measured)
OWN = (unmodified, micro_batches, count, last_column, empty, masked, finite, rescaled)
COMMON = (runs, declared, names, *SAME, *OWN)
