"""Stacked seeds are the single seeds: the same draws, steps, copies, metrics and folders, up to rounding."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.core.optimizers import Averaging
from assay.core.recipe import Copy, Recipe
from assay.core.record import Draw, Experience, Loss, Need
from assay.core.schedules import Linear
from assay.core.slots import CriticLoss, Objective, Scene, View
from assay.engine.engine import StageView
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.engine.stacked.engine import StackedView
from assay.engine.stacked.feeders import Feeder
from assay.engine.stacked.graphs import columns_of, record_of
from assay.engine.stacked.loop import StackedLoop
from assay.methods.uni_o4.offline import Rising
from assay.parts.critics.td import Td
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import SmoothedTwin
from assay.recipes.conservative import td3_bc
from assay.runs import catalogue, saving
from assay.runs import stacked as stacked_run
from assay.runs.progress import Mode
from assay.tasks.control.stepping import SteppedTask
from benchmarks import stacked_seeds
from tests.scenes import feeding

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"))
DEVICES = ["cpu", GPU]
CASES = [
    ("td3_bc", "pendulum"), ("iql", "pendulum"), ("iql", "cartpole"), ("cql", "pendulum"), ("cql", "cartpole"),
    ("bc", "cartpole"), ("bc", "pendulum"), ("sac", "pendulum"), ("td3", "pendulum"), ("dqn", "cartpole"),
]  # fmt: skip


@cache
def played(task: str, first: int) -> dict[str, Tensor]:
    """A short log, made with 32 bits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    columns = Log(episodes=4, noise=0.5, reward_scale=0.1, first=first).columns(catalogue.find_task(task))
    torch.set_default_dtype(before)
    return columns


@dataclass(frozen=True)
class Short:
    """A short log whose numbers have as many bits as parameters have."""

    first: int = 0
    origin: int = 4
    reward_scale: float = 1.0

    def columns(self, task: Any) -> dict[str, Tensor]:
        found = played(task.name, self.first)
        digits = torch.get_default_dtype()
        return {name: value.to(digits) if value.is_floating_point() else value for name, value in found.items()}


LOG = Short()


@pytest.fixture(autouse=True, scope="module")
def _shown_once() -> Iterator[None]:
    """The scripted expert plays a start once: what is compared comes after it."""
    shown: dict[Any, Experience] = {}
    demonstrate = SteppedTask.demonstrate

    def recalled(task: SteppedTask, starts: np.ndarray, split: int) -> Experience:
        key = task.name, starts.tobytes(), split, torch.get_default_dtype()
        if key not in shown:
            shown[key] = demonstrate(task, starts, split)
        return shown[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SteppedTask, "demonstrate", recalled)
        yield


def small(name: str, task: str, updates: int = 1) -> Recipe:
    """A method with networks of 16 on a short log, `updates` updates a step."""
    recipe = catalogue.recipe_for(name, catalogue.find_task(task), {})
    if not isinstance(recipe.source, Logged) and name != "bc":
        recipe = replace(recipe, rollout=None, source=Logged())
    if name == "bc":
        recipe = recipe.set("source.episodes", 2).set("source.minibatches", updates)
    else:
        recipe = replace(recipe, source=Logged((LOG,), batch=32, updates=updates))
    recipe = recipe.set("actor.hidden", (16, 16))
    for critic in recipe.critics:
        if critic != "temperature":
            recipe = recipe.set(f"critics.{critic}.hidden", (16, 16))
    return recipe


def loops(recipe: Recipe, task: str, seeds: int = 3, steps: int = 10) -> list[Loop]:
    return [Loop(recipe, catalogue.find_task(task), seed=seed, num_steps=steps) for seed in range(seeds)]


def distance(ones: list[Loop], others: list[Loop]) -> float:
    """The largest |difference| / |value| over models and seeds; in double precision of optimizers' moments too, which
    are small differences of large numbers.
    """
    worst, exact = 0.0, torch.get_default_dtype() == torch.float64
    for one, other in zip(ones, others, strict=True):
        pairs = [(flat.values, other.engine.flats[name].values) for name, flat in one.engine.flats.items()]
        for name, state in one.engine.optimizers.items():
            assert state["steps"] == other.engine.optimizers[name]["steps"]
            if exact:
                pairs += list(zip(state["first"], other.engine.optimizers[name]["first"], strict=True))
        worst = max([worst, *(float((a - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs)])
    return worst


@pytest.fixture
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def compared(recipe: Recipe, task: str, steps: int, device: str = "cpu") -> float:
    """How far stacked seeds are from single ones after some steps; metrics and progress must agree too."""
    singles, members = loops(recipe, task), loops(recipe, task)
    stack = StackedLoop(members, Placement(device))
    for _ in range(steps):
        wanted, found = [loop.step() for loop in singles], stack.step()
        for one, other in zip(wanted, found, strict=True):
            assert other is not None
            assert not other.alarms
            assert set(one.metrics) == set(other.metrics)
            assert all(one.metrics[key] == pytest.approx(other.metrics[key], rel=1e-3, abs=1e-4) for key in one.metrics)
    stack.write()
    assert [loop.progress for loop in singles] == [loop.progress for loop in members]
    assert singles[0].engine.updates == members[0].engine.updates
    return distance(members, singles)


# ---------------------------------------------------------------------------------------------------- equality
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "task"), CASES)
def test_one_update_is_that_of_the_single_engine(name: str, task: str, device: str) -> None:
    assert compared(small(name, task), task, 1, device) < (1e-6 if device == "cpu" else 3e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "task"), CASES)
def test_fifteen_updates_are_those_of_the_single_engine(name: str, task: str, device: str) -> None:
    assert compared(small(name, task, updates=5), task, 3, device) < 5e-5


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(("name", "task"), CASES)
def test_in_double_precision_nothing_but_the_last_digits_differs(name: str, task: str) -> None:
    recipe = small(name, task, updates=5)
    recipe = recipe if isinstance(recipe.source, Logged) else replace(recipe, source=Logged((LOG,), 32, 5))
    assert compared(recipe, task, 2) < 1e-10


@pytest.mark.usefixtures("doubles")
def test_each_seed_is_clipped_by_its_own_norm() -> None:
    recipe = small("dqn", "cartpole", updates=5)
    stage = replace(recipe.stages[0], optimizer=replace(recipe.stages[0].optimizer, clip_norm=0.05))
    assert compared(replace(recipe, stages=(stage,)), "cartpole", 3) < 1e-10


@pytest.mark.parametrize("device", DEVICES)
def test_settings_that_move_with_progress_move(device: str) -> None:
    recipe = small("td3_bc", "pendulum", updates=3).set("NearRecorded.coefficient", Linear(1.0, 0.0))
    assert compared(recipe, "pendulum", 4, device) < 1e-5


@pytest.mark.usefixtures("doubles")
def test_a_stage_with_a_source_of_its_own_has_its_own_draws() -> None:
    recipe = small("iql", "pendulum", updates=2)
    first = replace(recipe.stages[0], source=Logged((LOG, replace(LOG, first=50)), batch=8, updates=3))
    assert compared(replace(recipe, stages=(first, *recipe.stages[1:])), "pendulum", 2) < 1e-10


# ---------------------------------------------------------------------------------------------------- random numbers
@pytest.mark.parametrize("device", DEVICES)
def test_a_seed_of_the_stack_has_the_numbers_of_a_single_run(device: str) -> None:
    recipe = small("sac", "pendulum")
    stack = StackedLoop(loops(recipe, "pendulum"), Placement(device))
    mask = torch.ones(32, 2, dtype=torch.bool)
    batch = Experience({}, 1.0 * mask, mask, 1.0 * mask, 1.0 * mask, mask, mask)
    for stack.engine.updates in (0, 1, 255, 256, 1000):
        for seed, word in enumerate(stack.engine.draws()):
            draw = Draw(seed, (5, stack.engine.updates))
            own = StageView({}, batch.add({"row": torch.arange(32)}), frozenset(), draw)
            found = StackedView({}, batch.to(device), frozenset(), Draw(0), word, stack.engine.marks[:8])
            assert torch.equal(own.uniform((32, 1, 3), tag=2), found.uniform((32, 1, 3), tag=2).cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_those_that_the_source_draws(device: str) -> None:
    task, source = catalogue.find_task("pendulum"), Logged((LOG, replace(LOG, first=50, origin=2)), batch=8, updates=3)
    state = source.init(Scene(task))
    drawn = Feeder(source, [task] * 2, (4, 9), [state] * 2, device)
    for update, ticket in enumerate(drawn.tickets(source, (7, 8, 1))):
        columns = drawn.fetch(ticket)
        for place, seed in enumerate((4, 9)):
            wanted = columns_of(list(source(feeding(task, None, Draw(seed, (7, 8, 1))), state))[update])
            assert set(wanted) == set(columns)
            assert all(torch.equal(wanted[name], columns[name][place].cpu()) for name in wanted)


def test_a_record_taken_apart_is_put_together_again() -> None:
    mask = torch.ones(2, 2, dtype=torch.bool)
    record = Experience({"observation": 1.0 * mask}, 1.0 * mask, mask, 1.0 * mask, 1.0 * mask, mask, mask)
    again = record_of(columns_of(record.add({"row": torch.arange(2)})))
    assert set(columns_of(again)) == set(columns_of(record)) | {"extra.row"}
    assert again.group is None


# ---------------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize("device", DEVICES)
def test_a_seed_whose_gradient_is_not_finite_leaves_alone(device: str) -> None:
    recipe = small("td3_bc", "pendulum", updates=3)
    singles, members = loops(recipe, "pendulum"), loops(recipe, "pendulum")
    for group in (singles, members):
        group[1].engine.flats["q"].values[7] = torch.inf
    stack = StackedLoop(members, Placement(device))
    wanted, found = [loop.step() for loop in singles], stack.step()
    assert stack.here == [0, 2]
    assert found[1] is not None
    assert [alarm.message for alarm in found[1].alarms] == [alarm.message for alarm in wanted[1].alarms]
    assert "not finite" in found[1].alarms[0].message
    assert stack.step()[1] is None
    [loop.step() for loop in singles]
    stack.write()
    assert distance([members[0], members[2]], [singles[0], singles[2]]) < 1e-4
    assert members[1].progress.step == 1, "it stopped where its fault was"


# ---------------------------------------------------------------------------------------------------- refusals
@dataclass(frozen=True)
class Deciding(CriticLoss):
    """A term that asks the host what to do."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        return batch.now.num_decisions

    def __call__(self, batch: Experience, view: View) -> Loss:
        loss = Td(SmoothedTwin())(batch, view)
        return replace(loss, sum=2 * loss.sum) if float(loss.sum.detach()) > 1 else loss


def with_critic(recipe: Recipe, *terms: Any) -> Recipe:
    return replace(recipe, stages=(replace(recipe.stages[0], critic=terms), *recipe.stages[1:]))


def test_a_term_that_asks_the_host_is_named() -> None:
    recipe = with_critic(small("td3_bc", "pendulum"), Td(SmoothedTwin()), Deciding())
    stack = StackedLoop(loops(recipe, "pendulum"))
    with pytest.raises(AssayError, match=r"Deciding cannot be stacked .*one by one") as error:
        stack.step()
    assert "Td" not in str(error.value)


def test_what_cannot_be_stacked_is_refused_at_once() -> None:
    recipe = small("td3_bc", "pendulum")
    odd = replace(recipe, stages=(replace(recipe.stages[0], optimizer=Averaging()), recipe.stages[1]))
    with pytest.raises(AssayError, match="Averaging of stage 'critic' steps one seed at a time"):
        StackedLoop(loops(odd, "pendulum"))
    gated = replace(recipe, copies={**recipe.copies, "best": Copy("actor", 1.0, gate=Rising())})
    with pytest.raises(AssayError, match="'best' has a gate"):
        StackedLoop(loops(gated, "pendulum"))
    with pytest.raises(AssayError, match="gathers its own experience"):
        StackedLoop(loops(recipes.sac(), "pendulum"))
    with pytest.raises(AssayError, match="whole batches"):
        StackedLoop(loops(recipe, "pendulum"), Placement(micro_batch=8))
    other = loops(recipe, "pendulum")
    other[1].engine.models["actor"].half_range.mul_(2)
    with pytest.raises(AssayError, match=r"actor\.half_range is not learned, but differs between seeds"):
        StackedLoop(other)
    uneven = loops(recipe, "pendulum")
    uneven[1].step()
    with pytest.raises(AssayError, match="at the same step"):
        StackedLoop(uneven)
    with pytest.raises(AssayError, match="gathers its own experience"):
        assay.train_stacked("sac", "pendulum", steps=1)
    with pytest.raises(AssayError, match="seeds is empty"):
        assay.train_stacked("bc", "cartpole", seeds=(), steps=1)


@dataclass(frozen=True)
class Unmasked(Objective):
    """Cloning that forgets the mask."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        return batch.num_decisions

    def __call__(self, batch: Experience, view: View) -> Loss:
        return Loss(-view.scored.logp.sum(), self.count(batch))


class Leaky(torch.nn.Module):
    """An actor whose scores are not zero where masked."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def score(self, batch: Experience, needs: frozenset[Need]) -> Any:
        return self.inner.score(replace(batch, mask=torch.ones_like(batch.mask)), needs)


def test_a_term_that_trains_on_masked_decisions_raises_the_guard() -> None:
    recipe = small("iql", "pendulum")
    stage = replace(recipe.stages[1], objective=(Unmasked(),))
    members = loops(replace(recipe, stages=(recipe.stages[0], stage, recipe.stages[2])), "pendulum")
    for loop in members:
        loop.engine.models["actor"] = Leaky(loop.engine.models["actor"])
        loop.engine.flats["actor"].names = tuple(f"inner.{name}" for name in loop.engine.flats["actor"].names)
    for step in StackedLoop(members).step():
        assert step is not None
        assert [alarm.guard for alarm in step.alarms] == ["masked decisions"]


# ---------------------------------------------------------------------------------------------------- runs
def run_of(out: Path, seeds: tuple[int, ...] = (0, 1), name: str = "td3-bc", device: str = "cpu") -> Any:
    recipe = small(name, "pendulum", updates=2) if name != "bc" else "bc"
    return assay.train_stacked(
        recipe, "pendulum", seeds=seeds, steps=6, evaluations=2, out=out, mode=Mode.SILENT, device=device
    )


@pytest.mark.parametrize("device", DEVICES)
def test_each_seed_ends_in_the_folder_of_a_single_run(tmp_path: Path, device: str) -> None:
    found = run_of(tmp_path / "stacked", device=device)
    assert not found.stopped
    for seed, run in found.runs.items():
        alone = assay.train(
            small("td3_bc", "pendulum", updates=2), "pendulum", seed=seed, steps=6, evaluations=2,
            out=tmp_path / str(seed), mode=Mode.SILENT,
        )  # fmt: skip
        assert np.array_equal(run.scores_before, alone.scores_before)
        assert np.allclose(run.scores_after, alone.scores_after, rtol=1e-3, atol=0.1)
        assert [row["step"] for row in run.curves] == [row["step"] for row in alone.curves]
        assert [set(row) for row in run.curves] == [set(row) for row in alone.curves]
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in alone.folder.iterdir()}


def test_a_folder_of_a_named_method_loads_and_resumes_by_itself(tmp_path: Path) -> None:
    found = run_of(tmp_path, name="bc")
    _, plan, step = assay.load(found.runs[1].folder)
    assert (plan.seed, step) == (1, 6)
    assert np.array_equal(assay.resume(found.runs[1].folder, mode=Mode.SILENT).scores_after, found.runs[1].scores_after)


def test_what_was_interrupted_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "SHORTEST", 0.0)  # a checkpoint after every step
    monkeypatch.setattr(saving, "SHARE", 1e9)
    whole = run_of(tmp_path / "whole")
    shown, show = [], stacked_run.Together.show

    def interrupted(self: Any, steps: Any) -> None:
        show(self, steps)
        shown.append(steps)
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(stacked_run.Together, "show", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "cut")
    monkeypatch.setattr(stacked_run.Together, "show", show)
    shutil.rmtree(sorted((tmp_path / "cut" / "td3-bc-pendulum-1" / "checkpoints").iterdir())[-1])
    again = run_of(tmp_path / "cut")
    assert np.array_equal(again.runs[0].scores_after, whole.runs[0].scores_after), "bitwise: it was never alone"
    assert np.allclose(again.runs[1].scores_after, whole.runs[1].scores_after, rtol=1e-3, atol=0.1)
    assert [row["step"] for row in again.runs[1].curves] == list(range(7))


def test_a_seed_that_stops_is_reported_and_the_others_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = stacked_run.shared_loops

    def poisoned(*given: Any) -> list[Loop]:
        made = make(*given)
        made[1].engine.flats["q"].values[7] = torch.inf
        return made

    monkeypatch.setattr(stacked_run, "shared_loops", poisoned)
    found = run_of(tmp_path, seeds=(0, 1, 2))
    assert set(found.runs) == {0, 2}
    assert set(found.stopped) == {1}
    assert "seed 1 stopped at step 1" in found.stopped[1]
    assert "not finite" in found.stopped[1]


# ---------------------------------------------------------------------------------------------------- benchmark
@pytest.mark.parametrize("device", DEVICES)
def test_the_benchmark_counts_every_size(tmp_path: Path, device: str) -> None:
    report = stacked_seeds.main(["--quick", "--width", "8", "--device", device, "--out", str(tmp_path / "b.json")])
    paths = ("stack",) if device == "cpu" else ("stack", "graphs")
    wanted = {("engine", 1), *((path, size) for path in paths for size in (1, 4))}
    for method in stacked_seeds.METHODS:
        assert {(row["path"], row["seeds"]) for row in report["rows"] if row["method"] == method} == wanted
    assert (tmp_path / "b.json").is_file()
    assert td3_bc().name in report["mflop_an_update"]
