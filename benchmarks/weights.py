"""Seconds in which weights go from a learner to a sampler that decodes, and how long decoding is paused.

    python -m benchmarks.weights --device cuda --out FILE    # 300 million numbers, 1.2 GB, by IPC and by file
    python -m benchmarks.weights --device cuda --train       # also compares small runs with a gatherer, bit by bit
    python -m benchmarks.weights --toy                       # small, on the CPU, by file alone

The sampler is a process of its own that takes decoding steps all the time. Each round the learner changes its weights
and publishes them; the sampler fetches them in a thread beside its steps, as gatherers do that are sampling, so that
only loading pauses it, or between two steps, as those do that wait for weights. `seconds` is from the begin of
publishing until the learner knows that they are loaded; `paused` is the longest time between two steps, without what a
step takes. Sums of all bits are compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.record import State
from assay.engine.flat import Flat
from assay.engine.machine import describe_machine
from assay.engine.placement import Placement
from assay.parts.rewards.function import FromFunction
from assay.runs.distributed.gpu_memory import CudaMemory, SharedWeights
from assay.runs.distributed.weights import WeightFiles, Weights
from assay.runs.options import GatherOptions
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute
from benchmarks.ranks import different_characters

DEADLINE = 60.0
"""Seconds for a round, and for the sampler to start."""


class Stack(nn.Module):
    """Layers with the matrices of a transformer, 12 width² numbers each."""

    def __init__(self, width: int, layers: int, device: str) -> None:
        super().__init__()
        shapes = [(width, 3 * width), (3 * width, width), (width, 3 * width), (3 * width, width)] * layers
        with torch.device(device):
            self.matrices = nn.ParameterList([nn.Parameter(torch.randn(shape) / shape[0] ** 0.5) for shape in shapes])

    @torch.no_grad()
    def forward(self, rows: Tensor) -> Tensor:
        """A decoding step of all rows."""
        for matrix in self.matrices:
            rows = (rows @ matrix).relu()
        return rows


def bits_of(flat: Flat) -> int:
    """The sum of all numbers as if their bits were integers."""
    return int(flat.values.view(torch.int32).sum(dtype=torch.int64))


def settle(device: str) -> None:
    """Waits for the device."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def transport(name: str, device: str, folder: str) -> Weights:
    """The weights slot by name, in either process."""
    if name == "ipc":
        return SharedWeights(CudaMemory(device))
    return WeightFiles(Path(folder), patience=5.0, device=device)


# ---------------------------------------------------------------------------------------------------- the sampler
class Decoding:
    """Takes decoding steps, and fetches weights when it is told to: between two steps, or beside them."""

    def __init__(self, width: int, layers: int, device: str, folder: str) -> None:
        self.flat = Flat(stack := Stack(width, layers, device))
        self.stack, self.device = stack, device
        self.rows = torch.randn(64, width, device=device)
        self.ways = {name: transport(name, device, folder) for name in ("ipc", "file")}

    def step(self) -> float:
        """One step; returns when it ended."""
        self.stack(self.rows)
        settle(self.device)
        return time.perf_counter()

    def fetch(self, asked: dict[str, Any], into: list[tuple[State, float]]) -> None:
        """Fetches, and notes how long it took."""
        begin = time.perf_counter()
        tree = self.ways[asked["way"]].fetch(asked["version"], asked["told"])
        into.append((tree, time.perf_counter() - begin))

    def update(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Fetches and loads a version; returns seconds of both, and of the longest pause."""
        ends, found = [self.step() for _ in range(8)], list[tuple[State, float]]()
        usual = statistics.median(b - a for a, b in zip(ends, ends[1:], strict=False))
        if asked["beside"]:
            thread = threading.Thread(target=self.fetch, args=(asked, found), daemon=True)
            thread.start()
            while thread.is_alive():
                ends.append(self.step())
        else:
            self.fetch(asked, found)
        ((tree, fetched),) = found
        begin = time.perf_counter()
        self.flat.restore(tree["actor"])
        settle(self.device)
        loaded = time.perf_counter() - begin
        ends.append(self.step())
        paused = max(b - a for a, b in zip(ends, ends[1:], strict=False)) - usual
        return {"fetch": fetched, "load": loaded, "paused": max(0.0, paused), "step": usual}


def sample(width: int, layers: int, device: str, folder: str) -> None:
    """Decodes until standard input ends; an update for each of its lines, answered in one line."""
    asked: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line)
        asked.put(None)

    threading.Thread(target=listen, daemon=True).start()
    decoding = Decoding(width, layers, device, folder)
    print(json.dumps({"ready": True}), flush=True)
    while True:
        decoding.step()
        try:
            line = asked.get_nowait()
        except queue.Empty:
            continue
        if line is None:
            os._exit(0)  # opened memory of the learner need not be given back piece by piece
        print(json.dumps(decoding.update(json.loads(line))), flush=True)
        print(json.dumps({"bits": bits_of(decoding.flat)}), flush=True)


# ---------------------------------------------------------------------------------------------------- the learner
class Child:
    """The sampler as the learner sees it; one that says nothing for DEADLINE seconds is killed."""

    def __init__(self, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", "benchmarks.weights", "--sampler", *words]
        root = Path(__file__).resolve().parents[1]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)

    def read(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None
        timer = threading.Timer(DEADLINE, self.process.kill)
        timer.start()
        try:
            return dict(json.loads(self.process.stdout.readline() or '{"error": "the sampler has ended"}'))
        finally:
            timer.cancel()

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """Ends it."""
        with self.process as process:
            assert process.stdin is not None
            timer = threading.Timer(10.0, process.kill)
            timer.start()
            process.stdin.close()
            process.wait(20.0)
            timer.cancel()


class Learner:
    """Publishes versions of its weights, and asks a sampler to load them."""

    def __init__(self, width: int, layers: int, device: str, folder: str) -> None:
        self.flat, self.device, self.version = Flat(Stack(width, layers, device)), device, 0
        self.words = ["--device", device, "--width", str(width), "--layers", str(layers), "--folder", folder]
        self.ways = {name: transport(name, device, folder) for name in ("ipc", "file")}
        self.child: Child | None = None

    def round(self, way: str, beside: bool) -> dict[str, float]:
        """Changes the weights, publishes them, and waits until the sampler has them. RuntimeError if it does not."""
        if self.child is None:
            self.child = Child(self.words)
            self.child.read()
        self.version += 1
        for piece in self.flat.pieces:
            piece.mul_(0.999)
        settle(self.device)
        begin = time.perf_counter()
        self.ways[way].publish(self.version, {"actor": self.flat.snapshot()})
        published = time.perf_counter() - begin
        told = self.ways[way].told(self.version)
        answer = self.child.ask({"way": way, "version": self.version, "told": told, "beside": beside})
        whole = time.perf_counter() - begin
        if "error" in answer or self.child.read().get("bits") != bits_of(self.flat):
            raise RuntimeError(answer.get("error", f"version {self.version} came with other bits"))
        return {"seconds": whole, "publish": published, **answer}

    def measured(self, way: str, beside: bool, rounds: int) -> dict[str, Any]:
        """Median and range of some rounds, after one that does not count; or an error."""
        try:
            found = [self.round(way, beside) for _ in range(rounds + 1)][1:]
        except Exception as error:  # the other ways are still worth their time
            self.close()
            return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        return {name: summary([one[name] for one in found]) for name in found[0]}

    def close(self) -> None:
        """Ends the sampler."""
        if self.child is not None:
            self.child.close()
        self.child = None


def trained(name: str, device: str, folder: Path, gathering: GatherOptions) -> dict[str, Any]:
    """The state of a small run after three steps."""
    plan = make_plan("grpo", "addition", warmup=0, steps=3, evaluations=0, placement=Placement(device))
    # An untrained model never adds up; it does write different words, so that the weights move.
    recipe = replace(plan.recipe, rewards=(FromFunction(different_characters),))
    plan = replace(plan, recipe=recipe, options=replace(plan.options, gathering=gathering))
    execute(plan, folder / name, mode=Mode.SILENT)
    checkpoint = store.load(folder / name / "checkpoints")
    assert checkpoint is not None
    return {name: value for name, value in checkpoint.tree["loop"].items() if name != "gatherers"}


def compared(ways: Sequence[str], device: str, folder: Path) -> dict[str, Any]:
    """Places in which runs with a gatherer at lag 0 differ from one without, and seconds of each run."""
    found: dict[str, Any] = {}
    plain = trained("plain", device, folder, GatherOptions())
    for way in ways:
        begin = time.perf_counter()
        try:
            other = trained(way, device, folder, GatherOptions(gatherers=1, ipc=way == "ipc"))
            found[way] = {"different": store.difference(plain, other)[:5], "seconds": time.perf_counter() - begin}
        except Exception as error:
            found[way] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print("run", way, found[way], flush=True)
    return found


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median and range."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "all": list(values)}


def main(words: Sequence[str] | None = None) -> int:
    """Prints a line for each way, then JSON in one line; 1 if a way failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--toy", action="store_true", help="2 layers of 16, 2 rounds")
    parser.add_argument("--train", action="store_true", help="also compare small runs with a gatherer")
    parser.add_argument("--folder", help="for the files (default: a temporary one)")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sampler", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.sampler:
        sample(given.width, given.layers, given.device, given.folder)
    if given.toy:
        given.width, given.layers, given.rounds = 16, 2, 2
    ways = ("ipc", "file") if torch.device(given.device).type == "cuda" else ("file",)
    report: dict[str, Any] = {"device": given.device, "machine": describe_machine(), "ways": {}}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        learner = Learner(given.width, given.layers, given.device, folder)
        report["gigabytes"] = learner.flat.values.nbytes / 1e9
        for way, beside in itertools.product(ways, (False, True)):
            name = f"{way}, {'beside' if beside else 'between'} steps"
            one = report["ways"][name] = learner.measured(way, beside, given.rounds)
            print(name, {key: value if key == "error" else round(value["median"], 4) for key, value in one.items()})
        learner.close()
        report["runs"] = compared(ways, given.device, Path(folder)) if given.train else {}
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return int(any("error" in one for one in [*report["ways"].values(), *report["runs"].values()]))


if __name__ == "__main__":
    raise SystemExit(main())
