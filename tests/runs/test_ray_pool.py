"""Jobs on Ray: the same bits as in this process, a dead worker resumed once, and errors that say what to do.

One Ray for all tests of this file; most errors need none.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.store import load
from assay.core.trees import difference, encoded
from assay.engine.loop import Loop
from assay.runs.distributed import ray_pool as adapter
from assay.runs.distributed.ray_cluster import STORE, check_machines, check_reachable, check_same_code, observer
from assay.runs.distributed.ray_pool import check_own_code, ray_pool
from assay.runs.distributed.worker_pool import gatherers_of
from assay.runs.jobs import Failure, Result, run_jobs
from assay.runs.options import CadenceOptions, GatherOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.pools import Child, Ended, Job, Pool
from assay.runs.progress import Mode
from assay.runs.run import execute

DYING = """
import os
from dataclasses import dataclass, replace
from pathlib import Path
from assay import recipes
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier

@dataclass(frozen=True)
class Deadly(Reward):
    at: int = 3

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        marker = Path(__file__).with_name(f"died-{self.at}")
        if scene.progress.step == self.at and not marker.exists():
            marker.write_text("")
            os.kill(os.getpid(), 9)
        return experience

def recipe(defaults):
    return replace(recipes.rloo(defaults), name="dying", rewards=(Verifier(), Deadly()))

def early(defaults):
    return replace(recipe(defaults), name="early", rewards=(Verifier(), Deadly(0)))
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A small Ray on this machine, ended after the last test of this file."""
    module = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for trial in range(2):  # at high load Ray's own start may fail once
        try:
            module.init(
                address="local", num_cpus=2, include_dashboard=False, object_store_memory=STORE,
                log_to_driver=False, logging_level="ERROR",
            )  # fmt: skip
            break
        except RuntimeError:
            if trial:
                raise
    yield module
    module.shutdown()


def weights(folder: Path) -> bytes:
    """The last checkpoint's models and optimizers as bytes."""
    checkpoint = load(folder / "checkpoints")
    assert checkpoint is not None
    tensors = encoded(checkpoint.tree["loop"]).tensors
    return b"".join(bytes(tensor.contiguous().view(-1).numpy().tobytes()) for tensor in tensors.values())


def test_runs_on_ray_end_with_the_bits_of_a_run_here_and_a_dead_worker_is_resumed(ray: Any, tmp_path: Path) -> None:
    file = tmp_path / "dying.py"
    file.write_text(DYING)
    often = {"steps": 6, "options": RunOptions(cadence=CadenceOptions(save_every="1steps"))}
    jobs = [
        Job("plain", "bandit", 0, tmp_path / "plain", "rloo", {"steps": 2}),
        Job("late", "bandit", 0, tmp_path / "late", str(file), often),
        Job("early", "bandit", 0, tmp_path / "early", f"{file}:early", often),
    ]
    with ray_pool("ray", tmp_path) as pool:
        assert pool.size == 2
        found = {one.job.arm: one for one in run_jobs(jobs, pool=pool)}
    assert ray.is_initialized(), "a Ray that was there before is left running"
    assert isinstance(found["plain"], Result)
    assert isinstance(found["late"], Result), "its folder had a checkpoint"
    assert isinstance(found["early"], Failure), "it died before its first checkpoint"
    assert "the worker died (WorkerCrashedError)" in found["early"].reason
    for job in jobs[:2]:
        execute(job.plan(), tmp_path / f"{job.arm}-here", mode=Mode.SILENT)
        assert weights(tmp_path / f"{job.arm}-here") == weights(job.folder)
    assert not list(tmp_path.glob(".probe-*"))


def test_compare_runs_on_ray_and_stops_its_tasks(
    ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "rloo", "--task", "bandit", "--steps", "2", "--seeds", "1", "--on", "ray"]) == 0
    assert "runs/compare-bandit" in capsys.readouterr().out
    with ray_pool("ray", tmp_path) as pool:
        jobs = run_jobs([Job("long", "bandit", 0, Path("long"), "rloo", {"steps": 100_000})], pool=pool, watch=stopped)
        with pytest.raises(InterruptedError):
            list(jobs)
    checkpoint = load(tmp_path / "long" / "checkpoints")
    assert checkpoint is not None, "an interrupted task saves its state"


def stopped(children: Any) -> None:
    """Interrupts the caller once the run has begun."""
    if any((child.job.folder / "metrics.jsonl").is_file() for child in children):
        raise InterruptedError


# ---------------------------------------------------------------------------------------------------- without Ray
def test_what_differs_on_a_worker_is_named() -> None:
    here = observer()("")
    check_same_code(here, here)
    files = here["files"] | {"assay/ops/groups.py": "0", "assay/new.py": "0"}
    with pytest.raises(AssayError, match=r"has another assay than this machine \(assay/new.py, assay/ops/groups.py\)"):
        check_same_code(here, here | {"files": files})
    with pytest.raises(AssayError, match=r"has torch 1\.0, this machine"):
        check_same_code(here, here | {"versions": here["versions"] | {"torch": "1.0"}})
    check_own_code({"/x/mine.py": {"mine.py": "a"}}, {"/x/mine.py": {"mine.py": "a"}})
    with pytest.raises(AssayError, match=r"other own code than this machine \(mine\.py of /x/mine\.py\)"):
        check_own_code({"/x/mine.py": {"mine.py": "a"}}, {"/x/mine.py": {"mine.py": "b"}})


def test_a_job_with_other_own_code_is_refused_before_it_trains(tmp_path: Path) -> None:
    job = Job("a", "bandit", 0, tmp_path / "a", "rloo", {"steps": 2})
    sent = adapter.pickled(job)
    said = adapter.run_there(*sent, {"/x/mine.py": {"mine.py": "a"}}, observer()(""), str(tmp_path))
    assert "other own code" in said[0]
    assert not (tmp_path / "a").exists()


class Blind:
    """Ray as `check_machines` uses it, with a machine that has its own folders."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "0" * 56, "Alive": True}]

    def remote(self, **options: Any) -> Any:
        def asked(function: Any) -> Any:
            elsewhere = SimpleNamespace(remote=lambda probe: function(f"{probe}-not-there"))
            return SimpleNamespace(options=lambda scheduling_strategy: elsewhere)

        return asked

    def get(self, answers: list[Any], timeout: float) -> list[Any]:
        return answers


def test_a_folder_that_a_machine_does_not_see_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with pytest.raises(AssayError, match=r"does not see .*runs\. Use --out in a folder that all machines share"):
        check_machines(Blind(), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_errors_of_the_address_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "rloo", "--task", "bandit", "--out", str(tmp_path / "c"), "--on"]
    assert cli.main([*words, "cloud"]) == 2
    assert "--on is 'cloud'. Use ray" in capsys.readouterr().err
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(AssayError, match=r"nothing answers at this address .* ray start --head"):
            check_reachable(address)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main([*words, "ray"]) == 2
    assert capsys.readouterr().err == "assay: ray is needed for --on ray. Install it: pip install 'assay[ray]'\n"
    assert not (tmp_path / "c").exists()


# ---------------------------------------------------------------------------------------------------- any pool
class Dying(Pool):
    """A pool whose every process dies after it has saved a checkpoint."""

    def __init__(self) -> None:
        self.started: list[Job] = []

    @property
    def size(self) -> int:
        return 1

    def start(self, job: Job, code: Any) -> Child:
        self.started.append(job)
        (job.folder / "checkpoints" / "step-0000000001").mkdir(parents=True, exist_ok=True)
        return Child(job, 0.0)

    def wait(self, children: Any, timeout: float) -> list[Ended]:
        return [Ended(child, "the worker died", died=True) for child in children]

    def stop(self, children: Any) -> None:
        assert not children


def test_a_job_is_started_at_most_twice(tmp_path: Path) -> None:
    pool = Dying()
    jobs = [Job("a", "bandit", seed, tmp_path / f"{seed}", "rloo", {"steps": 2}) for seed in (0, 1)]
    found = list(run_jobs(jobs, pool=pool))
    assert [type(one) for one in found] == [Failure, Failure]
    assert [job.seed for job in pool.started] == [0, 0, 1, 1]


def test_gatherers_on_ray_train_to_the_same_bits_also_if_one_is_killed(ray: Any, tmp_path: Path) -> None:
    told = {"steps": 3, "settings": {"rollout.num_starts": 4}}
    options = RunOptions(gathering=GatherOptions(1, on_="ray"))
    plan = make_plan("grpo", "bandit", options=options, **told)
    loops = [Loop(plan.recipe, plan.task, seed=0, num_steps=3) for _ in range(2)]
    with gatherers_of(plan, loops[0], tmp_path) as crew:
        assert crew is not None
        for step in range(3):
            loops[0].step()
            if step == 1:
                crew.hands["g0"].end()
        assert crew.restarts.counts == {"g0": 1}
    for _ in range(3):
        loops[1].step()
    states = [{name: value for name, value in loop.snapshot().items() if name != "gatherers"} for loop in loops]
    assert not difference(*states)
