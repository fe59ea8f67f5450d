"""Rollouts by an older policy: the lag of asynchronous training as a setting."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.slots import Rollout, Scene
from assay.decoding.sampling_parameters import LOGP_MODEL
from assay.parts.rollouts.episodes import Episodes


@dataclass(frozen=True)
class Stale(Rollout):
    """Gathers with the weights that the acting policy had `delay` rollouts ago, its first ones until then.

    Recorded log-probabilities are those of the older policy, so ratios to the current one are true importance ratios;
    the column `logp_model` has those of the current policy, which guards compare with the trainer's. The last `delay`
    weights are state: memory and checkpoints grow with them. Degenerate: delay 0 is `gather`. Source: arXiv:1802.01561,
    where actors lag. Assumes room for the old weights.
    """

    gather: Rollout = Episodes()
    delay: int = 0

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise AssayError(f"rollout.delay is {self.delay}. Use 0 (the current policy) or more rollouts")

    @property
    def num_starts(self) -> int:
        return self.gather.num_starts

    @property
    def writes(self) -> Collection[str]:
        return self.gather.writes

    def init(self, scene: Scene) -> State:
        return {"gather": self.gather.init(scene), "weights": []}

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        if not self.delay:
            return self.gather(scene, state["gather"])
        state["weights"].append(parameters_to_vector(scene.actor.parameters()).clone())
        older = deepcopy(scene.actor)
        vector_to_parameters(state["weights"][0], older.parameters())
        if len(state["weights"]) > self.delay:
            del state["weights"][0]
        gathered = self.gather(scene.given(actor=older), state["gather"])
        now = scene.actor.score(gathered.to(state["weights"][0].device), frozenset({Need.LOGP})).logp
        return gathered.add({LOGP_MODEL: now.to(gathered.logp.device)})
