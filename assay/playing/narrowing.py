"""Sampling from a changed distribution: temperature, top-k, top-p, min-p. Axes: N rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.core.errors import AssayError

COLDEST, HOTTEST = 1e-6, 100.0
"""Below, float32 cannot hold the quotients; above, tokens that an actor forbids by a low logit could come back."""
LOGP_MODEL = "logp_model"
"""The column beside `logp` where a narrowing made the behaviour another than the model: the model's own."""


@runtime_checkable
class Decodes(Protocol):
    """An actor of tokens."""

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Any:
        """Rows that decode together, `repeats` of each prompt."""


@dataclass(frozen=True)
class Narrowing:
    """How tokens are drawn from a model's logits l: probabilities are softmax((l - max l) / `temperature`), then less
    likely tokens are removed and the rest is renormalised, in this order (as in Hugging Face's generate):

    - `top_k`: stays if fewer than k tokens are likelier; 0 or at least the vocabulary removes none;
    - `top_p`: stays if all likelier tokens together have less than this share of what top-k left (Holtzman et al.,
      arXiv:1904.09751); 1 removes none, and the likeliest always stays;
    - `min_p`: stays if at least this share as likely as the likeliest (arXiv:2407.01082); 0 removes none.

    Equally likely tokens stay or go together, so that no order of the vocabulary matters. The default changes nothing.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    not_a_part: ClassVar[str] = "how an actor's tokens are drawn"
    actor: ClassVar[str] = "actor"
    """As a recipe's wrapper: the model that decides inside."""
    reads: ClassVar[tuple[str, ...]] = ("actor",)
    """As a recipe's wrapper: every model it looks at."""

    def __post_init__(self) -> None:
        if not COLDEST <= self.temperature <= HOTTEST:
            raise AssayError(
                f"temperature is {self.temperature}; take a number from {COLDEST:g} to {HOTTEST:g} (for the likeliest "
                "token alone, top_k=1)"
            )
        if self.top_k < 0 or self.top_k != int(self.top_k):
            raise AssayError(f"top_k is {self.top_k}; take a whole number of tokens, 0 for all")
        if not 0.0 < self.top_p <= 1.0:
            raise AssayError(f"top_p is {self.top_p}; take a share above 0, 1 for all")
        if not 0.0 <= self.min_p <= 1.0:
            raise AssayError(f"min_p is {self.min_p}; take a share of the likeliest from 0 (for all) to 1")

    @property
    def changes(self) -> bool:
        """Whether the tokens come from another distribution than the model's."""
        return self != Narrowing()

    def around(self, models: Mapping[str, Any]) -> Any:
        """As a recipe's wrapper: the actor that is evaluated and handed out."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"a narrowing needs an actor of tokens, this is {type(models['actor']).__name__}; drop it")
        return self.wrap(models["actor"])

    def wrap(self, actor: Any) -> Any:
        """The actor as it draws tokens under this narrowing; the actor itself where nothing changes."""
        return NarrowedActor(actor, self) if self.changes else actor


class NarrowedActor:
    """A token actor in the place of the one inside: its distribution is the narrowed one, and that is what is recorded
    as `logp`; the column `logp_model` has what the actor inside says of the same tokens.
    """

    def __init__(self, actor: Any, narrowing: Narrowing) -> None:
        self.actor, self.narrowing = actor, narrowing

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> NarrowedDecoder:
        """Rows that decode together, `repeats` of each prompt."""
        return NarrowedDecoder(self.actor.decoder(prompts, repeats, num_new), self.narrowing)


class NarrowedDecoder:
    """The decoder's face; logits of removed tokens are minus infinity."""

    def __init__(self, decoder: Any, narrowing: Narrowing) -> None:
        self.decoder, self.narrowing = decoder, narrowing

    def logits(self) -> Tensor:
        """[N, V] for the next token, narrowed."""
        from assay.sampling import kernels  # here, so that a run without narrowing loads no kernel

        self.raw: Tensor = self.decoder.logits().float()
        return kernels.narrowed(self.raw, self.narrowing)

    def model_logp(self, token_N: Tensor) -> Tensor:
        """What the model itself says of a token for which `logits` were asked last."""
        return self.raw.gather(1, token_N.unsqueeze(1)).squeeze(1) - self.raw.logsumexp(-1)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.decoder.push(tokens)

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only."""
        self.decoder.keep(rows)


def unwrapped(actor: Any) -> tuple[Any, Narrowing]:
    """The actor inside, and how its tokens are drawn."""
    return (actor.actor, actor.narrowing) if isinstance(actor, NarrowedActor) else (actor, Narrowing())
