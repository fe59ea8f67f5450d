"""In-flight updates: equal weights change no bit, each decision has its version, staleness is within the lag."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Progress
from assay.decoding.sampling_parameters import Narrowing
from assay.decoding.weight_versions import VersionedDecoder
from assay.engine.placement import Placement
from assay.models.bodies.token_table import TokenTable
from assay.models.model import Policy
from assay.parts.rollouts.narrowed import Narrowed
from assay.runs.distributed.ledger import Work
from assay.runs.distributed.rollout_worker import Asked, Kit, RolloutWorker, for_sampling, spans_of
from assay.runs.distributed.weights import SameMemory
from assay.runs.distributed.worker_pool import gatherers_of
from assay.runs.options import GatherOptions, LanguageOptions, RunOptions
from assay.runs.plan import Plan, make_plan
from tests.resume.cases import named, spoken
from tests.runs.test_gatherers import cut, in_threads, loop_of, shaken


def narrowed() -> Plan:
    plan = spoken("grpo")
    assert plan.recipe.rollout is not None
    rollout = Narrowed(plan.recipe.rollout, Narrowing(0.9, top_p=0.9))
    return replace(plan, recipe=replace(plan.recipe, rollout=rollout))


def table() -> Plan:
    plan = spoken("grpo")
    return replace(plan, recipe=replace(plan.recipe, actor=Policy(TokenTable())))


def sampler_of(plan: Plan) -> RolloutWorker:
    """Has version 0 of weights at which answers differ in length."""
    memory = SameMemory()
    made = Kit(for_sampling(plan.recipe), plan.task, plan.seed, plan.placement, 0, memory, in_flight=True).sampler()
    memory.publish(0, {"actor": shaken(loop_of(plan)).engine.flats["actor"].snapshot()})
    return made


def sampled(sampler: RolloutWorker) -> Experience:
    work = Work(0, range(3), 1, 0)
    return sampler(Asked(work, np.arange(3), 0, Progress(num_steps=4))).rows


def equal_under_new_numbers(plain: RolloutWorker, other: RolloutWorker) -> tuple[Experience, Experience]:
    """Returns the rows of both, where the other takes over equal weights under newer numbers; no bit differs."""
    plain.is_in_flight = False
    before, tree, calls = sampled(plain), other.weights.fetch(0), list[int]()

    def newer() -> int:
        calls.append(len(calls))
        other.load(tree)
        return len(calls) // 2

    other.newest = newer  # type: ignore[method-assign, assignment]
    other.version = 0
    other.load(tree)
    after = sampled(other)
    assert torch.equal(before.action, after.action)
    assert torch.equal(before.logp, after.logp)
    return before, after


@pytest.mark.parametrize("made", [lambda: spoken("grpo"), narrowed, lambda: named("grpo", "twenty-questions"), table])
def test_equal_weights_under_new_numbers_change_no_bit(made: Callable[[], Plan]) -> None:
    plain, other = sampler_of(made()), sampler_of(made())
    before, after = equal_under_new_numbers(plain, other)
    assert set(before.extra) == set(after.extra)
    spans = spans_of(after)
    assert max(map(len, spans)) > 1
    for row, decisions in zip(spans, after.mask.sum(1).tolist(), strict=True):
        assert [first for _, first, _ in row] == [0, *(end for *_, end in row[:-1])]
        assert row[-1][2] == decisions
        assert sorted({version for version, *_ in row}) == [version for version, *_ in row]


def test_every_decision_has_the_log_probability_of_the_version_that_it_records() -> None:
    """With a table, whose logits do not depend on what earlier weights have computed."""
    plan = table()
    sampler, trees = sampler_of(plan), list[Any]()
    for version in range(40):
        sampled_from = {name: weight + 0.1 * version for name, weight in sampler.weights.fetch(0)["actor"].items()}
        generator = torch.Generator().manual_seed(version)
        noisy = {name: weight + torch.randn(weight.shape, generator=generator) for name, weight in sampled_from.items()}
        trees.append({"actor": noisy})

    def newer() -> int:
        sampler.version = min(sampler.version + 1, len(trees) - 1)
        sampler.load(trees[sampler.version])
        return sampler.version

    sampler.newest = newer  # type: ignore[method-assign, assignment]
    rows = sampled(sampler)
    assert rows.version is not None
    assert len(rows.version[rows.mask].unique()) > 2
    for version in rows.version[rows.mask].unique().tolist():
        sampler.load(trees[version])
        logp = sampler.engine.over("actor", rows, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp)
        here = rows.mask & (rows.version == version)
        assert torch.allclose(logp[here], rows.logp[here], atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("task", "longest"), [("addition", 200), ("twenty-questions", None)])
def test_weights_change_in_flight_on_a_gpu(task: str, longest: int | None) -> None:
    """Equal weights under new numbers change no bit of what the paged sampler writes."""
    options = RunOptions(language=LanguageOptions(max_tokens=longest))
    plan = make_plan("grpo", task, warmup=0, placement=Placement("cuda"), options=options)
    plain, other = sampler_of(plan), sampler_of(plan)
    _, after = equal_under_new_numbers(plain, other)
    assert other.actor.sampler.held is not None
    assert max(map(len, spans_of(after))) > 1


def test_versions_that_arrive_are_taken_over_if_they_are_newer() -> None:
    sampler = sampler_of(spoken("grpo"))
    sampler.version = 3
    tree = sampler.weights.fetch(0)
    sampler.arrived.append((2, tree))
    assert sampler.newest() == 3
    sampler.arrived.append((4, tree))
    sampler.arrived.append((5, tree))
    assert sampler.newest() == 5
    assert not sampler.arrived
    sampler.hear(9, "")  # was never published
    assert sampler.newest() == 5


def test_a_version_that_was_fetched_beside_sampling_waits_until_it_is_asked_for() -> None:
    plan, fetched = spoken("grpo"), list[int]()
    sampler = sampler_of(plan)
    sampler.is_in_flight = False
    first = sampler.weights.fetch(0)["actor"]

    class Noting(SameMemory):
        def fetch(self, version: int, told: str = "") -> Any:
            fetched.append(version)
            return {"actor": {name: weight + version for name, weight in first.items()}}

    def asked(version: int) -> float:
        work = Work(0, range(3), 1, 0)
        rows = sampler(Asked(work, np.arange(3), version, Progress(num_steps=4))).rows
        assert rows.version is not None
        assert set(rows.version.flatten().tolist()) == {version}
        name = next(iter(first))
        return round(float((sampler.engine.flats["actor"].snapshot()[name] - first[name]).mean()), 3)

    sampler.weights = Noting()
    assert asked(4) == 4.0
    sampler.hear(5, "")
    sampler.hear(4, "")  # is loaded
    assert (asked(4), asked(5), asked(5), asked(6)) == (4.0, 5.0, 5.0, 6.0)
    assert fetched == [4, 5, 6]
    thread = threading.Thread(target=sampler.hear, args=(7, ""))
    with sampler.reading:
        thread.start()
    assert asked(7) == 7.0
    thread.join()
    assert fetched == [4, 5, 6, 7]


def test_a_run_takes_over_weights_in_the_middle_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push = VersionedDecoder.push

    def slow(self: VersionedDecoder, tokens: torch.Tensor) -> None:
        time.sleep(0.03)
        push(self, tokens)

    monkeypatch.setattr(VersionedDecoder, "push", slow)
    plan, most = spoken("grpo", steps=8), 0
    loop, starts = shaken(loop_of(plan)), list[int]()
    with in_threads(cut(plan, gatherers=1, lag=2, in_flight=True), loop, tmp_path):
        for k in range(plan.steps):
            step = loop.step()
            assert not [alarm for alarm in step.alarms if alarm.stop]
            assert step.fresh is not None
            assert step.fresh.version is not None
            age = k - step.fresh.version[step.fresh.mask]
            assert 0 <= int(age.min()) <= int(age.max()) <= 2
            most = max(most, *map(len, spans_of(step.fresh)))
            assert step.metrics["versions_per_row"] >= 1.0
            starts += sorted(set(step.fresh.column("start").tolist()))
    assert most > 1
    assert starts == list(range(3 * plan.steps))


def test_processes_are_told_of_newer_weights(tmp_path: Path) -> None:
    """No timing is asserted: what they sample is within the lag, and the run ends."""
    plan = spoken("grpo", steps=4)
    loop = shaken(loop_of(plan))
    with gatherers_of(cut(plan, gatherers=1, lag=1, in_flight=True), loop, tmp_path) as crew:
        for k in range(plan.steps):
            fresh = loop.step().fresh
            assert fresh is not None
            assert fresh.version is not None
            assert bool(((k - fresh.version[fresh.mask]) <= 1).all())
    assert crew is not None
    assert not crew.restarts.counts


REFUSED = [
    ("grpo", "addition", {"gatherers": 1}, "Add --gatherers 1 --lag 1, without --on."),
    ("grpo", "addition", {"lag": 1, "server": ("http://a:1",)}, "Add --gatherers 1 --lag 1, without --on."),
    ("grpo", "addition", {"gatherers": 1, "lag": 1, "on_": "ray"}, "Add --gatherers 1 --lag 1, without --on."),
    ("rloo", "addition", {"gatherers": 1, "lag": 1}, "stage 'policy' of rloo has no importance ratio"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "task", "options", "said"), REFUSED)
def test_what_cannot_change_in_flight_is_refused(method: str, task: str, options: Any, said: str) -> None:
    with pytest.raises(AssayError, match=re.escape(said)):
        make_plan(method, task, options=RunOptions(gathering=GatherOptions(in_flight=True, **options)))


@pytest.mark.parametrize(
    ("task", "said"), [("bandit", "has no answers of tokens"), ("prisoners-dilemma-tokens", "does not say which")]
)
def test_a_task_that_does_not_record_versions_is_refused(task: str, said: str, tmp_path: Path) -> None:
    plan = named("grpo", task)
    loop = loop_of(plan)
    with (
        pytest.raises(AssayError, match=said),
        in_threads(cut(plan, gatherers=1, lag=1, in_flight=True), loop, tmp_path),
    ):
        loop.step()
