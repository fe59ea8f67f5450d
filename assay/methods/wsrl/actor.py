"""A squashed Gaussian whose network has layer norm. Axes: as in `bounded`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from assay.core.slots import ActorSpec
from assay.core.spaces import Spec
from assay.methods.wsrl.networks import normed_perceptron
from assay.models.bodies.perceptron import feature_size
from assay.models.bounded import MlpSquashedGaussian
from assay.models.mlp import need_box


@dataclass(frozen=True)
class NormedSquashed(ActorSpec):
    """A squashed Gaussian policy with layer norm before each activation, for bounded continuous actions."""

    hidden: tuple[int, ...] = (256, 256)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        actor = MlpSquashedGaussian(feature_size(spec), need_box(spec, "a squashed Gaussian"), self.hidden)
        actor.net = normed_perceptron(feature_size(spec), 2 * actor.num_draws, self.hidden)
        return actor
