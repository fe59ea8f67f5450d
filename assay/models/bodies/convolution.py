"""Convolutions on images of bytes. Axes: N members, R rows, C channels, H height, W width, F features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Box, Context, Discrete, Image, Spec
from assay.models.bodies.perceptron import Chosen, orthogonal, shaped


class Pixels(nn.Module):
    """Convolutions on image / top, ReLU after each; one layer of features; linear outputs.

    Numbers beside the image, and an action that is an input, join the convolutions' output before the features.
    """

    def __init__(self, body: Convolution, space: Image, num_more: int, ask: Ask) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, height, width = space.channels, space.height, space.width
        for filters, size, stride in zip(body.filters, body.sizes, body.strides, strict=True):
            layer = nn.Conv2d(channels, filters, size, stride)
            nn.init.orthogonal_(layer.weight, 2.0**0.5)
            nn.init.zeros_(layer.bias) if layer.bias is not None else None
            layers += [layer, nn.ReLU()]
            channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
        self.top, self.shape = float(space.top), (space.channels, space.height, space.width)
        self.see = nn.Sequential(*layers)
        seen = orthogonal(nn.Linear(channels * height * width + num_more, body.features), 2.0**0.5)
        self.read = nn.Sequential(seen, nn.ReLU(), orthogonal(nn.Linear(body.features, ask.num), ask.gain))

    def forward(self, image: Tensor, more: Tensor | None) -> Tensor:
        """Returns [R, outputs] of images [R, C, H, W]."""
        first: nn.Parameter = next(self.see.parameters())
        found = self.see(image.to(first.dtype) / self.top).flatten(1)
        outputs: Tensor = self.read(found if more is None else torch.cat((found, more.to(first.dtype)), 1))
        return outputs


class Convolved(nn.Module):
    """One network on images, or N independent ones side by side."""

    def __init__(self, make: Callable[[], Pixels], ask: Ask) -> None:
        super().__init__()
        self.num_members, self.shape = ask.members, ask.shape
        self.networks = nn.ModuleList(make() for _ in range(max(1, ask.members)))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [..., *shape], or [N, ..., *shape]."""
        if "image" not in context:
            raise AssayError("a convolution reads context['image'], which this task does not have. Use Perceptron()")
        lead = context["image"].shape[:-3]
        image = context["image"].flatten(0, -4)
        beside = [one.flatten(0, -2) for one in (context.get("observation"), action) if one is not None]
        more = torch.cat(beside, 1) if beside else None
        chosen: list[Any] = list(self.networks)[:num] if self.num_members else list(self.networks)
        found = [shaped(network(image, more).view(*lead, -1), self.shape) for network in chosen]
        return torch.stack(found) if self.num_members else found[0]


@dataclass(frozen=True)
class Convolution(Body):
    """Convolutions with `filters` of `sizes` and `strides`, then `features` linear units; the defaults are those of
    Mnih et al. (Nature, 2015), for images of at least 36 x 36. Bytes are divided by the space's largest value, 255.
    """

    filters: tuple[int, ...] = (32, 64, 64)
    sizes: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 1)
    features: int = 512
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"filters": (4,), "sizes": (3,), "strides": (1,), "features": 8},)

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the network for this task; a continuous action is an input, a discrete one selects."""
        space = spec.observation
        if not isinstance(space, Image):
            raise AssayError(f"a convolution cannot read {space}. Use Perceptron() for vectors, Table() for states")
        self.check(space)
        if ask.action and isinstance(spec.action, Discrete):
            every = replace(ask, shape=(spec.action.n, *ask.shape), action=False)
            return Chosen(Convolved(lambda: Pixels(self, space, space.numbers, every), every), len(ask.shape))
        if ask.action and not isinstance(spec.action, Box):
            raise AssayError(f"a convolution cannot read the action {spec.action}. Use discrete or continuous actions")
        taken = spec.action.size if ask.action and isinstance(spec.action, Box) else 0
        return Convolved(lambda: Pixels(self, space, space.numbers + taken, ask), ask)

    def check(self, space: Image) -> None:
        """Raises AssayError if the layers do not fit each other or the image."""
        if not len(self.filters) == len(self.sizes) == len(self.strides):
            counts = f"{len(self.filters)} filters, {len(self.sizes)} sizes, {len(self.strides)} strides"
            raise AssayError(f"a convolution has {counts}. Give as many of each")
        least = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            least = (least - 1) * stride + size
        if min(space.height, space.width) < least or math.prod(self.filters) < 1:
            raise AssayError(
                f"an image of {space.height} x {space.width} is smaller than {least} x {least}, which filters of sizes "
                f"{self.sizes} and strides {self.strides} need. Use smaller ones: --set body.sizes=..."
            )


SMALL = Convolution((16, 32), (3, 3), (1, 1), 128)
"""For images below 36 x 36, such as grids: all positions are kept."""


def convolution_for(space: Image) -> Convolution:
    """Returns the default convolution for images of this size."""
    return Convolution() if min(space.height, space.width) >= 36 else SMALL
