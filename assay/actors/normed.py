"""A squashed Gaussian whose network has layer norm. Axes: as in `bounded`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from assay.actors.bounded import MlpSquashedGaussian
from assay.actors.mlp import need_box
from assay.networks.normed import normed_perceptron
from assay.networks.perceptron import feature_size
from assay.types import Spec


@dataclass(frozen=True)
class NormedSquashed:
    """A squashed Gaussian policy with layer norm before each activation, for bounded continuous actions."""

    hidden: tuple[int, ...] = (256, 256)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        actor = MlpSquashedGaussian(feature_size(spec), need_box(spec, "a squashed Gaussian"), self.hidden)
        actor.net = normed_perceptron(feature_size(spec), 2 * actor.num_draws, self.hidden)
        return actor
