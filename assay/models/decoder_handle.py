"""Holds the GPU sampler of a token actor."""

from __future__ import annotations

from typing import Any


class Held:
    """The sampler (`decoding.scheduler.Sampler`) of one actor, created on first use; empty unless it is on a GPU.

    The actor owns it, so both are freed together, and the engine can free its cache through the actor without loading
    a kernel.
    """

    def __init__(self) -> None:
        self.held: Any = None

    def release(self) -> None:
        """Frees the sampler's cache, for an update that needs the memory; the next decoding allocates it again."""
        if self.held is not None:
            self.held.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Held:
        return Held()  # pages and graphs belong to one set of weights: a copy of the actor starts without them
