"""The examples in plain torch compute what Assay computes: the same tokens and decisions, the same weights.

Ten steps leave no gap: where it was measured (aarch64, torch 2.13, also with ATEN_CPU_CAPABILITY=default) the weights
are equal bit by bit. Elsewhere 1e-6 is allowed: a matrix product may round a row by the number of its rows.
"""

from __future__ import annotations

import ast
import importlib.util
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.core.record import Draw, Experience
from assay.engine import evaluation
from assay.engine.loop import Loop, Step
from assay.engine.machine import tuned
from assay.ops import random, returns
from assay.runs.progress import Mode
from assay.tasks.control.cartpole import balance, cartpole

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 10
TOLERANCE = 0.0 if platform.machine() == "aarch64" else 1e-6


def loaded(name: str) -> ModuleType:
    """Returns an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(
    method: str, task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **options: Any
) -> tuple[assay.Run, list[Experience]]:
    """Returns a run of Assay and what each of its steps gathered."""
    gathered: list[Experience] = []
    original = Loop.step

    def step(loop: Loop) -> Step:
        done = original(loop)
        if done.fresh is not None:
            gathered.append(done.fresh)
        return done

    monkeypatch.setattr(Loop, "step", step)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    monkeypatch.setattr(evaluation, "EPISODES", 1)
    run = assay.train(method, task, steps=STEPS, out=tmp_path / "run", mode=Mode.SILENT, evaluations=0, **options)
    assert len(gathered) == STEPS
    return run, gathered


def gap(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> float:
    """Returns the largest difference between two lists of tensors of equal shapes."""
    return max(float((one - other).detach().abs().max()) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["grpo_from_scratch", "ppo_from_scratch"])
def test_nothing_of_assay_is_imported(name: str) -> None:
    nodes = list(ast.walk(ast.parse((EXAMPLES / f"{name}.py").read_text())))
    found = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    found += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {one.split(".")[0] for one in found} - sys.stdlib_module_names == {"numpy", "torch"}


def test_grpo_samples_the_same_tokens_and_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = loaded("grpo_from_scratch")
    run, gathered = trained("grpo", "addition-1", monkeypatch, tmp_path, warmup=scratch.WARMUP)
    with tuned(1):
        model = scratch.Transformer()
        scratch.warm_up(model)
        batches = list(scratch.train(model, STEPS))
    for batch, fresh in zip(batches, gathered, strict=True):
        assert torch.equal(batch.tokens, fresh.action)
        assert torch.equal(batch.mask, fresh.mask)
        assert torch.equal(batch.reward, fresh.column("outcome"))
        assert gap([batch.logp], [fresh.logp]) <= 100 * TOLERANCE  # its slope in the weights is about 100
    assert 0.1 < float(batches[0].reward.mean()) < 0.9, "some answers are right, some are not"
    assert gap(model.parameters(), run.models["actor"].parameters()) <= TOLERANCE


@pytest.mark.parametrize("seed", [0, 7])
def test_ppo_makes_the_same_decisions_and_ends_with_the_same_weights(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = loaded("ppo_from_scratch")
    monkeypatch.setattr(scratch, "SEED", seed)
    run, gathered = trained("ppo", "cartpole", monkeypatch, tmp_path, seed=seed)
    running, means = np.zeros(scratch.ENVS), []
    with tuned(1):
        policy, critic = scratch.network(0, 2, gain=0.01), scratch.network(1, 1, gain=1.0)
        batches = list(scratch.train(policy, critic, STEPS))
    for batch, fresh in zip(batches, gathered, strict=True):
        assert torch.equal(batch.observation, fresh.context["observation"])
        assert torch.equal(batch.action, fresh.action)
        assert torch.equal(batch.is_decision, fresh.mask)
        assert torch.equal(batch.fell, fresh.terminal)
        assert torch.equal(batch.is_late, fresh.truncated)
        assert gap([batch.logp * batch.is_decision], [fresh.logp]) <= 100 * TOLERANCE
        means.append(np.mean(scratch.finished(batch, running)))
    assert [row["reward"] for row in run.curves[1:]] == pytest.approx(means)
    assert gap(policy.parameters(), run.models["actor"].parameters()) <= TOLERANCE
    assert gap(critic.parameters(), run.models["value"].parameters()) <= TOLERANCE


def test_its_carts_move_as_those_of_the_task_and_time_is_up_after_500_decisions() -> None:
    scratch = loaded("ppo_from_scratch")
    env, simulation, ends = scratch.CartPole(), cartpole().simulate(scratch.ENVS), 0
    context = simulation.reset(random.hashed(Draw(0), 1, np.arange(scratch.ENVS)).view(np.int64))
    for time in range(1010):
        assert torch.equal(env.observation(), context["observation"])
        action = balance(context)
        action[: scratch.ENVS // 2] = time // 10 % 2  # half of the poles fall
        context, _, terminal, truncated, _ = simulation.step(action)
        fell, is_late = env.step(action.numpy())
        assert torch.equal(fell, terminal)
        assert torch.equal(is_late, truncated)
        ends += int(is_late.sum())
    assert ends == scratch.ENVS


def test_its_advantages_bootstrap_where_time_was_up_and_not_where_the_pole_fell() -> None:
    scratch = loaded("ppo_from_scratch")
    shape = scratch.ENVS, scratch.LENGTH + 1
    fell, is_late, is_decision = torch.rand(shape) < 0.1, torch.rand(shape) < 0.1, torch.ones(shape, dtype=torch.bool)
    is_late, value = is_late & ~fell, torch.randn(shape)
    is_decision[:, 1:] = ~(fell | is_late)[:, :-1]
    is_decision[:, -1] = False
    fell, is_late = fell & is_decision, is_late & is_decision
    assert bool(fell.any())
    assert bool(is_late.any())
    batch = scratch.Batch(value, value, value, is_decision, fell, is_late)
    reward, numbers = is_decision.float(), (scratch.GAMMA, scratch.LAMBDA)
    expected = returns.gae(reward, value, is_decision, fell, is_late, *numbers)
    assert torch.equal(scratch.advantages(batch, value), expected)
