"""The function that records an actor's decisions. Axes: N rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from assay.core.slots import PathActor
from assay.core.spaces import Context


def deciding(actor: Any) -> Callable[[Context, Tensor | None], tuple[Tensor, ...]]:
    """Returns the function that decides for a recorder: (action, logp), and the path of an actor that has one."""
    return actor.walk if isinstance(actor, PathActor) else actor.act
