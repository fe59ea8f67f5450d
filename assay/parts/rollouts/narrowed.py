"""Gathering with tokens drawn at another temperature, or from the likeliest only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene, Wrapper, frame_of
from assay.core.spaces import Vocabulary
from assay.parts.rollouts.episodes import Episodes
from assay.playing.narrowing import Narrowing


@dataclass(frozen=True)
class Narrowed(Rollout):
    """What `gather` gathers, with tokens drawn as `narrowing` says; the default narrowing is `gather` alone.

    The behaviour is then another policy than the actor: `logp` is the behaviour's, of the scaled, narrowed and
    renormalised distribution, and the column `logp_model` is the actor's own. So ratios start at
    pi(y) / behaviour(y), not at 1, and tokens that were removed are never seen: an objective that does not correct for
    it learns from the narrowed policy's samples. For evaluation, the same narrowing is a recipe's `wrapper`.
    """

    gather: Rollout = Episodes()
    narrowing: Narrowing = Narrowing()
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"narrowing": Narrowing(0.7, 5, 0.95, 0.01)},)

    def init(self, scene: Scene) -> State:
        """As what gathers says; a task without tokens is refused."""
        task = scene.task
        if not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"Narrowed needs a task of tokens, and '{task.name}' has none; use {self.gather}")
        return self.gather.init(scene)

    @property
    def num_starts(self) -> int:
        """The starts it asks for."""
        return self.gather.num_starts

    @property
    def frame(self) -> Wrapper | None:
        """That of what gathers."""
        return frame_of(self.gather)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """What is gathered by the narrowed actor."""
        return self.gather(scene.given(actor=self.narrowing.wrap(scene.actor)), state)
