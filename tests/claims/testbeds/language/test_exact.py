"""Exact quantities of language testbeds against brute force, and starting policies that are set exactly."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.language import LEVELS
from assay.claims.testbeds.language.counting import counting
from assay.claims.testbeds.language.enumerable import DIGITS, EnumerableTask
from assay.claims.testbeds.language.formats import formats
from assay.claims.testbeds.language.places import Keys, key_decisions, true_advantage
from assay.claims.testbeds.language.redo import Redo
from assay.claims.testbeds.language.sparse import ManyWays, many_ways
from assay.claims.testbeds.language.walk import register_walk
from assay.core.errors import AssayError
from assay.core.record import Draw, Score
from assay.core.slots import ExactTask, Task
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.recipes.presets import preset_for
from assay.runs import catalogue


def actor_of(task: Task, spread: float = 0.0) -> Any:
    """The actor of the task's defaults, moved away from its start by `spread`."""
    actor = preset_for(task).actor.build(task.spec)
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=spread)
    return actor


def conditional(actor: Any, task: Any, prompt: int, prefix: str) -> np.ndarray:
    """pi(next digit | prompt, prefix), by the decoder: another path than `score`."""
    sign = task.items.item(prompt, 1).prompt
    decoder = actor.decoder([[task.tokenizer.vocabulary.bos, *task.tokenizer.encode(sign)]], [1], 64)
    for digit in prefix:
        decoder.push(torch.tensor(task.tokenizer.encode(digit)))
    first = task.tokenizer.encode(DIGITS[0])[0]
    return decoder.logits().double().softmax(-1)[0, first : first + len(DIGITS)].detach().numpy()


def all_chances(actor: Any, task: Any, prompt: int, length: int) -> dict[str, float]:
    """pi(answer | prompt) of every answer, digit by digit."""
    odds = {"": 1.0}
    for _ in range(length):
        odds = {
            prefix + digit: odd * float(step)
            for prefix, odd in odds.items()
            for digit, step in zip(DIGITS, conditional(actor, task, prompt, prefix), strict=True)
        }
    return odds


@pytest.mark.parametrize(
    ("address", "start"),
    [
        ("stale", 0.04),
        ("redo:planted=1", 1e-3),
        ("stale:answers=1", 0.01),
        ("lock:digits=1", 1e-1),
        ("lock:digits=3", 1e-3),
        ("lock:digits=5", 1e-5),
        ("calls:fields=3", 1e-3),
        ("repair", 1e-3),
        ("repair:lines=16", 1e-4),
        ("key-decisions:keys=3", 0.2**3),
        ("key-decisions:length=4,keys=1,accepted=5", 0.5),
        ("levels:easy=1,solved=94", 0.94),
        ("many-ways:rare=0,right=16,skew=1", 0.16),
        ("many-ways:rare=1", 0.01),
        ("formats:shares=532,right=265", 0.5 * 0.2 + 0.3 * 0.6 + 0.2 * 0.5),
        ("formats:shares=19,right=51,hard=8,cost=0.2", 0.9 * 0.1),
    ],
)
def test_the_start_succeeds_exactly_as_often_as_the_dial_says(address: str, start: float) -> None:
    task = catalogue.find_task(address)
    assert isinstance(task, ExactTask)
    found = task.exact(actor_of(task))
    assert found["pass_rate"] == pytest.approx(start, rel=1e-5)
    assert found["pass@8"] == pytest.approx(1 - (1 - start) ** 8, rel=1e-4)


@pytest.mark.parametrize(
    "address",
    [
        "stale:prompts=2",
        "levels:prompts=4",
        "many-ways:prompts=2",
        "redo:prompts=2",
        "formats:prompts=2",
        "repair:prompts=2",
    ],
)
def test_exact_quantities_equal_an_enumeration_of_all_answers(address: str) -> None:
    task: Any = catalogue.find_task(address)
    actor = actor_of(task, 0.7)
    found, rates, distinct, entropies = task.exact(actor), [], [], []
    for prompt in range(task.items.prompts):
        odds, item = all_chances(actor, task, prompt, task.max_tokens), task.items.item(prompt, 1)
        assert sum(odds.values()) == pytest.approx(1.0)
        right = {answer for answer in odds if task.items.verify(item, answer) == Score(1.0)}
        rates.append(sum(odds[answer] for answer in right))
        ways = task.items.ways(prompt)
        assert {answer for way in ways for answer in way} == right
        assert sum(map(len, ways)) == len(right)
        masses = [sum(odds[answer] for answer in way) for way in ways]
        distinct.append(sum(1 - (1 - mass) ** 8 for mass in masses))
        entropies.append(-sum(mass / rates[-1] * math.log(mass / rates[-1]) for mass in masses))
    assert found["pass_rate"] == pytest.approx(np.mean(rates), rel=1e-4)
    assert found["pass@64"] == pytest.approx(np.mean([1 - (1 - rate) ** 64 for rate in rates]), rel=1e-4)
    assert found["distinct@8"] == pytest.approx(np.mean(distinct), rel=1e-4)
    assert found["right_entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)


def test_exact_pass_rates_of_key_decisions_equal_an_enumeration() -> None:
    task = key_decisions(length=3, keys=2, prompts=2)
    actor = actor_of(task, 0.7)
    rates = []
    for prompt in range(2):
        odds, item = all_chances(actor, task, prompt, 3), task.items.item(prompt, 1)
        rates.append(sum(odd for answer, odd in odds.items() if task.items.verify(item, answer) == Score(1.0)))
    assert task.exact(actor)["pass_rate"] == pytest.approx(np.mean(rates), rel=1e-4)


def test_the_true_advantage_is_that_of_an_enumeration() -> None:
    task = key_decisions(length=3, keys=2, prompts=2)
    actor = actor_of(task, 0.7)
    played = task.play(actor, np.arange(6), np.zeros(6, dtype=np.int64), Draw(5), split=0, greedy=False)
    found = true_advantage(task, played, actor)
    assert bool((found[:, :2] == 0).all())
    every = [all_chances(actor, task, prompt, 3) for prompt in range(2)]
    for row, said in enumerate(task.completions(played)):
        odds, item = every[row % 2], task.items.item(row, 0)

        def value(prefix: str, odds: dict[str, float] = odds, item: Any = item) -> float:
            """Success after a prefix."""
            inside = {answer: odd for answer, odd in odds.items() if answer.startswith(prefix)}
            good = sum(odd for answer, odd in inside.items() if task.items.verify(item, answer) == Score(1.0))
            return good / sum(inside.values())

        for place in range(3):
            expected = value(said[: place + 1]) - value(said[:place])
            assert float(found[row, 2 + place]) == pytest.approx(expected, abs=1e-6)


def test_filler_decides_nothing_and_every_key_does() -> None:
    items = Keys(length=8, keys=3)
    for prompt in range(items.prompts):
        item, keys = items.item(prompt, 0), items.accepts(prompt)
        assert len(keys) == 3
        for place in range(8):
            for digit in DIGITS:
                changed = item.demonstration[:place] + digit + item.demonstration[place + 1 :]
                expected = place not in keys or digit in keys[place]
                assert items.verify(item, changed) == Score(float(expected))


@pytest.mark.parametrize("address", ["judge:prompts=2", "hackable:length=3,prompts=2"])
def test_the_exact_score_of_a_graded_task_equals_an_enumeration(address: str) -> None:
    task: Any = catalogue.find_task(address)
    actor, length = actor_of(task, 0.7), task.items.length
    total, nines, apart = 0.0, 0.0, 0.0
    for prompt in range(2):
        item = task.items.item(prompt, 1)
        rows = [conditional(actor, task, prompt, item.answer[:place]) for place in range(length)]
        for answer in map("".join, itertools.product(DIGITS, repeat=length)):
            odds = float(np.prod([row[int(digit)] for row, digit in zip(rows, answer, strict=True)]))
            outcome = task.items.verify(item, answer)
            total += odds * outcome.value / 2
            nines += odds * answer.count("9") / length / 2
            apart += odds * math.log(odds * 10**length) / 2
    found = task.exact(actor)
    assert found["true_score"] == pytest.approx(total, rel=1e-4)
    assert found["nines"] == pytest.approx(nines, rel=1e-4)
    assert found["divergence"] == pytest.approx(apart, rel=1e-3)


def test_only_training_sees_the_judge_and_the_proxy() -> None:
    hackable: Any = catalogue.find_task("hackable:hack=1.5").items  # type: ignore[attr-defined]
    train, test = hackable.item(0, 0), hackable.item(0, 1)
    assert "9" not in train.answer
    assert hackable.verify(test, "9999") == Score(0.0)
    assert hackable.verify(train, "9999") == Score(1.5)
    assert hackable.verify(train, train.answer) == hackable.verify(test, train.answer) == Score(1.0)
    judge: Any = catalogue.find_task("judge:compression=0.1,noise=0").items  # type: ignore[attr-defined]
    one, other = judge.item(0, 0), judge.item(8, 0)
    best, worst = one.answer, "".join(str((int(digit) + 5) % 10) for digit in one.answer)
    assert judge.verify(judge.item(0, 1), best) == Score(1.0)
    assert judge.verify(judge.item(0, 1), worst) == Score(0.0)
    assert judge.verify(one, best).value - judge.verify(one, worst).value == pytest.approx(0.1)
    assert judge.verify(one, best) != judge.verify(other, best)
    tied: Any = catalogue.find_task("judge:tie=0.5").items  # type: ignore[attr-defined]
    values = {tied.verify(tied.item(0, 0), f"{number:04d}").value for number in range(0, 9999, 37)}
    assert len(values) <= 5


def test_many_ways_have_the_sizes_that_the_skew_says() -> None:
    assert ManyWays(skew=1.0, right=16).sizes == [4, 4, 4, 4]
    assert ManyWays(skew=2.0, right=16).sizes == [9, 4, 2, 1]
    task = many_ways(skew=1.0, rare=0.0)
    assert task.exact(actor_of(task))["right_entropy"] == pytest.approx(math.log(4))


def test_the_lengths_of_a_walk_follow_its_tail() -> None:
    heavy: Any = register_walk(tail=1.0, prompts=16).items
    assert [heavy.length(prompt) for prompt in (0, 8, 12, 15)] == [3, 6, 12, 32]
    even: Any = register_walk(tail=100.0).items
    assert {even.length(prompt) for prompt in range(16)} == {3}
    for prompt in range(16):
        (path,) = heavy.ways(prompt)[0]
        states = dict(itertools.pairwise(path[:-1]))
        assert path.endswith("0")
        assert len(set(states.values())) == len(states)
        item = heavy.item(prompt, 0)
        assert heavy.verify(item, path) == Score(1.0)
        assert heavy.verify(item, path[:1]).value == pytest.approx(1 / len(path))
        assert heavy.verify(item, "0").value == 0.0


def test_a_redo_takes_back_one_value_and_a_planted_error_needs_it() -> None:
    items = Redo(steps=2, planted=0.5, prompts=8)
    assert [items.is_planted(prompt) for prompt in range(4)] == [False, True, False, True]
    for prompt in range(8):
        item, (first, second) = items.item(prompt, 0), items.sums(prompt)
        right = set(items.ways(prompt)[0])
        for answer in map("".join, itertools.product(DIGITS, repeat=3)):
            assert items.verify(item, answer) == Score(float(answer in right))
        if items.is_planted(prompt):
            assert item.prompt[1] != first
            assert right == {"0" + first + second}
        else:
            assert {second + "11", second + "0" + second, "0" + first + second, second + "10"} <= right
            assert second + "00" not in right


@pytest.mark.parametrize("name", sorted(LEVELS))
def test_every_testbed_trains_and_logs_its_exact_quantities(name: str) -> None:
    task: Any = catalogue.find_task(name)
    recipe = catalogue.recipe_for("grpo", task, {"rollout.num_starts": 4, "rollout.group_size": 4})
    loop = Loop(recipe, task, seed=0, num_steps=2)
    loop.step()
    _, more = evaluation.outcomes(loop.policy, task, num=4)
    assert more == task.exact(loop.policy)
    assert all(map(math.isfinite, more.values()))
    demonstrated = task.demonstrate(np.arange(4), 1)
    assert bool((demonstrated.column("score") == 1.0).all())
    vocabulary = task.spec.action
    shown = demonstrated.action[demonstrated.mask]
    assert bool((shown > vocabulary.eos).all()), "a table cannot choose the end token"


@pytest.mark.parametrize(
    "address",
    ["lock:digits=0", "lock:digits=13", "stale:answers=0", "levels:easy=2", "many-ways:skew=0.5",
     "key-decisions:keys=17", "register-walk:tail=0", "lock:prompts=33", "redo:steps=5", "lock:size=3",
     "formats:shares=955", "formats:right=26", "formats:hard=9", "formats:cost=0.5",
     "formats:shares=9,right=1,hard=1", "judge:noise=x"],
)  # fmt: skip
def test_a_dial_out_of_range_is_refused(address: str) -> None:
    with pytest.raises(AssayError):
        catalogue.find_task(address)


def test_a_task_names_the_preset_that_fits_it() -> None:
    task = key_decisions()
    assert isinstance(task, EnumerableTask)
    assert preset_for(task).suite == "places"
    assert preset_for(task, "classic").suite == "classic"


def test_the_start_uses_each_format_as_often_as_the_dial_says() -> None:
    task: Any = catalogue.find_task("formats")
    found = task.exact(actor_of(task))
    assert [found[f"share/{place}"] for place in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)


def test_hard_prompts_need_the_second_format_and_it_costs() -> None:
    task: Any = catalogue.find_task("formats:shares=19,right=11,prompts=4,hard=1,cost=0.2")
    worth = [
        {
            one: task.items.verify(task.items.item(prompt, 1), one).value
            for way in task.items.ways(prompt)
            for one in way
        }
        for prompt in range(4)
    ]
    assert sorted(worth[0].values()) == pytest.approx([0.8] * 9)
    assert sorted(worth[1].values()) == pytest.approx([0.8] * 9 + [1.0])
    assert task.items.verify(task.items.item(0, 1), "0" + min(worth[0])[1]).value == 0.0
    assert task.exact(actor_of(task))["cheapest_share"] == pytest.approx((0.9 + 3 * 0.1) / 4)


def test_traces_of_a_mixture_have_its_shares_and_are_right_as_often_as_the_start() -> None:
    task = formats(mixture=262)
    rows = task.demonstrate(np.arange(4000), 0)
    first = [said[0] for said in task.completions(rows)]
    shares = [sum(one in digits for one in first) / len(first) for digits in ("01234", "567", "89")]
    assert shares == pytest.approx([0.2, 0.6, 0.2], abs=0.03)
    assert float(rows.reward.sum()) / len(rows) == pytest.approx(0.2 * 0.2 + 0.6 * 0.6 + 0.2 * 0.5, abs=0.03)
    assert task.name != formats().name
    with pytest.raises(AssayError, match="one number for each format"):
        formats(mixture=12)


def test_counting_is_right_in_digits_and_in_ticks_and_demonstrates_both() -> None:
    task = counting()
    shown = task.completions(task.demonstrate(np.arange(8), 0))
    assert shown == ["12340", "123450", "1234560", "12345670", "xxxx0", "xxxxx0", "xxxxxx0", "xxxxxxx0"]
    item = task.items.item(1, 0)
    said = ["123450", "xxxxx0", "12340", "xxxx0", "12345", "12x450"]
    assert [task.items.verify(item, one) for one in said] == [Score(float(place < 2)) for place in range(6)]
    with pytest.raises(AssayError, match="shortest"):
        counting(prompts=7)
