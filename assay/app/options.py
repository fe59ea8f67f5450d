"""Options that several commands share. Imports no torch, so that --help is fast."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.core.errors import AssayError

if TYPE_CHECKING:
    from assay.runs.pools import Pool


def add_pool_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of how many runs there are at a time, and where."""
    text = "parallel runs (default: number of cores, of all machines with --on)"
    one.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "run on a Ray cluster: ray starts Ray on this machine, HOST:PORT joins one; all must share the run folder"
    one.add_argument("--on", metavar="ray|HOST:PORT", help=text)


def add_placement_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of device, sizes and processes: fields of a placement."""
    text = "cpu, cuda or cuda:N; with --ranks, cuda is a GPU for each and cuda:N one for all"
    text += " (default: cuda with --model where there is a GPU, else cpu)"
    one.add_argument("--device", help=text)
    one.add_argument(
        "--micro-batch",
        type=int,
        default=0,
        metavar="ROWS",
        help="maximum rows per forward pass (0: no limit); same result",
    )
    one.add_argument(
        "--tokens",
        type=int,
        default=0,
        metavar="N",
        help="maximum tokens per micro-batch, padding included (0: no limit)",
    )
    text = "cut every batch into N parts, a power of two, and add them in a fixed order (default: 1)"
    one.add_argument("--shards", type=int, default=1, metavar="N", help=text)
    text = "processes that share the shards; same result (default: 1)"
    one.add_argument("--ranks", type=int, default=1, metavar="N", help=text)
    text = "split layers among the ranks while gradients are computed (FSDP2): less memory, slower, same result"
    one.add_argument("--sharded", action="store_true", help=text)
    one.add_argument("--recompute", action="store_true", help="gradient checkpointing: less memory, slower")
    text = "torch.compile the layers: about a minute at the first start, then faster (default: with --model on a GPU)"
    one.add_argument("--compiled", action=argparse.BooleanOptionalAction, help=text)
    text = "only kernels that give the same bits again: two runs on one GPU are equal; slower"
    one.add_argument("--deterministic", action="store_true", help=text)


@contextmanager
def opened_pool(options: argparse.Namespace, folder: Path) -> Iterator[Pool]:
    """Opens the pool that `--on` names, for runs under `folder`; processes of this machine without it."""
    from assay.runs.pools import Processes
    from assay.runs.ray_pool import ray_pool

    if options.on is None:
        yield Processes()
        return
    with ray_pool(options.on, folder) as pool:
        yield pool


def parsed_settings(words: Sequence[str]) -> dict[str, str]:
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
