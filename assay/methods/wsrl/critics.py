"""Action-value critics with layer norm, many of them side by side. Axes: N critics, B, T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Box, Spec
from assay.methods.wsrl.networks import NormedEnsemble
from assay.models.bodies.perceptron import feature_size
from assay.parts.critics.q import EnsembleQ


@dataclass(frozen=True)
class NormedQ(CriticSpec):
    """`num` critics Q(s, a) for continuous actions with layer norm before each activation (RLPD, arXiv:2302.02948)."""

    hidden: tuple[int, ...] = (256, 256)
    num: int = 10

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Box):
            raise AssayError(f"NormedQ needs continuous actions, the task has {spec.action}; try dqn")
        module: Any = EnsembleQ(self.num, feature_size(spec) + spec.action.size, self.hidden)
        module.net = NormedEnsemble(self.num, feature_size(spec) + spec.action.size, 1, self.hidden)
        return module
