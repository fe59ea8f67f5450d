"""Control bases on one task in other units: actions, rewards and observations times a factor, 5 seeds each.

python -m benchmarks.rescaled --workers 16          everything that is missing, then the table in docs/rescaled.md
python -m benchmarks.rescaled --only sac ppo        some methods
python -m benchmarks.rescaled --table               the table alone, from the committed numbers

The pendulum with a torque of +-1 (CartPole for dqn) is the task; half-ranges of 0.02 and 100, rewards and observations
times 0.01 and 100 are the same task in other units, and scores are given in those of the first. Settings are the
defaults. Rewards and observations are measured twice: as they are, and with `--normalize`, the declared remedy.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.recipe import Recipe
from assay.core.spaces import Box, Context
from assay.datasets.recorded import with_statistics
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.parts.sources.demonstrations import DemonstratedDecisions
from assay.parts.sources.logged import Log, Logged
from assay.runs import catalogue
from assay.runs.environments import normalised
from assay.statistics.intervals import difference_interval, mean_interval
from assay.tasks.control.cartpole import CartPole, cartpole
from assay.tasks.control.pendulum import MAX_TORQUE, Pendulum, pendulum
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

RESULTS = Path(__file__).with_name("rescaled.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "rescaled.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
SEEDS, EPISODES = 5, 40
STEPS = {"ppo": 60, "a2c": 800, "sac": 500, "td3": 500, "dqn": 100, "bc": 60, "td3-bc": 200, "iql": 200, "cql": 200}
"""Steps of a run: defaults, or fewer where the pendulum is learnt sooner."""
ONLINE = ("ppo", "a2c", "sac", "td3", "dqn")


@dataclass(frozen=True)
class Units:
    """Half-range of the action, factors of rewards and observations; `normalize` names what --normalize gets."""

    action: float = 1.0
    reward: float = 1.0
    seen: float = 1.0
    normalize: str = ""

    @property
    def name(self) -> str:
        """Returns the units in a word."""
        numbers = {"action": self.action, "reward": self.reward, "seen": self.seen}
        changed = [f"{name} {value:g}" for name, value in numbers.items() if value != 1.0] or ["1"]
        return " ".join((*changed, *([f"--normalize {self.normalize}"] if self.normalize else [])))


FACTORS = (0.01, 100.0)
ACTIONS = (Units(0.02), Units(100.0))
REWARDS, SEEN = tuple(Units(reward=one) for one in FACTORS), tuple(Units(seen=one) for one in FACTORS)
PLAIN = (Units(), *ACTIONS, *REWARDS, *SEEN)
NORMALISED = tuple(
    replace(one, normalize=what) for what, group in (("reward", REWARDS), ("obs", SEEN)) for one in (Units(), *group)
)


def units_of(method: str) -> Iterator[Units]:
    """Yields the units of a method's runs: dqn has no continuous actions, offline methods no rewards to normalise."""
    for one in (*PLAIN, *NORMALISED):
        if (method == "dqn" and one.action != 1.0) or (method not in ONLINE and one.normalize == "reward"):
            continue
        if method in ("bc",) and one.reward != 1.0:
            continue
        yield one


# ---------------------------------------------------------------------------------------------------- tasks
@dataclass(frozen=True)
class InUnits:
    """The same dynamics in other units; `torque` turns an action into the dynamics' own."""

    own: Any
    units: Units
    torque: float
    has_chance: ClassVar[bool] = False

    @property
    def num_start_draws(self) -> int:
        """Returns the uniform numbers of a start."""
        return int(self.own.num_start_draws)

    @property
    def limit(self) -> int:
        """Returns the longest episode."""
        return int(self.own.limit)

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws starts of the dynamics."""
        drawn: np.ndarray = self.own.start(uniform)
        return drawn

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes a step of the dynamics; the reward is in other units."""
        own = action if action.dtype.kind == "i" else action * np.float32(self.torque / self.units.action)
        moved, reward, terminal = self.own.step(state, own, uniform)
        return moved, (self.units.reward * reward).astype(np.float32), terminal

    def observe(self, state: np.ndarray) -> Context:
        """Returns observations in other units."""
        return {name: value * self.units.seen for name, value in self.own.observe(state).items()}


def scripted(expert: Any, units: Units, torque: float, context: Context) -> Tensor:
    """Returns the expert's action in these units."""
    action: Tensor = expert({name: value / units.seen for name, value in context.items()})
    return action * (units.action / torque) if action.is_floating_point() else action


def task_in(units: Units, method: str) -> SteppedTask:
    """Returns the method's task in these units."""
    base, own, torque = (cartpole(), CartPole(), 1.0) if method == "dqn" else (pendulum(), Pendulum(), MAX_TORQUE)
    dynamics, spec = InUnits(own, units, torque), base.spec
    if isinstance(spec.action, Box):
        spec = replace(spec, action=Box((-units.action,), (units.action,)))
    assert isinstance(spec.observation, Box)
    low, high = (tuple(units.seen * end for end in side) for side in (spec.observation.low, spec.observation.high))
    return SteppedTask(
        f"{base.name} in other units", replace(spec, observation=Box(low, high)),
        partial(ArraySimulation, dynamics), partial(scripted, base.expert, units, torque), dynamics,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- runs
def recipe_in(method: str, task: SteppedTask, units: Units, seed: int) -> Recipe:
    """Returns the method's default recipe on the task, normalised if the units say so; bc clones a dataset."""
    recipe = catalogue.recipe_for(method, task, {})
    if isinstance(recipe.source, DemonstratedDecisions):
        recipe = replace(recipe, source=Logged((Log(50, noise=0.0),), updates=recipe.source.minibatches))
    if units.normalize:
        recipe = normalised(recipe, task, (units.normalize,))
    return with_statistics(recipe, task, seed)


def run(method: str, units: Units, seed: int, steps: int | None = None) -> dict[str, float]:
    """Trains and evaluates one seed: the mean return in the task's first units, and cpu seconds."""
    torch.set_num_threads(1)
    task, began, num = task_in(units, method), time.process_time(), steps or STEPS[method]
    loop = Loop(recipe_in(method, task, units, seed), task, seed=seed, num_steps=num)
    for _ in range(num):
        loop.step()
    score = float(evaluation.scores(loop.policy, task, num=EPISODES).mean()) / units.reward
    return {"return": score, "cpu_seconds": time.process_time() - began}


def missing(known: Mapping[str, Any], methods: Sequence[str], seeds: int) -> list[tuple[str, Units, int]]:
    """Returns the runs that are not among the known ones, the longest first."""
    wanted = [(method, units, seed) for method in methods for units in units_of(method) for seed in range(seeds)]
    left = [one for one in wanted if str(one[2]) not in known.get(one[0], {}).get(one[1].name, {})]
    return sorted(left, key=lambda one: -("cql td3 ppo sac dqn".find(one[0])))


def measure(methods: Sequence[str], workers: int, seeds: int = SEEDS) -> None:
    """Runs what is missing; every finished run is written at once."""
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(run, *one): one for one in missing(known, methods, seeds)}
        for place, job in enumerate(as_completed(jobs), 1):
            method, units, seed = jobs[job]
            found = job.result()
            known.setdefault(method, {}).setdefault(units.name, {})[str(seed)] = found
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
            print(f"{place}/{len(jobs)} {method}, {units.name}, seed {seed}: {found['return']:.0f}", flush=True)


# ---------------------------------------------------------------------------------------------------- the page
def returns(runs: Mapping[str, Any]) -> list[float]:
    """Returns the scores by seed."""
    return [runs[seed]["return"] for seed in sorted(runs, key=int)]


def table(results: Mapping[str, Any]) -> Iterable[str]:
    """Yields the lines of a markdown table: mean and 95 % interval, and the change to the first units."""
    yield "| method (steps) | units | return | change to the first units | the same |"
    yield "|---|---|---|---|---|"
    for method, steps in STEPS.items():
        found = results.get(method, {})
        for units in units_of(method):
            if units.name not in found:
                continue
            first = Units(normalize=units.normalize).name
            mine, here = returns(found[units.name]), mean_interval(returns(found[units.name]), binary=False)
            cells = f"| {method} ({steps}) | {units.name} | {here.value:,.0f} [{here.low:,.0f}, {here.high:,.0f}] |"
            if units.name == first or first not in found:
                yield f"{cells} | |"
                continue
            change = difference_interval(mine, returns(found[first]), paired=len(mine) == len(found[first]))
            same = "yes" if change.low <= 0.0 <= change.high else "no"
            yield f"{cells} {change.value:+,.0f} [{change.low:+,.0f}, {change.high:+,.0f}] | {same} |"


def write_table() -> None:
    """Replaces the table of the page by that of the committed numbers."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    lines = "\n".join(table(json.loads(RESULTS.read_text()))) if RESULTS.is_file() else "Not measured yet."
    PAGE.write_text(f"{before}{BEGIN}{lines}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Measures what is missing and writes numbers and table."""
    parser = argparse.ArgumentParser(description="Control bases on one task in other units.")
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--only", nargs="+", default=list(STEPS), choices=list(STEPS), help="methods (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true", help="the table alone")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not options.table:
        measure(options.only, options.workers, options.seeds)
    write_table()


if __name__ == "__main__":
    main()
