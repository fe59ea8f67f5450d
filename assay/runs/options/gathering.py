"""Sampling in processes of its own: how many, where, and how far it may run ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, option

MOST = 10_000
"""Largest number of processes, versions and pieces: more is a slip of the hand."""


@dataclass(frozen=True)
class GatherOptions(Group):
    """Sampling in processes of its own: how many, where, and how far it may run ahead."""

    title: ClassVar[str] = "separate samplers"

    gatherers: int = option(0, "processes that sample (0: the training process does)", decisive=False)
    lag: int = option(0, "largest age of the weights that sample, in steps (0: always the newest)")
    pieces: int = option(1, "pieces into which the starts of a step are cut, each sampled as one batch")
    on_: str = option(
        "",
        "sample on a Ray cluster: ray starts Ray on this machine, HOST:PORT joins one; all must share the run folder",
        metavar="ray|HOST:PORT",
        decisive=False,
    )

    @property
    def is_used(self) -> bool:
        """Whether the loop's own process does not simply sample by itself."""
        return self.gatherers > 0 or self.pieces > 1

    def check(self) -> None:
        """Raises AssayError for values out of range."""
        for name, value, least in (("gatherers", self.gatherers, 0), ("lag", self.lag, 0), ("pieces", self.pieces, 1)):
            if not least <= value <= MOST:
                raise AssayError(
                    f"--{name} is {value}. Use {f'at least {least}' if value < least else f'at most {MOST}'}."
                )
        if not self.gatherers:
            for name, given in (("lag", self.lag), ("on", self.on_)):
                if given:
                    raise AssayError(
                        f"--{name} is {given}, but no process samples beside the training. Add --gatherers 1."
                    )
        if self.gatherers > (most := self.pieces * (self.lag + 1)):
            raise AssayError(
                f"--gatherers is {self.gatherers}, but --pieces {self.pieces} and --lag {self.lag} leave work for "
                f"{most} at a time. Add --pieces {-(-self.gatherers // (self.lag + 1))}, or use fewer."
            )
