"""Sinks of a run's metrics: TensorBoard and Weights & Biases, for watching from another machine.

The run folder is the record; a sink is a copy. Both packages are in the extra `scale` and are imported when a sink
is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import AssayError
from assay.core.extras import require


class Sink(Protocol):
    """Receives the metrics of each step: those of the loop, `evaluation` (the held-out score) where it was measured,
    `decisions_total`, seconds by phase under `time/`, and alarms so far by guard under `alarms/`.
    """

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sends the metrics of one step, also NaN and infinite ones."""

    def close(self) -> None:
        """Flushes and closes; safe to call twice."""


class Opened:
    """Open sinks, closed at the end of a `with` block."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = tuple(sinks)

    def __enter__(self) -> tuple[Sink, ...]:
        return self.sinks

    def __exit__(self, *error: object) -> None:
        for sink in self.sinks:
            sink.close()


class TensorBoardSink:
    """Event files that `tensorboard --logdir FOLDER` shows. On resume, points from `first_step` on are replaced."""

    def __init__(self, folder: Path | str, *, first_step: int = 0) -> None:
        purpose = "the TensorBoard sink"
        require("tensorboard", "scale", purpose)
        module = require("torch.utils.tensorboard", "scale", purpose)
        self.writer: Any = module.SummaryWriter(log_dir=str(folder), purge_step=first_step or None)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes one scalar per metric."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, float(value), step)

    def close(self) -> None:
        """Flushes and closes the event file."""
        self.writer.close()


class WandbSink:
    """A run of Weights & Biases. Its own settings (mode, host, key) come from the environment variables of wandb.

    `run_id` names the run there: the same id resumes it. Without it every start is a new run.
    """

    def __init__(
        self, project: str, config: Mapping[str, object], *, folder: Path | str = ".", name: str = "", run_id: str = ""
    ) -> None:
        self.run: Any = None
        wandb = require("wandb", "scale", "the Weights & Biases sink")
        told = {"project": project, "config": dict(config), "dir": str(folder), "name": name or None}
        told |= {"id": run_id, "resume": "allow"} if run_id else {}
        try:  # wandb's console capture would record every redraw of the progress display
            self.run = wandb.init(**told, settings=wandb.Settings(console="off"))
        except wandb.Error as error:
            what = f"Weights & Biases could not start a run of project {project!r} ({error})"
            raise AssayError(f"{what}. Log in with `wandb login`, or set WANDB_MODE=offline.") from error

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs one point per metric; steps must not decrease."""
        self.run.log({name: float(value) for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        """Ends the run."""
        if self.run is not None:
            self.run.finish()
            self.run = None
