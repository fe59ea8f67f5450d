"""Ranks: the number of processes changes no bit of a run, and a process that dies ends all of them with its name."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.claims.panel import small
from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.trees import encoded
from assay.engine import gloo
from assay.engine.batch_shards import ALONE
from assay.engine.gloo import RankLost
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.parts.rewards.function import FromFunction
from assay.runs import catalogue
from assay.runs.checks import check_shards
from assay.runs.distributed.ranks import Opening, Team, opened, written
from assay.runs.plan import Plan, make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute
from assay.runs.signals import Stopped
from assay.runs.worker import Callback
from tests.runs.test_gatherers import cut, in_threads

SHARDS, STEPS = 4, 2
RECIPES = [
    ("grpo", "addition-1"), ("rloo", "addition-1"), ("dapo", "addition-1"), ("ppo", "addition-1"),
    ("dpo", "addition-1"), ("grpo", "prisoners-dilemma-tokens"), ("ppo", "cartpole"),
    ("dqn", "cartpole"), ("sac", "pendulum"), ("iql", "pendulum"), ("stream-x", "cartpole"),
]  # fmt: skip


@pytest.fixture(scope="module", params=[2, 4])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    with Team(request.param) as team:
        yield team


def number_of_words(rows: list[dict[str, Any]]) -> list[float]:
    return [float(len(set(row["completion"]))) for row in rows]


def plan_of(method: str, task: str, ranks: int = 1) -> Plan:
    recipe = small(catalogue.recipe_for(method, catalogue.find_task(task), {}))
    recipe = recipe.set("epochs", 2) if method == "ppo" else recipe
    if recipe.rollout is not None and task == "addition-1":
        recipe = replace(recipe, rewards=(FromFunction(number_of_words),))  # untrained answers are never right
    return make_plan(recipe, task, steps=STEPS, warmup=0, placement=Placement(shards=SHARDS, ranks=ranks))


def loop_of(plan: Plan) -> Loop:
    return Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)


def trained(loop: Loop, folder: Path) -> State:
    """The whole state after some steps, as all ranks have saved it, and the metrics of each."""
    metrics = [dict(loop.step().metrics) for _ in range(STEPS)]
    slices = written(loop, folder)
    assert len(slices) == loop.engine.ranks.num - 1
    saved = store.save(folder, STEPS, {"loop": loop.snapshot()}, facts={}, slices=slices)
    return {**store.load_path(saved).tree["loop"], "metrics": metrics}


@cache
def alone(method: str, task: str) -> State:
    """What one process trains; its actor has moved."""
    loop = loop_of(plan_of(method, task))
    begun = loop.engine.flats["actor"].values.clone()
    with TemporaryDirectory() as folder:
        found = trained(loop, Path(folder))
    assert not torch.equal(loop.engine.flats["actor"].values, begun)
    return found


@pytest.mark.parametrize(("method", "task"), RECIPES)
def test_the_number_of_ranks_changes_no_bit(team: Team, method: str, task: str, tmp_path: Path) -> None:
    plan = plan_of(method, task, team.num)
    together = loop_of(plan)
    with tuned(0):
        team.lead(plan, together, {})
        assert store.difference(alone(method, task), trained(together, tmp_path)) == []


@pytest.mark.parametrize(("method", "rows"), [("grpo", 2), ("ppo", 0), ("dpo", 0)])
def test_layers_under_fsdp_change_no_bit(team: Team, method: str, rows: int, tmp_path: Path) -> None:
    plan = plan_of(method, "addition-1", team.num)
    if method == "grpo":  # nine rows in four shards: ranks have other numbers of micro-batches
        plan = replace(plan, recipe=plan.recipe.set("rollout.num_starts", 3).set("rollout.group_size", 3))
    where = replace(plan.placement, micro_batch=rows)
    one, several = (replace(plan, placement=replace(where, **how)) for how in ({"ranks": 1}, {"sharded": True}))
    together = loop_of(several)
    with tuned(0):
        team.lead(several, together, {})
        assert store.difference(trained(loop_of(one), tmp_path / "one"), trained(together, tmp_path)) == []


def test_whole_weights_have_no_memory_while_gradients_are_computed(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("grpo", "addition-1", team.num)
    plan = replace(plan, placement=replace(plan.placement, sharded=True))
    loop = loop_of(plan)
    team.lead(plan, loop, {})
    assert loop.engine.sharding is not None
    twin, flat, seen = loop.engine.sharding.twins["actor"], loop.engine.flats["actor"], []
    give, size = twin.give, flat.values.nbytes
    layers = sum(own.nbytes for name, own in flat.snapshot().items() if ".blocks." in name)

    def held() -> tuple[int, int]:
        return flat.values.untyped_storage().nbytes(), sum(storage.nbytes() for storage, _ in twin.memory)

    def noted() -> None:
        seen.append(held())
        give()

    monkeypatch.setattr(twin, "give", noted)
    loop.step()
    assert set(seen) == {(0, size - layers + layers // team.num)}
    assert held() == (size, 0)


def bytes_of(state: Any) -> int:
    return encoded(state).size


def test_each_rank_keeps_its_slice_of_the_optimizer_state(team: Team) -> None:
    plan = plan_of("grpo", "addition-1", team.num)
    loop = loop_of(plan)
    whole = bytes_of(loop.engine.optimizers)
    team.lead(plan, loop, {})
    assert whole / team.num < bytes_of(loop.engine.optimizers) < 1.2 * whole / team.num


# ---------------------------------------------------------------------------------------------------- gatherers
def without_times(state: State) -> State:
    """The state of a run without that of gatherers and what depends on the clock."""
    metrics = [{name: value for name, value in one.items() if "idle/" not in name} for one in state["metrics"]]
    return {name: value for name, value in state.items() if name != "gatherers"} | {"metrics": metrics}


def test_gatherers_beside_ranks_change_no_bit(team: Team, tmp_path: Path) -> None:
    plan = cut(plan_of("grpo", "addition-1", team.num), gatherers=2)
    together = loop_of(plan)
    with in_threads(plan, together, tmp_path), tuned(0):
        team.lead(plan, together, {})
        found = trained(together, tmp_path)
        assert found["gatherers"]["ledger"] is not None
        assert store.difference(alone("grpo", "addition-1"), without_times(found)) == []


def test_gatherers_sample_ahead_of_ranks(tmp_path: Path) -> None:
    """A run in processes; in it ranks compare their weights before each step."""
    plan = cut(replace(plan_of("grpo", "bandit", 2), steps=4, warmup=0), gatherers=2, lag=1)
    stale = list[float]()

    def noted(done: int, metrics: Any, policy: Any) -> None:
        stale.append(metrics["staleness_max"])

    execute(plan, tmp_path, mode=Mode.SILENT, callbacks=[noted])
    assert len(stale) == 4
    assert max(stale) <= 1.0


# ---------------------------------------------------------------------------------------------------- GPUs
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("method", ["grpo", "ppo", "dpo"])
def test_ranks_that_share_a_gpu_change_no_bit(team: Team, method: str, tmp_path: Path) -> None:
    plan = plan_of(method, "addition-1", team.num)
    one, several = (
        replace(plan, placement=replace(plan.placement, device="cuda:0", ranks=num)) for num in (1, team.num)
    )
    together = loop_of(several)
    team.lead(several, together, {})
    assert together.engine.flats["actor"].values.is_cuda
    assert store.difference(trained(loop_of(one), tmp_path / "one"), trained(together, tmp_path)) == []


def test_tensors_of_a_gpu_go_through_the_host_or_by_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group of one, with stand-ins for what is on the GPU."""
    listener = socket.create_server(("127.0.0.1", 0))
    ranks = gloo.connected(listener.getsockname()[1], 0, 1, listener)
    sent: Any = SimpleNamespace(is_cuda=True, cpu=lambda: torch.arange(4.0))
    ranks.exchange(gloo.all_to_all, output := torch.zeros(4), sent)
    assert output.tolist() == [0.0, 1.0, 2.0, 3.0]
    looks, waited = iter([False, False, True]), list[str]()
    work = SimpleNamespace(is_completed=lambda: next(looks), wait=lambda seconds: waited.append("over"))
    ranks.nccl = SimpleNamespace(_allgather_base=lambda output, own: work, abort=lambda: waited.append("aborted"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(gloo, "BEAT", 0.01)
    ranks.exchange(gloo.all_gather, output, sent)
    assert (waited, list(looks)) == (["over"], [])

    def lost() -> None:
        raise RankLost("rank 1 died")

    work.is_completed, ranks.watch = lambda: False, lost
    with pytest.raises(RankLost, match="rank 1 died"):
        ranks.exchange(gloo.all_gather, output, sent)
    ranks.are_connected, never = False, threading.Event()
    ranks.nccl._allgather_base = lambda output, own: never.wait(60)  # it connects to a rank that died
    with pytest.raises(RankLost, match="rank 1 died"):
        ranks.exchange(gloo.all_gather, output, sent)
    never.set()
    ranks.close()
    assert waited == ["over", "aborted"]


def test_ranks_without_a_gpu_each_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    where = Placement("cuda", shards=4, ranks=4)
    with pytest.raises(AssayError, match=r"ranks is 4, and each needs a GPU, but this machine has 2\. .* cuda:0"):
        check_shards(where)
    check_shards(replace(where, ranks=2))
    check_shards(replace(where, device="cuda:0"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the other two are on another machine
    check_shards(where)
    with pytest.raises(AssayError, match="ranks is 4, but ranks compute on CPUs or with CUDA, not on 'mps'"):
        check_shards(replace(where, device="mps"))
    check_shards(replace(where, device="cuda:0", sharded=True))
    with pytest.raises(AssayError, match="--sharded was not tried together with --device cuda, a GPU for each rank"):
        check_shards(replace(where, ranks=2, sharded=True))


# ---------------------------------------------------------------------------------------------------- failures
def led(team: Team, plan: Plan) -> Loop:
    loop = loop_of(plan)
    team.lead(plan, loop, {})
    return loop


def bandit(team: Team) -> Loop:
    loop = led(team, plan_of("reinforce", "bandit", team.num))
    loop.step()
    return loop


def fallen(num: int, break_it: Callable[[Team, Loop], None]) -> str:
    """The error of a step after something was done to its ranks; none of them is left."""
    error, team = "", Team(num)
    try:
        with team:
            loop = bandit(team)
            started = list(team.children)
            break_it(team, loop)
            loop.step()
    except AssayError as raised:
        error = str(raised)
    assert not any(child.process.is_alive() for child in started)
    return error


def test_a_killed_rank_is_named_at_once() -> None:
    begun = time.monotonic()
    error = fallen(4, lambda team, loop: team.children[1].process.kill())
    assert re.match(r"rank 2 \(process \d+\) died \(signal 9\)", error), error
    assert time.monotonic() - begun < 30


def test_a_rank_that_stops_is_named_after_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "SILENCE", 2.0)
    error = fallen(2, lambda team, loop: os.kill(team.children[0].process.pid, signal.SIGSTOP))
    assert error == "rank 1 has not answered for 2 s: it has died or stopped"


def test_ranks_whose_weights_differ_are_refused() -> None:
    error = fallen(2, lambda team, loop: loop.engine.flats["actor"].values.mul_(2.0))
    assert error.startswith("the weights of rank 1 differ from those of rank 0")


def test_an_error_in_another_rank_is_shown() -> None:
    plan = plan_of("grpo", "addition-1", 2)
    plan = replace(plan, recipe=replace(plan.recipe, rewards=(FromFunction(fails_in_a_child),)))
    with Team(2) as team:
        loop = led(team, plan)
        with pytest.raises(RankLost, match=r"rank 1 failed: .*the disk is full"):
            loop.step()
        vars(team).pop("ranks").close()


def fails_in_a_child(rows: list[dict[str, Any]]) -> list[float]:
    if multiprocessing.parent_process() is not None:
        raise OSError("the disk is full")
    return number_of_words(rows)


def test_a_rank_ends_when_the_pipe_to_rank_0_closes() -> None:
    with Team(2) as team:
        bandit(team)
        (child,) = team.children
        child.pipe.close()
        child.process.join(10)
        assert child.process.exitcode == 1
        vars(team).pop("ranks").close()


def test_a_run_that_was_stopped_and_killed_resumes_bitwise_on_another_number_of_ranks(tmp_path: Path) -> None:
    others = {child.pid for child in multiprocessing.active_children()}

    def end(number: int, step: int) -> Callback:
        def ended(done: int, metrics: Any, policy: Any) -> None:
            mine = {child.name: child.pid for child in multiprocessing.active_children() if child.pid not in others}
            if done == step:
                os.kill(mine[max(mine)], number)

        return ended

    def run(folder: str, ranks: int, *callbacks: Callback) -> Any:
        plan = replace(plan_of("rloo", "bandit", ranks), steps=6, warmup=2, save_every=1)
        execute(plan, tmp_path / folder, mode=Mode.SILENT, callbacks=callbacks)
        saved = store.load(tmp_path / folder / "checkpoints")
        assert saved is not None
        return saved.tree["loop"]

    with pytest.raises(Stopped, match="stopped and saved"):
        run("ended", 2, end(signal.SIGTERM, 2))
    with pytest.raises(RankLost, match=r"rank 3 .* died .* Resume with: the same assay.train call"):
        run("ended", 4, end(signal.SIGKILL, 4))
    assert store.difference(run("ended", 1), run("whole", 1)) == []


def test_what_ranks_cannot_do_is_refused() -> None:
    with pytest.raises(
        AssayError, match=r"ranks is 3 and shards is 4: the ranks must divide the shards. Use --ranks 4"
    ):
        plan_of("grpo", "addition-1", 3)
    with pytest.raises(AssayError, match="--sharded splits layers among ranks, and there is one"):
        check_shards(Placement(sharded=True))
    with pytest.raises(AssayError, match="--sharded was not tried together with --recompute"):
        check_shards(Placement(shards=2, ranks=2, sharded=True, recompute=True))
    plan = plan_of("dqn", "cartpole", 2)
    with pytest.raises(AssayError, match="no trained model has layers in a row"):
        loop_of(replace(plan, placement=replace(plan.placement, sharded=True)))
    with pytest.raises(
        AssayError, match=r"'actor' is a model that grows; it cannot be trained by ranks. Use --ranks 1"
    ):
        loop_of(plan_of("gbrl", "cartpole", 2))


def test_a_rank_that_does_not_see_the_run_folder_is_refused(tmp_path: Path) -> None:
    opening = Opening((), b"", {}, {}, 1, tmp_path, "process 1 on another machine")
    with pytest.raises(AssayError, match=r"rank 0 does not see the run folder .* Use a folder that all machines share"):
        opened(opening, ALONE, ExitStack())


class Planted:
    """A value whose pickle leaves a trace when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_bytes_of_another_program_are_not_unpickled(tmp_path: Path) -> None:
    """Any user of the machine can connect to the loopback."""
    key, rows = b"k" * 32, {"a": torch.arange(3), "b": [1.5, "x"]}
    assert not store.difference(gloo.unpacked(gloo.packed(rows, key), key), rows)
    for blob in (
        gloo.packed(Planted(tmp_path / "touched"), b"other"),
        gloo.packed(Planted(tmp_path / "touched"), b""),
        gloo.packed(rows, key)[:-1],
        torch.empty(0, dtype=torch.uint8),
    ):
        with pytest.raises(RankLost, match="no rank of this run has sent, or ASSAY_RANKS_KEY differs"):
            gloo.unpacked(blob, key)
    assert not (tmp_path / "touched").exists()
    gloo.unpacked(gloo.packed(Planted(tmp_path / "touched"), key), key)
    assert (tmp_path / "touched").exists(), "the planted value works"


def test_each_run_has_a_key_of_its_own() -> None:
    with Team(2) as first, Team(2) as second:
        keys = [team.ranks.key for team in (first, second)]
    assert keys[0] != keys[1]
    assert min(map(len, keys)) == 32
