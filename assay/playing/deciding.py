"""What an actor gives to who records it. Axes: N rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from assay.core.slots import PathActor
from assay.core.spaces import Context


def deciding(actor: Any) -> Callable[[Context, Tensor | None], tuple[Tensor, ...]]:
    """How an actor decides when it is recorded: (action, logp), and its path where it takes one."""
    return actor.walk if isinstance(actor, PathActor) else actor.act
