"""The pretrained actor's network as a body for critics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from assay.core.spaces import Spec
from assay.models.bodies.hidden import Sequences
from assay.models.pretrained.transformers import Pretrained


@dataclass(frozen=True)
class PretrainedBody(Sequences):
    """A copy of the pretrained actor's network without its output layer, so that its gradient does not change the
    policy.

    `model` is the actor's: its dtype and LoRA settings apply here too, and follow those of the actor when they are
    set (`Critic(Pretrained(path))` has its own). With LoRA a critic trains its own adapters and its head; with
    `frozen` only the head.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    frozen: bool = False
    not_a_part: ClassVar[str] = "needs a folder with a model"

    def states(self, spec: Spec) -> nn.Module:
        """Returns the network for this task, without gradient if it is frozen."""
        states = self.model.states(spec)
        return states.requires_grad_(False) if self.frozen else states
