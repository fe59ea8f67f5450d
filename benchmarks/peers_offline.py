"""TD3+BC, IQL and CQL against d3rlpy on the same offline datasets: held-out return over updates, equal settings.

    python -m benchmarks.peers_offline --make --data FOLDER --jobs 3 --minutes 9       the datasets, one agent a task
    python -m benchmarks.peers_offline --data FOLDER --jobs 16 --minutes 9             only what is not in the file yet

Datasets are those of `assay data make TASK medium medium-replay expert`: a SAC agent with the preset "mujoco", stopped
half way and at its end. Ours is `assay train METHOD --data FILE`, the preset "d4rl"; theirs has the same networks (256,
256), batches of 256, Adam and targets (their defaults). Of CQL both have the weight of the authors' code (5 beside a
squared error, which is 2.5 beside our half of one), fixed, critics at 3e-4 and actor at 1e-4. Nothing is standardised.
TD3+BC and IQL take 5,000 updates; CQL, whose update takes ten times as long, 2,000. Where the time does not suffice,
the last runs are left out: CQL's last seeds, then its last tasks, then the last seeds of the others. A command that is
given again continues there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import types
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from assay.datasets import agents, files, made
from assay.engine.placement import Placement
from benchmarks.peers_runs import Clock, Job, Queue, acting

SIDES = ("assay", "d3rlpy")
TASKS, KINDS = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"), ("medium", "medium-replay", "expert")
SEEDS, EVALUATIONS = 3, 5
UPDATES = {"td3-bc": 5_000, "iql": 5_000, "cql": 2_000}
AGENT_DECISIONS, FRAGMENT, EPISODES = 40_000, 8, 20
"""Decisions of the agent that makes the data, those between two of its updates, and the episodes of a dataset."""
COST = {
    "assay/td3-bc": 6.0, "assay/iql": 8.0, "assay/cql": 75.0,
    "d3rlpy/td3-bc": 7.5, "d3rlpy/iql": 10.0, "d3rlpy/cql": 85.0, "data": 10.0,
}  # fmt: skip
"""Expected milliseconds of an update on one core, and of a decision of the agent with its update; corrected
by the runs that have ended."""
FIXED = 12.0
"""Expected seconds of a run's imports and evaluations."""
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "cql": ("CQL", {"conservative_weight": 5.0, "initial_alpha": 1.0, "alpha_learning_rate": 0.0}),
    "iql": ("IQL", {}),
    "td3-bc": ("TD3PlusBC", {}),
}


def jobs(seeds: int, share: float) -> Iterator[Job]:
    """Yields all runs: CQL, the longest, after the others; seed after seed, task after task, both sides together.

    A key is SIDE/METHOD/TASK/KIND/SEED/UPDATES; `share` is that of UPDATES.
    """
    for methods in (("iql", "td3-bc"), ("cql",)):
        for seed, task, kind, method, side in product(range(seeds), TASKS, KINDS, methods, SIDES):
            updates = max(EVALUATIONS, round(share * UPDATES[method]))
            cost = FIXED + COST[f"{side}/{method}"] * updates / 1e3
            yield Job(f"{side}/{method}/{task}/{kind}/{seed}/{updates}", f"{side}/{method}", cost)


def makers(decisions: int) -> Iterator[Job]:
    """Yields the agents that make the data. A key is data/TASK/DECISIONS."""
    for task in TASKS:
        yield Job(f"data/{task}/{decisions}", "data", FIXED + COST["data"] * decisions / 1e3)


# ---------------------------------------------------------------------------------------------------- data
def path_of(folder: Path, task: str, kind: str) -> Path:
    """Returns the file of a dataset."""
    return folder / f"{task}-{kind}.safetensors"


def make_data(folder: Path, task: str, decisions: int, episodes: int = EPISODES) -> dict[str, Any]:
    """Trains one agent and writes its datasets; their mean returns, and the agent's scores."""
    from assay.runs import catalogue

    world = catalogue.find_task(task)
    recipe = catalogue.recipe_for("sac", world, {})
    agent = agents.Agent(partial(the_same, recipe), max(1, decisions // FRAGMENT), seed=0, evaluations=10)
    found = agents.trained(agent, world)
    kinds: tuple[made.Made, ...] = (
        made.Medium(agent, episodes),
        made.MediumReplay(agent),
        made.Expert(agent, episodes),
    )
    about = {}
    for kind in kinds:
        data = kind.make(world)
        files.write(data, path_of(folder, task, kind.name))
        summary = data.summary()
        about[kind.name] = {name: summary[name] for name in ("rows", "episodes", "mean_return", "returns", "hash")}
    scores = {str(step * FRAGMENT): score for step, score in found.scores.items()}
    agent_facts = {"random": found.random_score, "scores": scores, "half_way": found.half_way * FRAGMENT}
    return {"task": task, "score": found.scores[found.last], "agent": agent_facts, "data": about}


def the_same(recipe: Any, world: Any) -> Any:
    """Returns the recipe."""
    return recipe


# ---------------------------------------------------------------------------------------------------- the two sides
def assay_run(
    method: str, task: str, data: Path, seed: int, updates: int, clock: Clock, device: str = "cpu"
) -> dict[str, Any]:
    """Trains ours on a file with the preset that files of MuJoCo get."""
    from assay.engine.loop import Loop
    from assay.engine.machine import tuned
    from assay.runs.plan import make_plan

    every = max(1, updates // EVALUATIONS)
    steps, more = updates // every, {"source.updates": every}
    plan = make_plan(method, task, steps=steps, seed=seed, settings=more, evaluations=0, data=[str(data)])
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=Placement(device))
    with tuned(sum(flat.values.numel() for flat in loop.engine.flats.values())):
        for step in range(1, plan.steps + 1):
            loop.step()
            clock.evaluate(acting(loop.policy, device), step * every)
    return clock.facts() | {"updates": loop.progress.updates}


def import_d3rlpy() -> Any:
    """Returns d3rlpy; where scikit-learn is missing, its nearest neighbours are left empty: PRDC alone uses them."""
    if importlib.util.find_spec("sklearn") is not None:
        import d3rlpy

        return d3rlpy
    neighbours = types.ModuleType("sklearn.neighbors")
    neighbours.NearestNeighbors = lambda **settings: None  # type: ignore[attr-defined]
    empty = {"sklearn": types.ModuleType("sklearn"), "sklearn.neighbors": neighbours}
    sys.modules |= empty
    import d3rlpy

    for name in empty:
        del sys.modules[name]  # others ask whether it is there
    return d3rlpy


def peer_run(
    method: str, task: str, data: Path, seed: int, updates: int, clock: Clock, device: str = "cpu"
) -> dict[str, Any]:
    """Trains d3rlpy on the same rows; it has no next observation for the last row of a cut episode and skips it."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    d3rlpy, rows = import_d3rlpy(), files.read(data)
    d3rlpy.seed(seed)
    dataset = d3rlpy.dataset.MDPDataset(
        rows.observation.numpy(),
        rows.action.numpy(),
        rows.reward.numpy(),
        rows.terminal.float().numpy(),
        (rows.truncated & ~rows.terminal).float().numpy(),
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )
    name, settings = THEIRS[method]
    place = False if device == "cpu" else f"{device}:0"
    algorithm = getattr(d3rlpy.algos, f"{name}Config")(**settings).create(device=place)
    every = max(1, updates // EVALUATIONS)
    clock.__post_init__()
    algorithm.fit(
        dataset,
        n_steps=updates,
        n_steps_per_epoch=every,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
        epoch_callback=lambda algorithm, epoch, total: clock.evaluate(algorithm.predict, total),
    )
    return clock.facts() | {"updates": clock.curve[-1][0]}


def one(key: str, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Returns the row of one run."""
    torch.set_num_threads(1)
    if key.startswith("data/"):
        _, task, decisions = key.split("/")
        return make_data(folder, task, int(decisions))
    side, method, task, kind, seed, updates = key.split("/")
    run = assay_run if side == "assay" else peer_run
    facts = run(method, task, path_of(folder, task, kind), int(seed), int(updates), Clock(task), device)
    return {"side": side, "device": device, "method": method, "task": task, "kind": kind, "seed": int(seed), **facts}


def main(words: Sequence[str] | None = None) -> int:
    """Runs what is missing; 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_offline", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/peers_offline.jsonl"))
    parser.add_argument("--data", type=Path, default=Path("runs/data/peers"), help="folder of the datasets")
    parser.add_argument("--make", action="store_true", help="make the datasets")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once, one thread each")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", action="append", default=[], help="runs whose key contains this (all of them)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--share", type=float, default=1.0, help="of the updates")
    parser.add_argument("--decisions", type=int, default=AGENT_DECISIONS, help="of the agents that make the data")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both sides")
    parser.add_argument("--one", help="a key; prints its row")
    options = parser.parse_args(words)
    if options.one:
        print(json.dumps(one(options.one, options.data, options.device)))
        return 0
    more = ("--data", str(options.data), "--device", options.device)
    queue = Queue("benchmarks.peers_offline", more, options.out, options.jobs, options.minutes)
    every = makers(options.decisions) if options.make else jobs(options.seeds, options.share)
    queue.run(job for job in every if all(word in job.key for word in options.only))
    return min(1, len(queue.failed))


if __name__ == "__main__":
    raise SystemExit(main())
