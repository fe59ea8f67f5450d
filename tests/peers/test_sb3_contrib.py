"""One update of sb3-contrib and one of ours: the same weights, the same batch, the same noise.

Theirs is computed by their `train`, ours by the engine; docs/peers.md lists what had to be set.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.optimizers import Adam
from assay.core.recipe import Recipe
from assay.methods import crossq, qr_dqn, tqc
from tests.peers.gaps import Record, assert_all_equal, assert_equal
from tests.peers.test_sb3 import (
    CHOICE,
    EPSILON,
    HIDDEN,
    RATE,
    ROWS,
    TORQUE,
    Watched,
    assert_steps_equal,
    engine_of,
    ensemble,
    learner,
    replayed,
    slopes_at_step,
    transitions,
    two_headed,
    with_optimizer,
)
from tests.peers.weights import Read, Tensors, linear, named, perceptron, value_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

NUM_QUANTILES, NUM_CRITICS = 8, 3


@pytest.fixture(scope="module")
def contrib() -> Any:
    """The peer; the tests are skipped where it is not installed."""
    pytest.importorskip("stable_baselines3", minversion="2.7", reason="the extra 'peers' is not installed")
    return pytest.importorskip("sb3_contrib", minversion="2.7", reason="sb3-contrib is not installed")


def small(recipe: Recipe) -> Recipe:
    """The recipe with their settings."""
    recipe = with_optimizer(recipe, Adam(RATE, epsilon=EPSILON, clip_norm=0.0))
    return recipe.set("critic.discount", 0.97).set("actor.hidden", (32, 32)).set("q.hidden", (32, 32))


# ---------------------------------------------------------------------------------------------------- qr-dqn
def by_action(net: Any, read: Read) -> Tensors:
    """Their network under our names: their outputs are quantile by quantile, ours action by action."""
    layers = perceptron(linear(net), read)
    last = 2 * (len(linear(net)) - 1)
    for name in (f"body.net.{last}.weight", f"body.net.{last}.bias"):
        layers[name] = layers[name].unflatten(0, (NUM_QUANTILES, CHOICE.n)).transpose(0, 1).flatten(0, 1)
    return layers


def test_qr_dqn_update_is_that_of_sb3_contrib(contrib: Any, record_property: Record) -> None:
    # The optimizer is named: without a name they take an epsilon of their own.
    layers = {**HIDDEN, "n_quantiles": NUM_QUANTILES, "optimizer_class": torch.optim.Adam}
    theirs = learner(contrib, "QRDQN", CHOICE, layers)
    with torch.no_grad():
        for parameter in theirs.quantile_net_target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    record = transitions(theirs, CHOICE, 0, 1.0)
    replayed(theirs)
    nets = {"actor": theirs.quantile_net, "target": theirs.quantile_net_target}
    before = {name: by_action(net, value_of) for name, net in nets.items()}
    recipe = with_optimizer(qr_dqn.recipe(num=NUM_QUANTILES), Adam(RATE, epsilon=EPSILON, clip_norm=0.0))
    recipe = recipe.set("critic.discount", 0.97).set("actor.hidden", (32, 32)).set("target.rate", 0.0)
    engine = engine_of(recipe, CHOICE, before)
    batch = engine.annotate(record, recipe.needs)
    slopes = slopes_at_step(theirs.policy.optimizer, lambda read: named("actor", by_action(theirs.quantile_net, read)))
    theirs.train(1, ROWS)
    engine.step(recipe, batch)
    assert_all_equal("gradient", engine.kept["values"], slopes[0], record_property)
    end = {"actor": by_action(theirs.quantile_net, value_of)}
    assert_steps_equal(engine, {"actor": before["actor"]}, end, record_property)


# ---------------------------------------------------------------------------------------------------- tqc, crossq
def stepped(
    theirs: Any, engine: Watched, recipe: Recipe, number: int, patch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    """One update of both on the same transitions and with our noise, in the `order` in which their actor draws it."""
    from torch.distributions import normal

    batch = engine.annotate(transitions(theirs, TORQUE, number, 1.0), recipe.needs)
    replayed(theirs)
    queue = [engine.noise(batch, (ROWS, 1, 2), tag) for tag in order]
    with patch.context() as inside:
        inside.setattr(normal, "_standard_normal", lambda shape, dtype, device, given=queue: given.pop(0))
        theirs.train(1, ROWS)
    assert not queue
    engine.step(recipe, batch)


def exact(theirs: Any) -> None:
    """Their entropy without the 1e-6 that they add inside a logarithm; one epsilon for all optimizers."""
    theirs.actor.action_dist.epsilon = 0.0
    for group in theirs.ent_coef_optimizer.param_groups:
        group["eps"] = EPSILON


def test_tqc_updates_are_those_of_sb3_contrib(
    contrib: Any, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Two updates. Their critic loss is the mean over critics, ours the sum."""
    layers = {**HIDDEN, "n_critics": NUM_CRITICS, "n_quantiles": NUM_QUANTILES}
    theirs = learner(contrib, "TQC", TORQUE, layers, tau=0.02, ent_coef="auto_0.5", top_quantiles_to_drop_per_net=2)
    exact(theirs)

    def nets(read: Read) -> dict[str, Tensors]:
        return {
            "actor": two_headed(theirs.actor, read),
            "temperature": {"log_value": read(theirs.log_ent_coef).squeeze()},
            "q": ensemble(theirs.critic, read),
            "q_target": ensemble(theirs.critic_target, read),
        }

    with torch.no_grad():
        for parameter in theirs.critic_target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    before = nets(value_of)
    recipe = small(tqc.recipe(critics=NUM_CRITICS, num=NUM_QUANTILES)).set("q_target.rate", 0.02)
    recipe = recipe.set("critic.epsilon", NUM_CRITICS * EPSILON)  # so many times their gradient and epsilon: one step
    engine = engine_of(recipe, TORQUE, before)
    critic = slopes_at_step(theirs.critic.optimizer, lambda read: named("q", ensemble(theirs.critic, read)))
    actor = slopes_at_step(theirs.actor.optimizer, lambda read: named("actor", two_headed(theirs.actor, read)))
    for number in range(2):
        stepped(theirs, engine, recipe, number, monkeypatch, (1, 2))
        own = dict(engine.kept["actor"])
        own.pop("temperature.log_value")
        ours = {name: slope / NUM_CRITICS for name, slope in engine.kept["critic"].items()}
        assert_all_equal(f"gradient of q, {number}", ours, critic[-1], record_property)
        assert_all_equal(f"gradient of actor, {number}", own, actor[-1], record_property)
    assert_steps_equal(engine, before, nets(value_of), record_property)


def normed(critic: Any, read: Read) -> Tensors:
    """Their critics under the names of ours, scales and shifts of batch normalisation too."""
    found = {name.replace("body.net", "body.linear"): value for name, value in ensemble(critic, read).items()}
    layers = [[layer for layer in net if hasattr(layer, "ra_mean")] for net in critic.q_networks]
    for place, members in enumerate(zip(*layers, strict=True)):
        found[f"body.norms.{place}.scale"] = torch.stack([read(layer.scale).unsqueeze(0) for layer in members])
        found[f"body.norms.{place}.shift"] = torch.stack([read(layer.bias).unsqueeze(0) for layer in members])
    return found


def statistics(critic: Any) -> Tensors:
    """Their running means and variances."""
    found = {}
    layers = [[layer for layer in net if hasattr(layer, "ra_mean")] for net in critic.q_networks]
    for place, members in enumerate(zip(*layers, strict=True)):
        found[f"{place}.mean"] = torch.stack([layer.ra_mean.clone().unsqueeze(0) for layer in members])
        found[f"{place}.variance"] = torch.stack([layer.ra_var.clone().unsqueeze(0) for layer in members])
    return found


def kept(found: Tensors) -> dict[str, dict[str, Tensor]]:
    """Statistics as the state of our model."""
    places = sorted({name.split(".")[0] for name in found})
    return {f"body.norms.{one}": {key: found[f"{one}.{key}"] for key in ("mean", "variance")} for one in places}


def test_crossq_updates_are_those_of_sb3_contrib(
    contrib: Any, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Four updates, of which the first and the last move the actor. Theirs divides variances by R - 1, as the authors'
    does not, and normalises in the actor too: here it does neither.
    """
    from sb3_contrib.common.torch_layers import BatchRenorm1d

    layers = {"net_arch": [32, 32], "optimizer_kwargs": {"eps": EPSILON, "betas": (0.9, 0.999)}}
    theirs = learner(contrib, "CrossQ", TORQUE, layers, ent_coef="auto_0.5")
    exact(theirs)
    theirs._n_updates = -1  # their actor moves at every third, we begin with it
    theirs.actor.latent_pi = nn.Sequential(
        *(layer for layer in theirs.actor.latent_pi if not isinstance(layer, BatchRenorm1d))
    )
    variance = torch.Tensor.var
    monkeypatch.setattr(torch.Tensor, "var", lambda self, dim: variance(self, dim, correction=0))
    with torch.no_grad():
        for layer in (one for one in theirs.critic.modules() if isinstance(one, BatchRenorm1d)):
            layer.scale.uniform_(0.5, 1.5)
            layer.bias.uniform_(-0.5, 0.5)
            layer.ra_mean.uniform_(-0.5, 0.5)
            layer.ra_var.uniform_(0.5, 2.0)

    def nets(read: Read) -> dict[str, Tensors]:
        return {
            "actor": two_headed(theirs.actor, read),
            "temperature": {"log_value": read(theirs.log_ent_coef).squeeze()},
            "q": normed(theirs.critic, read),
        }

    before = nets(value_of)
    recipe = small(crossq.recipe(width=32).set("actor.hidden", (32, 32)))
    engine = engine_of(recipe, TORQUE, {**before, "q": {**before["q"], **kept(statistics(theirs.critic))}})
    critic = slopes_at_step(theirs.critic.optimizer, lambda read: named("q", normed(theirs.critic, read)))
    actor = slopes_at_step(theirs.actor.optimizer, lambda read: named("actor", two_headed(theirs.actor, read)))
    for number in range(4):
        stepped(theirs, engine, recipe, number, monkeypatch, (2,) if number % 3 else (2, 1))
        assert_all_equal(f"gradient of q, {number}", engine.kept["critic"], critic[-1], record_property)
        if number % 3 == 0:
            own = dict(engine.kept["actor"])
            own.pop("temperature.log_value")
            assert_all_equal(f"gradient of actor, {number}", own, actor[-1], record_property)
    assert (len(critic), len(actor)) == (4, 2)
    assert_steps_equal(engine, before, nets(value_of), record_property)
    found = engine.flats["q"].snapshot()
    for name, expected in statistics(theirs.critic).items():
        place, key = name.split(".")
        assert_equal(f"statistics, {name}", found[f"body.norms.{place}"][key], expected, record_property)
