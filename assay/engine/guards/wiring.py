"""Guards of how losses and credit are put together: seen once, at the first update or the first credit of a run, since
the answer depends on the code and not on the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.core.record import Experience, State
from assay.core.settings import children
from assay.core.slots import Scene, Transform
from assay.engine.guards.alarms import Alarm, Moment, Watch
from assay.engine.updates import Flaw
from assay.ops import groups

TEXTS = {
    Flaw.MASKED: "{terms} trains on masked decisions (step {step}). Multiply its loss by batch.mask",
    Flaw.ENTROPY: "{terms} grows with the policy's entropy, so that training lowers it and the policy stops exploring "
    "(step {step}). Use -coefficient * entropy with a positive coefficient",
    Flaw.COUNT: "the count of {terms} is not the sum of its parts' counts: with micro-batches, shards or ranks its "
    "loss is a mean of means (step {step}). Return the sum, and count decisions or sequences",
}
"""What an alarm says of a flaw."""
NAMES = {Flaw.MASKED: "masked decisions", Flaw.ENTROPY: "entropy is not lowered", Flaw.COUNT: "counts add up"}


@dataclass(frozen=True)
class SoundLosses(Watch):
    """Checks that no loss has a gradient at a masked decision (prompts, padding, tool output, other players), which
    stops the run; that none grows with the entropy, and that the counts of each add up, which is reported.
    """

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        found = []
        for flaw, text in TEXTS.items():
            terms = ", ".join(dict.fromkeys(one.term for one in moment.slips if one.flaw is flaw))
            if terms:
                said = text.format(terms=terms, step=moment.progress.step)
                found.append(Alarm(NAMES[flaw], said, stop=flaw is Flaw.MASKED))
        return found


def inspect_credit(
    part: Transform, before: Experience, after: Experience, scene: Scene, *, is_first: bool
) -> tuple[Experience, list[Alarm]]:
    """Returns the experience after a part of credit, without gradient, and alarms: columns with a gradient stop the
    run; where `is_first` (of a part without state), advantages that depend on other groups are reported.
    """
    name, found = type(part).__name__, list[Alarm]()
    odd = [column for column, values in after.extra.items() if values.requires_grad]
    if odd:
        text = f"{name} writes '{odd[0]}' with a gradient: the loss would be differentiated through it. Detach it"
        found.append(Alarm("credit without gradient", text, stop=True))
        # The run stops at its alarm; until then nothing is differentiated through it.
        after = replace(after, extra={column: values.detach() for column, values in after.extra.items()})
    if is_first and (why := mixed_groups(part, before, after, scene)):
        text = f"{name} mixes groups: {why}. Compare the rows of `experience.group` alone, or declare"
        found.append(Alarm("groups apart", f"{text} breaks = {{'groups_apart': reason}}"))
    return after, found


def mixed_groups(part: Transform, before: Experience, after: Experience, scene: Scene) -> str:
    """Returns in words that the advantages of half of the groups change without the others; '' if they do not, if
    there are no two groups, if the part says that it compares them, or if it lays out the rows otherwise.
    """
    values = after.extra.get("advantage")
    if before.group is None or values is None or values is before.extra.get("advantage") or compares_groups(part):
        return ""
    if values.shape != before.mask.shape:
        return ""
    labels = groups.linked_groups(before).index
    names = labels.unique()
    rows = torch.isin(labels, names[: len(names) // 2]).nonzero().squeeze(1)
    if not len(rows):
        return ""
    half, mask = before.rows(rows), before.mask[rows]
    try:
        # With metrics of its own: a trial must not be logged.
        alone = part(half, scene.given(metrics={}), {}).column("advantage").detach()
    except Exception as error:  # not hidden: it is the alarm
        return f"with half of the groups it raises {type(error).__name__}: {error}"
    if alone.shape != mask.shape:
        return f"with half of the groups its advantages have shape {list(alone.shape)}, not {list(mask.shape)}"
    gap = (alone - values[rows])[mask].abs()
    largest = float(gap.max()) if len(gap) else 0.0
    if largest <= 1e-4 * (1.0 + float(values[rows][mask].abs().max() if len(gap) else 0.0)):
        return ""
    return f"without the other groups an advantage differs by {largest:.2g}"


def compares_groups(part: Any) -> bool:
    """Returns whether a part, or a part in it, says that groups are compared."""
    return any(
        getattr(one, "across_groups", False) or "groups_apart" in getattr(one, "breaks", {}) for one in parts_of(part)
    )


def parts_of(value: Any) -> Iterator[Any]:
    """Yields a part and all parts in it."""
    yield value
    for _, item in children(value):
        yield from parts_of(item)
