"""Lower bounds of a run's memory, from its settings, checked before anything is allocated.

A system that overcommits grants any request and kills the process once the memory is used up, so plans that cannot
fit are rejected here. Estimates cover recorded rows, replay, batches, weights with their gradients.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.settings import children
from assay.core.spaces import Box, Image, MultiDiscrete, Space, Spec, Vocabulary

ROWS = ("num_envs", "num_starts", "group_size", "slots")
"""Settings of a rollout whose product is the number of rows that it records."""
FLAGS = 3 + 4 + 4  # mask, terminal, truncated; reward and log-probability in float32


@dataclass(frozen=True)
class Estimate:
    """Bytes that a setting needs, together with those of the same part that multiply it."""

    path: str
    value: Any
    bytes: int


def check_memory(recipe: Any, spec: Spec, num_steps: int, device: str = "cpu") -> None:
    """Raises AssayError if the recipe's settings need more memory than this machine has available."""
    found, room = estimates(recipe, spec, num_steps, device), available_memory()
    total = sum(each.bytes for each in found)
    if room is None or total <= room:
        return
    most = max(found, key=lambda each: each.bytes)
    what = f"the run takes at least {gib(total)} GiB, most of it for {most.path} = {most.value}"
    raise AssayError(f"not enough memory: {what}, and {gib(room)} GiB are available. Lower {most.path}")


def estimates(recipe: Any, spec: Spec, num_steps: int, device: str = "cpu") -> list[Estimate]:
    """Returns lower bounds for rollout, sources and models, one entry per part."""
    found, gathered = [], 0
    for path, part in parts_below(recipe.rollout, "rollout"):
        sizes = whole_numbers(part, ROWS)
        if sizes:
            steps = whole_numbers(part, ("steps",)) if "num_envs" in sizes else {}
            columns = steps["steps"] + 1 if steps else spec.horizon if isinstance(spec.action, Vocabulary) else 2
            rows = math.prod(sizes.values())
            gathered += rows * columns
            found.append(estimate_of(path, sizes | steps, rows * columns * column_bytes(spec)))
    for place, feed in enumerate(recipe.feeds):
        for path, part in parts_below(feed.source, "source" if not place else f"feed {place + 1}"):
            held = whole_numbers(part, ("capacity",))
            if held:  # ring buffers grow with the gathered rows
                rows = min(held["capacity"], gathered * num_steps)
                found.append(estimate_of(path, held, rows * 2 * column_bytes(spec)))
            drawn = whole_numbers(part, ("batch",))
            if drawn:
                found.append(estimate_of(path, drawn, drawn["batch"] * 2 * column_bytes(spec)))
    models = {"actor": recipe.actor, **{f"critics.{name}": critic for name, critic in recipe.critics.items()}}
    for name, model in models.items():
        for path, part in parts_below(model, name):
            sizes = layer_sizes(part, spec)
            if sizes:
                weights = num_weights(sizes, spec) * math.prod(whole_numbers(part, ("num", "members")).values())
                found.append(estimate_of(path, sizes, weights * (8 if device == "cpu" else 4)))
    return found


def estimate_of(path: str, sizes: dict[str, Any], bytes: int) -> Estimate:
    """Returns the estimate under the name of its largest setting."""
    largest = max(sizes, key=lambda name: max(sizes[name]) if isinstance(sizes[name], tuple) else sizes[name])
    return Estimate(f"{path}.{largest}", sizes[largest], bytes)


def parts_below(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields a part and those inside it, each with its path."""
    if is_dataclass(value):
        yield path, value
    for name, item in children(value):
        yield from parts_below(item, f"{path}.{name}")


def whole_numbers(part: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Returns those of the named settings that the part has and that are positive integers."""
    found = {name: getattr(part, name, None) for name in names}
    return {name: value for name, value in found.items() if type(value) is int and value > 0}


# ---------------------------------------------------------------------------------------------------- models
def layer_sizes(part: Any, spec: Spec) -> dict[str, Any]:
    """Returns the settings that determine a model's size: of a transformer for tokens, else of a perceptron."""
    if isinstance(spec.action, Vocabulary):
        sizes = whole_numbers(part, ("width", "layers"))
        return sizes if len(sizes) == 2 else {}
    hidden = getattr(part, "hidden", None)
    is_hidden = isinstance(hidden, tuple) and bool(hidden) and all(type(size) is int and size > 0 for size in hidden)
    return {"hidden": hidden} if is_hidden else {}


def num_weights(sizes: dict[str, Any], spec: Spec) -> int:
    """Returns the number of matrix weights; of a transformer 12 W² per layer and W per word."""
    if "hidden" in sizes:
        widths = (numbers(spec.observation), *sizes["hidden"])
        return sum(before * after for before, after in zip(widths, widths[1:], strict=False))
    vocabulary = spec.action.size if isinstance(spec.action, Vocabulary) else 0
    return int(12 * sizes["width"] ** 2 * sizes["layers"] + vocabulary * sizes["width"])


# ---------------------------------------------------------------------------------------------------- bytes
def numbers(space: Space) -> int:
    """Returns how many numbers a value of the space has."""
    return space.size if isinstance(space, Box | Image) else 1


def column_bytes(spec: Spec) -> int:
    """Returns the bytes of one decision in a record: its context and action, reward, logp and flags."""
    spaces = [spec.observation, spec.action] + ([spec.goal, spec.goal] if spec.goal is not None else [])
    return FLAGS + sum(map(space_bytes, spaces))


def space_bytes(space: Space) -> int:
    """Returns the bytes of one value in a record: images as bytes, vectors as float32, choices as int64."""
    if isinstance(space, Image):
        return space.size + 4 * space.numbers
    if isinstance(space, MultiDiscrete):
        return 8 * len(space.sizes)
    return 4 * space.size if isinstance(space, Box) else 8


def gib(count: int) -> str:
    """Formats bytes as GiB; the count may be larger than a float can represent."""
    return f"{count >> 30:,}" if count >= 10 << 30 else f"{count / 2**30:.1f}"


def available_memory() -> int | None:
    """Returns the bytes of memory and swap available in this container; None if the system does not report them."""
    # Of several limits the smallest counts: a container may have less than its machine.
    rooms = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        rooms.append(sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree")) * 1024)
    except (OSError, KeyError, ValueError):  # not Linux: the total memory
        try:
            rooms.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):
            return None
    with suppress(OSError, ValueError):  # no limit, or no control groups
        rooms.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(rooms)
