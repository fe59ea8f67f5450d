"""Policies over discrete actions. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.table import Table
from assay.models.heads.masks import apply_mask
from assay.models.heads.spaces import need_discrete
from assay.models.heads.tokens import divided, token_policy
from assay.ops import distributions
from assay.ops.distributions import check_temperature


class CategoricalPolicy(nn.Module):
    """pi(a|s) = softmax(logits(s) / temperature)[a], with logits from a body."""

    num_draws = 1

    def __init__(self, body: nn.Module, temperature: float = 1.0) -> None:
        super().__init__()
        self.body, self.temperature = body, temperature

    def logits(self, context: Context) -> Tensor:
        """Returns unnormalised log-probabilities [..., A]."""
        logits: Tensor = self.body(context)
        return apply_mask(divided(logits, self.temperature), context)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns one decision for each row; the mode if `uniform` is None."""
        logits = self.logits(context)
        action = logits.argmax(-1) if uniform is None else distributions.categorical_sample(logits, uniform[:, 0])
        return action, distributions.categorical_logp(logits, action)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the recorded decisions, zero where masked; entropy and logits if requested."""
        logits = self.logits(batch.context)
        log_prob = logits.log_softmax(-1)
        logp = log_prob.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) * batch.mask
        entropy = -(log_prob.exp() * log_prob).sum(-1) * batch.mask if Need.ENTROPY in needs else None
        return Scored(logp, entropy, logits if Need.LOGITS in needs else None, None, *asked(logits, batch, needs))


class SoftmaxTable(CategoricalPolicy):
    """pi(a|s) = softmax(table[s])[a]; a bandit's policy is the table with one state. Its scores equal those of `act`
    bitwise, and its entropy is finite even if a logit is minus infinity.
    """

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        logits = self.logits(batch.context)
        logp = distributions.categorical_logp(logits, batch.action) * batch.mask
        entropy = distributions.categorical_entropy(logits) * batch.mask if Need.ENTROPY in needs else None
        return Scored(logp, entropy, logits if Need.LOGITS in needs else None, None, *asked(logits, batch, needs))


def asked(logits: Tensor, batch: Experience, needs: frozenset[Need]) -> tuple[Tensor | None, Tensor | None]:
    """Returns (log-probabilities of the candidates, mean log-probability), zero where masked; None if not needed."""
    mask, candidates, uniform = batch.mask, None, None
    if Need.CANDIDATES in needs:
        chosen = batch.column("candidates")[..., 0].long()
        candidates = distributions.categorical_candidates(logits, chosen) * mask.unsqueeze(-1)
    if Need.UNIFORM in needs:
        uniform = distributions.uniform_logp(logits) * mask
    return candidates, uniform


@dataclass(frozen=True)
class Categorical(ActorHead):
    """A softmax over discrete actions, or over the tokens of a vocabulary.

    Logits are divided by `temperature` wherever the policy is used: to act, in ratios and losses, as a reference, and
    in evaluation. So the recorded log-probabilities are those of the policy that is trained.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if isinstance(spec.action, Vocabulary):
            return token_policy(body, spec, self.temperature)
        outputs = body.outputs(spec, Ask((need_discrete(spec, "a categorical actor").n,), gain=0.01))
        kind = SoftmaxTable if isinstance(body, Table) else CategoricalPolicy
        return kind(outputs, self.temperature)
