"""What a command trains: steps, settings and data of a run, its seeds, parallel runs, loggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.runs.options.group import Group, option


@dataclass(frozen=True)
class TrainingOptions(Group):
    """Arguments of a plan beside method and task, and the folder of the run."""

    steps: int | None = option(None, "training steps (default: the recipe's)")
    out: Path | None = option(None, "run folder (default: runs/...)", metavar="DIR")
    set_: tuple[str, ...] = option((), "change a setting; repeatable", metavar="PART.FIELD=VALUE")
    warmup: int | None = option(None, "supervised warm-up steps on demonstrations, language tasks only (0: none)")
    data: tuple[str, ...] = option(
        (),
        "offline dataset to train on: .safetensors, .npz, .hdf5, a Minari folder, or minari:ID; repeatable",
        metavar="FILE",
    )
    model: str | None = option(
        None,
        "pretrained language model: a folder, a hub id owner/name[@revision], or the name of an installed package's",
        metavar="PATH",
    )
    preset: str | None = option(
        None, "set of default settings: classic, mujoco, d4rl (default: the task's)", metavar="NAME"
    )

    def arguments(self) -> dict[str, Any]:
        """Returns the options as arguments of `make_plan`."""
        chosen = {name: value for name, value in vars(self).items() if name not in ("out", "set_")}
        return chosen | {"settings": parse_settings(self.set_)}


@dataclass(frozen=True)
class SeedOptions(Group):
    """Which seeds `train` trains, and how many at a time."""

    seeds: int = option(1, "number of seeds (default: 1)")
    seed: int = option(0, "first seed (default: 0)", metavar="SEED")
    jobs: int | None = option(None, "seeds trained in parallel (default: number of cores)")
    more_steps: int | None = option(None, "train the finished run in --out for N more steps, as it was set up")


@dataclass(frozen=True)
class LoggerOptions(Group):
    """Where else metrics are written."""

    tensorboard: bool = option(False, "also write TensorBoard files")
    wandb: str | None = option(None, "also log to Weights & Biases", metavar="PROJECT")


@dataclass(frozen=True)
class PoolOptions(Group):
    """How many of a command's runs there are at a time, and where."""

    jobs: int | None = option(None, "parallel runs (default: number of cores, of all machines with --on)")
    on: str | None = option(
        None,
        "run on a Ray cluster: ray starts Ray on this machine, HOST:PORT joins one; all must share the run folder",
        metavar="ray|HOST:PORT",
    )


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Parses `--set a.b=c` into a dict."""
    settings: dict[str, str] = {}
    for word in words:
        path, sign, value = word.partition("=")
        if not sign or not path or not value:
            raise AssayError(
                f"--set {word} is not of the form part.field=value. Example: --set optimizer.learning_rate=0.001"
            )
        settings[path.strip()] = value.strip()
    return settings
