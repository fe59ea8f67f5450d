"""Optimizers: frozen parts that move flat tensors of parameters; what they remember is a state that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.slots import Schedule, number
from assay.types import State, Sums


@dataclass(frozen=True)
class Adam:
    """Adam (arXiv:1412.6980) with decoupled weight decay (arXiv:1711.05101); gradients are scaled down to
    `clip_norm` first.
    """

    learning_rate: float | Schedule = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    def init(self, values: Sequence[Tensor]) -> State:
        """First and second moments, and the number of steps."""
        first, second = ([torch.zeros_like(each) for each in values] for _ in range(2))
        return {"first": first, "second": second, "steps": 0}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """p <- p - lr * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * p), in place."""
        state["steps"] += 1
        steps = [torch.tensor(float(state["steps"]), device=values[0].device)] * len(values)
        torch._fused_adamw_(
            list(values), list(gradients), state["first"], state["second"], [], steps,
            lr=number(self.learning_rate), beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay,
            eps=self.epsilon, amsgrad=False, maximize=False,
        )  # fmt: skip
