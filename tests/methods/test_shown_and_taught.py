"""Demonstrations inside groups, a teacher that has seen the answer: what they record, and what is learnt from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Draw, Need, Origin, Score
from assay.core.slots import Scene
from assay.engine.engine import Engine
from assay.engine.loop import Loop, outcome_metrics
from assay.engine.placement import Placement
from assay.methods import rl_plus, sdpo
from assay.methods.rl_plus.objectives import HybridPolicy, LogpWhenShown
from assay.methods.rl_plus.rollout import WithDemonstrations
from assay.methods.sdpo import teacher
from assay.methods.sdpo.objectives import forward_kl, jensen_shannon, reverse_kl, with_tail
from assay.methods.sdpo.source import ShownTwice
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.playing.text import with_outcomes, written
from assay.proof.laws.rollout import built, small_actor
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.language.addition import addition
from assay.tasks.language.countdown import countdown
from assay.tasks.tabular.table import chain
from tests.scenes import feeding, gathering

DRAW = Draw(3, (0,))
TASKS = {"tokens": countdown(2), "choices": cartpole(), "torques": pendulum(), "numbered": chain(4, slip=0.2)}
STARTS = np.array([5, 1, 8])


def actor_of(task):
    return built(small_actor(task.spec), task.spec)


# ---------------------------------------------------------------------------------------------------- rl-plus
@pytest.mark.parametrize("name", TASKS)
def test_every_group_holds_its_demonstration_beside_what_was_gathered(name: str) -> None:
    task, part = TASKS[name], WithDemonstrations(Episodes(num_starts=3, group_size=2))
    fresh = part(gathering(task, actor_of(task), STARTS, DRAW), part.init(Scene(task)))
    plain = Episodes(3, 2)(gathering(task, actor_of(task), STARTS, DRAW), {})
    shown = task.demonstrate(np.unique(STARTS), 0)
    is_own = fresh.source == int(Origin.POLICY)
    assert is_own.tolist() == [True] * 6 + [False] * 3
    assert torch.equal(fresh.own().action[plain.mask.nonzero(as_tuple=True)], plain.action[plain.mask])
    assert torch.equal(fresh.own().logp[:, : plain.num_columns], plain.logp)
    others = fresh.rows(~is_own)
    assert torch.equal(others.action[:, : shown.num_columns][shown.mask], shown.action[shown.mask])
    assert not others.logp.any()
    assert sorted(fresh.group.tolist()) == [1] * 3 + [5] * 3 + [8] * 3
    space = task.spec.action
    width = {"tokens": 64, "choices": 2, "torques": 4.0, "numbered": 2}[name]
    assert fresh.column("uniform").tolist() == pytest.approx([1 / width] * 9), space


@pytest.mark.parametrize("name", TASKS)
def test_the_column_is_the_gathering_policys_log_probability_in_rows_of_others_alone(name: str) -> None:
    task, part = TASKS[name], WithDemonstrations(Episodes(num_starts=3, group_size=2))
    actor = actor_of(task)
    fresh = part(gathering(task, actor, STARTS, DRAW), {})
    column = LogpWhenShown()(fresh, lambda rows, function: function(actor, rows))
    with torch.no_grad():
        scored = actor.score(fresh, frozenset({Need.LOGP})).logp
    torch.testing.assert_close(column[6:], scored[6:], rtol=1e-5, atol=1e-5)
    assert not column[:6].any()
    assert not column[~fresh.mask].any()
    assert not LogpWhenShown()(replace(fresh, source=None), lambda rows, function: 1 / 0).any()


def test_external_rows_are_weighed_as_written_down_by_hand() -> None:
    """One decision, slowly: pi 0.2, pi_old 0.1, uniform 0.5, focus 0.5, advantage 3."""
    record = probes.bandit_experience([0], [1.0], torch.zeros(2)).with_columns(source=torch.tensor([2]))
    numbers = torch.tensor([[[3.0]], [[0.1]], [[0.2]]], dtype=torch.float64)
    record = record.add({"advantage": numbers[0], "logp_shown": numbers[1].log(), "uniform": torch.ones(1)})
    logp = numbers[2].log().requires_grad_()
    part = HybridPolicy(focus=0.5, uniform=0.5)
    recipe = replace(rl_plus.recipe(), stages=(replace(rl_plus.recipe().stages[0], objective=(part,)),))
    loss = probes.loss(recipe, record, logp).loss
    ratio = 2 * 0.2 / (0.1 + (0.1 + 0.5) / 2)
    assert loss.item() == pytest.approx(-ratio * 3 * 0.8**0.5)
    (slope,) = torch.autograd.grad(loss, logp)
    assert slope.item() == pytest.approx(-ratio * 3 * 0.8**0.5)  # none through the exploration factor


def test_a_demonstration_that_is_certain_already_is_let_go_and_densities_above_one_are_no_fault() -> None:
    record = probes.bandit_experience([0, 0], [1.0, 1.0], torch.zeros(2)).with_columns(source=torch.tensor([2, 2]))
    record = record.add({"advantage": torch.ones(2, 1).double(), "uniform": torch.ones(2), "logp_shown": torch.tensor([[0.0], [30.0]]).double()})
    push = probes.decision_weights(rl_plus.recipe(), record, torch.tensor([[0.0], [30.0]]).double())
    assert push.tolist() == [[0.0], [0.0]]


def test_a_group_without_a_right_answer_learns_from_its_demonstration() -> None:
    task = addition(1)
    recipe = rl_plus.recipe().set("rollout.num_starts", 2).set("rollout.group_size", 2).set("actor.width", 16)
    loop = Loop(recipe, task, seed=0, num_steps=1)
    step = loop.step()
    fresh = step.fresh
    assert fresh is not None
    assert fresh.own().column("score").sum() == 0
    others = fresh.rows(fresh.source != int(Origin.POLICY))
    assert (others.column("advantage")[others.mask] > 0).all()
    assert step.metrics["reward"] == 0.0  # the metric speaks of the policy, not of who showed it how
    assert loop.progress.decisions == int(fresh.own().mask.sum())


def test_demonstrations_are_learnt_by_micro_batches_as_by_the_whole() -> None:
    task = addition(1)
    recipe = rl_plus.recipe().set("rollout.num_starts", 3).set("rollout.group_size", 2).set("actor.width", 16)
    updated = []
    for size in (0, 2):
        loop = Loop(recipe, task, seed=0, num_steps=1, placement=Placement(micro_batch=size))
        loop.step()
        updated.append(loop.engine.flats["actor"].values.clone())
    torch.testing.assert_close(*updated, rtol=1e-4, atol=1e-6)


def test_what_has_no_groups_or_no_demonstrations_is_refused() -> None:
    with pytest.raises(AssayError, match="draws its own starts"):
        WithDemonstrations(Fragments(2, 2)).init(Scene(cartpole()))
    with pytest.raises(AssayError, match="has none"):
        WithDemonstrations().init(Scene(Nameless()))
    assert outcome_metrics(addition(1).demonstrate(STARTS, 0).own())["longest"] == 0.0


class Nameless:
    """A task that shows nothing."""

    name = "nameless"


# ---------------------------------------------------------------------------------------------------- sdpo
def answers(texts: list[tuple[int, str, str]], values: list[float]):
    """Rows (start, prompt, completion) of addition with these outcomes."""
    task = addition(1)
    ids = [[task.tokenizer.vocabulary.bos, *task.tokenizer.encode(prompt)] for _, prompt, _ in texts]
    said = [[*task.tokenizer.encode(completion), task.tokenizer.vocabulary.eos] for _, _, completion in texts]
    record = written(ids, said, torch.tensor([start for start, _, _ in texts]), task.tokenizer.vocabulary.pad)
    return task, with_outcomes(replace(record, source=None), [Score(value) for value in values])


ROWS = [(1, "2+3=", "5"), (1, "2+3=", "12"), (1, "2+3=", "5"), (4, "9+9=", "7"), (6, "8+8=", "16"), (4, "9+9=", "8")]
VALUES = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_the_sibling_is_the_first_other_right_answer_of_the_group() -> None:
    _, record = answers(ROWS, VALUES)
    assert teacher.solved_sibling(record, 1.0).tolist() == [2, 0, 0, -1, -1, -1]
    assert teacher.solved_sibling(replace(record, mask=torch.zeros_like(record.mask)), 1.0).tolist() == [-1] * 6
    assert teacher.solved_sibling(replace(record, group=None), 1.0).tolist() == [-1] * 6


def test_rows_without_a_teacher_are_in_neither_sum_nor_count_and_none_at_all_is_no_step() -> None:
    task, record = answers(ROWS, VALUES)
    recipe = sdpo.recipe().set("actor.width", 16).set("actor.layers", 1).set("actor.heads", 2)
    engine, part = Engine(recipe, task.spec, 0, Placement()), recipe.stages[0].objective[0]
    scene = Scene(task, engine)
    record = record.add({"advantage": torch.zeros_like(record.reward)})  # credited: the probe leaves it as it is
    batch = recipe.credit[0](record, scene)
    assert int(part.count(batch)) == int(record.mask[:3].sum())
    alone = recipe.credit[0](record.rows(slice(0, 3)), scene)
    ours, theirs = (probes.gradient(recipe, one, engine.models["actor"]) for one in (batch, alone))
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-4, atol=1e-7)
    before = engine.flats["actor"].values.clone()
    failed = recipe.credit[0](replace(record, reward=torch.zeros_like(record.reward)), scene)
    engine.update(recipe.stages[0], engine.annotate(failed, recipe.needs))
    assert torch.equal(engine.flats["actor"].values, before)


def test_micro_batches_change_neither_the_teacher_nor_the_step() -> None:
    task, record = answers(ROWS, VALUES)
    recipe = sdpo.recipe().set("actor.width", 16).set("actor.layers", 1).set("actor.heads", 2)
    columns, steps = [], []
    for size in (0, 2):
        engine = Engine(recipe, task.spec, 0, Placement(micro_batch=size))
        batch = engine.annotate(recipe.credit[0](record, Scene(task, engine)), recipe.needs)
        before = engine.flats["actor"].values.clone()
        engine.update(recipe.stages[0], batch)
        columns.append(batch.column("candidates"))
        steps.append(engine.flats["actor"].values - before)
    torch.testing.assert_close(*columns, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*steps, rtol=1e-3, atol=1e-6)
    assert steps[0].abs().max() > 0


def test_the_teacher_keeps_a_hundred_numbers_a_token_whatever_the_vocabulary() -> None:
    size = sdpo.recipe().credit[0].num
    bytes_of_a_batch = 256 * 512 * size * 2 * 4
    assert bytes_of_a_batch < 2**27
    p, q = (torch.tensor(one, dtype=torch.float64).log_softmax(-1) for one in ([1, -0.5, 0.3, -2], [-1, 0.5, 2, 0]))
    best = p.topk(2).indices
    assert float(reverse_kl(with_tail(p[best]), with_tail(q[best]))) == pytest.approx(1.228544, abs=1e-6)
    assert float(jensen_shannon(with_tail(p[best]), with_tail(q[best]))) == pytest.approx(0.195237, abs=1e-6)
    assert float(reverse_kl(with_tail(p), with_tail(q))) == pytest.approx(1.242462, abs=1e-6)


@pytest.mark.parametrize("distance", [reverse_kl, forward_kl, jensen_shannon])
def test_divergences_are_sums_over_actions_and_zero_at_equality(distance) -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.1, 0.3, 0.6]).double()
    m = (p + q) / 2
    kl = lambda a, b: float((a * (a / b).log()).sum())  # noqa: E731
    slow = {reverse_kl: kl(p, q), forward_kl: kl(q, p), jensen_shannon: (kl(p, m) + kl(q, m)) / 2}[distance]
    assert float(distance(p.log(), q.log())) == pytest.approx(slow)
    assert float(distance(p.log(), p.log())) == pytest.approx(0.0, abs=1e-12)


def test_the_teacher_takes_no_gradient_and_follows_slowly() -> None:
    loop = Loop(sdpo.recipe(rate=0.25).set("actor.width", 16), addition(1), seed=0, num_steps=1)
    start = loop.engine.flats["actor"].values.clone()
    loop.engine.flats["actor"].values.add_(1.0)
    loop.engine.follow(loop.recipe.copies)
    torch.testing.assert_close(loop.engine.flats["teacher"].values, start + 0.25)
    assert not any(tensor.requires_grad for tensor in loop.engine.models["teacher"].parameters())


def test_a_task_without_prompts_is_refused_before_anything_is_sampled() -> None:
    with pytest.raises(AssayError, match="'cartpole' has no prompts"):
        sdpo.recipe().credit[0].init(Scene(cartpole()))


def test_showing_twice_learns_the_second_time_alone() -> None:
    task, part = addition(1), ShownTwice(batch=4, plain=1)
    state = part.init(Scene(task))
    (batch,) = part(feeding(task, None, DRAW), state)
    plain = task.demonstrate(np.arange(4), 0)
    assert state == {"next": 4}
    assert torch.equal(batch.mask.sum(1), plain.mask.sum(1))
    for row in range(4):
        item, tokens = task.items.item(row, 0), batch.action[row][batch.context["valid"][row]].tolist()
        before = item.prompt if row == 0 else f"{item.prompt}{item.demonstration}\n{item.prompt}"
        assert task.tokenizer.decode(tokens) == before + item.demonstration
