"""Sampling in processes of its own: how many, where, and how far it may run ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

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
    in_flight: bool = option(False, "newer weights also take over in the middle of answers (with a lag)")
    ipc: bool = option(False, "weights go to gatherers on the same GPU by CUDA IPC, without a file", decisive=False)
    server: tuple[str, ...] = option(
        (),
        "sample with a server (assay serve, or vLLM) instead of gatherers; repeatable; must see the run folder",
        metavar="URL",
        decisive=False,
    )

    @property
    def is_used(self) -> bool:
        """Whether the loop's own process does not simply sample by itself."""
        return self.num > 0 or self.pieces > 1

    @property
    def num(self) -> int:
        """The number of samplers beside the training process."""
        return self.gatherers or len(self.server)

    def check(self) -> None:
        """Raises AssayError for values out of range."""
        for name, value, least in (("gatherers", self.gatherers, 0), ("lag", self.lag, 0), ("pieces", self.pieces, 1)):
            if not least <= value <= MOST:
                raise AssayError(
                    f"--{name} is {value}. Use {f'at least {least}' if value < least else f'at most {MOST}'}."
                )
        self.check_servers()
        for name, given, is_there in (
            ("lag", self.lag, self.num),
            ("on", self.on_, self.gatherers),
            ("ipc", self.ipc, self.gatherers),
        ):
            if given and not is_there:
                what = f"--{name}" if given is True else f"--{name} is {given}"
                raise AssayError(f"{what}, but no process samples beside the training. Add --gatherers 1.")
        if self.in_flight and (not self.gatherers or not self.lag or self.on_):
            raise AssayError(
                "--in-flight changes the weights of gatherers of this machine that sample ahead. Add --gatherers 1 "
                "--lag 1, without --on."
            )
        if self.ipc and self.on_:
            raise AssayError(f"--ipc shares the memory of one GPU, and --on is {self.on_}. Remove one of the two.")

    def check_servers(self) -> None:
        """Raises AssayError for addresses that cannot be servers of one run."""
        if self.server and self.gatherers:
            raise AssayError(f"--gatherers is {self.gatherers}, but --server samples already. Use one of the two.")
        for url in self.server:
            if not is_address(url) or self.server.count(url) > 1:
                raise AssayError(f"--server is '{url}'. Use different addresses such as http://127.0.0.1:8000.")


def is_address(url: str) -> bool:
    """Returns whether a text is the address of an HTTP server."""
    try:
        at = urlsplit(url)
        return at.scheme in ("http", "https") and bool(at.hostname) and at.port != 0
    except ValueError:  # of a port that is no number
        return False
