"""bfloat16 values train as float32 ones do: small updates add up, runs resume bitwise, float32 stays as it was."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.core.optimizers import Adam, Descent, widened
from assay.core.recipe import Recipe
from assay.core.record import Draw, Need
from assay.core.slots import Scene
from assay.core.spaces import Spec
from assay.engine import engine as engine_module
from assay.engine.engine import Engine
from assay.engine.loop import Loop, Step
from assay.engine.placement import Placement, arrange
from assay.engine.updates import Update
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.runs import catalogue


@dataclass(frozen=True)
class Narrow:
    """A model with its weights in bfloat16."""

    inner: Any

    def build(self, spec: Spec) -> nn.Module:
        """The inner one's, rounded."""
        return self.inner.build(spec).to(torch.bfloat16)


def stepped(dtype: torch.dtype, num: int, rate: float) -> tuple[Tensor, dict[str, Any]]:
    """1,000 values near 1 after `num` equal gradients."""
    values = torch.linspace(0.5, 2.0, 1000).to(dtype)
    optimizer = Adam(rate)
    state = optimizer.init([values])
    for _ in range(num):
        optimizer.step([values], [torch.full((1000,), 0.1)], {}, state)
    return values, state


def test_updates_below_the_precision_add_up() -> None:
    before = torch.linspace(0.5, 2.0, 1000).bfloat16()
    values, state = stepped(torch.bfloat16, 200, 1e-4)
    wanted = before.float() - 200 * 1e-4
    assert torch.equal(values, state["master"][0].bfloat16())
    torch.testing.assert_close(state["master"][0], wanted, atol=1e-5, rtol=0)
    once, _ = stepped(torch.bfloat16, 1, 1e-4)
    assert float((once != before).float().mean()) < 0.1, "one step alone is below the precision"


def test_float32_keeps_no_master() -> None:
    values, state = stepped(torch.float32, 3, 1e-3)
    assert set(state) == {"first", "second", "steps"}
    assert values.dtype == state["first"][0].dtype == torch.float32


def test_a_value_that_somebody_writes_is_where_its_master_starts() -> None:
    values, optimizer = torch.ones(4, dtype=torch.bfloat16), Adam(1e-4)
    state = optimizer.init([values])
    values[1:] = 3.0
    optimizer.step([values], [torch.ones(4)], {}, state)
    torch.testing.assert_close(state["master"][0], torch.tensor([1.0, 3.0, 3.0, 3.0]) - 1e-4, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_gradient_of_nan_changes_no_bit(dtype: torch.dtype) -> None:
    values, optimizer = torch.linspace(0.5, 2.0, 9).to(dtype), Adam(1e-2, weight_decay=0.1)
    state = optimizer.init([values])
    optimizer.step([values], [torch.ones(9, dtype=widened(values))], {}, state)
    before = copy.deepcopy((values, state))
    optimizer.step([values], [torch.full((9,), torch.nan, dtype=widened(values))], {}, state)
    assert torch.equal(values, before[0])
    assert float(state.pop("steps")) == float(before[1].pop("steps")) == 1.0
    assert all(torch.equal(state[name][0], before[1][name][0]) for name in state)


def test_clipping_is_a_product_with_the_limit_over_the_norm() -> None:
    task = catalogue.find_task("sorting-3")
    recipe = replace(recipes.sft(), actor=Policy(Transformer(width=32, layers=1, heads=2)))
    stage = replace(recipe.stages[0], optimizer=Descent(1.0, clip_norm=0.1))
    engine, plain = (Engine(replace(recipe, stages=(stage,)), task.spec, 0, Placement()) for _ in range(2))
    gradient = torch.randn(engine.flats["actor"].values.shape)
    engine.apply(stage, [gradient.clone()], Update(stage.name, None))
    clipped = gradient.mul(0.1 / float(gradient.norm()))
    assert torch.equal(engine.flats["actor"].values, plain.flats["actor"].values - clipped)


def test_counts_of_steps_that_were_saved_as_numbers_are_read() -> None:
    mine = {"steps": torch.zeros(()), "first": [torch.zeros(2)]}
    engine_module.overwrite(mine, {"steps": 7, "first": [torch.ones(2)]})
    assert float(mine["steps"]) == 7.0
    assert torch.equal(mine["first"][0], torch.ones(2))


def loop_of(**placement: Any) -> Loop:
    task = catalogue.find_task("sorting-3")
    recipe = replace(recipes.sft(), actor=Narrow(Policy(Transformer(width=16, layers=2, heads=2))))
    return Loop(recipe, task, seed=0, num_steps=3, placement=Placement(**placement))


def state_of(loop: Loop) -> dict[str, Any]:
    """Of its only optimizer."""
    (state,) = loop.engine.optimizers.values()
    return state


def test_a_run_in_bfloat16_resumes_bitwise() -> None:
    loop = loop_of()
    loop.step()
    saved = copy.deepcopy(loop.snapshot())
    loop.step()
    other = loop_of()
    other.restore(saved)
    other.step()
    assert torch.equal(loop.engine.flats["actor"].values, other.engine.flats["actor"].values)
    mine, theirs = (state_of(some)["master"][0] for some in (loop, other))
    assert torch.equal(mine, theirs)
    assert loop.engine.flats["actor"].values.dtype == torch.bfloat16


@pytest.mark.parametrize("size", [{"micro_batch": 8}, {"tokens": 200}])
def test_micro_batches_add_up_in_float32(size: dict[str, int]) -> None:
    whole, parts = loop_of(), loop_of(**size)
    before = state_of(whole)["master"][0].clone()
    whole.step()
    parts.step()
    mine, theirs = (state_of(some)["first"][0] for some in (whole, parts))
    assert not torch.equal(before, state_of(whole)["master"][0])
    assert float((mine - theirs).norm() / mine.norm()) < 0.03


def test_a_module_that_calls_something_else_layers_is_left_alone() -> None:
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)])

    other = Other()
    arrange(other, Placement(recompute=True))
    assert "forward" not in vars(other.layers[0]), "no layer was wrapped"


def small_grpo() -> Recipe:
    """A transformer of 32 numbers a token, and 2 groups of 4 answers: bfloat16 is slow on a CPU."""
    rollout = replace(recipes.grpo().rollout, num_starts=2, group_size=4)
    return replace(recipes.grpo(), actor=Policy(Transformer(width=32, layers=1, heads=2)), rollout=rollout)


def test_ratios_are_one_before_the_first_update_in_mixed_precision() -> None:
    """Sampling computes in float32, training in bfloat16: the recorded log-probabilities must be the latter's."""
    task, recipe = catalogue.find_task("addition-1"), small_grpo()
    loop = Loop(recipe, task, seed=0, num_steps=1, placement=Placement(precision=torch.bfloat16))
    scene = Scene(task, loop.engine, Draw(0), loop.progress)
    fresh = loop.gather(recipe, scene, Step(loop.progress))
    with torch.no_grad(), loop.engine.autocast():
        trained = loop.actor.score(fresh, frozenset({Need.LOGP})).logp
    sampled = loop.actor.score(fresh, frozenset({Need.LOGP})).logp
    assert torch.equal(trained * fresh.mask, fresh.logp * fresh.mask)
    assert not torch.equal(sampled * fresh.mask, fresh.logp * fresh.mask)
    (gap,) = scene.metrics["precision_gap"]
    assert gap[0] > 0


def test_in_one_precision_nothing_is_computed_again() -> None:
    task, recipe = catalogue.find_task("addition-1"), small_grpo()
    loop = Loop(recipe, task, seed=0, num_steps=1)
    assert "precision_gap" not in loop.step().metrics
