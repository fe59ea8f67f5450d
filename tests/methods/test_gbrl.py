"""Models that are stepped by the gradient of their outputs: trees against slow references, and through the engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims.gbrl import grown
from assay.core import store
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Phase
from assay.core.record import Experience, Fit
from assay.engine import evaluation
from assay.engine.engine import Engine
from assay.engine.flat import weights_of
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.dual_rl import f_dvl
from assay.methods.gbrl.base import boosted, gbrl
from assay.methods.gbrl.models import Trees, TreeSum, appended
from assay.methods.gbrl.optimizer import NOWHERE, Boost, Cosine, NodeWise, Oblivious, SquaredError
from assay.methods.gbrl.splits import conditions, leaf_numbers, leaves_of, separation
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Fragments
from assay.runs import catalogue, run
from assay.runs.progress import Mode
from assay.tasks.language.exceptions import exceptions, right_action

NONE = torch.zeros(3, dtype=torch.bool)
ROWS = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()
SLOPES = torch.randn(40, 2, generator=torch.Generator().manual_seed(1)).double()


def small(recipe):
    return replace(recipe, rollout=Fragments(num_envs=8, steps=8))


# ---------------------------------------------------------------------------------------------------- fitting
def slow_oblivious(rows: Tensor, slopes: Tensor, categorical: Tensor, depth: int) -> list[float]:
    """Scores of the levels when every condition is tried on every node, row by row."""
    asked: list[Tensor] = []
    for f, column in enumerate(rows.T):
        asked += [column == v if categorical[f] else column > v for v in column.unique()]
    chosen: list[Tensor] = []
    best: list[float] = []
    for _ in range(depth):

        def score(new: Tensor) -> float:
            total = 0.0
            for answers in product((False, True), repeat=len(chosen)):
                inside = torch.ones(len(rows), dtype=torch.bool)
                for condition, answer in zip(chosen, answers, strict=True):
                    inside &= condition == answer
                sides = [slopes[inside & side] for side in (new, ~new)]
                total += sum(float(s.sum(0).square().sum() / len(s)) for s in sides if len(s)) ** 0.5
            return total

        scores = [score(one) for one in asked]
        best.append(max(scores))
        chosen.append(asked[int(np.argmax(scores))])
    return best


@pytest.mark.parametrize("codes", [(), (1,), (0, 1, 2)])
def test_every_level_takes_the_best_condition_of_all(codes: tuple[int, ...]) -> None:
    rows, categorical = (3 * ROWS[:16]).round(), torch.tensor([f in codes for f in range(3)])
    feature, value = Oblivious(depth=3, score=Cosine())(rows, SLOPES[:16], categorical)
    expected, node = slow_oblivious(rows, SLOPES[:16], categorical, 3), torch.zeros(16, dtype=torch.int64)
    for level, score in enumerate(expected):
        asked = conditions(rows, categorical, 256)
        k = int((asked.value[feature[level]] == value[level]).nonzero()[0])
        found = separation(asked, node, 2**level, SLOPES[:16]).sqrt().sum(0)[feature[level], k]
        assert float(found) == pytest.approx(score, abs=1e-9)
        node = leaf_numbers(rows, feature[None, : level + 1], value[None, : level + 1], categorical)[0].long()


def test_a_prediction_is_the_sum_over_trees_row_by_row() -> None:
    tree = TreeSum(torch.tensor([False, True, False]), 2).double()
    rows = (2 * ROWS).round()
    for seed in range(5):
        made = torch.Generator().manual_seed(seed)
        feature, value = torch.randint(0, 3, (3,), generator=made), rows[torch.arange(3) + seed, 0]
        tree.add(feature, value, torch.randn(8, 2, generator=made).double())
    expected = torch.zeros(40, 2).double()
    for r, m in product(range(40), range(5)):
        bits = [
            bool(rows[r, f] == v) if f == 1 else bool(rows[r, f] > v)
            for f, v in zip(tree.feature[m].tolist(), tree.value[m].tolist(), strict=True)
        ]
        expected[r] += tree.leaf[m, 4 * bits[0] + 2 * bits[1] + bits[2]]
    assert torch.allclose(tree(rows), expected)
    assert torch.allclose(tree(rows.view(4, 10, 3)), expected.view(4, 10, 2))
    assert torch.allclose(tree(rows[:1]), expected[:1])


def test_quantiles_are_at_most_as_many_as_bins_and_separate_rows() -> None:
    asked = conditions(ROWS, NONE, 8)
    assert asked.ask.shape == (3, 8)
    assert bool(asked.ask.all())
    true = ROWS.T[:, None] > asked.value[:, :, None]
    assert torch.equal(true, asked.code[:, None] > torch.arange(8)[None, :, None])


@pytest.mark.parametrize("score", [Cosine(), SquaredError()])
def test_without_conditions_the_tree_is_the_mean(score) -> None:
    boost = Boost(1.0, tree=Oblivious(depth=2, score=score))
    alike = torch.ones(7, 3).double()
    tree = grown(boost, alike, SLOPES[:7])
    assert torch.allclose(tree(alike), -SLOPES[:7].mean(0).expand(7, 2))
    assert float(tree.value.max()) == pytest.approx(NOWHERE)
    alone = grown(boost, ROWS[:1], SLOPES[:1])
    assert torch.allclose(alone(ROWS[:1]), -SLOPES[:1])
    assert len(grown(boost, ROWS[:0], SLOPES[:0]).feature) == 0
    equal = grown(boost, ROWS, torch.zeros(40, 2).double())
    assert torch.equal(equal(ROWS), torch.zeros(40, 2).double())


def test_adding_trees_moves_them_rarely_and_changes_none() -> None:
    rows, places = torch.zeros(0, 2), set()
    kept = []
    for number in range(1000):
        rows = appended(rows, torch.full((2,), float(number)))
        places.add(rows.data_ptr())
        kept.append(rows)
    assert len(places) <= 6
    assert all(torch.equal(one, torch.arange(float(len(one))).unsqueeze(1).expand(-1, 2)) for one in kept[::97])


def test_repeated_rows_change_nothing() -> None:
    once, twice = (grown(Boost(1.0), ROWS.repeat(n, 1), SLOPES.repeat(n, 1))(ROWS) for n in (1, 2))
    assert torch.allclose(once, twice)


def test_sharing_needs_equal_inputs() -> None:
    sums = [TreeSum(NONE, 2).double() for _ in range(2)]
    fits = [Fit("actor", sums[0], ROWS, SLOPES), Fit("value", sums[1], ROWS + 1, SLOPES)]
    with pytest.raises(AssayError, match="actor, value saw different inputs"):
        Boost().grow(fits, {})
    Boost(shared=False).grow(fits, {})
    assert len(sums[0].feature) == len(sums[1].feature) == 1


# ---------------------------------------------------------------------------------------------------- engine
def batch_of(recipe, task) -> Experience:
    loop = Loop(recipe, task, seed=3, num_steps=4)
    loop.step()
    fresh = loop.step().fresh
    assert fresh is not None
    return fresh


def engine_of(recipe, task, **placement) -> Engine:
    return Engine(recipe, task.spec, 0, Placement(**placement))


def test_micro_batches_grow_the_same_tree_and_masked_rows_none() -> None:
    task, recipe = catalogue.find_task("cartpole"), small(boosted(recipes.a2c(), Boost(1.0)))
    batch = batch_of(recipe, task)
    assert not bool(batch.mask.all())
    broken = replace(
        batch, context={"observation": torch.where(batch.mask[..., None], batch.context["observation"], 99.0)}
    )
    found = []
    for rows, given in ((0, batch), (3, batch), (0, broken)):
        engine = engine_of(recipe, task, micro_batch=rows)
        engine.update(recipe.stages[0], engine.annotate(given, frozenset()))
        found.append(weights_of(engine.models["actor"]))
    for other in found[1:]:
        assert torch.equal(found[0]["body.trees.feature"], other["body.trees.feature"])
        assert torch.equal(found[0]["body.trees.value"], other["body.trees.value"])
        assert torch.allclose(found[0]["body.trees.leaf"], other["body.trees.leaf"], atol=1e-6)


def test_the_step_is_the_gradient_of_the_loss_in_the_outputs() -> None:
    """One isolating tree moves every output of a bandit-like batch by minus its own gradient, whatever the loss."""
    task = catalogue.find_task("cartpole")
    recipe = small(boosted(recipes.ppo(), Boost(1.0, shared=False, tree=Oblivious(depth=8))))
    batch = batch_of(recipe, task).rows(slice(0, 1)).columns(0, 4)
    engine = engine_of(recipe, task)
    batch = engine.annotate(batch, frozenset())
    logits = torch.zeros(4, 2, requires_grad=True)
    logp = logits.log_softmax(-1).gather(-1, batch.action[0, :, None]).squeeze(-1)
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    ratio, credit = (logp - batch.logp[0]).exp(), batch.column("advantage")[0]
    loss = -torch.minimum(ratio * credit, ratio.clamp(0.8, 1.2) * credit).sum() - 0.003 * entropy.sum()
    (expected,) = torch.autograd.grad(loss, logits)
    engine.update(recipe.stages[0], batch)
    assert torch.allclose(engine.models["actor"].logits(batch.context)[0], -expected, atol=1e-6)
    assert torch.allclose(engine.models["value"](batch.context)[0], batch.column("return")[0], atol=1e-4)


def test_clip_scales_and_what_is_not_finite_is_refused() -> None:
    task, recipe = catalogue.find_task("cartpole"), small(gbrl())
    batch = batch_of(recipe, task)
    leaves = []
    for limit in (0.0, 1e-3):
        stage = replace(recipe.stages[0], optimizer=replace(recipe.stages[0].optimizer, clip_norm=limit))
        engine = engine_of(recipe, task)
        update = engine.update(stage, engine.annotate(batch, frozenset()))
        leaves.append(weights_of(engine.models["value"])["body.trees.leaf"])
        norm = float(update.sums[f"gradient_norm/{stage.name}"][0][0])
    assert norm > 1e-3
    assert torch.allclose(leaves[1], leaves[0] * 1e-3 / norm, rtol=1e-4)
    engine = engine_of(recipe, task)
    bad = engine.annotate(batch.add({"return": batch.column("return") * torch.inf}), frozenset())
    assert "not finite" in engine.update(recipe.stages[0], bad).fault
    assert len(weights_of(engine.models["value"])["body.trees.leaf"]) == 0


def test_a_stage_of_trees_needs_an_optimizer_that_grows() -> None:
    recipe = replace(recipes.ppo(), actor=Policy(Trees()))
    with pytest.raises(AssayError, match=r"stage 'policy' trains 'actor'.*Grower"):
        Engine(recipe, catalogue.find_task("cartpole").spec, 0, Placement())


@pytest.mark.parametrize("task", ["cartpole", "pendulum", "bandit"])
def test_a_run_goes_on_bitwise_from_a_checkpoint_without_pickle(task: str, tmp_path: Path) -> None:
    world = catalogue.find_task(task)
    recipe = small(catalogue.recipe_for("gbrl", world, {}))
    whole = Loop(recipe, world, seed=1, num_steps=4)
    for step in range(4):
        if step == 2:
            store.save(tmp_path, 2, whole.snapshot(), facts={})
        whole.step()
    saved = store.load(tmp_path)
    assert saved is not None
    again = Loop(recipe, world, seed=1, num_steps=4)
    again.restore(saved.tree)
    for _ in range(2):
        again.step()
    assert store.difference(whole.snapshot()["engine"], again.snapshot()["engine"]) == []


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_a_copy_follows_as_a_function(rate: float) -> None:
    task = catalogue.find_task("cartpole")
    recipe = replace(small(gbrl()), copies={"target": Copy(of="actor", rate=rate)})
    loop, rows = Loop(recipe, task, seed=0, num_steps=3), {"observation": torch.randn(9, 4)}
    copy = torch.zeros(9, 2)
    follow = loop.engine.follow

    def watched(copies):
        nonlocal copy
        sums = follow(copies)
        copy = copy + rate * (loop.actor.logits(rows) - copy)
        return sums

    loop.engine.follow = watched
    loop.step()
    loop.step()
    assert torch.allclose(loop.engine.models["target"].logits(rows), copy, atol=1e-5)


def test_trees_are_handed_from_phase_to_phase(tmp_path: Path) -> None:
    recipe = small(gbrl())
    program = replace(recipe, before=(Phase("first", recipe, 2, hands={"actor": "actor"}),), steps=1)
    task = catalogue.find_task("cartpole")
    done = run.train(program, task, steps=1, out=tmp_path / "run", mode=Mode.SILENT, evaluations=1)
    saved = store.load(tmp_path / "run" / "phase-1-first" / "checkpoints")
    assert saved is not None
    leaf = saved.tree["loop"]["engine"]["models"]["actor"]["body.trees"]["leaf"]
    assert len(leaf) == 2 * 12
    assert len(done.policy.body.trees.leaf) == 3 * 12
    assert torch.equal(done.policy.body.trees.leaf[: len(leaf)], leaf)


def test_weighted_cloning_trains_trees_beside_critics_that_are_networks() -> None:
    task, recipe = catalogue.find_task("cartpole"), f_dvl()
    stages = tuple(
        replace(stage, optimizer=Boost(0.3)) if stage.trains == ("actor",) else stage for stage in recipe.stages
    )
    loop = Loop(replace(recipe, actor=Policy(Trees()), stages=stages), task, seed=0, num_steps=6)
    losses = [loop.step().metrics["loss/AdvantageRegression"] for _ in range(6)]
    assert len(loop.actor.body.trees.feature) == loop.engine.updates
    assert losses[-1] < losses[0]


def test_parameters_beside_trees_move_too() -> None:
    task = catalogue.find_task("pendulum")
    loop = Loop(small(catalogue.recipe_for("gbrl", task, {})), task, seed=0, num_steps=1)
    loop.step()
    assert float(loop.actor.log_std.detach().abs().max()) > 0
    assert len(loop.actor.body.trees.feature) == 12
    inner = loop.engine.optimizers["policy"]["inner"]
    assert inner["steps"] == 12


def test_ordinary_models_have_no_growth() -> None:
    engine = Engine(recipes.ppo(), catalogue.find_task("cartpole").spec, 0, Placement())
    assert all(not flat.grown for flat in engine.flats.values())
    assert isinstance(recipes.ppo().stages[0].optimizer, Adam)


# ---------------------------------------------------------------------------------------------------- task and learning
def test_the_rule_with_exceptions() -> None:
    codes = np.array([[5, 2, 0, 0, 7, 0], [5, 2, 3, 0, 7, 0], [0, 2, 3, 6, 7, 1], [0, 2, 0, 6, 7, 1]]).T
    assert right_action(codes).tolist() == [3, 3, 0, 2]
    for one_hot in (False, True):
        task = exceptions(one_hot)
        shown = task.judge(task.demonstrate(np.arange(50), 1), 1)
        assert shown.column("score").tolist() == [1.0] * 50


def test_trees_learn_to_balance_a_pole() -> None:
    task = catalogue.find_task("cartpole")
    loop = Loop(gbrl(), task, seed=0, num_steps=12)
    for _ in range(12):
        loop.step()
    assert evaluation.scores(loop.actor, task, num=10).mean() > 200


# ---------------------------------------------------------------------------------------------------- node-wise trees
def test_node_wise_trees_ask_other_questions_in_other_nodes() -> None:
    """If x0 says which of x1 and x2 counts, two levels fit with a condition for each node, and not with one a level."""
    inputs = torch.tensor(list(product((0.0, 1.0), repeat=3))).repeat(4, 1)
    gradient = torch.where(inputs[:, 0] > 0, 10.0 + 3.0 * inputs[:, 1], inputs[:, 2]).unsqueeze(1)
    errors = {}
    for shape in (NodeWise(2, score=SquaredError()), Oblivious(2, score=SquaredError())):
        trees = grown(Boost(1.0, tree=shape), inputs, gradient)
        errors[type(shape).__name__] = float((trees.predict(inputs) + gradient).abs().max())
    assert errors["NodeWise"] < 1e-5
    assert errors["Oblivious"] > 0.4


def test_leaves_of_node_wise_trees_are_those_of_a_slow_walk() -> None:
    draw = torch.Generator().manual_seed(3)
    inputs, categorical = torch.randint(0, 4, (50, 3), generator=draw).float(), torch.tensor([False, True, False])
    feature = torch.randint(0, 3, (5, 7), generator=draw)
    value = torch.randint(0, 4, (5, 7), generator=draw).float()
    found = leaves_of(inputs, feature, value, categorical, 8)
    for tree, row in product(range(5), range(50)):
        node = 0
        while node < 7:
            seen, asked, f = float(inputs[row, feature[tree, node]]), float(value[tree, node]), feature[tree, node]
            node = 2 * node + 1 + int(seen == asked if bool(categorical[f]) else seen > asked)
        assert int(found[tree, row]) == node - 7


def test_a_node_that_nothing_separates_keeps_its_rows() -> None:
    inputs = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    trees = grown(Boost(1.0, tree=NodeWise(3, score=SquaredError())), inputs, inputs)
    torch.testing.assert_close(trees.predict(inputs), -inputs)
    assert int((trees.value < NOWHERE).sum()) == 1
