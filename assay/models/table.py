"""A softmax table: logits for each (state, action). Its policy gradient can be computed by enumeration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Context, Discrete, Spec
from assay.ops import distributions


class SoftmaxTable(nn.Module):
    """pi(a|s) = softmax(logits[s])[a]; a bandit's policy is the table with one state."""

    num_draws = 1

    def __init__(self, num_states: int, num_actions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(num_states, num_actions))

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """One decision for each row; the mode where `uniform` is None."""
        logits = self.table[context["state"]]
        action = logits.argmax(-1) if uniform is None else distributions.categorical_sample(logits, uniform[:, 0])
        return action, distributions.categorical_logp(logits, action)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions; entropy and logits if asked."""
        logits = self.table[batch.context["state"]]
        logp = distributions.categorical_logp(logits, batch.action) * batch.mask
        entropy = distributions.categorical_entropy(logits) * batch.mask if Need.ENTROPY in needs else None
        return Scored(logp, entropy, logits if Need.LOGITS in needs else None)


@dataclass(frozen=True)
class Table(ActorSpec):
    """A softmax table for tasks with numbered states and actions."""

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.observation, Discrete) or not isinstance(spec.action, Discrete):
            raise AssayError(
                f"a table needs numbered states and actions, the task has {spec.observation} and {spec.action}"
            )
        return SoftmaxTable(spec.observation.n, spec.action.n)
