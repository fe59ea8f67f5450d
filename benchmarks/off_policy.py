"""One update of td3 and sac at 256 and 64 wide (batch 256, 17 observations, 6 actions): cpu-milliseconds, one thread.

Replay holds 20,000 random transitions; only updates are timed. The peer at its defaults and with oneDNN off.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.arms import interleaved

ROWS, BATCH = 20_000, 256
TIMED, TIMED_IN_A_TOY = 25, 2


def measure(quick: bool, toy: bool = False) -> list[dict[str, Any]]:
    """One row an arm."""
    arms = {
        f"{who} {name} {width}": [who, name, width, *(["--toy"] if toy else [])]
        for name in ("td3", "sac")
        for width in (("8",) if toy else ("256", "64"))
        for who in ("assay", "stable-baselines3", "stable-baselines3,oneDNN-off")
    }
    return interleaved("benchmarks.off_policy", arms, 1 if toy else 2 if quick else 5, 1)


def timed(update: Callable[[], None], updates: int, repeats: int) -> dict[str, Any]:
    """Median cpu- and wall-milliseconds of one update, after a warm-up."""
    for _ in range(3):
        update()
    cpu, wall = [], []
    for _ in range(repeats):
        start = time.process_time(), time.perf_counter()
        update()
        cpu.append((time.process_time() - start[0]) / updates * 1e3)
        wall.append((time.perf_counter() - start[1]) / updates * 1e3)
    return {"cpu_ms_an_update": float(np.median(cpu)), "wall_ms_an_update": float(np.median(wall))}


def assay_arm(name: str, width: int, repeats: int = TIMED) -> dict[str, Any]:
    """The base's own stages on a filled replay; no environment."""
    from assay import recipes
    from assay.core.spaces import Box, Spec
    from assay.engine.loop import Loop
    from assay.tasks.control.stepping import SteppedTask

    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    recipe = {"td3": recipes.td3, "sac": recipes.sac}[name]()
    recipe = recipe.set("actor.hidden", (width, width)).set("q.hidden", (width, width))
    recipe = replace(recipe, rollout=None).set("source.updates", 8).set("source.capacity", 100_000)
    unbounded, unit = float("inf"), (1.0,) * 6
    spec = Spec(Box((-unbounded,) * 17, (unbounded,) * 17), Box(tuple(-x for x in unit), unit), 1_000)
    task = SteppedTask("random transitions", spec, lambda num: None)  # type: ignore[arg-type, return-value]
    loop = Loop(recipe, task, seed=0, num_steps=10_000)
    draw = torch.Generator().manual_seed(0)
    columns = {
        "action": torch.rand(ROWS, 2, 6, generator=draw) * 2 - 1,
        "mask": torch.tensor([True, False]).repeat(ROWS, 1),
        "logp": torch.zeros(ROWS, 2),
        "reward": torch.randn(ROWS, 2, generator=draw),
        "terminal": torch.zeros(ROWS, 2, dtype=torch.bool),
        "truncated": torch.zeros(ROWS, 2, dtype=torch.bool),
        "context.observation": torch.randn(ROWS, 2, 17, generator=draw),
    }
    loop.recipe.source.store(columns, loop.states["sources"][0])  # type: ignore[attr-defined]
    return timed(lambda: loop.step() and None, 8, repeats)


def peer_arm(name: str, width: int, onednn: bool, repeats: int = TIMED) -> dict[str, Any]:
    """stable-baselines3's `train` on a filled replay."""
    import gymnasium
    from stable_baselines3 import SAC, TD3
    from stable_baselines3.common.logger import configure

    class Still(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return np.zeros(17, np.float32), {}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            return np.zeros(17, np.float32), 0.0, False, False, {}

    torch.backends.mkldnn.enabled = onednn  # type: ignore[assignment]
    widths = {"net_arch": [width, width]}
    model = {"td3": TD3, "sac": SAC}[name](
        "MlpPolicy", Still(), policy_kwargs=widths, batch_size=BATCH, buffer_size=100_000, device="cpu", seed=0
    )
    model.set_logger(configure(None, []))
    replay, draw = model.replay_buffer, np.random.default_rng(0)
    replay.observations[:ROWS] = draw.standard_normal((ROWS, 1, 17))
    replay.next_observations[:ROWS] = draw.standard_normal((ROWS, 1, 17))
    replay.actions[:ROWS] = draw.uniform(-1, 1, (ROWS, 1, 6))
    replay.rewards[:ROWS] = draw.standard_normal((ROWS, 1))
    replay.pos = ROWS
    return timed(lambda: model.train(8, BATCH), 8, repeats)


def arm(words: Sequence[str]) -> dict[str, Any]:
    """The arm that a child process is asked for."""
    who, name, width = words[0], words[1], int(words[2])
    repeats = TIMED_IN_A_TOY if "--toy" in words else TIMED
    return assay_arm(name, width, repeats) if who == "assay" else peer_arm(name, width, "off" not in who, repeats)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(arm(sys.argv[1:])))
