"""Policies of several discrete choices at once. Axes: B, T, N rows, A choices, M options of a choice."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Context, MultiDiscrete, Spec
from assay.models.heads.masks import apply_mask
from assay.ops import distributions


class FactoredPolicy(nn.Module):
    """pi(a|s) = prod_i softmax(logits_i(s))[a_i]: the choices are independent given the state."""

    def __init__(self, body: nn.Module, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.body, self.sizes, self.num_draws = body, sizes, len(sizes)

    def logits(self, context: Context) -> list[Tensor]:
        """Returns the logits [..., M_i] of each choice."""
        together = apply_mask(self.body(context), context)
        return list(together.split(self.sizes, -1))

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns (action [N, A], logp [N]); the mode of every choice if `uniform` is None."""
        logits = self.logits(context)
        if uniform is None:
            chosen = [one.argmax(-1) for one in logits]
        else:
            chosen = [distributions.categorical_sample(one, uniform[:, i]) for i, one in enumerate(logits)]
        return torch.stack(chosen, -1), self.logp(logits, torch.stack(chosen, -1))

    def logp(self, logits: list[Tensor], action: Tensor) -> Tensor:
        """Returns the sum of the choices' log-probabilities."""
        each = [distributions.categorical_logp(one, action[..., i]) for i, one in enumerate(logits)]
        return torch.stack(each).sum(0)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the recorded decisions, zero where masked; the sum of entropies if requested."""
        unknown = needs & {Need.LOGITS, Need.CANDIDATES, Need.UNIFORM}
        if unknown:
            raise AssayError("this loss needs all logits of one choice, and the task has several. Try ppo or a2c")
        logits = self.logits(batch.context)
        entropy = None
        if Need.ENTROPY in needs:
            entropy = torch.stack([distributions.categorical_entropy(one) for one in logits]).sum(0) * batch.mask
        return Scored(self.logp(logits, batch.action.long()) * batch.mask, entropy)


@dataclass(frozen=True)
class Factored(ActorHead):
    """Independent softmaxes, one for each of several choices."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if not isinstance(spec.action, MultiDiscrete):
            raise AssayError(f"a factored actor needs several discrete choices, the task has {spec.action}")
        outputs = body.outputs(spec, Ask((sum(spec.action.sizes),), gain=0.01))
        return FactoredPolicy(outputs, spec.action.sizes)
