"""Records moved by one column."""

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Need
from assay.ops.later import one_later, states_after
from assay.tasks.language.addition import addition
from assay.tasks.tabular.bandit import bandit


def test_the_moved_mask_covers_the_column_after_each_decision() -> None:
    rows = probes.completed(addition(1), ["12", "7"], [0, 1])
    later = one_later(rows)
    assert later.num_columns == rows.num_columns + 1
    assert torch.equal(later.mask[:, 1:], rows.mask)
    assert not later.mask[:, 0].any()
    assert torch.equal(later.context["tokens"][:, :-1], rows.context["tokens"])
    assert later.context["valid"][later.mask].all()


def test_the_state_after_a_decision_depends_on_it() -> None:
    task = addition(1)
    actor, needs = probes.small_policy(task), frozenset({Need.LOGP, Need.HIDDEN})
    states = []
    for last in "78":
        rows = probes.completed(task, [f"1{last}"], [0], cut=[0])
        later = one_later(rows, rows.truncated)
        states.append(actor.score(later, needs).hidden[later.mask])
    assert states[0].shape[0] == 1
    assert not torch.allclose(states[0], states[1])


def test_states_after_decisions_are_those_of_the_next_column_and_masked_ones_are_zero() -> None:
    task = addition(1)
    actor = probes.small_policy(task)
    rows = probes.completed(task, ["12", "7", "345"], [0, 1, 2], faults=[2])
    states = states_after(actor, rows)
    later = one_later(rows)
    expected = actor.score(later, frozenset({Need.LOGP, Need.HIDDEN})).hidden[:, 1:]
    assert torch.equal(states[rows.mask], expected[rows.mask])
    assert not states[~rows.mask].any()


def test_an_actor_without_hidden_states_is_refused() -> None:
    task = bandit((0.5, 0.5))
    rows = probes.bandit_experience([0, 1], [1.0, 0.0], torch.zeros(2))
    with pytest.raises(AssayError, match="no hidden states"):
        states_after(probes.small_policy(task), rows)
