"""A transformer that decides tokens. Axes: B sequences, T tokens, V vocabulary.

Decision t is token t given the tokens before it: its logits come from position t - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Spec, Vocabulary
from assay.models.bodies.transformer import Cache, Trunk
from assay.models.held import Held


class TransformerActor(nn.Module):
    """A policy over tokens: a trunk and an output layer."""

    forbidden: Tensor

    def __init__(self, vocabulary: Vocabulary, trunk: Trunk, pack_to: int) -> None:
        super().__init__()
        self.vocabulary, self.trunk, self.pack_to, self.sampler = vocabulary, trunk, pack_to, Held()
        self.output = nn.Linear(trunk.norm.shape[0], vocabulary.size, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)
        forbidden = torch.zeros(vocabulary.size)
        forbidden[[vocabulary.pad, vocabulary.bos]] = -1e9
        self.register_buffer("forbidden", forbidden, persistent=False)

    def logits(self, hidden: Tensor) -> Tensor:
        """Unnormalised log-probabilities; padding and start tokens can never be chosen."""
        return self.output(hidden) + self.forbidden

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Decoder:
        """Rows that decode together, `repeats` of each prompt."""
        return Decoder(self, Cache(self.trunk, prompts, repeats, num_new))

    def release(self) -> None:
        """Frees the memory that decoding on a GPU holds."""
        self.sampler.release()

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the decided tokens; the output layer runs on decisions only."""
        states = self.trunk.states_before(batch.context, self.pack_to)
        mask = batch.mask.clone()
        mask[:, 0] = False
        hidden = states[mask]
        logits = self.logits(hidden)
        log_prob = logits.log_softmax(-1)

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(*mask.shape, *values.shape[1:]).masked_scatter(unsqueeze_to(mask, values), values)

        logp = spread(log_prob.gather(-1, batch.action[mask].unsqueeze(-1)).squeeze(-1))
        entropy = spread(-(log_prob.exp() * log_prob).sum(-1)) if Need.ENTROPY in needs else None
        return Scored(
            logp,
            entropy,
            spread(logits) if Need.LOGITS in needs else None,
            states if Need.HIDDEN in needs else None,
        )


class Decoder:
    """Token by token: `logits` for the next token of each row, `push` the chosen tokens, `keep` the unfinished rows."""

    def __init__(self, actor: TransformerActor, cache: Cache) -> None:
        self.actor, self.cache = actor, cache

    def logits(self) -> Tensor:
        """[N, V] for the next token."""
        return self.actor.logits(self.cache.hidden)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.cache.push(tokens)

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only."""
        self.cache.keep(rows)


def unsqueeze_to(mask_BT: Tensor, values: Tensor) -> Tensor:
    """The mask with trailing axes of one, to broadcast against [B, T, ...]."""
    return mask_BT.view(*mask_BT.shape, *[1] * (values.dim() - 1))


@dataclass(frozen=True)
class Transformer(ActorSpec):
    """A decoder-only transformer policy for token tasks. The default has 0.4 million parameters.

    `pack_to`: pack short sequences into rows of this many tokens when scoring; 0 pads instead.
    """

    width: int = 128
    layers: int = 2
    heads: int = 4
    pack_to: int = 0

    def trunk(self, spec: Spec) -> tuple[Vocabulary, Trunk]:
        """The task's vocabulary and a trunk for it."""
        if not isinstance(spec.action, Vocabulary):
            raise AssayError(
                f"a transformer needs a token task, this one has actions {spec.action}; use Mlp() or Squashed()"
            )
        if self.width % (2 * self.heads):
            raise AssayError(
                f"width {self.width} is not a multiple of 2 x heads ({self.heads}); try width {2 * self.heads * 16}"
            )
        return spec.action, Trunk(spec.action, self.width, self.layers, self.heads)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        vocabulary, trunk = self.trunk(spec)
        return TransformerActor(vocabulary, trunk, self.pack_to)
