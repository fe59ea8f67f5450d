"""PPO, SAC and TD3 against stable-baselines3: held-out return over decisions, defaults against defaults.

    python -m benchmarks.peers_control --choose cost.jsonl --jobs 16 --minutes 8     the budgets that fit, by short runs
    python -m benchmarks.peers_control --jobs 16 --minutes 8 --off-policy 20000      only what is not in the file yet
    python -m benchmarks.peers_control --only assay/sac --only Hopper                runs whose key has all these words

Ours is what `assay train METHOD --task TASK` takes: the preset "mujoco". Theirs is their constructor's defaults, and
for TD3 the action noise of its paper and their documentation (0.1), since their default is none. PPO takes 25 batches
of 2,048 decisions. For SAC and TD3 `--choose` takes the largest of BUDGETS with which everything ends in time, by the
cost of short runs; no score is looked at. An episode's end costs our loop a step without a decision, so that ours never
has more decisions than theirs; updates differ by at most the 8 of one step.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core.recipe import Recipe, united
from assay.core.record import State
from assay.core.schedules import Delayed, Linear
from assay.core.slots import Ask, Explore, Scene, Schedule, number
from assay.core.spaces import Context
from assay.models.bodies.perceptron import Perceptron
from assay.parts.rollouts.explore import NoisyActor
from benchmarks.peers_runs import Clock, Job, Queue, acting, finished

SIDES, METHODS = ("assay", "stable-baselines3"), ("sac", "td3", "ppo")


def falling_rate(recipe: Recipe) -> Recipe:
    """Returns PPO with rates that fall from 3e-4 to 0 over the run."""
    return reduce(lambda one, name: one.set(f"{name}.optimizer.learning_rate", Linear(3e-4, 0.0)), STAGES, recipe)


def clipped_together(recipe: Recipe) -> Recipe:
    """Returns PPO with one optimizer and one clipped gradient norm for actor and critic, as theirs."""
    return replace(recipe, stages=(united(recipe.stages),))


def their_network(recipe: Recipe) -> Recipe:
    """Returns TD3 with the learning rate and the layers of the paper, as theirs."""
    changes: dict[str, Any] = {f"stages.{name}.optimizer.learning_rate": 1e-3 for name in ("critic", "actor")}
    changes |= {"actor.hidden": (400, 300), "critics.q.hidden": (400, 300)}
    return reduce(lambda one, path: one.set(path, changes[path]), changes, recipe)


@dataclass(frozen=True)
class TheirLayers(Perceptron):
    """Fully connected layers with PyTorch's own initial weights."""

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        """Returns the layers; an ensemble has such weights already."""
        made = super().network(num_inputs, ask)
        for layer in made.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        return made


class UniformActor:
    """Takes uniform actions between the bounds of a policy."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.num_draws = actor, actor.num_draws

    def act(self, context: Context, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions; without random numbers those of the policy."""
        action, logp = self.actor.act(context, None)
        if uniform is None:
            return action, logp
        return self.actor.centre + self.actor.half_range * (2.0 * uniform - 1.0), logp


@dataclass(frozen=True)
class UniformThenNoise(Explore):
    """Uniform actions while `scale` is 0, then noise of `scale` half-ranges."""

    scale: float | Schedule = 0.1

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        """Returns the exploring actor."""
        return NoisyActor(actor, number(self.scale)) if number(self.scale) else UniformActor(actor)


def as_theirs(recipe: Recipe) -> Recipe:
    """Returns TD3 with their rate, layers, initial weights, 104 uniform decisions, then noise 0.1 (6,000 decisions)."""
    layers, recipe = TheirLayers((400, 300)), their_network(recipe)
    rollout = replace(recipe.rollout, explore=UniformThenNoise(Delayed(0.1, share=13 / 750)))
    critics = {"q": replace(recipe.critics["q"], body=layers)}
    return replace(recipe, rollout=rollout, critics=critics, actor=replace(recipe.actor, body=layers))


STAGES = ("policy", "value")
VARIANTS: dict[str, tuple[str, Callable[[Recipe], Recipe]]] = {
    "assay:falling-rate": ("ppo", falling_rate),
    "assay:clipped-together": ("ppo", clipped_together),
    "assay:their-network": ("td3", their_network),
    "assay:as-theirs": ("td3", as_theirs),
}
"""Sides that are ours with a changed recipe, and the method that they are of."""
TASKS = ("Hopper-v5", "HalfCheetah-v5", "InvertedDoublePendulum-v5")
SEEDS = 5
BATCH, ROLLOUTS, FRAGMENT = 2_048, 25, 8
"""Decisions of a PPO batch, batches of a run, and the decisions between our off-policy updates."""
OFF_POLICY, AGENT = 20_000, 40_000
BUDGETS, AGENTS = (20_000, 15_000, 12_000, 10_000, 8_000, 6_000), (40_000, 30_000, 20_000, 15_000, 10_000)
"""Decisions of SAC and TD3, and of the SAC agents that make the data of `peers_offline`, from which to choose."""
SHORT = {"ppo": 2 * BATCH, "sac": 600, "td3": 600}
"""Decisions of the runs that tell the cost."""
EVALUATIONS = {"ppo": 5, "sac": 10, "td3": 10}
COST = {
    "assay/ppo": 1.2, "assay/sac": 10.0, "assay/td3": 7.5,
    "stable-baselines3/ppo": 1.6, "stable-baselines3/sac": 15.0, "stable-baselines3/td3": 11.0,
}  # fmt: skip
"""Expected milliseconds of a decision with its updates on one core; corrected by the runs that have ended."""
FIXED = 12.0
"""Expected seconds of a run's imports and evaluations."""


def budget(method: str, off_policy: int = OFF_POLICY) -> int:
    """Returns the decisions of a run."""
    return BATCH * ROLLOUTS if method == "ppo" else off_policy


def jobs(seeds: int, off_policy: int) -> Iterator[Job]:
    """Yields all runs: seed after seed, the long ones first. A key is SIDE/METHOD/TASK/SEED/DECISIONS."""
    kinds = [(side, method) for side in SIDES for method in METHODS]
    kinds += [(side, method) for side, (method, _) in VARIANTS.items()]
    for seed in range(seeds):
        for side, method in sorted(kinds, key=lambda kind: -seconds(*kind)):
            for task in TASKS:
                key = f"{side}/{method}/{task}/{seed}/{budget(method, off_policy)}"
                yield Job(key, f"{side}/{method}", seconds(side, method, off_policy))


def seconds(side: str, method: str, off_policy: int = OFF_POLICY) -> float:
    """Returns the expected seconds of a run."""
    return FIXED + COST[f"{side.partition(':')[0]}/{method}"] * budget(method, off_policy) / 1e3


def choose(out: Path, at_once: int, minutes: float) -> tuple[int, int]:
    """Returns the decisions of SAC and TD3 and those of the agents that make data, by short runs of every kind."""
    kinds = [(side, method) for method in METHODS for side in SIDES]
    short = [
        Job(f"{side}/{method}/{task}/0/{SHORT[method]}", f"{side}/{method}", 30.0)
        for task in TASKS
        for side, method in kinds
    ]
    Queue("benchmarks.peers_control", (), out, at_once, minutes).run(short)
    rows = list(finished(out).values())

    def cost(side: str, method: str, decisions: int) -> float:
        """Returns the mean seconds of a run, all of it."""
        own = [row for row in rows if (row["side"], row["method"]) == (side, method)]
        per = sum(row["seconds"] / max(1, row["decisions"] - (method != "ppo") * 100) for row in own) / len(own)
        return per * decisions + sum(row["took"] - row["seconds"] for row in own) / len(own)

    def total(off_policy: int) -> float:
        """Returns the seconds of everything, the last runs not being side by side."""
        costs = [cost(side, method, budget(method, off_policy)) for side, method in kinds]
        return sum(costs) * SEEDS * len(TASKS) / at_once + max(costs) / 2

    fits = [number for number in BUDGETS if total(number) < 55.0 * minutes] or [BUDGETS[-1]]
    agents = [number for number in AGENTS if 1.2 * cost("assay", "sac", number) < 60.0 * minutes] or [AGENTS[-1]]
    for size in BUDGETS:
        print(f"{size} decisions of SAC and TD3: {total(size):.0f} s", flush=True)
    return fits[0], agents[0]


# ---------------------------------------------------------------------------------------------------- the two sides
def assay_run(
    method: str, task: str, seed: int, decisions: int, clock: Clock, change: Callable[[Recipe], Recipe] | None = None
) -> dict[str, Any]:
    """Trains ours with the task's own preset, changed as a variant is."""
    from assay.engine.loop import Loop
    from assay.engine.machine import tuned
    from assay.runs.plan import make_plan

    steps = max(1, decisions // (BATCH if method == "ppo" else FRAGMENT))
    plan = make_plan(method, task, steps=steps, seed=seed, evaluations=0)
    recipe = change(plan.recipe) if change else plan.recipe
    loop = Loop(recipe, plan.task, seed=plan.seed, num_steps=plan.steps)
    points = EVALUATIONS[method]
    with tuned(sum(flat.values.numel() for flat in loop.engine.flats.values())):
        for step in range(1, steps + 1):
            loop.step()
            if step * points // steps > (step - 1) * points // steps:
                clock.evaluate(acting(loop.policy), loop.progress.decisions)
    return clock.facts() | {"decisions": loop.progress.decisions, "updates": loop.progress.updates}


def peer_run(method: str, task: str, seed: int, decisions: int, clock: Clock) -> dict[str, Any]:
    """Trains stable-baselines3 with its defaults."""
    import gymnasium
    import numpy as np
    from stable_baselines3 import PPO, SAC, TD3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    size = gymnasium.make(task).action_space.shape
    noise = NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    more: dict[str, Any] = {"action_noise": noise} if method == "td3" else {}
    model = {"ppo": PPO, "sac": SAC, "td3": TD3}[method]("MlpPolicy", task, seed=seed, device="cpu", **more)
    points = EVALUATIONS[method]

    def evaluate() -> None:
        clock.evaluate(lambda seen: model.predict(seen, deterministic=True)[0], model.num_timesteps)

    class Curve(BaseCallback):  # type: ignore[misc]
        """Evaluates after an update of PPO, else after a decision."""

        def due(self) -> None:
            last = clock.curve[-1][0] if clock.curve else 0
            if (
                model.num_timesteps < decisions
                and model.num_timesteps * points // decisions > last * points // decisions
            ):
                evaluate()

        def _on_rollout_start(self) -> None:
            if method == "ppo":
                self.due()

        def _on_step(self) -> bool:
            if method != "ppo":
                self.due()
            return True

    model.learn(decisions, callback=Curve())
    evaluate()
    return clock.facts() | {"decisions": model.num_timesteps, "updates": int(model._n_updates)}


def one(key: str) -> dict[str, Any]:
    """Returns the row of one run."""
    side, method, task, seed, decisions = key.split("/")
    torch.set_num_threads(1)
    run: Callable[..., dict[str, Any]] = peer_run
    if side.startswith("assay"):
        run = partial(assay_run, change=VARIANTS[side][1] if side in VARIANTS else None)
    facts = run(method, task, int(seed), int(decisions), Clock(task))
    return {"side": side, "method": method, "task": task, "seed": int(seed), **facts}


def main(words: Sequence[str] | None = None) -> int:
    """Runs what is missing; 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_control", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/peers_control.jsonl"))
    parser.add_argument("--jobs", type=int, default=2, help="processes at once, one thread each")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", action="append", default=[], help="runs whose key contains this (all of them)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--off-policy", type=int, default=OFF_POLICY, help="decisions of SAC and TD3")
    parser.add_argument("--choose", type=Path, metavar="FILE", help="short runs into FILE; prints the two budgets last")
    parser.add_argument("--one", help="a key; prints its row")
    options = parser.parse_args(words)
    if options.choose:
        print(*choose(options.choose, options.jobs, options.minutes))
        return 0
    if options.one:
        print(json.dumps(one(options.one)))
        return 0
    queue = Queue("benchmarks.peers_control", (), options.out, options.jobs, options.minutes)
    queue.run(job for job in jobs(options.seeds, options.off_policy) if all(word in job.key for word in options.only))
    return min(1, len(queue.failed))


if __name__ == "__main__":
    raise SystemExit(main())
