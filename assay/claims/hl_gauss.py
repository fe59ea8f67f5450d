"""Losses over bins by hand, and how well a critic tracks moving targets. Axes: M bins."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Computed, Edit, Exact, Expect, Measured, catalogue, pendulum, probes
from assay.claims import steps, with_statistics
from assay.method import CONTINUOUS, CONTROL, TABLE, AssayError, Box, Context, Experience, ModelSpec, Recipe, Spec, Task
from assay.method import random, reach_of, recipes
from assay.methods.hl_gauss import BinsOfData, CrossEntropy, HlGauss, classified_cql, cross_entropy, recipe
from assay.models import Bins, Critic, Value

NUM_INPUTS, SIZE, BATCH, PHASES, STEPS = 512, 16, 64, 5, 300


OFFSET, RATE = 8.0, 3e-3


SPEC = Spec(Box((-9.0,) * SIZE, (9.0,) * SIZE), Box((-1.0,), (1.0,)), horizon=1)


def loud(spec: Spec, scale: float) -> Experience:
    """Returns transitions with rewards so large that some targets lie beyond the bins."""
    data = probes.transitions(spec, num=64)
    return replace(data, reward=scale * data.reward)


def loud_sequences() -> Experience:
    """Returns sequences with rewards so large that some returns lie beyond the bins."""
    data = probes.sequences()
    return replace(data, reward=60.0 * data.reward)


def ranged(recipe: Recipe, reach: float) -> Recipe:
    """Returns the recipe with bins between -reach and reach, as `--set` would."""
    return recipe.set("bins.low", -reach).set("bins.high", reach)


def reach_found(method: str, task: Task) -> float:
    """Returns the end of the bins that a plan of the method finds for a task."""
    recipe = with_statistics(catalogue.recipe_for(method, task, {}).at_task(task), task, 0)
    model: Any = recipe.critics.get("q") or recipe.critics.get("value") or recipe.actor
    return float(model.head.bins.high) if model.head.bins.low == -model.head.bins.high else math.nan


def range_gap() -> float:
    """Returns the largest gap of ranges to those by hand: a reward of 1 for each of 500 decisions, one of 1 for
    arriving, and answers that are right or wrong.
    """
    steady = 1.25 * (1.0 - 0.99**500) / (1.0 - 0.99)
    told = {"cartpole": steady, "pointmaze-medium": 1.25, "addition-1": 1.5}
    return probes.worst(*(abs(reach_found("hl-gauss", catalogue.find_task(name)) - at) for name, at in told.items()))


def is_refused_unpaid() -> float:
    """Returns 1 if a task that pays uniform actions nothing is refused by a sentence with the setting to give."""
    try:
        reach_of(catalogue.find_task("peg"), 0.99)
    except AssayError as error:
        return float("--set bins.low" in str(error))
    return 0.0


def data_gap() -> float:
    """Returns the relative gap of the range of the pendulum's data to 1.25 times their largest |discounted return|."""
    columns, largest = CONTINUOUS.offline.log.columns(pendulum()), 0.0
    for episode in columns["reward"][:, 0].double().view(-1, 200):
        for start in range(200):
            left = episode[start:]
            largest = max(largest, abs(float((0.99 ** torch.arange(len(left)).double() * left).sum())))
    return abs(reach_found("hl-gauss:offline", pendulum()) / largest - 1.25)


def cross_entropy_by_hand(logits: Tensor, target: Tensor, reach: float) -> Tensor:
    """Returns -sum_i p_i log softmax(logits)_i: p_i the share of N(target, (0.75 widths)^2), cut to the range, in
    bin i.
    """
    num = logits.shape[-1]
    edge = torch.linspace(-reach, reach, num + 1, dtype=torch.float64)
    inside = target.clamp(-reach, reach).unsqueeze(-1)
    below = 0.5 * (1.0 + torch.erf((edge - inside) / (0.75 * 2.0 * reach / num * math.sqrt(2.0))))
    share = below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
    return -(share * (logits - logits.logsumexp(-1, keepdim=True))).sum(-1)


def dqn_by_hand(seen: probes.Seen) -> Tensor:
    """Returns double DQN's loss over 101 bins between -110 and 110."""
    step, out, row = steps.step_of(seen), steps.output, torch.arange(len(seen.experience))
    best = steps.decoded(out(seen.models["actor"], step.after), -110.0, 110.0).argmax(-1)
    target = step.target(0.99, steps.decoded(out(seen.models["target"], step.after)[row, best], -110.0, 110.0))
    return step.mean(cross_entropy_by_hand(out(seen.models["actor"], step.now)[row, step.action], target, 110.0))


def cql_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the loss of double DQN over bins with CQL's penalty, of weight 0.1, on the decoded values."""
    step, row = steps.step_of(seen), torch.arange(len(seen.experience))
    value = steps.decoded(steps.output(seen.models["actor"], step.now), -110.0, 110.0)
    return dqn_by_hand(seen) + 0.1 * step.mean(value.logsumexp(-1) - value[row, step.action])


def sac_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns SAC's losses with critics over 201 bins between -1800 and 1800."""
    step, models = steps.step_of(seen), seen.models

    def q(name: str, observation: Tensor, action: Tensor) -> Tensor:
        return steps.decoded(steps.output(models[name], observation, action), -1800.0, 1800.0)

    action, logp = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    soft = q("q_target", step.after, action).amin(0) - models["temperature"].log_value.exp() * logp
    logits = steps.output(models["q"], step.now, step.action)
    critic = step.mean(cross_entropy_by_hand(logits, step.target(0.99, soft), 1800.0))
    return {"critic": critic, "actor": steps.sac_actor(seen, lambda s, a: q("q", s, a).amin(0))}


def ppo_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns PPO's critic loss over 101 bins between -110 and 110."""
    logits = seen.models["value"].body.table[seen.experience.context["state"]]
    target = steps.gae_return(seen.experience, steps.decoded(logits, -110.0, 110.0), 0.99, 0.95)
    mask = seen.experience.mask
    return {"value": (cross_entropy_by_hand(logits, target, 110.0) * mask).sum() / mask.sum()}


def tracking_error(
    critic: ModelSpec, loss: Callable[[Any, Context, Tensor], Tensor], seed: int, noise: float, steps: int
) -> float:
    """Returns the mean squared error to the clean target, at the ends of phases 2 to 5, of a critic V trained by
    Adam.

        target = sin(18 f(x)) + 8 * phase + noise * normal,   f a fixed random network; clean ones lie in [-1, 33]

    `loss(model, context, target)` returns each row's loss. Takes a few seconds.
    """
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(NUM_INPUTS, SIZE, generator=source)
    inner = torch.randn(SIZE, 2 * SIZE, generator=source) / SIZE**0.5
    outer = torch.randn(2 * SIZE, generator=source) / (2 * SIZE) ** 0.5
    clean = (18.0 * (inputs @ inner).tanh() @ outer).sin()
    with random.seeded(seed):
        model = critic.build(SPEC)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    errors = []
    for phase in range(PHASES):
        for _ in range(steps):
            rows = torch.randint(NUM_INPUTS, (BATCH,), generator=source)
            target = clean[rows] + OFFSET * phase + noise * torch.randn(BATCH, generator=source)
            optimizer.zero_grad()
            loss(model, {"observation": inputs[rows]}, target).mean().backward()
            optimizer.step()
        with torch.no_grad():
            errors.append(float((model({"observation": inputs}) - clean - OFFSET * phase).square().mean()))
    return sum(errors[1:]) / (PHASES - 1)


BINS = Bins(-4.0, 36.0, num=101)


CRITIC = Critic(head=Value(BINS))


def classified(seed: int, noise: float, steps: int = STEPS) -> float:
    def loss(critic: Any, context: Context, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(critic.outputs(context), target, BINS, HlGauss())

    return tracking_error(CRITIC, loss, seed, noise, steps)


def regressed(seed: int, noise: float, steps: int = STEPS) -> float:
    return tracking_error(Critic(), lambda critic, x, y: 0.5 * (critic(x) - y).square(), seed, noise, steps)


def tracking(error: Callable[..., float], noise: float = 0.0) -> Computed:
    """Returns the side of `classified` or `regressed` with this noise."""
    return Computed(partial(error, noise=noise), small=partial(error, noise=noise, steps=10))


CLAIMS = Claims(
    mutants=(
        Edit("two-hot labels", CrossEntropy.__call__, "self.label)", "TwoHot())"),
        Edit("labels half as wide", CrossEntropy.__call__, "self.label)", "HlGauss(0.375))"),
        Edit("a rare reward counts as if it were paid for every decision", reach_of, "quantile(0.95)", "max()"),
        Edit("a reward of every decision counts once", reach_of, "length * usual", "usual"),
        Edit("the range of undiscounted returns of the data", BinsOfData.of_rewards, "self.discount)", "1.0)"),
    ),
    claims=(
        Exact("with dqn its gradient is that of the formula", lambda: probes.formula_gap(
              ranged(recipe(CONTROL), 110.0), loud(probes.CHOICE_SPEC, 100.0), dqn_by_hand, probes.CHOICE_SPEC),
              at_most=1e-9),
        Exact("with sac its gradients are those of the formulas", lambda: probes.formula_gap(
              ranged(recipe(CONTINUOUS), 1800.0), loud(probes.BOX_SPEC, 1500.0), sac_by_hand, probes.BOX_SPEC),
              at_most=1e-6, of="continuous-control"),
        Exact("with ppo its critic's gradient is that of the formula", lambda: probes.formula_gap(
              ranged(recipe(TABLE), 110.0), loud_sequences(), ppo_by_hand), at_most=1e-9, of="table"),
        Exact("with CQL its gradient is that of the formula", lambda: probes.formula_gap(
              ranged(classified_cql(CONTROL), 110.0), loud(probes.CHOICE_SPEC, 100.0), cql_by_hand, probes.CHOICE_SPEC),
              at_most=1e-9, of="offline"),
        Exact("bins reach as far as a steady reward, a rare one and answers can", range_gap, at_most=1e-3, of="range"),
        Exact("bins reach a quarter beyond the largest discounted return of the data", data_gap, at_most=1e-4,
              of="offline"),
        Exact("a task that pays uniform actions nothing is refused with the setting", is_refused_unpaid, equals=1.0,
              of="refusals"),
        Measured("it follows moving targets better than regression", "", tracking(classified), tracking(regressed),
                 expect=Expect.BELOW, seeds=5, minutes=1.0, about=About.MECHANISM),
        Measured("it follows noisy moving targets better than regression", "", tracking(classified, 2.0),
                 tracking(regressed, 2.0), expect=Expect.BELOW, seeds=5, minutes=4.0, looks=4, about=About.MECHANISM),
        Measured("where every move changes the return it scores higher than dqn over the run", "hazards",
                 recipe(CONTROL), recipes.dqn(), metric=Average("evaluation"), seeds=5, minutes=20.0, steps=60,
                 looks=4, about=About.HEADLINE),
        Measured("it scores higher than dqn", "cartpole", recipe(CONTROL), recipes.dqn(), seeds=5, minutes=5.0,
                 about=About.HEADLINE),
    ),
)
