"""Streams by hand: the shipped recipes on a short stream against a plain loop. Axes: T decisions, F inputs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, leaky_relu
from torch.nn.utils import parameters_to_vector

from assay.claims import ALONE, About, Average, Claims, Edit, Engine, Exact, Measured, Placement, cartpole, probes
from assay.engine.loop import learn
from assay.method import Adam, Draw, Experience, ObGD, Progress, Recipe, Traced, random
from assay.methods.stream_x.base import DISCOUNT, TRACE, stream_ac, stream_q
from assay.methods.stream_x.losses import FitMoments, TracePolicy, TraceQ, TraceValue
from assay.methods.stream_x.stream import Stream
from assay.models import Critic, Perceptron, Policy
from assay.parts import Fragments


def plain_ac(learning_rate: float = 1e-3) -> Recipe:
    """AC(lambda) on the same stream without the stabilisers: dense networks, raw inputs and rewards, Adam."""
    base, body = stream_ac(), Perceptron((32, 32))
    optimizer = Traced(Adam(learning_rate, clip_norm=0.0), DISCOUNT * TRACE)
    return replace(
        base,
        name="plain-ac",
        actor=Policy(body),
        critics={"value": Critic(body)},
        rollout=Fragments(num_envs=1, steps=1),
        stages=tuple(replace(stage, optimizer=optimizer) for stage in base.stages[1:]),
    )


SPEC, NUM = probes.CHOICE_SPEC, 10


DECIDED = (0, 1, 2, 3, 5, 6, 7, 8, 9)  # columns that are decisions


def stream() -> Experience:
    """Returns eleven columns in a row: 3 is terminal, 4 and the last have no decision, 6 is truncated.

    Some errors are above 1, where only their sign counts, and some below.
    """
    draw, t = torch.Generator().manual_seed(3), torch.arange(NUM + 1).unsqueeze(0)
    seen = 3.0 * torch.randn(1, NUM + 1, 3, generator=draw, dtype=torch.float64) + 5.0
    reward = torch.randn(1, NUM + 1, generator=draw, dtype=torch.float64)
    action = torch.randint(0, 4, (1, NUM + 1), generator=draw)
    return Experience({"observation": seen}, action, (t < NUM) & (t != 4), 0 * reward, reward, t == 3, t == 6)


def learned(recipe: Recipe, seed: int = 0) -> tuple[Engine, Engine]:
    """Returns the recipe's models in float64 before and after learning from the stream."""
    recipe = recipe.at(Progress())
    with random.seeded(seed):
        actor, critics = recipe.actor.build(SPEC), {name: one.build(SPEC) for name, one in recipe.critics.items()}
        both: list[Any] = [actor, *critics.values()]
        for tensor in (p for model in both for p in model.body.inner.parameters()):
            tensor.data.add_(0.1 * torch.randn_like(tensor))
    given = {name: probes.Given(critic.double()) for name, critic in critics.items()}
    recipe = replace(recipe, actor=probes.Given(actor.double()), critics=given)
    before, engine = (Engine(recipe, SPEC, 0, Placement()) for _ in range(2))
    engine.updates = 1  # a run's first update also checks for leaks
    source, scene = recipe.source, ALONE.given(fresh=stream())

    def batches(*given: Any) -> Iterator[Experience]:
        for batch in source(scene, source.init(scene)):
            yield engine.annotate(batch, recipe.needs)

    learn(engine, recipe, Draw(0), batches)
    return before, engine


def network(model: Any, scaled: Tensor) -> Tensor:
    """Returns a model's outputs for scaled inputs: linear, layer norm, leaky ReLU, twice; linear."""
    layers = [layer for layer in model.body.inner.modules() if isinstance(layer, nn.Linear)]
    hidden = scaled
    for layer in layers[:-1]:
        hidden = hidden @ layer.weight.T + layer.bias
        hidden = leaky_relu(layer_norm(hidden, hidden.shape[-1:]), 0.01)
    return hidden @ layers[-1].weight.T + layers[-1].bias


class Trace:
    """The weights of a network, moved along an eligibility trace with bounded steps."""

    def __init__(self, model: Any, kappa: float) -> None:
        self.weights, self.kappa = list(model.body.inner.parameters()), kappa
        self.trace = [torch.zeros_like(weight) for weight in self.weights]

    def step(self, output: Tensor, delta: Tensor, ends: bool, cut: bool = False) -> None:
        """Adds the output's gradient to the trace and moves along delta * trace; an end empties the trace."""
        slopes = torch.autograd.grad(output, self.weights)
        self.trace = [(0.0 if cut else 0.99 * 0.8) * z + slope for z, slope in zip(self.trace, slopes, strict=True)]
        length = sum(float(z.abs().sum()) for z in self.trace)
        rate = min(1.0, 1.0 / (self.kappa * max(abs(float(delta)), 1.0) * length))
        for weight, z in zip(self.weights, self.trace, strict=True):
            weight.data.add_(rate * float(delta) * z)
        self.trace = [0.0 * z for z in self.trace] if ends else self.trace


def seen_at(t: int) -> tuple[Tensor, Tensor, float, float, bool]:
    """Returns s and s' in units of the moments so far, the reward, 1 - terminal, and whether the episode ends."""
    data, raw = stream(), stream().context["observation"][0]
    past = raw[[k + 1 for k in DECIDED if k <= t]]
    deviation = (past.var(0) if len(past) > 1 else torch.ones(3, dtype=torch.float64)).add(1e-8).sqrt()
    now, after = (raw[t] - past.mean(0)) / deviation, (raw[t + 1] - past.mean(0)) / deviation
    terminal, truncated = bool(data.terminal[0, t]), bool(data.truncated[0, t])
    return now, after, float(data.reward[0, t]), float(not terminal), terminal or truncated


def gap(mine: Engine, other: Engine, names: tuple[str, ...]) -> float:
    """Returns the largest difference of the networks' weights."""
    nets = [[engine.model(name).body.inner for name in names] for engine in (mine, other)]
    return probes.distance(*(parameters_to_vector(p for net in one for p in net.parameters()).detach() for one in nets))


def stream_ac_gap() -> float:
    """Returns the difference of stream AC's weights from those of a plain loop."""
    hand, found = learned(stream_ac())
    actor, value = hand.model("actor"), hand.model("value")
    policy, critic = Trace(actor, 3.0), Trace(value, 2.0)
    for t in DECIDED:
        now, after, reward, goes_on, ends = seen_at(t)
        v, log_prob = network(value, now).squeeze(), network(actor, now).log_softmax(-1)
        delta = (reward + 0.99 * goes_on * network(value, after).squeeze() - v).detach()
        entropy = -(log_prob.exp() * log_prob).sum()
        policy.step(log_prob[stream().action[0, t]] + 0.01 * delta.sign() * entropy, delta, ends)
        critic.step(v, delta, ends)
    return gap(hand, found, ("actor", "value"))


def stream_q_gap() -> float:
    """Returns the difference of stream Q's weights from those of a plain loop: exploring decisions cut the trace."""
    hand, found = learned(stream_q())
    actor, trace = hand.model("actor"), Trace(hand.model("actor"), 2.0)
    for t in DECIDED:
        now, after, reward, goes_on, ends = seen_at(t)
        q = network(actor, now)
        taken = q[stream().action[0, t]]
        delta = (reward + 0.99 * goes_on * network(actor, after).max() - taken).detach()
        trace.step(taken, delta, ends, cut=bool(taken < q.max()))
    return gap(hand, found, ("actor",))


def reward_gap() -> float:
    """Returns the largest error of the rewards of 40 steps of CartPole, each 1 before it is scaled."""
    recipe, trace, past, worst, ended = stream_ac(), 0.0, [], 0.0, 0
    for played in probes.gathered(recipe, cartpole(), calls=40)[0]:
        if not bool(played.mask.any()):  # the step after an end has no decision
            continue
        trace = 0.99 * trace + 1.0
        past.append(trace)
        deviation = float(np.sqrt((np.var(past, ddof=1) if len(past) > 1 else 1.0) + 1e-8))
        worst = probes.worst(worst, abs(float(played.reward[played.mask]) - 1.0 / deviation))
        if bool((played.terminal | played.truncated).any()):
            trace, ended = 0.0, ended + 1
    rollout: Any = recipe.rollout
    state = rollout.init(ALONE.given(task=cartpole()))
    nothing = [rollout.scaled(0.0, False, state) for _ in range(3)]
    return worst if ended and nothing == [0.0, 0.0, 0.0] else float("inf")


def dense_weights() -> float:
    """Returns how many units of new networks have more or fewer inputs than a tenth (at least one), weights beyond
    1 / sqrt(inputs) or a bias.
    """
    wrong, signs, new = 0.0, set(), Engine(stream_ac(), SPEC, 0, Placement())
    for model in (new.model("actor"), new.model("value")):
        for layer in (one for one in model.body.inner.modules() if isinstance(one, nn.Linear)):
            num = layer.weight.shape[1]
            wrong += float(((layer.weight != 0).sum(1) != {3: 1, 32: 3}[num]).sum() + (layer.bias != 0).sum())
            wrong += float((layer.weight.abs() > num**-0.5).sum())
            signs |= set(layer.weight.sign().flatten().tolist())
    return wrong + float(signs != {-1.0, 0.0, 1.0})


CLAIMS = Claims(
    mutants=(
        Edit("the first sample counts as spread", FitMoments.__call__, "(1.0 - 1.0 / new) * ", ""),
        Edit("steps without a bound", ObGD.step, "min(number(self.learning_rate), 1.0 / bound)", "1.0"),
        Edit("no traces", Traced.step, "else self.decay", "else 0.0"),
        Edit("traces run over ends of episodes", Traced.step, '"episode_over")[0]', '"episode_over")[0] < 0'),
        Edit("entropy falls where delta is negative", TracePolicy.__call__, "* delta.sign() ", ""),
        Edit("rewards as they are", Stream.__call__, "self.scaled(float(reward[0, t]), bool(over[0, t]), state)",
             "float(reward[0, t])"),
        Edit("the cut is left out", TraceQ.__call__, ", explored)", ")"),
        Edit("truncated decisions do not bootstrap", TraceValue.__call__, "td_error(now,",
             "td_error(now.with_columns(terminal=now.terminal | now.truncated),"),
    ),
    claims=(
        Exact("nine decisions of stream AC change the weights as the formulas do", stream_ac_gap, at_most=1e-9),
        Exact("nine decisions of stream Q change the weights as the formulas do", stream_q_gap, at_most=1e-9),
        Exact("rewards are in units of the deviation of the discounted return", reward_gap, equals=0.0),
        Exact("a tenth of the inputs is connected, biases are zero", dense_weights, equals=0.0),
        Measured("untuned, it earns more from a stream than AC(lambda) with Adam", "cartpole", stream_ac(), plain_ac(),
                 metric=Average("reward", share=0.2), seeds=5, minutes=7.0, steps=10_000, about=About.HEADLINE),
    ),
)
