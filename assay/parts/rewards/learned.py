"""Rewards that a model of the recipe gives, as it is now. Axes: B sequences, T columns, N decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.parts.critics.td import over_members
from assay.parts.predictions import OfAction, OfState


class Reading(Protocol):
    """What a model says of each context or decision; a prediction that a critic loss fits is one.

    Source: by definition. Assumes a model with that name. Degenerate: an empty mask is read too.
    """

    @property
    def model(self) -> str:
        """The name of the model."""

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Returns numbers [B, T], or [members, B, T]."""


def is_likely(logit_N: Tensor, scene: Scene) -> Tensor:
    """Returns 1 where a classifier finds its class at least as likely as not (logit >= 0), else 0."""
    return (logit_N >= 0.0).to(logit_N.dtype)


@dataclass(frozen=True)
class FromModel(Reward):
    """reward = worth(what a model says of each decision), in place of the reward so far, or added to it with `adds`.

    With `after` it is what the model says of the context after the decision; a decision that nothing follows gets 0.
    With `ends`, a positive worth also ends the episode for those who bootstrap: staying there is not paid twice. The
    task's score stays as it is. Logs the mean worth as `MODEL_reward`. Degenerate: an empty mask gives reward 0, or the
    reward so far with `adds`. Source: arXiv:1606.03476. Assumes that the model is trained by a stage of its own, or
    frozen.
    """

    of: Reading = OfState("success")
    worth: Callable[[Tensor, Scene], Tensor] = is_likely
    after: bool = False
    adds: bool = False
    ends: bool = False
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"after": True}, {"of": OfAction(), "adds": True})

    @property
    def breaks(self) -> dict[str, str]:
        """Laws that the worth does not obey, with the reason."""
        return getattr(self.worth, "breaks", {})

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        said = scene.models.over(self.of.model, experience, lambda model, rows: over_members(self.of(model, rows)))
        there, paid = experience.mask, torch.zeros_like(experience.reward)
        if self.after:
            follows = experience.context.get("valid", torch.ones_like(there))[:, 1:]
            said, there = said.roll(-1, 1), torch.nn.functional.pad(there[:, :-1] & follows, (0, 1))
        paid[there] = self.worth(said[there].to(paid.dtype), scene)
        scene.log(f"{self.of.model}_reward", float(paid.sum()), float(experience.mask.sum()))
        terminal = experience.terminal | (paid > 0) if self.ends else experience.terminal
        return experience.with_columns(reward=experience.reward * self.adds + paid, terminal=terminal)
