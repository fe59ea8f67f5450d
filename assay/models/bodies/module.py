"""A network of one's own as a body: any `nn.Module` of observations. Axes: N members, R rows, F features."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Box, Context, Discrete, Image, Spec
from assay.models.bodies.perceptron import Chosen, feature_size, features, orthogonal, perceptron, shaped

JOINED = 256
"""Units of the layer in which features meet an action that is an input, or numbers beside an image."""


class Example(nn.Module):
    """A small network on vectors or images, for the laws."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 16), nn.Tanh())

    def forward(self, observation: Tensor) -> Tensor:
        """Returns features [R, 16]."""
        found: Tensor = self.net(observation)
        return found


def made(make: Callable[..., Any], shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Returns the module for observations of this shape and the number of its features, found by a pass of zeros.

    AssayError if it is no module, or does not give one row of features for each observation.
    """
    name = getattr(make, "__name__", type(make).__name__)
    takes = inspect.signature(make).parameters
    net = make(shape) if takes else make()
    if not isinstance(net, nn.Module):
        raise AssayError(
            f"body {name} made a {type(net).__name__}. It must be an nn.Module, or a function that makes one"
        )
    was = net.training
    try:
        with torch.no_grad():
            found = net.eval()(torch.zeros(2, *shape))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise AssayError(
            f"body {name} cannot read observations [rows, {', '.join(map(str, shape))}]: {error}. Its shape is the "
            "argument that it is made with"
        ) from error
    net.train(was)
    if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != 2 or not found.is_floating_point():
        what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise AssayError(f"body {name} returned {what} for 2 observations. Return features [2, F]")
    return net, found.shape[1]


class Read(nn.Module):
    """A module's features, and outputs of them; an action, and numbers beside an image, join in one more layer."""

    def __init__(self, body: ModuleBody, shape: tuple[int, ...], num_more: int, ask: Ask) -> None:
        super().__init__()
        self.net, width = made(body.make, shape)
        self.shape = shape
        if num_more:
            self.out: nn.Module = perceptron(
                width + num_more, ask.num, (JOINED,), activation=nn.ReLU, output_gain=ask.gain
            )
        else:
            self.out = orthogonal(nn.Linear(width, ask.num), ask.gain)

    def forward(self, rows: Tensor, more: Tensor | None) -> Tensor:
        """Returns [R, outputs] of observations [R, *shape]."""
        found = self.net(rows)
        outputs: Tensor = self.out(found if more is None else torch.cat((found, more.to(found.dtype)), -1))
        return outputs


class Modules(nn.Module):
    """One network, or N independent ones side by side, on vectors, or on images with numbers beside them."""

    def __init__(self, make: Callable[[], Read], ask: Ask, top: float) -> None:
        super().__init__()
        self.num_members, self.shape, self.top = ask.members, ask.shape, top
        self.networks = nn.ModuleList(make() for _ in range(max(1, ask.members)))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [..., *shape], or [N, ..., *shape]."""
        is_image = "image" in context
        seen = context["image"] / self.top if is_image else features(context)
        axes = 3 if is_image else 1
        lead = seen.shape[: seen.dim() - axes]
        beside = [context["observation"]] if is_image and "observation" in context else []
        beside += [] if action is None else [action]
        more = torch.cat([one.flatten(0, -2) for one in beside], -1) if beside else None
        rows = seen.reshape(-1, *seen.shape[len(lead) :])
        chosen: list[Any] = list(self.networks)[:num] if self.num_members else list(self.networks)
        found = [shaped(network(rows, more).view(*lead, -1), self.shape) for network in chosen]
        return torch.stack(found) if self.num_members else found[0]


@dataclass(frozen=True)
class ModuleBody(Body):
    """Any `nn.Module` as a body: `make(shape)`, a class or a function, from observations [R, *shape] to features
    [R, F], with a linear layer on top for what a head asks.

    A vector with its goal has shape (D,), an image (C, H, W) with numbers from 0 to 1. One without arguments is made
    without. Every model, and every member of an ensemble, has a network of its own. An action that is an input joins
    the features in one more layer of 256 units. Degenerate: a module of no parameters gives fixed features.
    """

    make: Callable[..., Any] = Example
    examples: ClassVar[tuple[dict[str, Any], ...]] = ()

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the network for this task; a continuous action is an input, a discrete one selects."""
        space = spec.observation
        if not isinstance(space, Box | Image):
            raise AssayError(f"a module of one's own reads vectors and images, not {space}. Leave --body out")
        if ask.action and isinstance(spec.action, Discrete):
            every = replace(ask, shape=(spec.action.n, *ask.shape), action=False)
            return Chosen(self.outputs(spec, every), len(ask.shape))
        if ask.action and not isinstance(spec.action, Box):
            raise AssayError(f"a module of one's own cannot read the action {spec.action}. Leave --body out")
        more = spec.action.size if ask.action and isinstance(spec.action, Box) else 0
        if isinstance(space, Image):
            shape, top = (space.channels, space.height, space.width), float(space.top)
            return Modules(lambda: Read(self, shape, space.numbers + more, ask), ask, top)
        return Modules(lambda: Read(self, (feature_size(spec),), more, ask), ask, 1.0)
