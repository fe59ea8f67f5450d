"""One update of stable-baselines3 and one of ours: the same weights, the same batch, the same noise.

Theirs is computed by their `collect_rollouts` and `train`; gradients are taken where their optimizers step. Ours is
the engine's. Where defaults differ both sides are set alike here, and docs/peers.md lists what had to be set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims.probes import Witness
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience, Fit, concatenate
from assay.core.spaces import Box, Discrete, Spec
from assay.engine.engine import Engine, StageView
from assay.engine.placement import Placement
from assay.engine.updates import Update
from assay.ops.distributions import normal_sample
from assay.recipes.presets import CONTROL
from tests.peers.gaps import Record, assert_all_equal, assert_equal
from tests.peers.weights import Read, Tensors, linear, named, perceptron, slope_of, value_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SEEN, NUM_STEPS, NUM_ENVS, ROWS, RATE = 5, 24, 3, 96, 1e-3
EPSILON = 1e-3  # Adam's: a small one would make a step of the rounding of gradients that are nearly 0
HIDDEN = {"net_arch": [32, 32], "optimizer_kwargs": {"eps": EPSILON}}
LARGEST_STEP_GAP = 5e-4  # a parameter of size 1 is rounded by 1e-7, a ten-thousandth of one step
EYE = Box((-np.inf,) * SEEN, (np.inf,) * SEEN)
CHOICE, TORQUE = Discrete(3), Box((-1.0, -1.0), (1.0, 1.0))


@pytest.fixture(scope="module")
def sb3() -> Any:
    """The peer; the tests are skipped where it is not installed."""
    return pytest.importorskip("stable_baselines3", minversion="2.7", reason="the extra 'peers' is not installed")


def environment(action: Discrete | Box, seed: int) -> Any:
    """An environment that pays and ends at random, and remembers what it did; of 7 steps one ends, one is cut."""
    import gymnasium

    class Dice(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SEEN,))
        action_space = (
            gymnasium.spaces.Discrete(action.n)
            if isinstance(action, Discrete)
            else gymnasium.spaces.Box(np.float32(action.low), np.float32(action.high))
        )

        def __init__(self) -> None:
            self.draw, self.log = np.random.default_rng(seed), []

        def look(self) -> np.ndarray:
            self.seen = self.draw.standard_normal(SEEN).astype(np.float32)
            return self.seen

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return self.look(), {}

        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            before, reward, dice = self.seen, float(self.draw.normal()), int(self.draw.integers(7))
            self.log.append((before, reward, dice == 0, dice == 1, self.look()))
            return self.seen, reward, dice == 0, dice == 1, {}

    return Dice()


# ---------------------------------------------------------------------------------------------------- weights
def ensemble(critic: Any, read: Read) -> Tensors:
    """Their critics under the names of ours, which stand side by side: [N, in, out]."""
    members = [linear(member) for member in critic.q_networks]
    weights = {
        f"body.net.weights.{k}": torch.stack([read(layer.weight).T for layer in layers])
        for k, layers in enumerate(zip(*members, strict=True))
    }
    biases = {
        f"body.net.biases.{k}": torch.stack([read(layer.bias).unsqueeze(0) for layer in layers])
        for k, layers in enumerate(zip(*members, strict=True))
    }
    return weights | biases


def two_headed(actor: Any, read: Read) -> Tensors:
    """Their squashed Gaussian under the names of ours, whose last layer has mean and deviation together."""
    trunk = linear(actor.latent_pi)
    heads = {
        f"body.net.{2 * len(trunk)}.{what}": torch.cat([read(getattr(one, what)) for one in (actor.mu, actor.log_std)])
        for what in ("weight", "bias")
    }
    return perceptron(trunk, read) | heads


# ---------------------------------------------------------------------------------------------------- our side
class Watched(Witness):
    """An engine that keeps each stage's gradient and applies it."""

    kept: dict[str, Mapping[str, Tensor]]

    def apply(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Keeps, then steps."""
        super().apply(stage, gradients, result, fits)
        copies = {name: slope.clone() for name, slope in self.gradients.items()}  # the step clips in place
        self.kept = {**getattr(self, "kept", {}), stage.name: copies}
        Engine.apply(self, stage, gradients, result, fits)

    def step(self, recipe: Recipe, batch: Experience) -> None:
        """One update as the loop makes it."""
        for stage in recipe.stages:
            if self.updates % stage.every == 0:
                self.update(stage, batch)
        self.follow(recipe.copies)

    def noise(self, batch: Experience, shape: tuple[int, ...], tag: int) -> Tensor:
        """The normal numbers that a term with this tag will see in this update."""
        view = StageView(self.models, batch, frozenset(), self.draw.at(self.updates))
        return normal_sample(view.uniform(shape, tag)).flatten(0, 1)


def engine_of(recipe: Recipe, action: Discrete | Box, weights: Mapping[str, Tensors]) -> Watched:
    """Our engine with their weights in all of its models."""
    engine = Watched(recipe, Spec(EYE, action, 100), 0, Placement())
    assert set(weights) == set(engine.models)
    for name, tensors in weights.items():
        engine.flats[name].restore(tensors)
    return engine


def with_optimizer(recipe: Recipe, optimizer: Adam) -> Recipe:
    """The recipe with one optimizer for all stages."""
    return replace(recipe, stages=tuple(replace(stage, optimizer=optimizer) for stage in recipe.stages))


def assert_steps_equal(
    engine: Watched, start: Mapping[str, Tensors], end: Mapping[str, Tensors], record: Record
) -> None:
    """Every model moved as theirs did; the gap is over the model's largest move."""
    for name, before in start.items():
        now = engine.flats[name].snapshot()
        ours = {key: now[key] - value for key, value in before.items()}
        theirs = {key: end[name][key] - value for key, value in before.items()}
        assert_all_equal(f"step of {name}", ours, theirs, record, LARGEST_STEP_GAP)


# ---------------------------------------------------------------------------------------------------- ppo
def fragment(environments: list[Any], action_TE: np.ndarray, logp_TE: np.ndarray) -> Experience:
    """What the environments remember as our record: a column for each decision, one for each final observation."""
    rows = []
    for place, each in enumerate(environments):
        columns = []
        for time, (seen, reward, ends, cut, after) in enumerate(each.log):
            columns.append((seen, action_TE[time, place], logp_TE[time, place], reward, ends, cut, True))
            if ends or cut or time == len(each.log) - 1:
                columns.append((after, np.zeros_like(action_TE[time, place]), 0.0, 0.0, False, False, False))
        seen, action, logp, reward, ends, cut, mask = (
            torch.as_tensor(np.array(column)).unsqueeze(0) for column in zip(*columns, strict=True)
        )
        rows.append(Experience({"observation": seen}, action, mask, logp.float(), reward.float(), ends, cut))
    return concatenate(rows)


def ppo_layers(policy: Any, read: Read) -> dict[str, Tensors]:
    """Actor and critic of their policy under our names."""
    actor = perceptron(linear(policy.mlp_extractor.policy_net, policy.action_net), read)
    if hasattr(policy, "log_std"):
        actor["log_std"] = read(policy.log_std)
    return {"actor": actor, "value": perceptron(linear(policy.mlp_extractor.value_net, policy.value_net), read)}


OPTIONS = {"PPO": {"batch_size": NUM_STEPS * NUM_ENVS, "n_epochs": 1}, "A2C": {"use_rms_prop": False}}


@pytest.mark.parametrize("action", [CHOICE, TORQUE], ids=["discrete", "continuous"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_on_policy_update_is_that_of_stable_baselines3(
    sb3: Any, kind: str, action: Discrete | Box, record_property: Record
) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv

    environments = [environment(action, seed) for seed in range(NUM_ENVS)]
    theirs = getattr(sb3, kind)(
        "MlpPolicy", DummyVecEnv([lambda each=each: each for each in environments]), learning_rate=RATE,
        n_steps=NUM_STEPS, gamma=0.97, gae_lambda=0.9, ent_coef=0.01, vf_coef=0.5, max_grad_norm=np.inf,
        normalize_advantage=True, device="cpu", seed=0, policy_kwargs=HIDDEN, **OPTIONS[kind],
    )  # fmt: skip
    _, callback = theirs._setup_learn(NUM_STEPS * NUM_ENVS)
    theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, NUM_STEPS)
    buffer = theirs.rollout_buffer
    buffer.log_probs += np.random.default_rng(1).normal(0.0, 0.2, buffer.log_probs.shape).astype(np.float32)
    actions = buffer.actions.astype(np.int64)[..., 0] if action is CHOICE else buffer.actions
    record = fragment(environments, actions, buffer.log_probs)

    recipe = {"PPO": recipes.ppo, "A2C": recipes.a2c}[kind](CONTROL)
    recipe = recipe.set("Gae.discount", 0.97).set("Gae.gae_lambda", 0.9)
    recipe = recipe.set("EntropyBonus.coefficient", 0.01).set("actor.hidden", (32, 32)).set("value.hidden", (32, 32))
    recipe = with_optimizer(recipe, Adam(RATE, epsilon=EPSILON, clip_norm=0.0))
    before = ppo_layers(theirs.policy, value_of)
    engine = engine_of(recipe, action, before)
    batch = engine.annotate(record, recipe.needs)
    batch = recipe.credit[0](batch)

    def in_their_order(column: str) -> Tensor:
        return torch.stack([batch.column(column)[row][batch.mask[row]] for row in range(NUM_ENVS)], 1)

    for ours, name in (("value", "values"), ("advantage", "advantages"), ("return", "returns")):
        assert_equal(ours, in_their_order(ours), torch.from_numpy(getattr(buffer, name)), record_property)
    theirs.train()
    engine.step(recipe, recipe.credit[1](batch))
    slopes = ppo_layers(theirs.policy, slope_of)
    assert_all_equal("gradient of actor", engine.kept["policy"], named("actor", slopes["actor"]), record_property)
    assert_all_equal("gradient of value", engine.kept["value"], named("value", slopes["value"]), record_property)
    assert_steps_equal(engine, before, ppo_layers(theirs.policy, value_of), record_property)
    if kind == "PPO":
        assert 0.05 < theirs.logger.name_to_value["train/clip_fraction"] < 0.95


# ---------------------------------------------------------------------------------------------------- replay
def transitions(theirs: Any, action: Discrete | Box, seed: int, reward_size: float) -> Experience:
    """Random transitions, written into their replay and returned as our record; some end, some are cut."""
    draw = np.random.default_rng(seed)
    seen, after = draw.standard_normal((2, ROWS, SEEN)).astype(np.float32)
    reward = (reward_size * draw.standard_normal(ROWS)).astype(np.float32)
    dice = draw.integers(0, 5, ROWS)
    actions = draw.integers(0, 3, ROWS) if isinstance(action, Discrete) else draw.uniform(-1, 1, (ROWS, 2))
    actions = actions if isinstance(action, Discrete) else actions.astype(np.float32)
    for row in range(ROWS):
        info = {"TimeLimit.truncated": bool(dice[row] == 1)}
        done = np.array([dice[row] < 2])
        theirs.replay_buffer.add(
            seen[row : row + 1], after[row : row + 1], actions[row : row + 1], reward[row : row + 1], done, [info]
        )

    def column(value: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(value)
        return torch.stack((tensor, torch.zeros_like(tensor)), 1)

    first = column(np.ones(ROWS, dtype=bool))
    return Experience(
        {"observation": torch.stack((torch.from_numpy(seen), torch.from_numpy(after)), 1)},
        column(actions), first, torch.zeros(ROWS, 2), column(reward), column(dice == 0), column(dice == 1),
    )  # fmt: skip


def learner(sb3: Any, kind: str, action: Discrete | Box, layers: Mapping[str, Any] = HIDDEN, **settings: Any) -> Any:
    """Their learner, without a log."""
    from stable_baselines3.common.logger import configure

    theirs = getattr(sb3, kind)(
        "MlpPolicy", environment(action, 0), learning_rate=RATE, buffer_size=ROWS, batch_size=ROWS, gamma=0.97,
        device="cpu", seed=0, policy_kwargs=dict(layers), **settings,
    )  # fmt: skip
    theirs.set_logger(configure(None, []))
    return theirs


def replayed(theirs: Any) -> None:
    """Their replay gives all that it holds, the last ROWS transitions, in order."""
    assert theirs.replay_buffer.full
    theirs.replay_buffer.sample = lambda size, env=None: theirs.replay_buffer._get_samples(np.arange(ROWS))


def slopes_at_step(optimizer: torch.optim.Optimizer, read: Callable[[Read], Tensors]) -> list[Tensors]:
    """A list that gets the gradients, under our names, whenever this optimizer steps."""
    found: list[Tensors] = []
    optimizer.register_step_pre_hook(lambda *step: found.append(read(slope_of)))
    return found


# ---------------------------------------------------------------------------------------------------- dqn
def test_dqn_update_is_that_of_stable_baselines3(sb3: Any, record_property: Record) -> None:
    """Where the two networks prefer the same action and no error is above one: then double is plain, Huber a square."""
    theirs = learner(sb3, "DQN", CHOICE, max_grad_norm=0.05)
    with torch.no_grad():
        last = linear(theirs.q_net_target)[-1]
        last.weight.mul_(0.7)
        last.bias.mul_(0.7).add_(0.3)
    record = transitions(theirs, CHOICE, 0, 0.2)
    replayed(theirs)
    nets = {"actor": theirs.q_net, "target": theirs.q_net_target}
    before = {name: perceptron(linear(net), value_of) for name, net in nets.items()}
    recipe = with_optimizer(recipes.dqn().set("critic.discount", 0.97), Adam(RATE, epsilon=EPSILON, clip_norm=0.05))
    recipe = recipe.set("actor.hidden", (32, 32)).set("target.rate", 0.0)
    engine = engine_of(recipe, CHOICE, before)
    batch = engine.annotate(record, recipe.needs)
    theirs.train(1, ROWS)
    engine.step(recipe, batch)
    clipped = perceptron(linear(theirs.q_net), slope_of)
    norm = torch.cat([slope.reshape(-1) for slope in engine.kept["values"].values()]).norm()
    assert norm > 0.05
    ours = {name: slope * 0.05 / norm for name, slope in engine.kept["values"].items()}
    assert_all_equal("gradient, clipped", ours, named("actor", clipped), record_property)
    end = {"actor": perceptron(linear(theirs.q_net), value_of)}
    assert_steps_equal(engine, {"actor": before["actor"]}, end, record_property)


# ---------------------------------------------------------------------------------------------------- td3
def test_td3_updates_are_those_of_stable_baselines3(
    sb3: Any, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Three updates, actor and targets in the first and third. Their critic loss has no half: twice our slope."""
    theirs = learner(sb3, "TD3", TORQUE, tau=0.02)
    theirs._n_updates = 1  # they delay the first actor step, we begin with it

    def nets(read: Read) -> dict[str, Tensors]:
        return {
            "actor": perceptron(linear(theirs.actor.mu), read),
            "actor_target": perceptron(linear(theirs.actor_target.mu), read),
            "q": ensemble(theirs.critic, read),
            "q_target": ensemble(theirs.critic_target, read),
        }

    with torch.no_grad():
        for parameter in (*theirs.actor_target.parameters(), *theirs.critic_target.parameters()):
            parameter.add_(0.05 * torch.randn_like(parameter))
    before = nets(value_of)
    recipe = with_optimizer(recipes.td3().set("critic.discount", 0.97), Adam(RATE, epsilon=EPSILON, clip_norm=0.0))
    recipe = recipe.set("critic.epsilon", EPSILON / 2)  # half their gradient, half their epsilon: the same step
    recipe = recipe.set("actor.hidden", (32, 32)).set("q.hidden", (32, 32))
    recipe = recipe.set("q_target.rate", 0.02).set("actor_target.rate", 0.02)
    engine = engine_of(recipe, TORQUE, before)
    critic = slopes_at_step(theirs.critic.optimizer, lambda read: named("q", ensemble(theirs.critic, read)))
    actor = slopes_at_step(
        theirs.actor.optimizer, lambda read: named("actor", perceptron(linear(theirs.actor.mu), read))
    )
    for number in range(3):
        batch = engine.annotate(transitions(theirs, TORQUE, number, 1.0), recipe.needs)
        replayed(theirs)
        noise = engine.noise(batch, (ROWS, 1, 2), 2)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "normal_", lambda self, mean, std, given=noise: self.copy_(given * std))
            theirs.train(1, ROWS)
        engine.step(recipe, batch)
        ours = {name: 2 * slope for name, slope in engine.kept["critic"].items()}
        assert_all_equal(f"gradient of q, {number}", ours, critic[-1], record_property)
        if number != 1:
            assert_all_equal(f"gradient of actor, {number}", engine.kept["actor"], actor[-1], record_property)
    assert (len(critic), len(actor)) == (3, 2)
    assert_steps_equal(engine, before, nets(value_of), record_property)


# ---------------------------------------------------------------------------------------------------- sac
def test_sac_updates_are_those_of_stable_baselines3(
    sb3: Any, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Two updates of critics, actor, temperature and targets."""
    from torch.distributions import normal

    theirs = learner(sb3, "SAC", TORQUE, tau=0.02, ent_coef="auto_0.5")
    theirs.actor.action_dist.epsilon = 0.0  # they add 1e-6 inside a logarithm, we take the exact one
    for group in theirs.ent_coef_optimizer.param_groups:
        group["eps"] = EPSILON

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
    recipe = with_optimizer(recipes.sac().set("critic.discount", 0.97), Adam(RATE, epsilon=EPSILON, clip_norm=0.0))
    recipe = recipe.set("actor.hidden", (32, 32)).set("q.hidden", (32, 32)).set("q_target.rate", 0.02)
    engine = engine_of(recipe, TORQUE, before)
    critic = slopes_at_step(theirs.critic.optimizer, lambda read: named("q", ensemble(theirs.critic, read)))
    actor = slopes_at_step(theirs.actor.optimizer, lambda read: named("actor", two_headed(theirs.actor, read)))
    heat = slopes_at_step(theirs.ent_coef_optimizer, lambda read: {"log": read(theirs.log_ent_coef).squeeze()})
    for number in range(2):
        batch = engine.annotate(transitions(theirs, TORQUE, number, 1.0), recipe.needs)
        replayed(theirs)
        queue = [engine.noise(batch, (ROWS, 1, 2), tag) for tag in (1, 2)]  # their actor draws first
        with monkeypatch.context() as patch:
            patch.setattr(normal, "_standard_normal", lambda shape, dtype, device, given=queue: given.pop(0))
            theirs.train(1, ROWS)
        engine.step(recipe, batch)
        own = dict(engine.kept["actor"])
        assert_equal(
            f"gradient of temperature, {number}", own.pop("temperature.log_value"), heat[-1]["log"], record_property
        )
        assert_all_equal(f"gradient of q, {number}", engine.kept["critic"], critic[-1], record_property)
        assert_all_equal(f"gradient of actor, {number}", own, actor[-1], record_property)
    assert_steps_equal(engine, before, nets(value_of), record_property)


def test_sac_measures_entropy_in_half_ranges_as_stable_baselines3_does(
    sb3: Any, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Bounds of +-2: actions are twice theirs, log-densities are theirs, so one target entropy is one target."""
    from torch.distributions import normal

    wide = Box((-2.0, -2.0), (2.0, 2.0))
    theirs = learner(sb3, "SAC", wide)
    theirs.actor.action_dist.epsilon = 0.0
    ours: Any = recipes.sac().set("actor.hidden", (32, 32)).actor.build(Spec(EYE, wide, 100))
    ours.load_state_dict({**ours.state_dict(), **two_headed(theirs.actor, value_of)})
    seen = torch.randn(ROWS, SEEN)
    uniform = torch.rand(ROWS, 2)
    with monkeypatch.context() as patch:
        patch.setattr(normal, "_standard_normal", lambda shape, dtype, device: normal_sample(uniform))
        their_action, their_logp = theirs.actor.action_log_prob(seen)
    action, logp = ours.sample({"observation": seen}, uniform)
    assert_equal("action / 2", action / 2, their_action, record_property)
    assert_equal("log-density", logp, their_logp, record_property)
