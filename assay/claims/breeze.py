"""The losses of breeze and its choice of an action by hand, the reward that B implies on a table, mutants.

Axes: K heads, B rows, C candidates, A actions, D = 32 numbers, 5 denoising steps.
"""

from dataclasses import replace
from math import exp
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, built, follows_schedule, probes
from assay.claims import same_report, steps
from assay.claims.measures import FIXED_LENGTH, SEEN, ByHand, backward, forward, waves
from assay.claims.probes import GOAL_BOX, GOAL_CHOICE
from assay.method import CONTINUOUS, AssayError, Recipe, forward_backward
from assay.methods.breeze import CloneBetter, InSample, InSampleActor, TaskReward, TaskValue, implied_reward, recipe
from assay.models import Perceptron
from assay.parts import Play, hashed_uniform

ALPHAS = [exp(-0.1 / 5 - 9.9 * (2 * k - 1) / 50) for k in range(1, 6)]
TOTALS = torch.tensor(ALPHAS).double().cumprod(0)


def noise_of(model: Any, rows: Tensor, k: Tensor, point: Tensor) -> Tensor:
    """Returns eps of the policy's network, for step k of 1, ..., 5."""
    found: Tensor = model.policy.noise.net(torch.cat((rows, steps.times(k.float().unsqueeze(-1) / 5), point), -1))
    return found


def candidates(model: Any, rows: Tensor, noise: Tensor) -> Tensor:
    """Returns actions [B, A] denoised from normal numbers [B, 5, A]."""
    point = noise[:, 0]
    for place, k in enumerate((5, 4, 3, 2, 1)):
        alpha, total = ALPHAS[k - 1], float(TOTALS[k - 1])
        eps = noise_of(model, rows, torch.full((len(rows),), k), point)
        point = ((point - (1 - alpha) / (1 - total) ** 0.5 * eps) / alpha**0.5).clamp(-1.0, 1.0)
        point = point + (1 - alpha) ** 0.5 * noise[:, place + 1] if k > 1 else point
    return steps.CENTRE + steps.HALF * point


@torch.no_grad()
def best(model: Any, seen: Tensor, z: Tensor, uniform: Tensor) -> Tensor:
    """Returns the candidate of each row [B, A] with the largest lower value, of uniform numbers [B, C, 10]."""
    rows, found = torch.cat((waves(seen, *SEEN), z), -1), []
    for numbers in uniform.unbind(1):
        action = candidates(model, rows, steps.normal(numbers).view(len(rows), 5, 2))
        found.append((action, (forward(model, seen, z, action) * z).sum(-1).amin(0)))
    place = torch.stack([value for _, value in found]).argmax(0)
    return torch.stack([action for action, _ in found])[place, torch.arange(len(rows))]


def implied(hand: ByHand) -> Tensor:
    """Returns the reward of each row that B implies; C is inverted, not solved with."""
    back = backward(hand.model, hand.arrived)
    own = back[hand.here]
    moment = own.T @ own / len(own)
    inverse = torch.linalg.inv(moment + 1e-4 * torch.eye(32).double())
    return torch.einsum("bd,de,be->b", back, inverse, hand.z)


def reported(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the means of V, of the implied reward, and of the measure of other rows' next states."""
    hand = ByHand(seen, is_discrete=False)
    found = forward(hand.model, hand.now, hand.z, hand.action)[:, hand.here].mean(0)
    measure = found @ backward(hand.model, hand.arrived)[hand.here].T
    mass = (measure.sum() - measure.trace()) / (len(measure) - 1) / len(measure)
    value = hand.model.value(torch.cat((waves(hand.now, *SEEN), hand.z), -1)).squeeze(-1)
    return {"task_value": value[hand.here].mean(), "implied_reward": implied(hand)[hand.here].mean(), "mass": mass}


def losses_by_hand(seen: probes.Seen, level: float = 0.99, weight: float = 1e-3) -> dict[str, Tensor]:
    """Returns the losses of the three stages."""
    hand, data = ByHand(seen, is_discrete=False), seen.experience
    model, z, mean = hand.model, hand.z, steps.step_of(replace_context(seen)).mean
    now, after = (torch.cat((waves(one, *SEEN), z), -1) for one in (hand.now, hand.after))
    value, ahead = model.value(now).squeeze(-1), model.value(after).squeeze(-1).detach()
    worth = (forward(model, hand.now, z, hand.action) * z).sum(-1)
    gap = worth.amin(0).detach() - value
    goal = implied(hand) + 0.9 * (1.0 - data.terminal[:, 0].double()) * ahead
    tied = weight * ((worth[0] - goal).square() + (worth[1] - goal).square()) / 2
    uniform = seen.uniform(1, 3, tag=6)[:, 0]
    k = 5 - (5 * uniform[:, 0]).long()
    noise, total = steps.normal(uniform[:, 1:]), TOTALS[k - 1].unsqueeze(-1)
    point = total.sqrt() * steps.in_half_ranges(hand.action) + (1 - total).sqrt() * noise
    misfit = (noise_of(model, now, k, point) - noise).square().sum(-1)
    return {
        "value": mean(steps.expectile(gap, level)),
        "measure": hand.pairs(best(model, hand.after, z, seen.uniform(1, 20, tag=5)[:, 0].view(-1, 2, 10)))
        + mean(tied),
        "policy": mean((0.05 * (worth.amin(0) - value)).exp().clamp(max=100.0).detach() * misfit),
    }


def replace_context(seen: probes.Seen) -> probes.Seen:
    """Returns what is seen with observations alone."""
    data = seen.experience
    return replace(seen, experience=replace(data, context={"observation": data.context["observation"]}))


def gradient_gap(made: Recipe, weight: float = 1e-3, scale: float = 1.0) -> float:
    """Returns the gap of the gradients to the formulas'; `scale` multiplies the last layer of V, so that weights reach
    their limit.
    """
    def formula(seen: probes.Seen) -> dict[str, Tensor]:
        with torch.no_grad():
            for parameter in list(seen.models["actor"].value.parameters())[-2:]:
                parameter.mul_(scale)
        return losses_by_hand(seen, weight=weight)

    return probes.formula_gap(made, probes.goal_transitions(GOAL_BOX, num=64), formula, GOAL_BOX)


@torch.no_grad()
def choice_gap() -> Tensor:
    """Returns the largest gap of acting for B(goal), of acting for a given z, and for several decisions of a row."""
    model: Any = built(recipe(), GOAL_BOX).models["actor"]
    data = probes.goal_transitions(GOAL_BOX)
    context = {name: column[:, 0] for name, column in data.context.items()}
    z, gaps = backward(model, context["goal"]), []
    for own, task in ((model, z), (model.solving(z[0]), z[:1].expand_as(z))):
        uniform = hashed_uniform({"observation": context["observation"]}, 320).view(-1, 32, 10)
        for given in (None, uniform[:, 0]):
            gaps.append(own.act(context, given)[0] - best(model, context["observation"], task, uniform))
    both = model.decide(data.context, backward(model, data.context["goal"]))
    gaps.append(both[:, 0] - model.act(context, None)[0])
    rows = torch.cat((waves(context["observation"], *SEEN), z), -1)
    quiet = candidates(model, rows, torch.zeros(64, 5, 2, dtype=torch.float64))
    away = (data.action[:, 0] - quiet) / steps.HALF
    gaps.append(model.score(data, frozenset()).logp[:, 0] + 0.5 * away.square().sum(-1) * data.mask[:, 0])
    return torch.stack([gap.abs().max() for gap in gaps]).max()


def table_gap(rows: int) -> float:
    """Returns how far implied rewards are from those of which z is E[r B], in five states with random features, each
    seen as often, once as a set of the same rows and others that do not count.
    """
    draw = torch.Generator().manual_seed(2)
    features, reward = (torch.randn(shape, generator=draw).double() for shape in ((5, 5), (5,)))
    z = (reward.unsqueeze(1) * features).mean(0)
    back = torch.cat((features, 3.0 * features[:rows]))
    weight = (torch.arange(len(back)) < 5).double()
    found = implied_reward(back, z.expand(len(back), 5), weight)
    return float((found[:5] - reward).abs().max())


def is_refused() -> float:
    """Returns how many of two are refused: discrete actions, no candidate."""
    heads = ((InSampleActor(), GOAL_CHOICE), (InSampleActor(candidates=(2, 0)), GOAL_BOX))
    found = 0.0
    for head, spec in heads:
        try:
            head.on(Perceptron((8,)), spec)
        except AssayError:
            found += 1.0
    return found


POOR = Play(episodes=10, noise=0.1)
"""A fifth of the usual episodes, of an expert that hardly explores."""

CLAIMS = Claims(
    equivalent=FIXED_LENGTH,
    claims=(
        Exact("its gradients are those of the formulas", lambda: gradient_gap(recipe()), at_most=1e-5),
        Exact("they are where the implied reward counts as much as the measure and some weights are at their limit",
              lambda: gradient_gap(recipe(weight=1.0), 1.0, 60.0), at_most=1e-5),
        same_report(recipe, reported, lambda: probes.goal_transitions(GOAL_BOX), GOAL_BOX),
        Exact("it acts by the best of 32 candidates, for z = B(goal) or a given z", choice_gap, at_most=1e-6),
        Exact("where B is a basis of the states the implied reward is the one whose z it is", lambda: table_gap(3),
              at_most=0.05, illustrates=True),
        Exact("without its weight the stage of F and B has the gradient of FB with best candidates in its targets",
              lambda: gradient_gap(recipe(weight=0.0), 0.0), at_most=1e-5, illustrates=True),
        follows_schedule("the target follows at rate 0.05", recipe, {"actor": 1}, {"target": ("actor", 0.05, 1)},
                         data=lambda: probes.goal_transitions(GOAL_BOX, dtype=torch.float32), spec=GOAL_BOX,
                         of="target networks"),
        Exact("discrete actions and no candidates are refused", is_refused, equals=2.0, of="refusals"),
        Measured("from poor data it reaches more held-out goals than FB", "pointmaze-umaze", recipe(log=POOR),
                 forward_backward(CONTINUOUS, (), POOR), seeds=5, minutes=20, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("V is of the higher value", TaskValue.__call__, "worth(rows).amin(0)", "worth(rows).amax(0)"),
        Edit("V trains F", TaskValue.__call__, "worth(rows).amin(0).detach()", "worth(rows).amin(0)"),
        Edit("a low expectile", TaskValue.__call__, "gap < 0, 1.0 - self.level, self.level",
             "gap < 0, self.level, 1.0 - self.level"),
        Edit("the implied reward is not trained", TaskReward.__call__, "implied_reward(rows.back,",
             "implied_reward(rows.back.detach(),"),
        Edit("the reward without the inverse of C", implied_reward, "torch.linalg.solve(", "torch.matmul("),
        Edit("V is trained as F is", TaskReward.__call__, "rows.z).detach()", "rows.z)"),
        Edit("the first candidate", InSample.decide, "values.argmax(-1)", "0 * values.argmax(-1)"),
        Edit("the better head judges", InSample.decide, ".sum(-1).amin(0)", ".sum(-1).amax(0)"),
        Edit("clones what was worse", CloneBetter.__call__, "exponential_weight(gain", "exponential_weight(-gain"),
    ),
)
