"""Seconds of an update on several ranks, against one: a small GRPO step on prompts of addition.

    python -m benchmarks.ranks                       # 1 and 2 ranks at 2 shards
    python -m benchmarks.ranks --ranks 1 2 4 --width 256
    python -m benchmarks.ranks --ranks 1 2 4 --sharded      # layers under FSDP2
    python -m benchmarks.ranks --ranks 1 2 4 --device cuda:0 --width 512     # all on one GPU

Times a whole step and its update on an idle machine; digests of the weights must be equal, whatever the ranks.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.trees import encoded
from assay.engine.batch_shards import digest
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.parts.rewards.function import FromFunction
from assay.runs.distributed.ranks import Team
from assay.runs.plan import make_plan


@dataclass(frozen=True)
class Timed:
    """Median seconds of a step and of its update, a digest of the weights after the last one; of rank 0 the bytes of
    optimizer state, and of weights while gradients are computed.
    """

    ranks: int
    step: float
    update: float
    weights: int
    state: int
    held: int


def different_characters(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns the number of different characters of each answer."""
    return [float(len(set(row["completion"]))) for row in rows]


def timed(
    ranks: int, shards: int, width: int, steps: int, num_starts: int, sharded: bool = False, device: str = "cpu"
) -> Timed:
    """Trains `steps` steps after one that is not timed."""
    settings = {"actor.width": width, "rollout.num_starts": num_starts}
    where = Placement(device, shards=shards, ranks=ranks, sharded=sharded and ranks > 1)
    plan = make_plan("grpo", "addition", steps=steps + 1, warmup=0, settings=settings, placement=where)
    # An untrained model never adds up; it does write different words, so that the weights move.
    plan = replace(plan, recipe=replace(plan.recipe, rewards=(FromFunction(different_characters),)))
    loop = Loop(plan.recipe, plan.task, seed=0, num_steps=plan.steps, placement=where)
    size = sum(flat.num_parameters for flat in loop.engine.flats.values())
    with Team(ranks) as team, tuned(size, shards=shards):
        if ranks > 1:
            team.lead(plan, loop, {})
        loop.step()
        seconds = [loop.step().seconds for _ in range(steps)]
    whole = statistics.median(sum(each.values()) for each in seconds)
    update = statistics.median(each["update"] for each in seconds)
    weights = digest(piece for flat in loop.engine.flats.values() for piece in flat.pieces)
    held = sum(flat.values.nbytes for flat in loop.engine.flats.values())
    if loop.engine.sharding is not None:
        held = sum(size for twin in loop.engine.sharding.twins.values() for _, size in twin.memory)
    return Timed(ranks, whole, update, weights, encoded(loop.engine.optimizers).size, held)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each number of ranks; returns 1 if their weights differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--starts", type=int, default=32)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--device", default="cpu", help="cpu, cuda (one for each rank) or cuda:0 (one for all)")
    chosen = parser.parse_args(arguments)
    shards = max(chosen.ranks)
    size = chosen.width, chosen.steps, chosen.starts, chosen.sharded, chosen.device
    found = [timed(ranks, shards, *size) for ranks in chosen.ranks]
    for one in found:
        faster = f"{found[0].step / one.step:.2f}x a step, {found[0].update / one.update:.2f}x an update"
        kept = f"{one.state / 1e6:.2f} MB of optimizer state, {one.held / 1e6:.2f} MB of weights in an update"
        print(f"{one.ranks} ranks: {one.step:.3f} s a step, {one.update:.3f} s an update ({faster}), {kept}")
    same = len({one.weights for one in found}) == 1
    print("weights are equal" if same else "weights DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
