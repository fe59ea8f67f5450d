"""What waiting for sessions costs: 256 rows, 4 turns of at most 64 tokens, replies after 10 to 90 ms.

    python -m benchmarks.tool_waiting [--rows 256] [--repeats 3]

Plays the same conversations with and without waiting, in turn, and prints both times and their ratio; and what the
replies would take one after the other. The session counts its replies: each row must hear 1, 2, 3.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from assay.claims.laws.rollout import built
from assay.core.record import Draw, Experience, Score
from assay.models import Policy, Transformer
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Item

TURNS, TOKENS = 4, 64


@dataclass
class Counting:
    """A session that counts its replies and takes between `least` and `most` seconds for each."""

    seed: int
    least: float
    most: float
    count: int = 0

    def reply(self, utterance: str) -> Reply:
        """Returns the count after a while."""
        self.count += 1
        draw = (self.seed * 2654435761 + self.count * 40503) % 1000 / 999
        if self.most:
            time.sleep(self.least + draw * (self.most - self.least))
        return Reply(f" <{self.count}> ")

    def reward(self) -> Score:
        """Returns the count."""
        return Score(float(self.count))

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Tool:
    """The partner whose sessions count."""

    least: float = 0.0
    most: float = 0.0
    is_repeatable: bool = True

    def item(self, ordinal: int, split: int) -> Item:
        """Returns a prompt."""
        return Item(f"item {ordinal}: ", "", "a")

    def open(self, item: Item, seed: int) -> Counting:
        """Opens a session."""
        return Counting(seed, self.least, self.most)


def played(task: DialogueTask, actor: torch.nn.Module, rows: int) -> tuple[Experience, float, float]:
    """Returns the conversations, the seconds that they took, and those that they would take on an idle machine: the
    time of the processor, and the time in which decoding stood still.
    """
    starts, samples = np.arange(rows) // 8, np.arange(rows) % 8
    begun, used = time.perf_counter(), time.process_time()
    record = task.play(actor, starts, samples, Draw(0), split=0, greedy=False)
    return record, time.perf_counter() - begun, time.process_time() - used + task.waited()


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    tools = {"no waiting": Tool(), "10 to 90 ms": Tool(0.01, 0.09)}
    tasks = {name: DialogueTask(name, tool, CharacterTokenizer(), 16, TURNS, TOKENS, 8) for name, tool in tools.items()}
    spec = tasks["no waiting"].spec
    actor = built(Policy(Transformer(given.width, given.layers, 4)), spec).to(given.device)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    alone: dict[str, list[float]] = {name: [] for name in tasks}
    records: dict[str, Experience] = {}
    for task in tasks.values():
        played(task, actor, 8)
    for _ in range(given.repeats):
        for name, task in tasks.items():
            records[name], took, idle = played(task, actor, given.rows)
            seconds[name].append(took)
            alone[name].append(idle)
            print(f"{name}: {took:.2f} s; processor and standing still {idle:.2f} s", flush=True)
    same = torch.equal(records["no waiting"].action, records["10 to 90 ms"].action)
    first, second = (statistics.median(seconds[name]) for name in tasks)
    counts = records["10 to 90 ms"].column("outcome/value")
    print(f"each row counted to {TURNS}: {bool((counts == TURNS).all())}; tokens are the same: {same}")
    print(f"median {second:.2f} s / {first:.2f} s = {second / first:.3f} of the time without waiting")
    first, second = (statistics.median(alone[name]) for name in tasks)
    print(
        f"processor and standing still {second:.2f} s / {first:.2f} s = {second / first:.3f}, on a machine in use too"
    )
    print(f"one after the other the replies alone take {given.rows * TURNS * 0.05:.0f} s")


if __name__ == "__main__":
    main()
