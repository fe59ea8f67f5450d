"""Optimizers: frozen parts that move flat tensors of parameters; what they remember is a state that is saved."""

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
    """Adam (arXiv:1412.6980) with decoupled weight decay (arXiv:1711.05101); gradients are scaled down to
    `clip_norm` first.

    Values of less than 32 bits (bfloat16) keep float32 masters beside their moments: steps move the masters, and the
    values are their roundings, so that changes far below a value's precision add up. A value that somebody else has
    written is no longer its master's rounding, and its master starts from it. A gradient of NaN changes nothing, bit
    for bit, and is not counted; the host never waits for the answer.
    """

    is_steady: ClassVar[bool] = True
    learning_rate: float | Schedule = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    def init(self, values: Sequence[Tensor]) -> State:
        """First and second moments, the number of steps, and masters where values are of low precision."""
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
    """float32, or wider where the value is."""
    return torch.promote_types(value.dtype, torch.float32) if value.is_floating_point() else value.dtype


def total(sums: Sums, name: str) -> tuple[float, float]:
    """(sum, count) of a metric of this update; (0, 0) where no loss gave it."""
    entries = sums.get(name, [])
    return sum(float(value) for value, _ in entries), sum(float(count) for _, count in entries)


@dataclass(frozen=True)
class Traced(Optimizer):
    """Eligibility traces in front of an optimizer: z <- decay * z + g, and the inner one descends along delta * z.

    g is the gradient of minus an output (a value, a log-probability), delta the mean of the metric `td_error`, decay
    discount * lambda. z is emptied before a decision that the metric `trace_cut` marks and after one that ends an
    episode (`episode_over`). Assumes one decision an update; without one nothing moves. decay 0 is TD(0).
    """

    inner: Optimizer
    decay: float
    clip_norm: ClassVar[float] = 0.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"inner": Adam(1e-3), "decay": 0.9},)

    @property
    def learning_rate(self) -> float | Schedule:
        """The inner one's."""
        return self.inner.learning_rate

    def init(self, values: Sequence[Tensor]) -> State:
        """Empty traces, and the inner state."""
        return {"trace": [torch.zeros_like(each) for each in values], "inner": self.inner.init(values)}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Moves the traces, then the values."""
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

    def init(self, values: Sequence[Tensor]) -> State:
        """Nothing to remember."""
        return {}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """One bounded step, in place."""
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
    """p <- p - learning_rate * g. At rate 1, with g = p - a mean, p becomes that mean at once."""

    learning_rate: float | Schedule = 1.0
    clip_norm: float = 0.0

    def init(self, values: Sequence[Tensor]) -> State:
        """Nothing to remember."""
        return {}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """One step, in place."""
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(gradient, alpha=number(self.learning_rate))


@dataclass(frozen=True)
class Averaging(Optimizer):
    """p <- p - learning_rate * (k / n) * g: with g = p - mean of k samples, p is the mean of all n samples so far.

    k is the metric `samples` of the update. The first samples replace whatever p was.
    """

    learning_rate: float | Schedule = 1.0
    clip_norm: ClassVar[float] = 0.0

    def init(self, values: Sequence[Tensor]) -> State:
        """No samples yet."""
        return {"samples": 0.0}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Moves the means, in place."""
        new = total(sums, "samples")[1]
        if not new:
            return
        state["samples"] += new
        rate = number(self.learning_rate) * new / state["samples"]
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(gradient, alpha=rate)
