"""dph-rl as a whole run: the phase's rows reach the second phase, and other tasks are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import assay
from assay.claims.testbeds.language.sparse import levels
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.methods.dph_rl import recipe
from assay.recipes.presets import BIGRAMS
from assay.tasks.control.cartpole import cartpole


def test_a_run_rehearses_what_the_phase_before_it_stored(tmp_path: Path) -> None:
    seen: list[float] = []
    run = assay.train(recipe(BIGRAMS), levels(easy=0.5, solved=100), steps=2, seed=0, out=tmp_path / "run")
    seen += [row["divergence_from_start"] for row in run.curves if "divergence_from_start" in row]
    assert len(seen) == 2
    assert seen[0] == pytest.approx(0.0, abs=1e-6), "the first update begins at the start policy"
    assert seen[1] > 0.0


def test_a_task_without_prompts_is_refused() -> None:
    with pytest.raises(AssayError, match="has no prompts"):
        recipe(BIGRAMS).before[0].recipe.source.init(Scene(cartpole()))


def test_a_start_that_solves_nothing_raises_an_alarm(tmp_path: Path) -> None:
    run = assay.train(recipe(BIGRAMS), levels(easy=1.0, solved=1), steps=1, seed=0, out=tmp_path / "run")
    assert [row["nothing_stored"] for row in run.curves if "nothing_stored" in row] == [1.0]
    assert any("the start solves none of the prompts" in str(alarm) for alarm in run.alarms)
