"""breeze: forward-backward representations whose values and policies stay with recorded actions.

    V(s, z):  |level - 1(u < 0)| u^2,   u = min_k F_k(s, a, z) . z - V(s, z)
    F and B:  FB's loss + weight * mean_k (F_k(s, a, z) . z - r_z - discount V(s', z))^2
              r_z = B(s') . C^-1 z,  C = mean over the batch of B B^T;   pi_z in FB's targets: see below
    policy:   min(exp(beta (min_k F_k . z - V)), 100) * |eps(n, a_n | s, z) - noise|^2
    pi_z(s):  of several denoised actions the one with the largest min_k F_k . z

Zheng et al. 2025. FB asks F about actions that no row of the data has, for every task z at once. Here z's own reward,
which B implies, ties F . z to values of recorded actions, and the policy is a clone of those that were better than V.

Axes: K heads, R decisions of the batch, N rows, C candidates, A actions, D numbers.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, AssayError, Ask, Box, Context, CriticLoss, Experience, Loss, Method, Objective
from assay.method import Need, Preset, Recipe, Scored, Space, Spec, Stage, View, forward_backward, model_name
from assay.models import Diffusion, ForwardBackward, ForwardBackwardActor, Policy, Vectors, Waves, scored_distance
from assay.parts import MeasuredRows, OfPairs, OverTransitions, Play, exponential_weight, hashed_uniform

RIDGE = 1e-4
"""Added to the diagonal of C, whose mean is 1 as |B|^2 is D: the rank of a batch's B may be less than D."""


class InSample(ForwardBackward):
    """F, B and V, and a diffusion policy of which the best candidate by F . z acts; for continuous actions."""

    def __init__(
        self, body: Vectors, action: Box, seen: Waves, places: Waves, size: int, steps: int, candidates: tuple[int, int]
    ) -> None:
        self.steps, self.candidates = steps, candidates
        super().__init__(body, action, seen, places, size)
        self.value = body.network(self.seen.size + size, Ask((1,), activation=nn.ReLU))
        self.num_next_draws = candidates[0] * cast(Any, self.policy).num_draws

    def acting(self, body: Vectors, num_inputs: int, space: Box) -> nn.Module:
        """Returns a diffusion policy of features and z."""
        wide = (float("inf"),) * num_inputs
        return Diffusion(self.steps).on(body, Spec(Box(tuple(-one for one in wide), wide), space, 1))

    def inputs(self, context: Context, z: Tensor) -> Tensor:
        """Returns features of the observation, and z, [..., features + D]."""
        return torch.cat((self.seen(context["observation"]), z), -1)

    def value_of(self, context: Context, z: Tensor) -> Tensor:
        """Returns V(s, z), [...]."""
        found: Tensor = self.value(self.inputs(context, z))
        return found.squeeze(-1)

    def misfit(self, context: Context, z: Tensor, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns the squared error of the noise that is predicted in these actions, [...]."""
        policy: Any = self.policy
        found: Tensor = policy.misfit({"observation": self.inputs(context, z)}, action, uniform)
        return found

    @torch.no_grad()
    def decide(self, context: Context, z: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Returns the best of as many candidates as the numbers [N, draws] are for; without numbers, of those for
        acting, by a hash of the observation.
        """
        policy, rows = cast(Any, self.policy), self.inputs(context, z).flatten(0, -2)
        each = policy.num_draws
        there = {"observation": context["observation"].flatten(0, -2)}
        numbers = hashed_uniform(there, self.candidates[1] * each) if uniform is None else uniform
        numbers = numbers.reshape(len(rows), -1, each)
        spread = {"observation": rows.repeat_interleave(numbers.shape[1], 0)}
        action: Tensor = policy.act(spread, numbers.flatten(0, 1))[0].view(*numbers.shape[:2], -1)
        values = (self.forwards(there, action, z.flatten(0, -2)) * z.flatten(0, -2).unsqueeze(-2)).sum(-1).amin(0)
        return action[torch.arange(len(rows)), values.argmax(-1)].view(*z.shape[:-1], -1)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns minus half the squared distance to what is denoised without noise."""
        rows = self.inputs(batch.context, self.backward_of(batch.context["goal"]))
        action: Tensor = cast(Any, self.policy).act({"observation": rows.flatten(0, -2)}, None)[0]
        return scored_distance(action.view_as(batch.action), self.half_range, batch)


@dataclass(frozen=True)
class InSampleActor(ForwardBackwardActor):
    """`ForwardBackwardActor` with V and a diffusion policy of `steps` steps; the best of so many `candidates` in
    targets and in acting (arXiv:2510.15382).
    """

    steps: int = 5
    candidates: tuple[int, int] = (2, 32)
    breaks: ClassVar[dict[str, str]] = {
        "agree": "acts by the best of several candidates with log-probability 0; `score` is for cloning",
        "frequencies": "acts by the best of several candidates; `score` is for cloning",
        "normalised": "no density: `score` is a squared distance, so cloning is least squares",
    }

    def module(self, networks: Vectors, action: Space, seen: Waves, places: Waves) -> ForwardBackward:
        """Returns the networks; raises AssayError for discrete actions."""
        if not isinstance(action, Box) or min(self.candidates) < 1:
            what = f"breeze denoises continuous actions and takes the best of some; got {action}, {self.candidates}"
            raise AssayError(f"{what}. Use zero-shot-rl for discrete ones, and at least 1 candidate")
        return InSample(networks, action, seen, places, self.size, self.steps, self.candidates)


def value_model(decided: MeasuredRows) -> InSample:
    """Returns the model that has V and denoises."""
    return cast(InSample, decided.model)


def worth(decided: MeasuredRows) -> Tensor:
    """Returns F_k . z of the recorded actions, [K, R]."""
    return (decided.model.forward_of(decided.now, decided.action, decided.z) * decided.z).sum(-1)


@dataclass(frozen=True)
class TaskValue(OverTransitions, CriticLoss):
    """|level - 1(u < 0)| u^2, u = min_k F_k(s, a, z) . z - V(s, z), with gradient into V alone.

    Degenerate: level 1/2 is the behaviour policy's value, level 1 the best recorded action's. Source: arXiv:2510.15382.
    Assumes that what spreads in a state are actions, not chance.
    """

    level: float = 0.99
    actor: str = model_name("actor")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted squares."""
        rows = MeasuredRows(batch, view, self.actor)
        value = value_model(rows).value_of(rows.now, rows.z)
        gap = worth(rows).amin(0).detach() - value
        squares = torch.where(gap < 0, 1.0 - self.level, self.level) * gap.square()
        metrics = {"task_value": ((value.detach() * rows.weight).sum(), batch.now.num_decisions)}
        return Loss((squares * rows.weight).sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class TaskReward(OfPairs, OverTransitions, CriticLoss):
    """weight * mean_k (F_k(s, a, z) . z - r_z - discount V(s', z))^2,  r_z = B(s') . C^-1 z: F, and B through r_z.

    C is the mean of B B^T over the batch, with a ridge of 1e-4 of its mean diagonal. Degenerate: where B is a basis of
    all states r_z is the reward whose mean times B is z; weight 0 is FB. Source: arXiv:2510.15382. Assumes more
    decisions in a batch than numbers in z.
    """

    discount: float = 0.98
    weight: float = 1e-3
    actor: str = model_name("actor")
    breaks: ClassVar[dict[str, str]] = {
        **OfPairs.breaks,
        "dtype": "of fewer decisions than numbers in z, C is nearly singular: its inverse magnifies rounding of B",
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted squares."""
        rows = MeasuredRows(batch, view, self.actor)
        after = value_model(rows).value_of(rows.after, rows.z).detach()
        reward = implied_reward(rows.back, rows.z, rows.weight)
        goal = reward + self.discount * after * (~batch.now.terminal).flatten()
        squares = (worth(rows) - goal).square().mean(0)
        metrics = {"implied_reward": ((reward.detach() * rows.weight).sum(), batch.now.num_decisions)}
        return Loss(self.weight * (squares * rows.weight).sum(), self.count(batch), metrics)


def implied_reward(back_RD: Tensor, z_RD: Tensor, weight_R: Tensor) -> Tensor:
    """Returns B . C^-1 z of each row, [R], with gradient into B; C is inverted in float64."""
    back, z = back_RD.double(), z_RD.double()
    moment = (back * weight_R.unsqueeze(1)).T @ back / weight_R.sum().clamp(min=1.0)
    found = (back * torch.linalg.solve(moment + RIDGE * torch.eye(len(moment)).to(moment), z.T).T).sum(-1)
    return found.to(back_RD.dtype)


@dataclass(frozen=True)
class CloneBetter(OverTransitions, Objective):
    """min(exp(beta (min_k F_k . z - V(s, z))), 100) * misfit of the recorded action, beta = inverse_temperature.

    Degenerate: beta 0 clones the data, whatever the task. Source: arXiv:2510.15382. Assumes an actor that denoises.
    """

    inverse_temperature: float = 0.05
    actor: str = model_name("actor")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is F . z - V, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted errors; the weight has no gradient."""
        rows = MeasuredRows(batch, view, self.actor)
        model, shape = value_model(rows), (*batch.now.mask.shape, 1 + batch.action.shape[-1])
        with torch.no_grad():
            gain = worth(rows).amin(0) - model.value_of(rows.now, rows.z)
            weight = exponential_weight(gain, self.inverse_temperature, 100.0) * rows.weight
        uniform = view.uniform(shape, tag=6).flatten(0, 1)
        misfit = model.misfit(rows.now, rows.z, rows.action, uniform)
        return Loss((weight * misfit).sum(), self.count(batch))


def recipe(
    preset: Preset = CONTINUOUS, log: Play = Play(), level: float = 0.99, inverse_temperature: float = 0.05,
    weight: float = 1e-3,
) -> Recipe:
    """Returns forward-backward representations of play data, in-sample."""
    base = forward_backward(preset, (TaskReward(0.9, weight),), log)
    measure, actor = base.stages[0], ("actor",)
    value = Stage("value", actor, critic=(TaskValue(level),), optimizer=measure.optimizer)
    policy = Stage("policy", actor, (CloneBetter(inverse_temperature),), optimizer=measure.optimizer)
    return replace(base, name="breeze", actor=Policy(head=InSampleActor()), stages=(value, measure, policy))


METHOD = Method(
    paper="arXiv:2510.15382",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pointmaze-umaze",
    family="goal-conditioned",
    base=forward_backward,
    departures=(
        "perceptrons on inputs as waves in place of attention over two tokens; two whole heads, where the authors' "
        "share all but their last layer",
        "candidates are denoised by the policy itself, not its slow average; next actions of the data are not mixed in",
        "C has a ridge of 1e-4 of its mean diagonal; the authors' code inverts it as it is",
        "a terminal step does not bootstrap, in neither loss; in the authors' code all do",
        "FB's targets are the mean of two heads, not their minimum; |B| is sqrt(D), D 32, discount 0.9, one learning "
        "rate of 1e-3, a clipped norm in place of clipped elements",
        "B reads positions, the space of goals; ExORL and Kitchen are not measured",
    ),
)
