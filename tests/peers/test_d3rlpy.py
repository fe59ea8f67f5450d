"""Gradients of d3rlpy on the same weights and the same batch: double DQN, and behaviour cloning of both kinds.

d3rlpy wants gymnasium 1.0.0, which ours does not work with, so it is in no extra: these tests run where somebody has
installed it beside ours, and are skipped elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay import bases, probes
from assay.actors.bounded import Deterministic
from assay.types import Box, Discrete, Experience, Spec
from tests.peers.gaps import Record, assert_all_equal
from tests.peers.weights import linear, perceptron, slope_of, value_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SEEN, ROWS, WIDTHS = 5, 96, [32, 32]
EYE = Box((-10.0,) * SEEN, (10.0,) * SEEN)
CHOICE, TORQUE = Discrete(3), Box((-1.0,) * 3, (1.0,) * 3)


@pytest.fixture(scope="module")
def d3rlpy() -> Any:
    """The peer; the tests are skipped where it is not installed."""
    return pytest.importorskip("d3rlpy", minversion="2.8", reason="d3rlpy is not installed, and in no extra")


def transitions(action_BA: Tensor) -> Experience:
    """Random transitions with small rewards; one of five ends, one is cut."""
    dice = torch.randint(0, 5, (ROWS,))

    def column(value: Tensor) -> Tensor:
        return torch.stack((value, torch.zeros_like(value)), 1)

    first = column(torch.ones(ROWS, dtype=torch.bool))
    seen = torch.randn(ROWS, 2, SEEN)
    reward, ends, cut = 0.2 * torch.randn(ROWS), dice == 0, dice == 1
    return Experience(
        {"observation": seen}, column(action_BA), first, torch.zeros(ROWS, 2), column(reward), column(ends), column(cut)
    )


def their_batch(record: Experience) -> Any:
    """The same transitions as their minibatch."""
    from d3rlpy.torch_utility import TorchMiniBatch

    seen, zeros = record.context["observation"], torch.zeros(ROWS, 1)
    action = record.action[:, 0].view(ROWS, -1)
    ends = record.terminal[:, :1].float()
    return TorchMiniBatch(seen[:, 0], action, record.reward[:, :1], seen[:, 1], action, zeros, ends, zeros + 1, "cpu")


def made(d3rlpy: Any, kind: str, num_actions: int, activation: str = "relu", **settings: Any) -> Any:
    """Their implementation of an algorithm, with new weights."""
    encoder = d3rlpy.models.VectorEncoderFactory(WIDTHS, activation=activation)
    config = getattr(d3rlpy.algos, f"{kind}Config")(encoder_factory=encoder, **settings)
    algorithm = config.create(device=False)
    algorithm.create_impl((SEEN,), num_actions)
    return algorithm.impl


def with_weights(spec: Any, action: Discrete | Box, theirs: Any) -> Any:
    """Our module with the weights of theirs."""
    module = spec.build(Spec(EYE, action, 100))
    module.load_state_dict({**module.state_dict(), **perceptron(linear(theirs), value_of)})
    return module


def test_double_dqn_gradient_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """No error is above one, so that their Huber loss is a square; the two networks prefer different actions."""
    theirs = made(d3rlpy, "DoubleDQN", 3, gamma=0.97)
    online, target = theirs._modules.q_funcs[0], theirs._modules.targ_q_funcs[0]
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    record = transitions(torch.randint(0, 3, (ROWS,)))
    after = record.context["observation"][:, 1]
    assert bool((online(after).q_value.argmax(1) != target(after).q_value.argmax(1)).any())
    batch = their_batch(record)
    goal = batch.rewards + 0.97 * theirs.compute_target(batch) * (1 - batch.terminals)
    assert float((online(batch.observations).q_value.gather(1, batch.actions) - goal).abs().max()) < 1.0
    recipe = bases.dqn().set("critic.discount", 0.97).set("actor.hidden", (32, 32))
    models = {"target": with_weights(recipe.actor, CHOICE, target)}
    ours = probes.gradient(recipe, record, with_weights(recipe.actor, CHOICE, online), models=models)
    theirs.compute_grad(batch)
    assert_all_equal("gradient", ours, perceptron(linear(online), slope_of), record_property)


def test_bc_gradient_of_choices_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    theirs = made(d3rlpy, "DiscreteBC", 3, "tanh", beta=0.0)
    record = transitions(torch.randint(0, 3, (ROWS,)))
    recipe = bases.bc().set("actor.hidden", (32, 32))
    ours = probes.gradient(recipe, record, with_weights(recipe.actor, CHOICE, theirs._modules.imitator))
    theirs.compute_imitator_grad(their_batch(record))
    slopes = perceptron(linear(theirs._modules.imitator), slope_of)
    assert_all_equal("gradient", ours, slopes, record_property)


def test_bc_gradient_of_torques_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """Theirs is a mean over dimensions, ours half a sum: with A = 3 dimensions ours is 3/2 of theirs."""
    theirs = made(d3rlpy, "BC", 3)
    record = transitions(torch.rand(ROWS, 3) * 2 - 1)
    actor = with_weights(Deterministic((32, 32)), TORQUE, theirs._modules.imitator)
    ours = {name: slope * 2 / 3 for name, slope in probes.gradient(bases.bc(), record, actor).items()}
    theirs.compute_imitator_grad(their_batch(record))
    slopes = perceptron(linear(theirs._modules.imitator), slope_of)
    assert_all_equal("gradient x 2/3", ours, slopes, record_property)
