"""Benches for loss terms: small real models for one kind of task, and a view whose actor outputs are leaves.

The leaves hold the outputs of the bench's own actor on the batch, so that log-probabilities, logits, entropies and the
reference are consistent; they are leaves so that each gradient can be read. They are columns `scored.*` of the batch:
rows, padding and precision apply to them as to the record. Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.cases import (
    CONTROL_LAYOUTS,
    TOKEN_LAYOUTS,
    build,
    normal,
    with_path,
)
from assay.core.columns import axes_of
from assay.core.record import Experience, Need, Scored
from assay.core.slots import Annotation
from assay.core.spaces import Vocabulary
from assay.claims.laws.benches import Bench
from assay.claims.laws.trials import TermCase, evaluate

LEAST_LOGP = -50.0
"""The lowest log-probability of the actor and the reference on the laws' decisions."""


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


