"""reinflow: learned noise along a flow policy's path gives it a likelihood, so that ppo applies unchanged.

    x_0 ~ N(0, I);   x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;   action = x_K
    log pi(path | s) = log N(x_0; 0, I) + sum_k log N(x_(k+1); x_k + v / K, sigma^2),   loss = ppo's, ratio of paths

Zhang et al. 2025. Exact for any number of steps, one included; sigma is bounded on both sides, and without it the
flow is deterministic. The flow is first cloned from offline data by flow matching; velocity and noise are trained
together.

Axes: B, T, N rows, K steps, A actions.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, HALF_LOG_TWO_PI, ActorHead, Adam, AssayError, Body, Box, Context, Experience
from assay.method import Method, Need, Phase, Preset, Recipe, Scored, Spec, Stage, normal_sample, ppo, recipes
from assay.models import OfPaths, PathPolicy, Policy, Timed, feature_size, features, need_box, path_logp, path_noise
from assay.models import time_features, walked
from assay.parts import Denoising, Log, LogLikelihood, Logged


class FlowPolicy(PathPolicy):
    """x_0 ~ N(0, I);  x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;  a = x_K (arXiv:2505.22094).

    sigma is a geometric mean of its bounds with learned weights and does not depend on the point, so the path's
    entropy is known. Without uniform numbers there is no noise, and the flow is deterministic.
    """

    def __init__(self, body: Body, num_inputs: int, space: Box, steps: int, noise: tuple[float, float]) -> None:
        super().__init__(space, steps + 1, torch.arange(steps) / steps)
        self.log_noise = math.log(noise[0]), math.log(noise[1])
        self.velocity = Timed(body, num_inputs + space.size, space.size)
        self.noise = Timed(body, num_inputs, space.size, output_gain=0.01)

    def log_std(self, seen: Tensor) -> Tensor:
        """Returns log sigma of all steps, [..., K, A], between the logarithms of the bounds."""
        low, high = self.log_noise
        u = self.noise((*seen.shape[:-1], self.steps), seen.unsqueeze(-2), self.times)
        return low + (high - low) * 0.5 * (u.tanh() + 1.0)

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples an action; returns it with its path [N, K + 1, A] and the path's log-density."""
        seen = features(context)
        log_std = self.log_std(seen)

        def step(k: int, point: Tensor) -> Tensor:
            return point + self.velocity((len(seen),), seen, self.times[k], point) / self.steps

        path, mean = walked(step, log_std, path_noise(uniform, self.steps + 1, self.size, seen))
        action = self.centre + self.half_range * path[:, -1].clamp(-1.0, 1.0)
        return action, path_logp(path, mean, log_std), path

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-densities of the recorded paths; the entropy is that of a path."""
        path, seen = batch.column("path"), features(batch.context)
        point = path[..., :-1, :]
        mean = point + self.velocity(point.shape[:-1], seen.unsqueeze(-2), self.times, point) / self.steps
        log_std = self.log_std(seen)
        entropy = None
        if Need.ENTROPY in needs:
            constant = (0.5 + HALF_LOG_TWO_PI) * self.num_draws
            entropy = (log_std.sum((-2, -1)) + constant) * batch.mask
        return Scored(path_logp(path, mean, log_std) * batch.mask, entropy)

    def misfit(self, context: Context, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns |v(s, t, (1 - t) x_0 + t a) - (a - x_0)|^2 at a random time and start: flow matching
        (arXiv:2209.03003).
        """
        time, start = uniform[..., 0], normal_sample(uniform[..., 1:])
        goal = (action - self.centre) / self.half_range
        point = start + time.unsqueeze(-1) * (goal - start)
        velocity = self.velocity(point.shape[:-1], features(context), time_features(time), point)
        return (velocity - (goal - start)).square().sum(-1)


@dataclass(frozen=True)
class Flow(OfPaths, ActorHead):
    """A flow policy of `steps` steps with learned noise between two bounds, in units of half the action range.

    Degenerate: equal bounds fix the noise.
    """

    steps: int = 4
    noise: tuple[float, float] = (0.08, 0.4)

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if self.steps < 1 or not 0.0 < self.noise[0] <= self.noise[1]:
            raise AssayError(f"Flow needs steps >= 1 and 0 < noise[0] <= noise[1], got {self.steps} and {self.noise}")
        space = need_box(spec, "a flow actor")
        return FlowPolicy(body, feature_size(spec), space, self.steps, self.noise)


MEDIOCRE = Logged((Log(episodes=50, noise=0.7),), batch=256, updates=10)
"""Episodes of the task's expert, most of whose actions are replaced by random ones."""


def flow_matching(preset: Preset = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """A rectified flow (arXiv:2209.03003) that generates a dataset's actions: cloning, without a likelihood."""
    stage = Stage("flow", trains=("actor",), objective=(Denoising(),), optimizer=Adam(1e-3, clip_norm=0.0))
    return Recipe(name="flow", actor=actor, source=MEDIOCRE, stages=(stage,), steps=100)


def reinflow(preset: Preset = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """ReinFlow (arXiv:2505.22094): a cloned flow with learned noise along its path, then unchanged ppo."""
    base = ppo(preset)
    optimizer = replace(preset.optimizer, learning_rate=3e-4)
    policy = replace(base.stages[0], optimizer=optimizer)
    before = Phase("flow-matching", flow_matching(preset, actor), steps=100)
    return replace(base, name="reinflow", actor=actor, stages=(policy, base.stages[1]), before=(before,), steps=50)


def gaussian(preset: Preset = CONTINUOUS) -> Recipe:
    """The rival: a Gaussian policy cloned from the same data by as many batches, then the same ppo."""
    flow = reinflow(preset)
    (first,) = flow.before
    stage = Stage("clone", trains=("actor",), objective=(LogLikelihood(),), optimizer=first.recipe.stages[0].optimizer)
    cloned = replace(first.recipe, name="bc", actor=preset.actor, stages=(stage,))
    return replace(flow, name="reinflow:gaussian", actor=preset.actor, before=(replace(first, recipe=cloned),))


METHOD = Method(
    paper="arXiv:2505.22094",
    recipe=reinflow,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    variants={"flow-matching": flow_matching, "gaussian": gaussian},
    departures=(
        "the ratio is the path's, as the paper writes it; the code takes the geometric mean of its factors, clip 0.01",
        "steps, noise and the stored end are not clipped, only the executed action: the recorded density is exact",
        "deterministic means from x_0 = 0; the authors still draw x_0. One action per decision, no chunks",
        "no shortcut models, no schedule of the noise bounds, no warm-up of the critic, no distance to the cloned flow",
        "one dataset of a scripted expert with noise, not D4RL or Robomimic; its actions have one mode, so that a "
        "Gaussian policy cloned from it (the variant `gaussian`) is a rival that may win",
        "not measured: large fixed noise and one step, for their cost",
    ),
)
