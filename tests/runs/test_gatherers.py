"""Gatherers: the same bits as without them at lag 0, staleness within the lag, refusals, and real faults."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Reward, Scene
from assay.core.trees import difference
from assay.engine.gathering import roll_out
from assay.engine.loop import Loop, Step
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.ops import random
from assay.parts.rewards.function import on_last_decision
from assay.runs.distributed.gatherers import Crew, Patience
from assay.runs.distributed.ledger import Restarts, WorkStopped
from assay.runs.distributed.rollout_worker import Here, Kit, for_sampling
from assay.runs.distributed.weights import SameMemory, WeightFiles
from assay.runs.distributed.worker_pool import ProcessHand, gatherers_of
from assay.runs.options import CadenceOptions, GatherOptions, RunOptions
from assay.runs.plan import Plan, make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute, resume, train
from assay.runs.signals import Stopped
from tests.resume.cases import named, spoken

CASES = [
    *(partial(spoken, method) for method in ("grpo", "rloo", "cispo", "remax")),
    *(partial(named, "grpo", task) for task in ("prisoners-dilemma-tokens", "prisoners-dilemma", "bandit")),
    partial(named, "reinforce", "cartpole"),
]
"""Tokens, games, returns, and a rollout that uses rewards while it gathers."""
BANDIT = {"rollout.num_starts": 4, "rollout.group_size": 4}
QUICK = Patience(start=120.0, least=2.0)


def loop_of(plan: Plan) -> Loop:
    return Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)


def cut(plan: Plan, **options: Any) -> Plan:
    return replace(plan, options=replace(plan.options, gathering=GatherOptions(**options)))


def bandit(steps: int = 6, method: str = "grpo", **options: Any) -> Plan:
    plan = make_plan(method, "bandit", steps=steps, settings=BANDIT)
    return cut(plan, **options) if options else plan


def shaken(loop: Loop) -> Loop:
    """Weights at which answers differ in length and reward, so that updates move them."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in loop.actor.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight.device), alpha=0.3)
    return loop


def state_of(loop: Loop) -> dict[str, Any]:
    return {name: value for name, value in loop.snapshot().items() if name != "gatherers"}


def numbers_of(steps: Sequence[Step]) -> list[dict[str, float]]:
    return [{name: value for name, value in one.metrics.items() if not name.startswith("idle/")} for one in steps]


def assert_same(mine: tuple[Loop, list[Step]], other: tuple[Loop, list[Step]]) -> None:
    assert not difference(state_of(mine[0]), state_of(other[0]))
    assert not difference(numbers_of(mine[1]), numbers_of(other[1]))


# ---------------------------------------------------------------------------------------------------- lag 0
def stepped(
    plan: Plan, crew: Callable[..., Any] = gatherers_of, folder: Path = Path("/nowhere")
) -> tuple[Loop, list[Step]]:
    """Three steps of a plan with its gatherers, as a run takes them."""
    loop = shaken(loop_of(plan))
    with crew(plan, loop, folder), tuned(sum(flat.num_parameters for flat in loop.engine.flats.values())):
        return loop, [loop.step() for _ in range(3)]


@pytest.mark.parametrize("made", CASES, ids=lambda made: "-".join(made.args))
def test_gatherers_train_to_the_same_bits(made: Callable[..., Plan], tmp_path: Path) -> None:
    """Whole steps to those of a run without gatherers, pieces to those of pieces gathered here; and these two differ at
    most by what a kernel rounds otherwise for fewer rows.
    """
    plan = made(steps=3)
    plain = stepped(plan)
    weights, before = plain[0].engine.flats["actor"].values, shaken(loop_of(plan)).engine.flats["actor"].values
    assert not torch.equal(before, weights)
    assert_same(stepped(cut(plan, gatherers=1), in_threads, tmp_path), plain)
    pieces = stepped(cut(plan, pieces=3))
    assert_same(stepped(cut(plan, gatherers=2, pieces=3), in_threads, tmp_path), pieces)
    assert torch.allclose(pieces[0].engine.flats["actor"].values, weights, rtol=1e-3, atol=1e-5)


@dataclass(frozen=True)
class Noisy(Reward):
    """Adds a random number to each row."""

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        noise = torch.from_numpy(random.uniform(scene.draw, np.arange(len(experience)))).float()
        return on_last_decision(experience, experience.reward.sum(1) + noise)


@dataclass(frozen=True)
class Counting(Reward):
    """Adds the number of rows that it has seen."""

    def init(self, scene: Scene) -> State:
        return {"seen": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        state["seen"] += len(experience)
        return on_last_decision(experience, experience.reward.sum(1) + torch.arange(len(experience)) * state["seen"])


def spoken_with_noise(steps: int) -> Plan:
    plan = spoken("grpo", steps=steps)
    return replace(plan, recipe=replace(plan.recipe, rewards=(*plan.recipe.rewards, Noisy())))


@contextmanager
def in_threads(plan: Plan, loop: Loop, folder: Path, patience: Patience = Patience()) -> Iterator[Crew]:
    """Gatherers with models of their own and weights from files, in threads of this process."""
    with gatherers_of(plan, loop, folder, patience) as crew:
        assert crew is not None
        kit = Kit(for_sampling(plan.recipe), plan.task, plan.seed, plan.placement, 0, crew.weights, crew.in_flight)
        crew.start = lambda name: Here(kit.sampler())
        yield crew


@pytest.mark.parametrize(("made", "num"), [(CASES[0], 3), (CASES[3], 1), (CASES[-1], 2)])
def test_processes_train_to_the_same_bits(made: Callable[..., Plan], num: int, tmp_path: Path) -> None:
    plan = cut(made(steps=3), pieces=num)
    assert_same(stepped(cut(plan, pieces=num, gatherers=num), gatherers_of, tmp_path), stepped(plan))
    assert not (tmp_path / ".weights").exists()


@pytest.mark.parametrize("made", [*CASES[:5], spoken_with_noise])
def test_shards_are_gathered_apart_to_the_same_bits(made: Callable[..., Plan], tmp_path: Path) -> None:
    """Three starts in four shards, with rewards that draw random numbers shard by shard."""
    plan = replace(made(steps=3), placement=Placement(shards=4))
    assert_same(stepped(cut(plan, gatherers=2), in_threads, tmp_path), stepped(plan))


def test_processes_gather_shards_of_several_starts(tmp_path: Path) -> None:
    plan = replace(bandit(steps=3), placement=Placement(shards=2))
    assert_same(stepped(cut(plan, gatherers=2), gatherers_of, tmp_path), stepped(plan))


def test_with_rewards_that_have_a_state_all_shards_are_one_piece(tmp_path: Path) -> None:
    made = spoken("grpo", steps=3)
    recipe = replace(made.recipe, rewards=(*made.recipe.rewards, Counting()))
    plan = replace(made, recipe=recipe, placement=Placement(shards=4))
    loop = loop_of(plan)
    with in_threads(cut(plan, gatherers=1), loop, tmp_path) as crew:
        assert (crew.shards, crew.schedule.pieces) == (1, 1)
    assert_same(stepped(cut(plan, gatherers=1), in_threads, tmp_path), stepped(plan))


# ---------------------------------------------------------------------------------------------------- lag
@pytest.mark.parametrize("lag", [1, 3])
def test_every_decision_has_the_version_and_log_probability_of_the_weights_that_sampled_it(
    lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if samplers fetch each version as soon as it is there."""
    plan, tell, told = spoken("grpo", steps=6), Here.tell, set[int]()

    def noted(self: Here, version: int, words: str) -> None:
        told.add(version)
        tell(self, version, words)

    monkeypatch.setattr(Here, "tell", noted)
    loop = shaken(loop_of(plan))
    asked = cut(plan, gatherers=2, lag=lag)
    models, again = dict[int, Any](), shaken(loop_of(plan))
    starts = list[list[int]]()
    with in_threads(asked, loop, tmp_path):
        for k in range(plan.steps):
            models[k] = loop.engine.flats["actor"].values.clone()
            step = loop.step()
            fresh = step.fresh
            assert not [alarm for alarm in step.alarms if alarm.stop]
            assert fresh is not None
            assert fresh.version is not None
            age = k - fresh.version[fresh.mask]
            assert int(age.min()) >= 0
            assert int(age.max()) <= lag
            assert step.metrics["staleness_max"] == float(age.max())
            assert step.metrics["staleness"] == sum(n * step.metrics.get(f"staleness/{n}", 0.0) for n in range(lag + 1))
            assert 0.0 < step.metrics[f"effective_samples/{int(age.max())}"] <= 1.0 + 1e-9
            version = int(fresh.version[0, 0])
            again.engine.flats["actor"].values.copy_(models[version])
            rows = rows_of(again, fresh)
            assert torch.equal(rows.action[rows.mask], fresh.action[fresh.mask])
            assert torch.equal(rows.logp[rows.mask], fresh.logp[fresh.mask])
            starts.append(sorted(set(fresh.column("start").tolist())))
    assert starts == [list(range(3 * k, 3 * k + 3)) for k in range(plan.steps)]
    assert told >= set(range(1, plan.steps))


def rows_of(loop: Loop, fresh: Experience) -> Experience:
    """The starts of some rows, gathered by a loop with its own weights."""
    scene = Scene(loop.task, loop.engine, Draw(loop.seed), actor=loop.actor, starts=np.unique(fresh.column("start")))
    return roll_out(loop.recipe, scene, {}, lambda rows: rows)[0]


@pytest.mark.parametrize("lag", [0, 2])
def test_a_restored_run_trains_the_starts_of_the_plan(lag: int, tmp_path: Path) -> None:
    plan, seen = cut(bandit(), gatherers=1, lag=lag), list[int]()
    saved: Any = None
    for until in (2, 6):
        loop = loop_of(plan)
        with in_threads(plan, loop, tmp_path) as crew:
            if saved is not None:
                store.save(tmp_path / "checkpoints", 2, saved, facts={})
                loop.restore(store.load_step(tmp_path / "checkpoints", 2).tree)
            while loop.progress.step < until:
                fresh = loop.step().fresh
                assert fresh is not None
                seen += sorted(set(fresh.column("start").tolist()))
            saved = loop.snapshot()
            assert crew.incarnation == int(until == 6)
    assert seen == list(range(24))
    if not lag:
        plain = loop_of(plan)
        for _ in range(6):
            plain.step()
        assert not difference(state_of(loop), state_of(plain))


def test_a_run_can_go_on_with_gatherers_and_without(tmp_path: Path) -> None:
    """At lag 0 gatherers are not part of what decides a run."""
    for place, some in enumerate([{}, {"gatherers": 1}, {}]):
        plan = bandit(steps=4, **some)
        until = CadenceOptions(save_every="1steps", evaluations=0)
        plan = replace(plan, options=replace(plan.options, cadence=until), save_every=1)

        def stop(step: int, metrics: Any, policy: Any, last: int = place + 1) -> None:
            if step == last:
                raise RuntimeError("stopped here")

        with pytest.raises(AssayError, match="stopped here"):
            execute(plan, tmp_path / "mixed", mode=Mode.SILENT, callbacks=[stop])
    execute(plan, tmp_path / "mixed", mode=Mode.SILENT)
    execute(bandit(steps=4), tmp_path / "plain", mode=Mode.SILENT)
    assert not difference(trained(tmp_path / "mixed"), trained(tmp_path / "plain"))
    with pytest.raises(AssayError, match=r"other settings \(different: options"):
        execute(bandit(steps=4, gatherers=1, lag=1), tmp_path / "mixed", mode=Mode.SILENT)


def test_a_run_resumes_with_another_number_of_gatherers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {"settings": BANDIT, "steps": 4, "mode": Mode.SILENT}
    cadence = CadenceOptions(save_every="1steps", evaluations=0)

    def stop(step: int, metrics: Any, policy: Any) -> None:
        if step == 2:
            raise RuntimeError("stopped here")

    options = RunOptions(cadence=cadence, gathering=GatherOptions(gatherers=1, pieces=2))
    with pytest.raises(AssayError, match="stopped here"):
        train("grpo", "bandit", out=folder, options=options, callbacks=[stop], **settings)
    with pytest.raises(AssayError, match="--gatherers is 3, but --pieces 2 and --lag 0 leave work for 2 at a time"):
        resume(folder, gatherers=3, mode=Mode.SILENT)
    resume(folder, gatherers=2, mode=Mode.SILENT)
    alone = RunOptions(cadence=cadence, gathering=GatherOptions(pieces=2))
    train("grpo", "bandit", out=tmp_path / "alone", options=alone, **settings)
    assert not difference(trained(folder), trained(tmp_path / "alone"))


def trained(folder: Path) -> Any:
    """Models, optimizers and states of a run's last checkpoint."""
    checkpoint = store.load(folder / "checkpoints")
    assert checkpoint is not None
    return {name: value for name, value in checkpoint.tree["loop"].items() if name != "gatherers"}


# ---------------------------------------------------------------------------------------------------- refusals
REFUSED = [
    ("rloo", "addition", {"gatherers": 1, "lag": 1}, "stage 'policy' of rloo has no importance ratio"),
    ("dapo", "addition", {"gatherers": 1}, "--set select.max_rounds=1"),
    ("ppo", "cartpole", {"gatherers": 1}, "Fragments gathers depends on more than its starts"),
    ("sft", "addition", {"gatherers": 1}, "samples nothing"),
    ("grpo", "bandit", {"pieces": 1000, "gatherers": 2}, "--pieces is 1000, but a step has"),
    ("grpo", "bandit", {"lag": 1}, "--lag is 1, but no process samples"),
    ("grpo", "bandit", {"on_": "ray"}, "--on is ray, but no process samples"),
    ("grpo", "bandit", {"gatherers": 3, "lag": 1}, "leave work for 2 at a time. Add --pieces 2"),
    ("grpo", "bandit", {"gatherers": -1}, "--gatherers is -1. Use at least 0"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "task", "options", "said"), REFUSED)
def test_what_cannot_be_gathered_apart_is_refused(method: str, task: str, options: Any, said: str) -> None:
    with pytest.raises(AssayError, match=re.escape(said)):
        make_plan(method, task, options=RunOptions(gathering=GatherOptions(**options)))


SHARDED = [
    (4, {"gatherers": 2, "pieces": 2}, "--pieces is 2, but --shards 4 cuts a step already. Remove --pieces"),
    (8, {"gatherers": 2}, "12 starts, which gatherers sample in equal parts. Add --set rollout.num_starts=16"),
    (2, {"gatherers": 3}, "--gatherers is 3, but --shards 2 and --lag 0 leave work for 2 at a time. Add --shards 4"),
]


@pytest.mark.parametrize(("shards", "options", "said"), SHARDED)
def test_shards_that_gatherers_cannot_have_are_refused(shards: int, options: Any, said: str) -> None:
    given = RunOptions(gathering=GatherOptions(**options))
    settings, where = {"rollout.num_starts": 12}, Placement(shards=shards)
    with pytest.raises(AssayError, match=re.escape(said)):
        make_plan("grpo", "bandit", options=given, settings=settings, placement=where)


def test_a_curriculum_of_results_is_refused_with_a_lag() -> None:
    recipe = make_plan("kimi-k1.5", "addition").recipe
    options = RunOptions(gathering=GatherOptions(gatherers=1, lag=1))
    recipe = replace(make_plan("grpo", "addition").recipe, curriculum=recipe.curriculum)
    with pytest.raises(AssayError, match=r"chooses starts by the results .* Use curriculum=InOrder\(\)"):
        make_plan(recipe, "addition", options=options)


# ---------------------------------------------------------------------------------------------------- faults
def pid_of(crew: Crew) -> int:
    hand = crew.hands["g0"]
    assert isinstance(hand, ProcessHand)
    return int(hand.process.pid or 0)


def test_work_of_a_killed_or_stopped_gatherer_is_sampled_again_to_the_same_bits(tmp_path: Path) -> None:
    plan, plain, loop = bandit(), loop_of(bandit()), loop_of(bandit())
    for _ in range(6):
        plain.step()
    seen = list[int]()
    with gatherers_of(cut(plan, gatherers=1, pieces=2), loop, tmp_path, QUICK) as crew:
        assert crew is not None
        crew.restarts = Restarts(most=9)  # a busy machine may miss a deadline of seconds by itself
        for k in range(6):
            if k == 2:
                os.kill(pid_of(crew), signal.SIGKILL)  # without work
            if k == 3:
                os.kill(pid_of(crew), signal.SIGSTOP)  # until the deadline
            if k == 4:
                os.kill(pid_of(crew), signal.SIGSTOP)  # with work, which it has from the next line on
                threading.Timer(0.3, os.kill, [pid_of(crew), signal.SIGKILL]).start()
            fresh = loop.step().fresh
            assert fresh is not None
            seen += sorted(set(fresh.column("start").tolist()))
        assert crew.restarts.counts["g0"] >= 3
        assert crew.ledger is not None
        assert sum(crew.ledger.staleness.values()) == 24
    assert seen == list(range(24))
    assert not difference(state_of(loop), state_of(plain))


def die_after_each_step(loop: Loop, crew: Crew) -> None:
    for _ in range(6):
        loop.step()
        os.kill(pid_of(crew), signal.SIGKILL)


def test_a_gatherer_that_dies_again_and_again_stops_the_run_by_name(tmp_path: Path) -> None:
    loop = loop_of(bandit())
    with gatherers_of(bandit(gatherers=1), loop, tmp_path) as crew:
        assert crew is not None
        with pytest.raises(
            WorkStopped, match=r"worker g0 failed again after 3 restarts \(its process died, signal 9\)"
        ):
            die_after_each_step(loop, crew)
    assert crew.restarts.counts == {"g0": 3}


def test_an_error_of_a_gatherer_is_the_runs_error(tmp_path: Path) -> None:
    loop = loop_of(bandit())
    with gatherers_of(bandit(gatherers=1), loop, tmp_path) as crew:
        assert crew is not None
        crew.weights = SameMemory()  # the gatherer looks into the folder
        kit = pickle.dumps(replace(kit_of(bandit()), weights=WeightFiles(tmp_path / "empty", patience=0.1)))
        crew.start = lambda name: ProcessHand(name, (), kit)
        with pytest.raises(AssayError, match=r"a gatherer stopped: version 0 of the weights is not there"):
            loop.step()


class Broken(Reward):
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        raise ValueError("a mistake")


def test_a_mistake_in_a_gatherer_is_told_at_once(tmp_path: Path) -> None:
    plan = spoken("remax")  # its rollout uses rewards
    loop = loop_of(plan)
    with gatherers_of(cut(plan, gatherers=1), loop, tmp_path) as crew:
        assert crew is not None
        recipe = replace(plan.recipe, rewards=(Broken(),))
        kit = pickle.dumps(replace(kit_of(replace(plan, recipe=recipe)), weights=crew.weights))
        crew.start = lambda name: ProcessHand(name, (), kit)
        with pytest.raises(AssayError, match="a gatherer stopped: ValueError: a mistake"):
            loop.step()
        assert not crew.restarts.counts


def kit_of(plan: Plan) -> Kit:
    return Kit(for_sampling(plan.recipe), plan.task, plan.seed, plan.placement, 0, SameMemory())


def learn(plan: Plan, folder: Path, told: Any) -> None:
    """A run that tells the numbers of its gatherers after each step."""

    def tell(step: int, metrics: Any, policy: Any) -> None:
        told.send([step, *(child.pid for child in multiprocessing.active_children())])
        time.sleep(0.2)

    execute(plan, folder, callbacks=[tell], mode=Mode.SILENT)


def test_gatherers_end_with_their_run_whichever_way_it_ends(tmp_path: Path) -> None:
    """By SIGTERM, after which its state is saved, and by SIGKILL; the rest is trained here, to the same bits."""
    plan = replace(bandit(steps=8, pieces=2), save_every=1)
    asked, folder = cut(plan, gatherers=2, pieces=2), tmp_path / "run"
    with pytest.raises(Stopped, match="stopped and saved"):
        execute(asked, folder, mode=Mode.SILENT, callbacks=[lambda *_: os.kill(os.getpid(), signal.SIGTERM)])
    assert store.saved_steps(folder / "checkpoints") == [1]
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("gatherer")]
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=learn, args=(asked, folder, theirs))
    process.start()
    assert ours.poll(60.0)
    step, *children = ours.recv()
    assert (step, len(children)) == (2, 2)
    os.kill(int(process.pid or 0), signal.SIGKILL)
    until = time.monotonic() + 20.0
    while any(map(is_alive, children)):
        assert time.monotonic() < until, f"{children} outlive their run"
        time.sleep(0.05)
    process.join(10.0)
    for name in ("run", "plain"):
        execute(plan, tmp_path / name, mode=Mode.SILENT)
    assert not difference(trained(tmp_path / "run"), trained(tmp_path / "plain"))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
