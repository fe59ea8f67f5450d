"""Sampling parameters: temperature, top-k, top-p, min-p. Axes: N rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.core.errors import AssayError
from assay.ops.distributions import check_temperature

LOGP_MODEL = "logp_model"
"""The column with the model's own log-probabilities, if sampling parameters changed the distribution of `logp`."""
LOGP_SAMPLER = "logp_sampler"
"""The column of the log-probabilities of the policy that sampled, where `logp` was computed again by another one."""


@runtime_checkable
class Decodes(Protocol):
    """An actor of tokens."""

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Any:
        """Returns a decoder of `repeats` rows of each prompt."""


@dataclass(frozen=True)
class Narrowing:
    """Sampling parameters for a model's logits l: probabilities are softmax((l - max l) / `temperature`), then less
    likely tokens are removed and the rest is renormalised, in this order (as in Hugging Face's generate):

    - `top_k`: keeps a token if fewer than k tokens are likelier; 0 or at least the vocabulary removes none;
    - `top_p`: keeps a token if all likelier tokens together have less than this share of what top-k left
      (Holtzman et al., arXiv:1904.09751); 1 removes none, and the likeliest is always kept;
    - `min_p`: keeps a token if it is at least this share as likely as the likeliest (arXiv:2407.01082); 0 removes
    none.

    Equally likely tokens are kept or removed together, so the order of the vocabulary does not matter. The default
    changes nothing.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    not_a_part: ClassVar[str] = "how an actor's tokens are drawn"
    actor: ClassVar[str] = "actor"
    """As a recipe's wrapper: the name of the inner policy."""
    reads: ClassVar[tuple[str, ...]] = ("actor",)
    """As a recipe's wrapper: names of all models that it reads."""

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.top_k < 0 or self.top_k != int(self.top_k):
            raise AssayError(f"top_k is {self.top_k}. Use a whole number of tokens, 0 for all")
        if not 0.0 < self.top_p <= 1.0:
            raise AssayError(f"top_p is {self.top_p}. Use a share above 0, 1 for all")
        if not 0.0 <= self.min_p <= 1.0:
            raise AssayError(f"min_p is {self.min_p}. Use a share of the likeliest from 0 (for all) to 1")

    @property
    def changes(self) -> bool:
        """Whether the tokens come from a distribution other than the model's."""
        return self != Narrowing()

    def of(self, logits_NV: Tensor) -> Tensor:
        """Returns the changed logits; those of removed tokens are minus infinity."""
        from assay.decoding import kernels  # here, so that a run with default sampling loads no kernel

        return kernels.narrowed(logits_NV, self)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the policy to deploy, as a recipe's wrapper."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"sampling parameters need token actors, not {type(models['actor']).__name__}. Drop them")
        return self.wrap(models["actor"])

    def wrap(self, actor: Any) -> Any:
        """Returns the actor with these sampling parameters; the actor itself if nothing changes."""
        return NarrowedActor(actor, self) if self.changes else actor


class NarrowedActor:
    """A token actor that replaces the inner one: it samples from the changed distribution, which is recorded as
    `logp`; the column `logp_model` has the inner actor's log-probabilities of the same tokens.
    """

    def __init__(self, actor: Any, narrowing: Narrowing) -> None:
        self.actor, self.narrowing = actor, narrowing

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> NarrowedDecoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        return NarrowedDecoder(self.actor.decoder(prompts, repeats, num_new), self.narrowing)


class NarrowedDecoder:
    """Implements the decoder interface; logits of removed tokens are minus infinity."""

    def __init__(self, decoder: Any, narrowing: Narrowing) -> None:
        self.decoder, self.narrowing = decoder, narrowing

    def logits(self) -> Tensor:
        """Returns the changed logits [N, V] for the next token."""
        # Kept until the token is known: `model_logp` needs the logits before they were narrowed.
        self.raw: Tensor = self.decoder.logits().float()
        return self.narrowing.of(self.raw)

    def model_logp(self, token_N: Tensor) -> Tensor:
        """Returns the model's own log-probabilities of tokens under the latest `logits`."""
        return self.raw.gather(1, token_N.unsqueeze(1)).squeeze(1) - self.raw.logsumexp(-1)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.decoder.push(tokens)

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.decoder.keep(rows)


def unwrapped(actor: Any) -> tuple[Any, Narrowing]:
    """Returns the inner actor and its sampling parameters."""
    return (actor.actor, actor.narrowing) if isinstance(actor, NarrowedActor) else (actor, Narrowing())
