"""What commands make of the options that they share: the arguments of plans, and the pool of runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.runs.options import run_options
from assay.runs.options.group import parsed_group
from assay.runs.options.training import TrainingOptions
from assay.runs.pools import Pool, Processes


@contextmanager
def opened_pool(options: argparse.Namespace, folder: Path) -> Iterator[Pool]:
    """Opens the pool that `--on` names, for runs under `folder`; processes of this machine without it."""
    from assay.runs.distributed import ray_pool

    if options.on is None:
        yield Processes()
        return
    with ray_pool.ray_pool(options.on, folder) as pool:
        yield pool


def plan_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of `make_plan` that the options of a command name."""
    return parsed_group(TrainingOptions, vars(options)).arguments() | {"options": run_options(vars(options))}
