"""Rollouts that start after a prefix of a demonstration."""

from __future__ import annotations

import pytest
import torch

from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.methods.prefixrl import FromPrefixes, RejectionSampled, own_solutions
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.presets import PLACES
from assay.runs import catalogue
from tests.methods.rollouts import STARTS, TASKS, gathered


@pytest.mark.parametrize("name", TASKS)
def test_the_prefix_is_the_demonstrations_and_is_no_decision(name: str) -> None:
    task = TASKS[name]
    fresh = gathered(FromPrefixes(group_size=2, plain=0.0), task)
    shown = task.demonstrate(STARTS, 0)
    for row in range(len(fresh)):
        start, given = row // 2, int(fresh.column("prefix")[row])
        whole = fresh.column("answer")[row]
        told = fresh.action[row][whole]
        first = shown.action[start][shown.mask[start]][:given]
        assert torch.equal(told[:given], first)
        assert int(whole.sum()) - given == int(fresh.mask[row].sum())
        assert 0.4 * int(shown.mask[start].sum()) - 1 <= given <= 0.8 * int(shown.mask[start].sum())
    assert torch.equal(fresh.column("prefix")[0::2], fresh.column("prefix")[1::2])
    assert not fresh.logp[~fresh.mask].any()


def test_without_prefixes_it_is_episodes() -> None:
    task = TASKS["tokens"]
    ours, theirs = gathered(FromPrefixes(group_size=3, plain=1.0), task), gathered(Episodes(group_size=3), task)
    assert torch.equal(ours.action, theirs.action)
    assert torch.equal(ours.mask, theirs.mask)
    assert torch.equal(ours.logp, theirs.logp)


def test_own_solutions_need_verified_answers_and_what_they_sample_is_counted() -> None:
    with pytest.raises(AssayError, match="needs verified answers"):
        RejectionSampled().check(catalogue.find_task("cartpole"))
    loop = Loop(own_solutions(PLACES, tries=8), catalogue.find_task("lock:digits=1"), seed=0, num_steps=1)
    step = loop.step()
    assert step.fresh is not None
    assert loop.progress.decisions >= int(step.fresh.mask.sum()) + 8 * 32, "rejected samples were sampled too"
    assert 0.0 < step.metrics["solved"] < 1.0
