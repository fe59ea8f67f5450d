"""Stacked seeds: seed-updates a second of sac and td3_bc with 1, 4, 16 and 64 seeds in one process.

    python -m benchmarks.stacked_seeds                       on a GPU, if there is one; a table, and JSON with --out
    python -m benchmarks.stacked_seeds --device cpu --quick  fewer updates and seeds

Sizes of HalfCheetah (17 observations, 6 actions), networks of 256 x 256, batches of 256, a log of 100,000 random
transitions. Three paths: `engine` is one ordinary loop, seed after seed; `stack` maps the losses over the seeds;
`graphs` replays them as CUDA graphs. Everything between two steps' metrics is timed: drawing batches, losses,
optimizers, copies, metrics. Repetitions take turns among paths and sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from assay import recipes
from assay.core.recipe import Recipe
from assay.core.record import Origin
from assay.core.slots import Task
from assay.core.spaces import Box, Spec
from assay.engine.loop import Loop
from assay.engine.machine import describe_machine, tuned
from assay.engine.placement import Placement
from assay.engine.stacked.loop import StackedLoop
from assay.parts.sources.logged import Logged
from assay.recipes.conservative import td3_bc
from assay.runs.stacked import shared_loops
from assay.tasks.control.stepping import SteppedTask

OBSERVATIONS, ACTIONS, WIDTH, BATCH = 17, 6, 256, 256
METHODS: dict[str, Callable[[], Recipe]] = {"sac": recipes.sac, "td3-bc": td3_bc}


@dataclass(frozen=True)
class RandomTransitions:
    """A log of normal observations and rewards, uniform actions."""

    rows: int
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)

    def columns(self, task: Task) -> dict[str, torch.Tensor]:
        """The same ones every time."""
        draw = torch.Generator().manual_seed(0)
        return {
            "action": torch.rand(self.rows, 2, ACTIONS, generator=draw) * 2 - 1,
            "mask": torch.tensor([True, False]).repeat(self.rows, 1),
            "logp": torch.zeros(self.rows, 2),
            "reward": torch.randn(self.rows, 2, generator=draw),
            "terminal": torch.rand(self.rows, 2, generator=draw) < 0.01,
            "truncated": torch.zeros(self.rows, 2, dtype=torch.bool),
            "context.observation": torch.randn(self.rows, 2, OBSERVATIONS, generator=draw),
        }


def task() -> Task:
    """Spaces of HalfCheetah; nothing to be played."""
    unit, unbounded = (1.0,) * ACTIONS, (float("inf"),) * OBSERVATIONS
    spec = Spec(Box(tuple(-x for x in unbounded), unbounded), Box(tuple(-x for x in unit), unit), 1_000)
    return SteppedTask("random transitions", spec, lambda num: None)  # type: ignore[arg-type, return-value]


def recipe_of(method: str, rows: int, updates: int, width: int = WIDTH) -> Recipe:
    """The method as it is, on the log, with `updates` updates a step."""
    source = Logged((RandomTransitions(rows),), batch=BATCH, updates=updates)
    recipe = replace(METHODS[method](), rollout=None, source=source)
    return recipe.set("actor.hidden", (width, width)).set("q.hidden", (width, width))


@dataclass(frozen=True)
class Arm:
    """One path with so many seeds."""

    method: str
    path: str
    seeds: int
    step: Callable[[], Any]


def arms(
    method: str, sizes: Sequence[int], device: str, rows: int, updates: int, width: int, paths: Sequence[str]
) -> list[Arm]:
    """The engine alone, and every size on every path."""
    recipe, where = recipe_of(method, rows, updates, width), task()
    found = [Arm(method, "engine", 1, Loop(recipe, where, seed=0, num_steps=10**6, placement=Placement(device)).step)]
    loops = shared_loops(recipe, where, range(max(sizes)), 10**6)
    for size in sizes:
        for path in paths:
            stack = StackedLoop(loops[:size], Placement(device), graphs=path == "graphs")
            found.append(Arm(method, path, size, stack.step))
    return found


def measure(some: Sequence[Arm], updates: int, repeats: int) -> list[dict[str, Any]]:
    """Rates of all arms, in turns; those without graphs, which take longer, less often."""
    for arm in some:
        arm.step()  # the first step captures the graphs too
    rates: dict[int, list[float]] = {place: [] for place in range(len(some))}
    for repeat in range(repeats):
        for place, arm in enumerate(some):
            if arm.path == "stack" and repeat >= max(2, repeats // 2):
                continue
            begin = time.perf_counter()
            arm.step()
            rates[place].append(arm.seeds * updates / (time.perf_counter() - begin))
    return [
        {
            "method": arm.method,
            "path": arm.path,
            "seeds": arm.seeds,
            "rate": statistics.median(rates[place]),
            "low": min(rates[place]),
            "high": max(rates[place]),
            "repetitions": len(rates[place]),
        }
        for place, arm in enumerate(some)
    ]


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each rate against one seed on the same path, and against the engine alone."""
    one = {(row["method"], row["path"]): row["rate"] for row in rows if row["seeds"] == 1}
    for row in rows:
        row["to_one"] = row["rate"] / one.get((row["method"], row["path"]), float("nan"))
        row["to_engine"] = row["rate"] / one[row["method"], "engine"]
    return rows


def work_of(method: str, width: int) -> float:
    """Floating-point operations of one update of one seed, products alone, in millions; over two updates, since an
    actor may be due every second time.
    """
    loop = Loop(recipe_of(method, 1_000, 2, width), task(), seed=0, num_steps=10)
    loop.step()
    with FlopCounterMode(display=False) as counter:
        loop.step()
    return counter.get_total_flops() / 2 / 1e6


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The numbers for people."""
    head = "| method | path | seeds | seed-updates/s | range | x one seed | x engine |\n|---|---|---|---|---|---|---|"
    lines = [
        f"| {r['method']} | {r['path']} | {r['seeds']} | {r['rate']:,.0f} | {r['low']:,.0f} to {r['high']:,.0f} | "
        f"{r['to_one']:.2f} | {r['to_engine']:.2f} |"
        for r in rows
    ]
    return "\n".join([head, *lines])


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Runs it; gives what JSON gets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--paths", nargs="+", choices=["stack", "graphs"])
    parser.add_argument("--updates", type=int, help="updates a step")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--quick", action="store_true", help="one and four seeds, few updates")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(words)
    slow = given.quick or given.device == "cpu"
    sizes = given.sizes or ([1, 4] if given.quick else [1, 4, 16] if slow else [1, 4, 16, 64])
    updates, repeats = given.updates or (4 if slow else 20), given.repeats or (2 if given.quick else 5 if slow else 7)
    paths = given.paths or (["stack"] if given.device == "cpu" else ["stack", "graphs"])
    rows: list[dict[str, Any]] = []
    with tuned(0):
        for method in given.methods:
            some = arms(method, sizes, given.device, 2_000 if slow else 100_000, updates, given.width, paths)
            rows += with_ratios(measure(some, updates, repeats))
            print(table(rows[-len(some) :]), flush=True)
    report = {
        "rows": rows,
        "mflop_an_update": {method: work_of(method, given.width) for method in given.methods},
        "device": given.device,
        "updates_a_step": updates,
        "machine": describe_machine(),
    }
    print(json.dumps({name: value for name, value in report.items() if name != "rows"}))
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
