"""Robust policies from ordinary problems: worst regimes, max-min actors, programs that stop early."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.iwocs import UncertainTable, best_worst_value, random_table, windy_walk, worst_case_search
from assay.core.errors import AssayError
from assay.core.recipe import Phase, Recipe
from assay.core.record import Draw, Experience
from assay.core.settings import is_schedule
from assay.core.slots import Scene, TaskChange
from assay.engine.engine import StageView
from assay.methods.iwocs import (
    AnyRegime,
    Coding,
    FitCoder,
    MaxMin,
    MaxMinQ,
    WorstRegime,
    assembled,
    discounted_return,
    quick_dqn,
)
from assay.methods.iwocs import (
    recipe as iwocs,
)
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.runs import catalogue
from assay.runs.progress import Mode
from assay.runs.run import Run, train
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.table import action_values
from assay.tasks.tabular.uncertain import WINDS, windy_table
from assay.tasks.tabular.uncertain import windy_walk as walk_task

STARTS = np.arange(6)
NONE = np.zeros(6, np.int64)


# ---------------------------------------------------------------------------------------------------- tables
@pytest.mark.parametrize("seed", range(3))
def test_worst_regime_is_the_worst_of_all(seed: int) -> None:
    table = random_table(seed, num_states=3)
    action = torch.tensor([seed % 2, 1, 0])
    every = [table.value(action, torch.tensor(bits).view(3, 2)) for bits in np.ndindex(*(2,) * 6)]
    assert table.worst_value(action) == pytest.approx(min(every), abs=1e-9)


def lowest_optimum(table: UncertainTable) -> float:
    """Returns min over all regimes of the optimal value in the first state, by enumeration."""
    num_candidates, *shape, _ = table.P.shape
    choices = product(range(num_candidates), repeat=table.R.numel())
    return min(table.best(table.optimal(torch.tensor(choice).view(shape))) for choice in choices)


def test_robust_value_is_the_best_worst_value_and_the_lowest_optimum() -> None:
    table = random_table(5, num_states=3)
    robust = table.best(table.robust())
    assert best_worst_value(table) == pytest.approx(robust, abs=1e-9)
    assert lowest_optimum(table) == pytest.approx(robust, abs=1e-9)


def test_the_search_stops_at_once_where_there_is_nothing_to_fear() -> None:
    table = windy_walk(0, winds=(0.2,))
    value, solved = worst_case_search(table)
    assert solved == 1
    assert value == pytest.approx(table.best(table.optimal(table.nominal)), abs=1e-9)


@pytest.mark.parametrize("seed", range(10, 20))
def test_the_search_ends_with_robust_value_iteration(seed: int) -> None:
    table = windy_walk(seed)
    assert worst_case_search(table)[0] == pytest.approx(table.best(table.robust()), abs=1e-6)


# ---------------------------------------------------------------------------------------------------- parts
def test_max_min_takes_the_action_whose_lowest_value_is_highest() -> None:
    actor = MaxMin(Policy(Perceptron((8,)), Greedy()), num=3).build(cartpole().spec)
    context = {"observation": torch.randn(7, 4)}
    values = torch.stack([member.values(context) for member in actor.members]).detach()
    expected = [max(range(2), key=lambda a, r=row: float(values[:, r, a].min())) for row in range(7)]
    assert actor.act(context, None)[0].tolist() == expected
    with pytest.raises(AssayError, match="num=0"):
        MaxMin(num=0).build(cartpole().spec)


class FromTables(MaxMinQ):
    """Members given as tables of values of the walk's cells."""

    def __init__(self, tables: list[torch.Tensor]) -> None:
        torch.nn.Module.__init__(self)
        self.tables, self.num_actions = tables, 4

    def values(self, context: Any) -> torch.Tensor:
        cell = context["observation"].argmax(-1)
        return torch.stack([table[cell] for table in self.tables]).amin(0)


def test_the_search_by_rollouts_takes_the_steps_of_the_exact_one() -> None:
    """Nominal first; then the strongest wind; then, since the policy expects what it gets, nothing."""
    task, search = walk_task(), WorstRegime(starts=400, tolerance=1.0)
    first = search(Scene(task))
    assert first is not None
    assert first.name == task.under(WINDS[0]).name
    tables = [action_values(windy_table(0.0), 0.99)]
    second = search(Scene(task, actor=FromTables(tables)))
    assert second is not None
    assert second.name == task.under(WINDS[-1]).name
    tables.append(action_values(windy_table(WINDS[-1][0]), 0.99))
    assert search(Scene(task, actor=FromTables(tables))) is None
    assert AnyRegime()(Scene(task)).name == "walk-in-wind-0.075"
    with pytest.raises(AssayError, match="'cartpole' has only one regime"):
        search(Scene(cartpole()))


def test_discounted_return() -> None:
    played = cartpole().play(Scripted(cartpole().expert), STARTS, NONE, Draw(0), split=0, greedy=True)
    expected = [sum(0.9**t for t in range(int(row.sum()))) for row in played.mask]
    assert discounted_return(played, 0.9).tolist() == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------------------------------------------- programs
def small(recipe: Recipe) -> Recipe:
    def shrunk(one: Recipe) -> Recipe:
        return one.set("source.warmup", 8).set("source.updates", 1).set("source.batch", 8).set("rollout.num_envs", 2)

    phases = tuple(
        replace(phase, recipe=shrunk(phase.recipe), steps=2) if phase.recipe.name == "dqn" else phase
        for phase in recipe.before
    )
    return replace(recipe, before=phases)


def run_of(recipe: Recipe, folder: Path, task: str = "windy-walk") -> Run:
    return train(recipe, task, out=folder, mode=Mode.SILENT, evaluations=1)


def test_each_network_is_handed_to_its_place_and_all_later_ones(tmp_path: Path) -> None:
    phases = small(iwocs()).before
    run = run_of(replace(assembled("iwocs", 3), before=phases[:2]), tmp_path / "one")
    first = [list(member.parameters()) for member in run.policy.members]
    assert all(torch.equal(a, b) for other in first[1:] for a, b in zip(first[0], other, strict=True))
    assert "evaluation_worst" in run.curves[-1]


@dataclass(frozen=True)
class Nothing(TaskChange):
    """Finds nothing to be done."""

    def __call__(self, scene: Scene) -> None:
        """Never a task."""


def trained_before(name: str, steps: int) -> Recipe:
    """dqn in regimes drawn for each episode, then evaluated as `assembled` policies are."""
    phase = Phase("solve", quick_dqn(), steps, hands={"actor": "actor.members.0"}, task=AnyRegime())
    return replace(assembled(name, 1), before=(phase,))


def test_a_phase_that_finds_nothing_to_do_is_left_out(tmp_path: Path) -> None:
    program = small(trained_before("any", 2))
    skipped = Phase("never", quick_dqn(), 2, hands={"actor": "actor.members.0"}, task=Nothing())
    runs = [
        run_of(replace(program, before=before), tmp_path / name)
        for name, before in (("with", (*program.before, skipped)), ("without", program.before))
    ]
    assert [path.name for path in runs[0].folder.glob("phase-*")] == ["phase-1-solve"]
    for mine, theirs in zip(runs[0].policy.parameters(), runs[1].policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_program_learns_in_the_worst_regime_and_can_be_gone_on_with(tmp_path: Path) -> None:
    program = small(iwocs(problems=2))
    search = WorstRegime(tolerance=-1e6)  # never content
    program = replace(
        program, before=tuple(replace(p, task=search) if p.task is not None else p for p in program.before)
    )
    run = run_of(program, tmp_path / "run")
    names = sorted(path.name for path in run.folder.glob("phase-*"))
    assert names == ["phase-1-solve-0", "phase-2-candidate-0", "phase-3-solve-1"]
    told = json.loads((run.folder / "phase-3-solve-1" / "config.json").read_text())["task_settings"]
    assert told["name"].startswith("walk-in-wind-")
    again = run_of(program, tmp_path / "run")
    assert run.curves == again.curves


def test_a_recipe_without_stages_is_no_schedule() -> None:
    assert not is_schedule(assembled("nothing", 1))
    assert catalogue.methods()["iwocs"].recipe().before


def test_a_coder_finds_what_it_was_fitted_on_valid_and_other_states_not() -> None:
    spec = walk_task().under(WINDS[0]).spec
    coder: Any = Coding().build(spec)
    seen = torch.eye(spec.observation.size)
    known, action = torch.arange(10), torch.arange(10) % 2
    step = torch.optim.Adam(coder.parameters(), 1e-2)
    first = torch.tensor([True, False]).expand(10, 2)
    context = {"observation": torch.stack((seen[known], seen[known]), 1)}
    nothing = torch.zeros(10, 2)
    batch = Experience(
        context, action.unsqueeze(1).expand(10, 2), first, nothing, nothing, first & False, first & False
    )
    for _ in range(400):
        step.zero_grad()
        loss = FitCoder()(batch, StageView({"coder": coder}, batch, frozenset(), Draw(0)))
        (loss.sum / loss.count).backward()
        step.step()
    valid = coder.valid({"observation": seen})
    assert valid[known, action].float().mean() >= 0.85
    assert not valid[10:].any()
    assert not valid[known, 2:].any()


class Rightwards(Scripted):
    """Walks along the cliff, and promises more than it gets."""

    def values(self, context: Any) -> torch.Tensor:
        return torch.full((len(context["observation"]), 4), 9.0)


def test_regimes_between_bounds_are_searched_and_the_worst_is_trained_in() -> None:
    """Along the cliff a wind above all listed ones is worst, where the bounds allow it."""
    wide = replace(walk_task(), regimes=WINDS[:2], bounds=((0.0,), (0.4,)))
    along = Rightwards(lambda context: torch.ones(len(context["observation"]), dtype=torch.long))
    found = WorstRegime(starts=8, candidates=6, rounds=2)(Scene(wide, actor=along, draw=Draw(0)))
    assert found is not None
    assert float(found.name.rpartition("-")[2]) > 0.2


def test_a_listed_regime_beyond_the_bounds_is_refused() -> None:
    with pytest.raises(AssayError, match="is not between its bounds"):
        replace(walk_task(), bounds=((0.0,), (0.1,)))
