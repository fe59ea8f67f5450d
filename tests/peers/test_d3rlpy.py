"""Gradients of d3rlpy on the same weights and the same batch: double DQN, behaviour cloning, TD3+BC, IQL, CQL.

d3rlpy wants gymnasium 1.0.0, which ours does not work with, so it is in no extra: these tests run where somebody has
installed it beside ours, and are skipped elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.record import Experience, Scored
from assay.core.spaces import Box, Discrete, Spec
from assay.engine.engine import StageView
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.bounded import Deterministic
from assay.models.model import Critic, Policy
from assay.ops.distributions import normal_sample
from assay.recipes import conservative
from assay.recipes.conservative import td3_bc
from assay.recipes.presets import CONTINUOUS, CONTROL
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
    recipe = recipes.dqn().set("critic.discount", 0.97).set("actor.hidden", (32, 32))
    models = {"target": with_weights(recipe.actor, CHOICE, target)}
    ours = probes.gradient(recipe, record, with_weights(recipe.actor, CHOICE, online), models=models)
    theirs.compute_grad(batch)
    assert_all_equal("gradient", ours, perceptron(linear(online), slope_of), record_property)


def test_bc_gradient_of_choices_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    theirs = made(d3rlpy, "DiscreteBC", 3, "tanh", beta=0.0)
    record = transitions(torch.randint(0, 3, (ROWS,)))
    recipe = recipes.bc().set("actor.hidden", (32, 32))
    ours = probes.gradient(recipe, record, with_weights(recipe.actor, CHOICE, theirs._modules.imitator))
    theirs.compute_imitator_grad(their_batch(record))
    slopes = perceptron(linear(theirs._modules.imitator), slope_of)
    assert_all_equal("gradient", ours, slopes, record_property)


def test_bc_gradient_of_torques_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """Theirs is a mean over dimensions, ours half a sum: with A = 3 dimensions ours is 3/2 of theirs."""
    theirs = made(d3rlpy, "BC", 3)
    record = transitions(torch.rand(ROWS, 3) * 2 - 1)
    actor = with_weights(Policy(Perceptron((32, 32)), Deterministic()), TORQUE, theirs._modules.imitator)
    ours = {name: slope * 2 / 3 for name, slope in probes.gradient(recipes.bc(), record, actor).items()}
    theirs.compute_imitator_grad(their_batch(record))
    slopes = perceptron(linear(theirs._modules.imitator), slope_of)
    assert_all_equal("gradient x 2/3", ours, slopes, record_property)


# ---------------------------------------------------------------------------------------------------- actor-critics
def side_by_side(functions: Any, read: Any) -> dict[str, Tensor]:
    """Their critics under the names of ours, [N, in, out]."""
    members = list(zip(*(linear(function) for function in functions), strict=True))
    weights = {
        f"body.net.weights.{k}": torch.stack([read(one.weight).T for one in layer]) for k, layer in enumerate(members)
    }
    biases = {
        f"body.net.biases.{k}": torch.stack([read(one.bias)[None] for one in layer]) for k, layer in enumerate(members)
    }
    return weights | biases


def two_headed(policy: Any, read: Any) -> dict[str, Tensor]:
    """Their squashed Gaussian under the names of ours, whose last layer has mean and deviation together."""
    trunk, heads = linear(policy._encoder), (policy._mu, policy._logstd)
    last = {
        f"body.net.4.{what}": torch.cat([read(getattr(head, what)) for head in heads]) for what in ("weight", "bias")
    }
    return perceptron(trunk, read) | last


def loaded(spec: Any, weights: dict[str, Tensor]) -> Any:
    """Our module for torques with these weights."""
    module = spec.build(Spec(EYE, TORQUE, 100))
    module.load_state_dict({**module.state_dict(), **weights})
    return module


def apart(functions: Any) -> None:
    """Moves their targets away from what they copy."""
    with torch.no_grad():
        for parameter in functions.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))


def stage_of(recipe: Any, name: str) -> Any:
    return next(stage for stage in recipe.stages if stage.name == name)


def of_model(gradients: Any, model: str) -> dict[str, Tensor]:
    """One model's gradients under its own names."""
    return {name.removeprefix(model + "."): v for name, v in gradients.items() if name.startswith(model + ".")}


def twice(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our critic losses are halves of squares, theirs are squares."""
    return {name: 2 * value for name, value in gradients.items()}


def test_td3_bc_gradients_are_those_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """Without smoothing noise; the scale of Q is theirs, at the actor's own actions."""
    theirs = made_continuous(d3rlpy, "TD3PlusBC", target_smoothing_sigma=0.0, gamma=0.97)
    modules, record = theirs._modules, transitions(torch.rand(ROWS, 3) * 2 - 1)
    apart(modules.targ_q_funcs), apart(modules.targ_policy)
    recipe = small(td3_bc()).set("critic.discount", 0.97).set("critic.noise", 0.0)
    models = {
        "q": loaded(recipe.critics["q"], side_by_side(modules.q_funcs, value_of)),
        "q_target": loaded(recipe.critics["q"], side_by_side(modules.targ_q_funcs, value_of)),
        "actor_target": loaded(recipe.actor, perceptron(linear(modules.targ_policy), value_of)),
    }
    actor = loaded(recipe.actor, perceptron(linear(modules.policy), value_of))
    engine, seen = probes.witness(recipe, actor, models), record.context["observation"][:, 0]
    size = models["q"].first({"observation": seen}, actor.decide({"observation": seen})).abs().mean().detach()
    batch = engine.annotate(record.add({"q_size": size.expand(ROWS, 2)}), recipe.needs)
    critics = of_model(engine.gradient(stage_of(recipe, "critic"), batch), "q")
    policy = of_model(engine.gradient(stage_of(recipe, "actor"), batch), "actor")
    theirs.compute_critic_grad(their_batch(record))
    assert_all_equal("critics x 2", twice(critics), side_by_side(modules.q_funcs, slope_of), record_property)
    theirs.compute_actor_grad(their_batch(record))
    assert_all_equal("actor", policy, perceptron(linear(modules.policy), slope_of), record_property)


class TheirGaussian(torch.nn.Module):
    """Their Gaussian policy behind our interface."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy, self.num_draws = policy, 3

    def score(self, batch: Experience, needs: Any) -> Scored:
        from d3rlpy.models.torch.policies import build_gaussian_distribution

        distribution = build_gaussian_distribution(self.policy(batch.context["observation"].flatten(0, 1)))
        logp = distribution.log_prob(batch.action.flatten(0, 1)).view(batch.mask.shape)
        return Scored(logp * batch.mask)


def test_iql_gradients_are_those_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """Values of both signs of the advantage; the actor is their own Gaussian behind our interface."""
    theirs = made_continuous(d3rlpy, "IQL", value_encoder_factory=True, gamma=0.97, expectile=0.8)
    modules, record = theirs._modules, transitions(torch.rand(ROWS, 3) * 2 - 1)
    apart(modules.targ_q_funcs)
    recipe = small(conservative.iql(CONTINUOUS, level=0.8)).set("q.discount", 0.97)
    value = loaded(recipe.critics["value"], perceptron(linear(modules.value_func), value_of))
    value.body.net[1] = value.body.net[3] = torch.nn.ReLU()
    models = {
        "value": value,
        "q": loaded(recipe.critics["q"], side_by_side(modules.q_funcs, value_of)),
        "q_target": loaded(recipe.critics["q"], side_by_side(modules.targ_q_funcs, value_of)),
    }
    engine = probes.witness(recipe, TheirGaussian(modules.policy), models)
    batch = engine.annotate(record, recipe.needs)
    ours = {name: of_model(engine.gradient(stage_of(recipe, name), batch), name) for name in ("value", "q", "actor")}
    theirs.compute_critic_grad(their_batch(record))
    assert_all_equal("value", ours["value"], perceptron(linear(modules.value_func), slope_of), record_property)
    assert_all_equal("critics x 2", twice(ours["q"]), side_by_side(modules.q_funcs, slope_of), record_property)
    theirs.compute_actor_grad(their_batch(record))
    slopes = {f"policy.{name}": slope_of(one) for name, one in modules.policy.named_parameters()}
    assert_all_equal("actor", ours["actor"], slopes, record_property)


def test_cql_gradients_are_those_of_d3rlpy(d3rlpy: Any, record_property: Record, monkeypatch: Any) -> None:
    """The noise of the proposals is ours, handed to them; their target is at the mode, ours too where draws are 1/2."""
    theirs = made_continuous(
        d3rlpy,
        "CQL",
        gamma=0.97,
        conservative_weight=5.0,
        initial_alpha=1.0,
        alpha_learning_rate=0.0,
        n_action_samples=4,
    )
    modules, record = theirs._modules, transitions(torch.rand(ROWS, 3) * 2 - 1)
    apart(modules.targ_q_funcs)
    recipe = small(conservative.cql(CONTINUOUS, weight=5.0)).set("Conservative.num", 4).set("critic.discount", 0.97)
    models = {
        "q": loaded(recipe.critics["q"], side_by_side(modules.q_funcs, value_of)),
        "q_target": loaded(recipe.critics["q"], side_by_side(modules.targ_q_funcs, value_of)),
        "temperature": recipe.critics["temperature"].build(Spec(EYE, TORQUE, 100)),
    }
    draws = {tag: torch.rand(ROWS, 1, 4, 3) for tag in (4, 5, 6)} | {2: torch.full((ROWS, 1, 3), 0.5)}
    monkeypatch.setattr(StageView, "uniform", lambda view, shape, tag: draws[tag].view(*shape))
    engine = probes.witness(recipe, loaded(recipe.actor, two_headed(modules.policy, value_of)), models)
    ours = of_model(engine.gradient(stage_of(recipe, "critic"), engine.annotate(record, recipe.needs)), "q")
    noise = iter([normal_sample(draws[tag])[:, 0].transpose(0, 1) for tag in (4, 5)])
    normal = torch.distributions.Normal
    monkeypatch.setattr(normal, "rsample", lambda self, shape=(): self.loc + self.scale * next(noise))
    monkeypatch.setattr(Tensor, "uniform_", lambda self, low, high: self.copy_((2 * draws[6] - 1).view(self.shape)))
    theirs._modules.critic_optim.zero_grad()
    loss = theirs.compute_critic_loss(their_batch(record), theirs.compute_target(their_batch(record)))
    (0.5 * (loss.critic_loss - loss.conservative_loss) + loss.conservative_loss).backward()
    assert_all_equal("critics", ours, side_by_side(modules.q_funcs, slope_of), record_property)


def test_cql_gradient_of_choices_is_that_of_d3rlpy(d3rlpy: Any, record_property: Record) -> None:
    """Errors below one, so that their Huber loss is half a square."""
    theirs = made(d3rlpy, "DiscreteCQL", 3, gamma=0.97, alpha=0.7)
    online, target = theirs._modules.q_funcs[0], theirs._modules.targ_q_funcs[0]
    apart(target)
    record = transitions(torch.randint(0, 3, (ROWS,)))
    recipe = conservative.cql(CONTROL, weight=0.7).set("critic.discount", 0.97).set("actor.hidden", (32, 32))
    models = {"target": with_weights(recipe.actor, CHOICE, target)}
    ours = probes.gradient(recipe, record, with_weights(recipe.actor, CHOICE, online), models=models)
    theirs.compute_grad(their_batch(record))
    assert_all_equal("gradient", ours, perceptron(linear(online), slope_of), record_property)


def made_continuous(d3rlpy: Any, kind: str, value_encoder_factory: bool = False, **settings: Any) -> Any:
    """Their actor-critic for three torques, with new weights."""
    encoder = d3rlpy.models.VectorEncoderFactory(WIDTHS)
    encoders = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder}
    encoders |= {"value_encoder_factory": encoder} if value_encoder_factory else {}
    algorithm = getattr(d3rlpy.algos, f"{kind}Config")(**encoders, **settings).create(device=False)
    algorithm.create_impl((SEEN,), 3)
    return algorithm.impl


def small(recipe: Any) -> Any:
    """The recipe with hidden layers of 32."""
    body = Perceptron((32, 32))
    models = {name: replace(one, body=body) if isinstance(one, Critic) else one for name, one in recipe.critics.items()}
    return replace(recipe, actor=replace(recipe.actor, body=body), critics=models)
