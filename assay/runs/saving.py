"""Checkpoints while training goes on: when one is due, a snapshot of the state, and a thread that writes it.

A snapshot is copied once into the host's memory; training then goes on while a thread writes, hashes and fsyncs it.
One checkpoint is written at a time: the next one waits. An error of the thread is raised in the training loop, at the
next step or save.

Tensors have any shape.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.trees import Encoded, Tree, encoded
from assay.engine.memory import available_memory

SHARE = 0.05
"""The largest share of a run's time that saving takes by default."""
SHORTEST, LONGEST = 10.0, 600.0
"""Seconds between two checkpoints by default, at least and at most; the second wins over the share."""
GUESSED_RATE = 1e9
"""Bytes a second that a disk is assumed to write until one checkpoint has been timed."""
SPOKEN = 100_000_000
"""Bytes of a checkpoint from which on the needed disk space is printed."""


class Saver:
    """Writes the checkpoints of one run in the background.

    `steps` saves every so many steps, `seconds` every so many seconds; if both are 0, checkpoints are spaced so that
    writing them takes at most `SHARE` of the time, and never further apart than `LONGEST`. Arrays below the paths
    `frozen` never change and are written once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int = 0,
        seconds: float = 0.0,
        keep: int = 2,
        frozen: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.steps, self.seconds, self.keep, self.clock = folder, steps, seconds, keep, clock
        self.frozen = tuple(frozen)
        self.begun, self.cost = clock(), 0.0
        self.newest: int | None = None
        self.written: int | None = None
        self.thread: threading.Thread | None = None
        self.errors: list[BaseException] = []
        self.buffers: dict[str, Tensor] = {}

    def start(self, size: int) -> None:
        """Starts the clock of a run whose checkpoints have about this many bytes."""
        self.begun, self.cost = self.clock(), size / GUESSED_RATE

    @property
    def spacing(self) -> float:
        """Seconds from one checkpoint to the next."""
        return self.seconds or min(LONGEST, max(SHORTEST, self.cost / SHARE))

    def due(self, step: int, seconds: float) -> bool:
        """Returns whether to save after this step, which took `seconds`; raises the error of an earlier save."""
        if self.thread is not None and not self.thread.is_alive():
            self.wait()
        if self.steps:
            return step % self.steps == 0
        passed = self.clock() - self.begun
        # The next step is assumed to take as long as this one: what is lost stays below the bound.
        return passed >= self.spacing or passed + seconds > max(self.seconds, LONGEST)

    def save(
        self,
        step: int,
        tree: Tree,
        *,
        facts: Mapping[str, store.JSON],
        besides: Collection[int] = (),
        written: Callable[[], Sequence[store.Slice]] = tuple,
    ) -> None:
        """Copies the tree and returns while it is being written; waits for the previous one first, and for the slices
        that the other ranks have `written`.

        If the copy would take more than half of the free memory, the tree is written before the call returns.
        """
        self.wait()
        begin = self.clock()
        ready, room, slices = encoded(tree), available_memory(), written()
        in_background = room is None or ready.size < room // 2
        if in_background:
            ready = self.copied(ready)
        self.begun, self.newest = begin, step

        def write() -> None:
            try:
                kept, still = self.keep, self.frozen
                store.save(
                    self.folder, step, ready, facts=facts, keep=kept, besides=besides, frozen=still, slices=slices
                )
                self.written, self.cost = step, self.clock() - begin
            except BaseException as error:
                self.errors.append(error)

        self.launch(write, in_background)

    def launch(self, write: Callable[[], None], in_background: bool) -> None:
        """Runs `write` in a thread, or here."""
        if not in_background:
            write()
            self.wait()
            return
        self.thread = threading.Thread(target=write, name="checkpoint")
        self.thread.start()

    def copied(self, ready: Encoded) -> Encoded:
        """Returns the content in host memory of its own, which is reused from one checkpoint to the next."""
        own: dict[str, Tensor] = {}
        for name, tensor in ready.tensors.items():
            mine = self.buffers.get(name)
            if mine is None or mine.shape != tensor.shape or mine.dtype != tensor.dtype:
                mine = torch.empty(tensor.shape, dtype=tensor.dtype)
            own[name] = mine.copy_(tensor)
        self.buffers = own
        return Encoded(ready.state, own)

    def join(self) -> None:
        """Waits for the thread and raises nothing."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def wait(self) -> None:
        """Waits for the thread; raises its error."""
        self.join()
        if self.errors:
            raise self.errors.pop(0)

    # ------------------------------------------------------------------------------------------------ disk
    def check_disk(self, size: int, num_besides: int = 0) -> str:
        """Returns a sentence on the disk space that checkpoints of this size take, "" for small ones; AssayError if the
        disk has less.
        """
        most = (self.keep + num_besides + 1) * size
        above = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        there = sum(path.stat().st_size for path in self.folder.glob("step-*/*") if path.is_file())
        free = shutil.disk_usage(above).free
        kept = f"{self.keep + num_besides} kept, 1 being written"
        if most > free + there:
            raise AssayError(
                f"checkpoints take up to {giga(most)} of disk ({giga(size)} each; {kept}), and {above} has "
                f"{giga(free)} free. Free some space, choose another --out, or lower --keep (now {self.keep})"
            )
        return f"checkpoints take up to {giga(most)} of {giga(free)} free: {giga(size)} each, {kept}" * (size >= SPOKEN)


def giga(count: float) -> str:
    """Formats bytes: 7.2 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def best_step(scores: Mapping[str, Collection[float]], steps: Collection[int] | None = None) -> int | None:
    """Returns the step with the best mean held-out score, the earliest of equal ones; only among `steps` if given."""
    means = {int(step): float(np.mean(list(values))) for step, values in scores.items()}
    there = {step: mean for step, mean in means.items() if steps is None or step in steps}
    return max(there, key=lambda step: (there[step], -step), default=None)
