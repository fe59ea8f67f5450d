"""What commands make of the options that they share: the arguments of plans, and the pool of runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.engine.placement import Placement
from assay.runs import hardware
from assay.runs.options import run_options
from assay.runs.options.group import parsed_group
from assay.runs.options.placement import PlacementOptions
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
    """Returns the arguments of `make_plan` that the options of a command name, and defaults of the hardware where they
    name none.
    """
    named = vars(options)
    arguments = parsed_group(TrainingOptions, named).arguments() | {"options": run_options(named)}
    placement = Placement(**vars(parsed_group(PlacementOptions, named)))
    given = {name: named.get(name) for name in ("device", "compiled")}
    arguments["placement"], arguments["options"] = hardware.chosen(
        arguments["model"], arguments["options"], arguments["settings"], placement, **given
    )
    return arguments


def parallel_runs(jobs: int | None, arguments: Mapping[str, Any]) -> int | None:
    """Returns how many runs of a command train at once: as asked, in turn on a GPU, else None: one on each core."""
    on_gpu = arguments["placement"].device.partition(":")[0] == hardware.GPU  # a wrong name is refused by the plan
    return 1 if jobs is None and on_gpu else jobs
