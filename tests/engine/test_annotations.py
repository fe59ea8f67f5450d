"""Annotations: columns that a part asks a model for, computed once, whatever the micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Credit, Over, Scene
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.recipes.presets import TABLE
from assay.runs import catalogue


@dataclass(frozen=True)
class UnderOtherStart(Annotation):
    """log pi of the recorded decisions had everything begun in state 0."""

    column: str = "logp_other"
    model: str = "actor"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        other = replace(experience, context={name: torch.zeros_like(c) for name, c in experience.context.items()})

        def score(actor: Any, rows: Experience) -> Tensor:
            logp: Tensor = actor.score(rows, frozenset({Need.LOGP})).logp
            return logp

        return over(other, score)


@dataclass(frozen=True)
class FromOther(Credit):
    """Credit that reads the annotation."""

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({UnderOtherStart()})
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience.add({"advantage": experience.column("logp_other").detach()})


def test_a_part_gets_the_column_it_asks_for() -> None:
    task = catalogue.find_task("chain")
    recipe = replace(recipes.rloo(TABLE), credit=(FromOther(),))
    step = Loop(recipe, task, seed=0, num_steps=1).step()
    assert step.fresh is not None
    column = step.fresh.column("logp_other")
    assert column.shape == step.fresh.mask.shape
    assert not column[~step.fresh.mask].any()
    assert column[step.fresh.mask].lt(0).all()


def test_micro_batches_do_not_change_it() -> None:
    task = catalogue.find_task("chain")
    recipe = replace(recipes.rloo(TABLE), credit=(FromOther(),))
    step = Loop(recipe, task, seed=0, num_steps=1).step()
    assert step.fresh is not None
    bare = replace(step.fresh, extra={})
    whole, parts = (
        Engine(recipe, task.spec, 0, Placement(micro_batch=size)).annotate(bare, recipe.needs) for size in (0, 3)
    )
    assert torch.equal(whole.column("logp_other"), parts.column("logp_other"))


def test_an_annotation_by_a_model_that_is_not_there_is_refused() -> None:
    @dataclass(frozen=True)
    class Wants(FromOther):
        needs: ClassVar[frozenset[Need | Annotation]] = frozenset({UnderOtherStart(model="judge")})

    with pytest.raises(AssayError, match="'logp_other' is computed by 'judge', which is not a model"):
        replace(recipes.rloo(TABLE), credit=(Wants(),)).check()
