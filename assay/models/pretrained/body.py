"""The pretrained actor's network as the body of its critics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from assay.core.spaces import Spec
from assay.models.bodies.hidden import Sequences
from assay.models.pretrained.transformers import Pretrained


@dataclass(frozen=True)
class PretrainedBody(Sequences):
    """A copy of the pretrained actor's network without its output layer, so that its gradient does not move the policy.

    `model` is the actor's: its dtype and LoRA settings hold here too, and follow those of the actor when they are set
    (`Critic(Pretrained(path))` has its own). With LoRA a critic trains adapters of its own and its head; with `frozen`
    the head alone.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    frozen: bool = False
    not_a_part: ClassVar[str] = "needs a folder with a model"

    def states(self, spec: Spec) -> nn.Module:
        """The network for this task, without gradient where it is frozen."""
        states = self.model.states(spec)
        return states.requires_grad_(False) if self.frozen else states
