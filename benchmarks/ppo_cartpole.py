"""PPO on CartPole-v1: seconds and decisions to a held-out return of 475, steps a second, return at the end.

Both sides are judged alike: the deterministic policy on 20 episodes of Gymnasium's own CartPole-v1. Evaluation is not
counted. One thread each; the peer at its defaults with 8 environments, and with oneDNN off.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.arms import interleaved

TARGET = 475.0


@dataclass(frozen=True)
class Size:
    """Decisions, the steps of ours between two judgements, episodes of one, and the steps of a peer's rollout."""

    budget: int = 204_800
    every: int = 5
    episodes: int = 20
    peer_steps: int = 2_048


TOY = Size(2_048, 1, 1, 128)


def measure(quick: bool, toy: bool = False) -> list[dict[str, Any]]:
    """One row an arm."""
    seeds = 1 if toy else 2 if quick else 5
    arms = {
        f"{name}": [name, *(["--toy"] if toy else [])]
        for name in (
            "assay (native CartPole)",
            "assay (Gymnasium vector)",
            "stable-baselines3",
            "stable-baselines3, oneDNN off",
        )
    }
    rows: dict[str, dict[str, Any]] = {}
    for seed in range(seeds):
        for row in interleaved(
            "benchmarks.ppo_cartpole", {arm: [str(seed), *words] for arm, words in arms.items()}, 1, 1
        ):
            kept = rows.setdefault(row["arm"], {"arm": row["arm"]})
            for key, value in row.items():
                if key != "arm":
                    kept.setdefault(key, []).extend(value)
    return list(rows.values())


def held_out(act: Callable[[np.ndarray], int], episodes: int) -> float:
    """Mean return of some episodes of Gymnasium's CartPole-v1."""
    import gymnasium

    env, total = gymnasium.make("CartPole-v1"), 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            over = terminated or truncated
    return total / episodes


class Clock:
    """Seconds of training alone: stops while the policy is judged."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.spent, self.start = 0.0, time.perf_counter()
        self.reached: float | None = None
        self.decisions: int | None = None

    def judge(self, act: Callable[[np.ndarray], int], decisions: int) -> float:
        """The held-out return now; remembers when it first was 475."""
        self.spent += time.perf_counter() - self.start
        score = held_out(act, self.size.episodes)
        if score >= TARGET and self.reached is None:
            self.reached, self.decisions = self.spent, decisions
        self.start = time.perf_counter()
        return score

    def facts(self, decisions: int, score: float) -> dict[str, Any]:
        """Numbers of this run."""
        return {
            "steps_per_second": decisions / self.spent,
            "seconds_to_475": self.reached if self.reached is not None else float("inf"),
            "decisions_to_475": self.decisions if self.decisions is not None else float("inf"),
            "final_return": score,
        }


def assay_arm(vector: bool, seed: int, size: Size = Size()) -> dict[str, Any]:
    """recipes.ppo with its defaults."""
    from assay.engine.loop import Loop
    from assay.runs import catalogue
    from assay.tasks.adapters.gymnasium import gymnasium_task

    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    task = gymnasium_task("CartPole-v1", vector=True) if vector else catalogue.find_task("cartpole")
    loop = Loop(catalogue.recipe_for("ppo", task, {}), task, seed=seed, num_steps=size.budget // 2048)
    clock = Clock(size)

    def act(observation: np.ndarray) -> int:
        with torch.no_grad():
            return int(loop.actor.act({"observation": torch.from_numpy(observation).unsqueeze(0)}, None)[0])

    score = 0.0
    for step in range(size.budget // 2048):
        loop.step()
        if (step + 1) % size.every == 0:
            score = clock.judge(act, loop.progress.decisions)
    return clock.facts(loop.progress.decisions, score)


def peer_arm(onednn: bool, seed: int, size: Size = Size()) -> dict[str, Any]:
    """stable-baselines3's PPO with its defaults on 8 environments."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.backends.mkldnn.enabled = onednn  # type: ignore[assignment]
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = PPO("MlpPolicy", envs, n_steps=size.peer_steps, seed=seed, device="cpu")
    clock, scores = Clock(size), [0.0]

    class Judge(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            act = lambda observation: int(model.predict(observation, deterministic=True)[0])  # noqa: E731
            scores.append(clock.judge(act, model.num_timesteps))

    model.learn(size.budget, callback=Judge())
    scores.append(
        clock.judge(lambda observation: int(model.predict(observation, deterministic=True)[0]), model.num_timesteps)
    )
    return clock.facts(model.num_timesteps, scores[-1])


def arm(words: Sequence[str]) -> dict[str, Any]:
    """The arm that a child process is asked for."""
    seed, name, size = int(words[0]), words[1], TOY if "--toy" in words else Size()
    if name.startswith("assay"):
        return assay_arm("vector" in name, seed, size)
    return peer_arm("off" not in name, seed, size)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(arm(sys.argv[1:])))
