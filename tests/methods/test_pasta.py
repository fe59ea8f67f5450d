"""Trajectories number by number: what a phase knows of its data, what reaches the models, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.core.errors import AssayError
from assay.core.slots import Ask
from assay.methods.pasta import MANY, recipe
from assay.methods.pasta.tokens import NumberTokens
from assay.methods.pasta.trunk import OnTrajectories
from assay.runs.phase_plans import phase_plan
from assay.runs.plan import make_plan
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.tabular.table import gridworld


def test_a_phase_has_the_statistics_of_its_own_data() -> None:
    plan = make_plan(recipe(reading=1), pendulum(), steps=1, evaluations=0)
    phase: Any = phase_plan(plan, plan.recipe.before[0], None)
    seen = MANY.columns(pendulum())["context.observation"][:, 0].double()
    assert torch.allclose(torch.tensor(phase.recipe.actor.body.moments[0]).double(), seen.mean(0))
    main: Any = plan.recipe.actor
    assert main.body.moments != phase.recipe.actor.body.moments


def test_numbered_states_and_more_choices_than_bins_are_refused() -> None:
    with pytest.raises(AssayError, match="Use decision-transformer for numbered states"):
        OnTrajectories().outputs(gridworld().spec, Ask((1,)))
    with pytest.raises(AssayError, match="is 1, and the task has 2 choices"):
        OnTrajectories(tokens=NumberTokens(1)).outputs(cartpole().spec, Ask((2,)))
