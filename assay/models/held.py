"""Where an actor of tokens holds the decoder that works for it on a GPU."""

from __future__ import annotations

from typing import Any


class Held:
    """A sampler (`assay.sampling.Sampler`) of one actor, made when it is first needed; empty elsewhere than on a GPU.

    The actor holds it, not a table beside: so both are freed together, and the engine frees its cache through the actor
    without loading a kernel.
    """

    def __init__(self) -> None:
        self.held: Any = None

    def release(self) -> None:
        """Frees the sampler's cache, for an update that needs the memory; the next decoding allocates it again."""
        if self.held is not None:
            self.held.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Held:
        return Held()  # pages and graphs belong to one set of weights: a copy of the actor begins without them
