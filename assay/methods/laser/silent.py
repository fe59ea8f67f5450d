"""Sampling without one token, which stays in the model's own distribution. Axes: N rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored, State
from assay.core.slots import Rollout, Scene, Wrapper
from assay.core.spaces import Vocabulary
from assay.parts.rollouts.episodes import Around, Episodes
from assay.playing.narrowing import LOGP_MODEL, Decodes, NarrowedDecoder, Narrowing


@dataclass(frozen=True)
class Without(Wrapper):
    """The actor that never writes `token`; -1 is the last one of the vocabulary."""

    token: int = -1
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor",)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the actor that is evaluated and exported."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"Without needs an actor of tokens; this is {type(models['actor']).__name__}. Drop it")
        return SilentActor(models["actor"], self.token)


class SilentActor:
    """Decodes without the token; everything else is the inner actor's."""

    def __init__(self, actor: Any, token: int) -> None:
        self.actor, self.token = actor, token

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> SilentDecoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        return SilentDecoder(self.actor.decoder(prompts, repeats, num_new), self.token)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns what the actor's own probabilities are; Python 3.12 finds protocols in classes alone."""
        scored: Scored = self.actor.score(batch, needs)
        return scored

    def parameters(self) -> Iterable[Parameter]:
        """Returns the actor's weights."""
        found: Iterable[Parameter] = self.actor.parameters()
        return found

    def __getattr__(self, name: str) -> Any:
        """Returns everything else from the actor."""
        return getattr(self.actor, name)


class SilentDecoder(NarrowedDecoder):
    """A decoder whose logit of the token is minus infinity; `model_logp` is that of the whole vocabulary."""

    def __init__(self, decoder: Any, token: int) -> None:
        super().__init__(decoder, Narrowing())
        self.token = token

    def logits(self) -> Tensor:
        """Returns the changed logits [N, V] for the next token."""
        self.raw = self.decoder.logits().float()
        changed = self.raw.clone()
        changed[:, self.token] = -torch.inf
        return changed


@dataclass(frozen=True)
class WithoutToken(Around):
    """Runs `gather` with an actor that never writes the spare token. Recorded log-probabilities are its own, over
    the whole vocabulary: the difference is log(1 - pi(token)).
    """

    gather: Rollout = Episodes()
    token: int = -1
    breaks: ClassVar[dict[str, str]] = {"framed": "recorded log-probabilities are over the whole vocabulary"}

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no tokens."""
        if not isinstance(scene.task.spec.action, Vocabulary):
            raise AssayError(f"WithoutToken needs a task of tokens; '{scene.task.name}' has none. Use a language task")
        return super().init(scene)

    @property
    def frame(self) -> Wrapper:
        """Returns the wrapper with which the trained policy is evaluated."""
        return Without(self.token)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers experience with the silent actor."""
        gathered = self.gather(scene.given(actor=SilentActor(scene.actor, self.token)), state)
        more = {name: value for name, value in gathered.extra.items() if name != LOGP_MODEL}
        return replace(gathered, logp=gathered.column(LOGP_MODEL), extra=more)
