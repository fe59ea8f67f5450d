"""A transformer policy over tokens. Axes: B sequences, T tokens, V vocabulary.

Decision t is token t given the tokens before it: its logits come from position t - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import Ask, Body
from assay.core.spaces import Spec, Vocabulary
from assay.models.bodies.token_module import Reader, States, TokenModule
from assay.models.bodies.token_table import ContextTable, TokenTable
from assay.models.bodies.transformer import Cache, Transformer, Trunk
from assay.models.decoder_handle import Held
from assay.ops import distributions


class TokenPolicy(nn.Module):
    """A policy over tokens: a trunk, or one's own module, and an output layer, whose logits are divided by
    `temperature`.
    """

    forbidden: Tensor

    def __init__(self, vocabulary: Vocabulary, trunk: Trunk | States, temperature: float = 1.0) -> None:
        super().__init__()
        self.vocabulary, self.trunk, self.temperature, self.sampler = vocabulary, trunk, temperature, Held()
        self.output = nn.Linear(trunk.width, vocabulary.size, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)
        forbidden = torch.zeros(vocabulary.size)
        forbidden[[vocabulary.pad, vocabulary.bos]] = -1e9
        self.register_buffer("forbidden", forbidden, persistent=False)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns unnormalised log-probabilities; padding and start tokens have probability 0."""
        return divided(self.output(hidden), self.temperature) + self.forbidden

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Cache | Reader:
        """Returns a decoder of `repeats` rows of each prompt."""
        return self.trunk.decoder(self.logits, prompts, repeats, num_new)

    def release(self) -> None:
        """Frees the memory that decoding on a GPU holds."""
        self.sampler.release()

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the decided tokens; the output layer runs on decisions only."""
        return scored(self.trunk.before(batch.context), self.logits, batch, needs)


def divided(logits: Tensor, temperature: float) -> Tensor:
    """Returns logits / temperature; at temperature 1 the same tensor."""
    return logits if temperature == 1.0 else logits / temperature


def scored(states: Tensor, logits_of: Callable[[Tensor], Tensor], batch: Experience, needs: frozenset[Need]) -> Scored:
    """Returns the scores of the decided tokens from the states before them; `logits_of` runs on decisions only."""
    mask = batch.mask.clone()
    mask[:, 0] = False
    logits = logits_of(states[mask])
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


class TablePolicy(nn.Module):
    """A policy over tokens whose logits are the rows of a table."""

    def __init__(self, table: ContextTable, temperature: float = 1.0) -> None:
        super().__init__()
        self.vocabulary, self.table, self.temperature, self.sampler = table.vocabulary, table, temperature, Held()

    def logits(self, found: Tensor) -> Tensor:
        """Returns logits [..., V] of rows [..., C]; tokens that cannot be chosen have probability 0."""
        before = self.vocabulary.eos + 1
        after = self.vocabulary.size - before - self.table.choices
        return functional.pad(divided(found, self.temperature), (before, after), value=-1e9)

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> TableDecoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        return TableDecoder(self, prompts, repeats)

    def release(self) -> None:
        """Does nothing: decoding holds no memory."""

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the decided tokens."""
        return scored(self.table(batch.context), self.logits, batch, needs)


class TableDecoder:
    """Decodes token by token from a table: the context of each row is its prompt, its place and its last tokens.

    AssayError for a prompt of bos alone: when it is scored, the first token after bos would be one of the answer.
    """

    def __init__(self, actor: TablePolicy, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> None:
        if any(len(prompt) < 2 for prompt in prompts):
            raise AssayError("a prompt has no token after bos, by which a table tells prompts apart. Use Transformer()")
        self.actor, window, device = actor, actor.table.window, actor.table.table.device
        row = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(repeats)).to(device)
        newest = [(list(prompt)[::-1] + [0] * window)[:window] for prompt in prompts]
        self.prompt = torch.tensor([prompt[1] for prompt in prompts], device=device)[row]
        self.place = torch.tensor([actor.table.first_place(prompt) for prompt in prompts], device=device)[row]
        self.shown = functional.pad(actor.table.shown_in(prompts), (0, 1)).to(device)[row]
        self.last = torch.tensor(newest, device=device, dtype=torch.int64).view(len(prompts), window)[row]

    def logits(self) -> Tensor:
        """Returns logits [N, V] for the next token."""
        table = self.actor.table
        shown = self.shown.gather(1, (self.place - 2).clamp(max=self.shown.shape[1] - 1).unsqueeze(1)).squeeze(1)
        return self.actor.logits(table.copied(table.at(table.row_of(self.prompt, self.place, self.last)), shown))

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.last = torch.cat([tokens.unsqueeze(1), self.last], 1)[:, : self.actor.table.window]
        self.place = self.place + 1

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.prompt, self.place, self.last = self.prompt[rows], self.place[rows], self.last[rows]
        self.shown = self.shown[rows]


def token_policy(body: Body, spec: Spec, temperature: float = 1.0) -> nn.Module:
    """Returns a policy over the task's tokens; raises AssayError if the body does not decode."""
    if isinstance(body, TokenTable) and isinstance(spec.action, Vocabulary):
        choices = min(body.choices, spec.action.size - spec.action.eos - 1)
        return TablePolicy(body.outputs(spec, Ask((choices,))), temperature)
    if not isinstance(spec.action, Vocabulary) or not isinstance(body, Transformer | TokenModule):
        raise AssayError(
            "a policy over tokens needs the body Transformer() or TokenModule(make), or Pretrained(path) as the actor, "
            f"got {body}"
        )
    return TokenPolicy(spec.action, body.states(spec), temperature)
