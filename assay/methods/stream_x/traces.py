"""What a loss tells an optimizer that keeps eligibility traces, as metrics. Axes: B sequences, T decisions."""

from __future__ import annotations

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience


def decided_and_seen(batch: Experience) -> Experience:
    """All columns but the last; refuses a decision in the last one, since nothing was seen after it."""
    if bool(batch.mask[:, -1].any()):
        raise AssayError("a TD error needs what was seen after each decision; take source OneByOne() or Replay()")
    return batch.now


def td_error(now: Experience, value_t: Tensor, value_next: Tensor, discount: float) -> Tensor:
    """delta_t = r_t + discount * V(s_next) - V(s_t), zero where masked, without gradient.

    After a terminal decision V(s_next) is 0; a truncated one bootstraps.
    """
    target = now.reward + discount * value_next * (~now.terminal)
    return ((target - value_t) * now.weight).detach()


def trace_metrics(now: Experience, delta: Tensor, cut: Tensor | None = None) -> dict[str, tuple[Tensor, Tensor]]:
    """`td_error`, `episode_over` (empties the trace after this decision) and, where given, `trace_cut` (before it)."""
    count, over = now.num_decisions, (now.terminal | now.truncated) & now.mask
    metrics = {"td_error": (delta.sum(), count), "episode_over": (over.sum(), count)}
    return metrics if cut is None else metrics | {"trace_cut": ((cut & now.mask).sum(), count)}
