"""Metrics from which an optimizer updates eligibility traces. Axes: B sequences, T decisions."""

from __future__ import annotations

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience


def decided_and_seen(batch: Experience) -> Experience:
    """Returns all columns but the last; raises AssayError for a decision in the last one, which has no next context."""
    if bool(batch.mask[:, -1].any()):
        raise AssayError("a TD error needs the context after each decision. Use source OneByOne() or Replay()")
    return batch.now


def td_error(now: Experience, value_t: Tensor, value_next: Tensor, discount: float) -> Tensor:
    """Returns delta_t = r_t + discount * V(s_next) - V(s_t), zero where masked, without gradient.

    After a terminal decision V(s_next) is 0; a truncated one bootstraps.
    """
    target = now.reward + discount * value_next * (~now.terminal)
    return ((target - value_t) * now.weight).detach()


def trace_metrics(now: Experience, delta: Tensor, cut: Tensor | None = None) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns `td_error`, `episode_over` (empties the trace after this decision) and, if given, `trace_cut` (before
    it).
    """
    count, over = now.num_decisions, (now.terminal | now.truncated) & now.mask
    metrics = {"td_error": (delta.sum(), count), "episode_over": (over.sum(), count)}
    return metrics if cut is None else metrics | {"trace_cut": ((cut & now.mask).sum(), count)}
