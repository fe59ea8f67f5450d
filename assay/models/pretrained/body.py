"""The pretrained actor's network as a body for critics: a copy, or the actor's own hidden states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import nn

from assay.core.errors import AssayError
from assay.core.slots import Body, ModelSpec
from assay.core.spaces import Spec
from assay.models.bodies.hidden import Sequences
from assay.models.heads.value import Value
from assay.models.pretrained.causal import PretrainedActor, SharedStates
from assay.models.pretrained.transformers import Pretrained


@dataclass(frozen=True)
class PretrainedBody(Sequences):
    """The pretrained actor's network without its output layer, for a critic: by default a copy, so that the critic's
    gradient does not change the policy.

    `model` is the actor's: its dtype and LoRA settings apply here too, and follow those of the actor when they are
    set (`Critic(Pretrained(path))` has its own). With LoRA a critic trains its own adapters and its head; with
    `frozen` only the head.

    With `shared` the value head reads the actor's own hidden states (a shared backbone): the network is in memory, in
    checkpoints and in an update's forward pass once. The critic loss's gradient into the network is multiplied by
    `body_gradient`; 0 detaches it. The default is the usual weight of the value loss on a shared language model (0.1,
    vf_coef of TRL's value head): the squared error of a new head would otherwise outweigh the policy's gradient.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    frozen: bool = False
    shared: bool = False
    body_gradient: float = 0.1
    not_a_part: ClassVar[str] = "needs a folder with a model"

    def states(self, spec: Spec) -> nn.Module:
        """Returns the network for this task, without gradient if it is frozen."""
        if self.shared:
            raise AssayError("a critic with shared=true is built on an actor. Use Engine, or on(actor)")
        states = self.model.states(spec)
        return states.requires_grad_(False) if self.frozen else states

    def check_shared(self, actor: ModelSpec, head: Any) -> None:
        """Raises AssayError for another actor's model, for heads that are no state values, and for bad settings."""
        reasons = {
            f"the actor is {actor}, not {self.model}. Use the actor's model": self.model != actor,
            f"{type(head).__name__} is not a value of states. Use Value()": not isinstance(head, Value),
            "frozen=true is for a copy of the network. Use body_gradient=0": self.frozen,
            f"body_gradient is {self.body_gradient}. Use 0 (detached) or more": not self.body_gradient >= 0,
        }
        if any(reasons.values()):
            reason = next(reason for reason, holds in reasons.items() if holds)
            raise AssayError(f"a critic cannot share the actor's network (shared=true): {reason}")

    def on(self, actor: nn.Module) -> Body:
        """Returns the body that reads the hidden states of a built actor."""
        return OnActor(actor, self.body_gradient)


@dataclass(frozen=True, eq=False)
class OnActor(Sequences):
    """A built actor's network as a body; see `SharedStates`."""

    actor: nn.Module
    gradient: float
    not_a_part: ClassVar[str] = "holds a built network"

    def states(self, spec: Spec) -> nn.Module:
        assert isinstance(self.actor, PretrainedActor)
        return SharedStates(self.actor.network, self.gradient)
