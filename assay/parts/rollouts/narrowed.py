"""Rollouts with other sampling parameters: temperature, top-k, top-p."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene
from assay.core.spaces import Vocabulary
from assay.decoding.sampling_parameters import LOGP_MODEL, Narrowing
from assay.parts.rollouts.episodes import Around, Episodes


@dataclass(frozen=True)
class Narrowed(Around):
    """Runs `gather` with the sampling parameters `narrowing`.

    The behaviour policy then differs from the actor: `logp` is that of the scaled, truncated and renormalised
    distribution, and the column `logp_model` is the actor's own. Ratios therefore start at pi(y) / behaviour(y), not
    at 1, and removed tokens are never sampled: an objective without a correction learns from the narrowed policy's
    samples. To evaluate with the same parameters, set them as the recipe's `wrapper`.

    With `own`, `logp` is the actor's own log-probability: ratios start at 1, and the truncation is not corrected for.
    With top-p alone behaviour(y) = pi(y) / Z with Z in [top_p, 1], so this ignores factors of at most 1 / top_p.
    Degenerate: with the default parameters it equals `gather`. Source: arXiv:1904.09751 for top-p. Assumes a policy
    over tokens.
    """

    gather: Rollout = Episodes()
    narrowing: Narrowing = Narrowing()
    own: bool = False
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"narrowing": Narrowing(0.7, 5, 0.95, 0.01)},
        {"narrowing": Narrowing(top_p=0.8), "own": True},
    )

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    @property
    def writes(self) -> Collection[str]:
        return self.gather.writes

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no tokens."""
        task = scene.task
        if not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"Narrowed needs a task of tokens; '{task.name}' has none. Use {self.gather}")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        gathered = self.gather(scene.given(actor=self.narrowing.wrap(scene.actor)), state)
        if not self.own or LOGP_MODEL not in gathered.extra:
            return gathered
        more = {name: value for name, value in gathered.extra.items() if name != LOGP_MODEL}
        return replace(gathered, logp=gathered.column(LOGP_MODEL), extra=more)
