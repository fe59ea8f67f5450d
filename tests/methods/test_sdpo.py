"""A teacher that has seen the answer: the example before the row, and what is learnt from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Draw, Score
from assay.core.slots import Scene
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods import sdpo
from assay.ops.divergences import forward_kl, jensen_shannon, reverse_kl, with_tail
from assay.parts import ShownTwice, solved_sibling
from assay.rollouts.text import with_outcomes, written
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from tests.scenes import feeding

DRAW = Draw(3, (0,))
STARTS = np.array([5, 1, 8])


def actor_of(task):
    return built(small_actor(task.spec), task.spec)


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
    assert solved_sibling(record, 1.0).tolist() == [2, 0, 0, -1, -1, -1]
    assert solved_sibling(replace(record, mask=torch.zeros_like(record.mask)), 1.0).tolist() == [-1] * 6
    assert solved_sibling(replace(record, group=None), 1.0).tolist() == [-1] * 6


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
