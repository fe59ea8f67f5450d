"""A transformer policy over tokens. Axes: B sequences, T tokens, V vocabulary.

Decision t is token t given the tokens before it: its logits come from position t - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import Body
from assay.core.spaces import Spec, Vocabulary
from assay.models.bodies.transformer import Cache, Transformer, Trunk
from assay.models.held import Held
from assay.ops import distributions


class TokenPolicy(nn.Module):
    """A policy over tokens: a trunk and an output layer."""

    forbidden: Tensor

    def __init__(self, vocabulary: Vocabulary, trunk: Trunk) -> None:
        super().__init__()
        self.vocabulary, self.trunk, self.sampler = vocabulary, trunk, Held()
        self.output = nn.Linear(trunk.width, vocabulary.size, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)
        forbidden = torch.zeros(vocabulary.size)
        forbidden[[vocabulary.pad, vocabulary.bos]] = -1e9
        self.register_buffer("forbidden", forbidden, persistent=False)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns unnormalised log-probabilities; padding and start tokens have probability 0."""
        return self.output(hidden) + self.forbidden

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Cache:
        """Returns a decoder of `repeats` rows of each prompt."""
        return Cache(self.trunk, self.logits, prompts, repeats, num_new)

    def release(self) -> None:
        """Frees the memory that decoding on a GPU holds."""
        self.sampler.release()

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the decided tokens; the output layer runs on decisions only."""
        states = self.trunk.before(batch.context)
        mask = batch.mask.clone()
        mask[:, 0] = False
        hidden = states[mask]
        logits = self.logits(hidden)
        log_prob = logits.log_softmax(-1)

        def spread(values: Tensor) -> Tensor:
            there = mask.view(*mask.shape, *[1] * (values.dim() - 1))
            return values.new_zeros(*mask.shape, *values.shape[1:]).masked_scatter(there, values)

        logp = spread(log_prob.gather(-1, batch.action[mask].unsqueeze(-1)).squeeze(-1))
        entropy = spread(-(log_prob.exp() * log_prob).sum(-1)) if Need.ENTROPY in needs else None
        known = spread(logits) if Need.LOGITS in needs else None
        candidates = uniform = None
        if Need.CANDIDATES in needs:
            candidates = spread(log_prob.gather(-1, batch.column("candidates")[mask][..., 0].long()))
        if Need.UNIFORM in needs:
            uniform = spread(distributions.uniform_logp(logits))
        return Scored(logp, entropy, known, states if Need.HIDDEN in needs else None, candidates, uniform)


def token_policy(body: Body, spec: Spec) -> TokenPolicy:
    """Returns a policy over the task's tokens; raises AssayError if the body does not decode."""
    if not isinstance(spec.action, Vocabulary) or not isinstance(body, Transformer):
        raise AssayError(
            f"a policy over tokens needs the body Transformer(), or Pretrained(path) as the actor, got {body}"
        )
    return TokenPolicy(spec.action, body.states(spec))
