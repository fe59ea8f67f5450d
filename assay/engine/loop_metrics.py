"""Metrics of a step: means over minibatches, outcomes, credit. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

import torch
from torch import Tensor

from assay.core.metrics import Metric
from assay.core.record import Experience, Origin, Sums
from assay.ops import groups


def count_sampled(fresh: Experience) -> int:
    """Returns the number of decisions that the policy itself sampled, hinted ones included."""
    if fresh.source is None:
        return int(fresh.mask.sum())
    # Hinted rows were sampled too, and paid for; demonstrations cost no sampling.
    ours = (fresh.source == int(Origin.POLICY)) | (fresh.source == int(Origin.HINTED))
    return int(fresh.mask[ours].sum())


# ---------------------------------------------------------------------------------------------------- metrics
def means(found: Sequence[Sums]) -> dict[str, float]:
    """Returns (sum, count) metrics of all updates as means."""
    sums: Sums = {}
    for name, entries in chain.from_iterable(some.items() for some in found):
        sums.setdefault(name, []).extend(entries)
    flat = _read_numbers([number for entries in sums.values() for entry in entries for number in entry])
    # The flat list has the order of the entries: sum, count, sum, count.
    rest = zip(flat[::2], flat[1::2], strict=True)
    return averages({name: list(islice(rest, len(entries))) for name, entries in sums.items()})


def largest_means(found: Sequence[Sums], watched: Iterable[Metric]) -> dict[str, float]:
    """Returns the metrics that are the largest mean of another over the updates; none without such an update."""
    result: dict[str, float] = {}
    for one in (one for one in watched if one.largest_of):
        entries = [sums[one.largest_of] for sums in found if one.largest_of in sums]
        shares = [float(sum(value for value, _ in some) / max(1.0, sum(num for _, num in some))) for some in entries]
        if shares:
            result[one.name] = max(shares)
    return result


def averages(numbers: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
    """Returns sums over counts of each metric's entries, and the effective share of samples from the ratios."""
    result = {
        name: sum(value for value, _ in some) / max(1.0, sum(count for _, count in some))
        for name, some in numbers.items()
    }
    squared = result.pop("ratio_squared", None)  # not shown by itself: it becomes (E r)^2 / E r^2
    if squared:
        result["effective_samples"] = result["ratio"] ** 2 / squared
    return result


def _read_numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Reads single numbers, with one transfer per device."""
    # One transfer per device: reading each number alone would make the host wait each time.
    by_device: dict[torch.device, list[int]] = {}
    for place, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(place)
    numbers = [0.0] * len(tensors)
    for places in by_device.values():
        read = torch.stack([tensors[place].double() for place in places]).tolist()
        for place, number in zip(places, read, strict=True):
            numbers[place] = number
    return numbers


def outcome_metrics(fresh: Experience) -> dict[str, float]:
    """Returns reward and length of the policy's own finished episodes; `longest` is the number of decisions of the
    longest row, which bounds the step's time.
    """
    decisions = fresh.mask.sum()
    # A row whose episode goes on has no outcome yet.
    rows = ((fresh.terminal | fresh.truncated) & fresh.mask).any(1)
    metrics = {
        "decisions": float(decisions),
        "longest": float(fresh.mask.sum(1).max()) if len(fresh) else 0.0,
        "reward_per_decision": float((fresh.reward * fresh.mask).sum() / decisions.clamp(min=1)),
    }
    # Fragments of control: an episode may have begun in an earlier one, so that its return is a column.
    if "episode_return" in fresh.extra:
        over = fresh.terminal | fresh.truncated
        if bool(over.any()):
            metrics["reward"] = float(fresh.extra["episode_return"][over].mean())
            metrics["length"] = float(fresh.extra["episode_length"][over].mean())
    elif "score" in fresh.extra and bool(rows.any()):
        metrics["reward"] = float(fresh.extra["score"][rows].mean())
        metrics["length"] = float(decisions / rows.sum())
        metrics["cut"] = float((fresh.truncated & fresh.mask).any(1)[rows].float().mean())
    if "infra_fault" in fresh.extra:
        metrics["infra_faults"] = float(fresh.extra["infra_fault"].sum())
    return metrics


def credit_metrics(fresh: Experience) -> dict[str, float]:
    """Returns the share of groups without advantage, and the spread of advantages."""
    if "advantage" not in fresh.extra:
        return {}
    advantage, mask = fresh.extra["advantage"], fresh.mask
    metrics = {"advantage_spread": float(advantage[mask].std()) if int(mask.sum()) > 1 else 0.0}
    if fresh.group is not None:
        by_group = groups.row_groups(fresh)
        # A group is without a signal if none of its decisions has an advantage.
        largest = groups.total((advantage.abs() * mask).amax(1), by_group)
        metrics["zero_advantage_groups"] = float((largest < 1e-8).float().mean())
    return metrics
