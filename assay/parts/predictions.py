"""The model output that a critic loss fits: V(s), Q(s, a), or a Q-network's value of the action taken.

Axes: B sequences, T decisions, N critics, A actions, M bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Prediction


@dataclass(frozen=True)
class OfState(Prediction):
    """V(s) of a state-value critic. Degenerate: columns outside of the mask get values too.

    Source: by definition. Assumes a critic of states.
    """

    model: str = model_name("value")

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Returns values [B, T], or [N, B, T] for a critic with heads."""
        value: Tensor = critic(rows.context)
        return value

    def outputs(self, critic: Any, rows: Experience) -> Tensor:
        outputs: Tensor = critic.outputs(rows.context)
        return outputs


@dataclass(frozen=True)
class OfAction(Prediction):
    """Q_i(s, a) of an ensemble of action-value critics. Degenerate: an ensemble of one keeps its axis, [1, B, T].

    Source: by definition. Assumes a critic of actions.
    """

    model: str = model_name("q")

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        values: Tensor = critic(rows.context, rows.action)
        return values

    def outputs(self, critic: Any, rows: Experience) -> Tensor:
        outputs: Tensor = critic.outputs(rows.context, rows.action)
        return outputs


@dataclass(frozen=True)
class OfChoice(Prediction):
    """Q(s, a) of an actor that values all discrete actions at once (a Q-network); reported as `title`.

    Degenerate: with a single action it is a state value. Source: arXiv:1312.5602. Assumes discrete actions.
    """

    model: str = model_name("actor")
    title: str = "q"

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        values: Tensor = critic.values(rows.context)
        return values.gather(-1, rows.action.unsqueeze(-1)).squeeze(-1)

    def outputs(self, critic: Any, rows: Experience) -> Tensor:
        outputs: Tensor = critic.outputs(rows.context)
        place = rows.action[..., None, None].expand(*rows.action.shape, 1, outputs.shape[-1])
        return outputs.gather(-2, place).squeeze(-2)
