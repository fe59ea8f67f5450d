"""Optimizers: frozen parts that update flat tensors of parameters and keep a saved state.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import State, Sums
from assay.core.slots import Optimizer, Schedule, number


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (arXiv:1412.6980) with decoupled weight decay (arXiv:1711.05101). Gradients are first clipped to the
    global norm `clip_norm`.

    Parameters of less than 32 bits (bfloat16) have float32 master weights in the optimizer state. Steps update the
    masters, and the parameters are their roundings, so changes far below a parameter's precision add up. A parameter
    that was overwritten from outside no longer equals its master's rounding; its master restarts from the new value.
    A NaN gradient changes nothing, bit for bit, and is not counted as a step; the host never waits for that check.
    """

    is_steady: ClassVar[bool] = True
    is_elementwise: ClassVar[bool] = True
    learning_rate: float | Schedule = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    def init(self, values: Sequence[Tensor]) -> State:
        """Returns zero moments, the step count 0, and master weights for parameters of low precision."""
        masters = [each.detach().to(widened(each)) for each in values]
        first, second = ([torch.zeros_like(each) for each in masters] for _ in range(2))
        state = {"first": first, "second": second, "steps": torch.zeros((), device=values[0].device)}
        is_low = any(each.dtype != master.dtype for each, master in zip(values, masters, strict=True))
        return {**state, "master": masters} if is_low else state

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """p <- p - lr * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * p), in place."""
        moved, steps = list(values), state["steps"]
        is_nan = torch.stack([gradient.sum() for gradient in gradients]).sum().isnan().float()
        steps.add_(1.0 - is_nan)
        if "master" in state:
            moved = state["master"]
            gradients = [gradient.to(master.dtype) for gradient, master in zip(gradients, moved, strict=True)]
            for value, master in zip(values, moved, strict=True):
                torch.where(master.to(value.dtype) == value, master, value, out=master)
        torch._fused_adamw_(
            moved, list(gradients), state["first"], state["second"], [], [steps] * len(values),
            lr=number(self.learning_rate), beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay,
            eps=self.epsilon, amsgrad=False, maximize=False, found_inf=is_nan,
        )  # fmt: skip
        if "master" in state:
            torch._foreach_copy_(list(values), moved)


def widened(value: Tensor) -> torch.dtype:
    """Returns float32, or the value's own dtype if it is wider."""
    return torch.promote_types(value.dtype, torch.float32) if value.is_floating_point() else value.dtype


def total(sums: Sums, name: str) -> tuple[float, float]:
    """Returns (sum, count) of a metric of this update; (0, 0) if no loss reported it."""
    entries = sums.get(name, [])
    return sum(float(value) for value, _ in entries), sum(float(count) for _, count in entries)


@dataclass(frozen=True)
class Traced(Optimizer):
    """Eligibility traces in front of an optimizer: z <- decay * z + g; the inner optimizer descends along delta * z.

    g is the gradient of minus an output (a value, a log-probability), delta the mean of the metric `td_error`, decay
    discount * lambda. z is set to zero before a decision that the metric `trace_cut` marks and after one that ends an
    episode (`episode_over`). Assumes one decision per update; an update without one changes nothing. decay 0 is
    TD(0).
    """

    inner: Optimizer
    decay: float
    clip_norm: ClassVar[float] = 0.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"inner": Adam(1e-3), "decay": 0.9},)

    @property
    def learning_rate(self) -> float | Schedule:
        return self.inner.learning_rate

    @property
    def is_elementwise(self) -> bool:
        """Whether the inner optimizer is; the traces are."""
        return self.inner.is_elementwise

    def init(self, values: Sequence[Tensor]) -> State:
        return {"trace": [torch.zeros_like(each) for each in values], "inner": self.inner.init(values)}

    def begin(self, state: State) -> None:
        self.inner.begin(state["inner"])

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Updates the traces, then the values, in place."""
        delta, decisions = total(sums, "td_error")
        if not decisions:
            return
        decay = 0.0 if total(sums, "trace_cut")[0] else self.decay
        for trace, gradient in zip(state["trace"], gradients, strict=True):
            trace.mul_(decay).add_(gradient)
        along = [delta / decisions * trace for trace in state["trace"]]
        self.inner.step(values, along, sums, state["inner"])
        if total(sums, "episode_over")[0]:
            torch._foreach_zero_(state["trace"])


@dataclass(frozen=True)
class ObGD(Optimizer):
    """Overshooting-bounded gradient descent (arXiv:2410.14606) along g = delta * z.

        p <- p - min(learning_rate, 1 / (kappa * max(|delta|, 1) * |z|_1)) * g

    So |change|_1 <= 1 / kappa whatever the gradient. delta is the mean of the metric `td_error`; 0 moves nothing.
    """

    kappa: float = 2.0
    learning_rate: float | Schedule = 1.0
    clip_norm: ClassVar[float] = 0.0

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        delta, decisions = total(sums, "td_error")
        length = sum(float(each.abs().sum()) for each in gradients)
        if not length or not delta:
            return
        # |g|_1 = |delta| |z|_1, so that max(|delta|, 1) |z|_1 = |g|_1 max(1, 1 / |delta|).
        bound = self.kappa * length * max(1.0, decisions / abs(delta))
        rate = min(number(self.learning_rate), 1.0 / bound)
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(gradient, alpha=rate)


@dataclass(frozen=True)
class Descent(Optimizer):
    """p <- p - learning_rate * g. At rate 1, with g = p - mean, one step sets p to that mean."""

    is_elementwise: ClassVar[bool] = True
    learning_rate: float | Schedule = 1.0
    clip_norm: float = 0.0

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(gradient, alpha=number(self.learning_rate))


@dataclass(frozen=True)
class Averaging(Optimizer):
    """p <- p - learning_rate * (k / n) * g: with g = p - mean of k samples, p is the mean of all n samples so far.

    k is the metric `samples` of the update. The first samples replace the initial p.
    """

    is_elementwise: ClassVar[bool] = True
    learning_rate: float | Schedule = 1.0
    clip_norm: ClassVar[float] = 0.0

    def init(self, values: Sequence[Tensor]) -> State:
        return {"samples": 0.0}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        new = total(sums, "samples")[1]
        if not new:
            return
        state["samples"] += new
        rate = number(self.learning_rate) * new / state["samples"]
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(gradient, alpha=rate)
