"""Completing trajectories: the next token, or those that are masked. Axes: B windows, T columns, n tokens, W width."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from assay.method import Experience, Loss, Need, Objective, View, model_name


@dataclass(frozen=True)
class NextToken(Objective):
    """-sum over tokens of log p(token | those before it in the window) / n, a mean over decisions.

    The first token of a window is given. Vectors have half of a squared error instead. Degenerate: a window without a
    decision has none. Source: arXiv:2307.10936 (C-GPT). Assumes windows of a log.
    """

    actor: str = model_name("actor")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None
    breaks: ClassVar[Mapping[str, str]] = {"zero_credit": "it clones: every recorded decision counts"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of decisions."""
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the misses of states and actions."""
        trunk = view.model(self.actor).body.trunk
        state, there = trunk.states(batch.context["observation"]), tokens_of(batch, trunk.tokens.counts)
        missed = self.misses(trunk, state, batch, there, view)
        miss, count = missed.sum() / there.shape[2], self.count(batch)
        return Loss(miss, count, {"token_miss": (miss.detach(), count)})

    def misses(self, trunk: Any, state: Tensor, batch: Experience, there: Tensor, view: View) -> Tensor:
        """Returns the miss of each token, 0 where none counts, [B, T, n]."""
        hidden = trunk(state, batch.action, batch.context.get("time")).flatten(1, 2)
        before = functional.pad(hidden[:, :-1], (0, 0, 1, 0)).unflatten(1, there.shape[1:])
        there[:, 0, 0] = False
        return torch.where(there, trunk.tokens.miss(before, state, batch.action), 0.0)


@dataclass(frozen=True)
class MaskedToken(NextToken):
    """-sum over masked tokens of log p(token | all that are not) / n, a mean over decisions; each is masked with chance
    `share`. Degenerate: share 0 is 0. Source: arXiv:2307.10936 (C-BERT).
    """

    share: float = 0.15

    def misses(self, trunk: Any, state: Tensor, batch: Experience, there: Tensor, view: View) -> Tensor:
        """Returns the miss of each masked token, [B, T, n]."""
        masked = there & (view.uniform(there.shape, 12) < self.share)
        hidden = trunk(state, batch.action, batch.context.get("time"), there, masked)
        return torch.where(masked, trunk.tokens.miss(hidden, state, batch.action), 0.0)


def tokens_of(batch: Experience, counts: tuple[int, int]) -> Tensor:
    """Returns which tokens windows have, [B, T, n]: those of decisions, and of the state after the last one."""
    acted = batch.mask
    seen = acted | functional.pad(acted[:, :-1], (1, 0))
    return torch.cat([one.unsqueeze(2).expand(-1, -1, num) for one, num in zip((seen, acted), counts, strict=True)], 2)
