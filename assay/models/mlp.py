"""Perceptron actors for control: categorical and Gaussian. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.models.bodies.perceptron import feature_size, features, perceptron
from assay.ops import distributions


class Categorical(nn.Module):
    """pi(a|s) = softmax(logits(s))[a] of whatever gives the logits."""

    num_draws = 1

    def logits(self, context: Context) -> Tensor:
        """Unnormalised log-probabilities [..., A]."""
        raise NotImplementedError

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """One decision for each row; the mode where `uniform` is None."""
        logits = self.logits(context)
        action = logits.argmax(-1) if uniform is None else distributions.categorical_sample(logits, uniform[:, 0])
        return action, distributions.categorical_logp(logits, action)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions; entropy and logits if asked. Zero where masked."""
        logits = self.logits(batch.context)
        log_prob = logits.log_softmax(-1)
        logp = log_prob.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) * batch.mask
        entropy = -(log_prob.exp() * log_prob).sum(-1) * batch.mask if Need.ENTROPY in needs else None
        return Scored(logp, entropy, logits if Need.LOGITS in needs else None)


class MlpCategorical(Categorical):
    """Logits by a perceptron."""

    def __init__(self, num_inputs: int, num_actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = perceptron(num_inputs, num_actions, hidden, output_gain=0.01)

    def logits(self, context: Context) -> Tensor:
        """Unnormalised log-probabilities [..., A]."""
        return self.net(features(context))


class Gaussian(nn.Module):
    """pi(a|s) = N(mean(s), diag(exp(log_std))^2), with a standard deviation that does not depend on the state."""

    log_std: Tensor

    def mean(self, context: Context) -> Tensor:
        """[..., A]."""
        raise NotImplementedError

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """mean + std * noise; the mean where `uniform` is None."""
        mean = self.mean(context)
        noise = torch.zeros_like(mean) if uniform is None else distributions.normal_sample(uniform)
        action = mean + self.log_std.exp() * noise
        return action, distributions.normal_logp(action, mean, self.log_std)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-densities of the recorded decisions; the entropy is the same in every state."""
        logp = distributions.normal_logp(batch.action, self.mean(batch.context), self.log_std) * batch.mask
        entropy = None
        if Need.ENTROPY in needs:
            entropy = (self.log_std + 0.5 + distributions.HALF_LOG_TWO_PI).sum() * batch.mask
        return Scored(logp, entropy)


class MlpGaussian(Gaussian):
    """Means by a perceptron."""

    def __init__(self, num_inputs: int, space: Box, hidden: Sequence[int], initial_log_std: float) -> None:
        super().__init__()
        self.num_draws = space.size
        self.net = perceptron(num_inputs, space.size, hidden, output_gain=0.01)
        self.log_std = nn.Parameter(torch.full((space.size,), initial_log_std))

    def mean(self, context: Context) -> Tensor:
        """[..., A]."""
        return self.net(features(context))


def need_box(spec: Spec, who: str) -> Box:
    """The task's action space as a Box."""
    if not isinstance(spec.action, Box):
        raise AssayError(f"{who} needs continuous actions, the task has {spec.action}; try ppo, a2c or dqn")
    return spec.action


@dataclass(frozen=True)
class Mlp(ActorSpec):
    """A perceptron policy: categorical for discrete actions, Gaussian for continuous ones."""

    hidden: tuple[int, ...] = (64, 64)
    initial_log_std: float = 0.0

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if isinstance(spec.action, Discrete):
            return MlpCategorical(feature_size(spec), spec.action.n, self.hidden)
        return MlpGaussian(feature_size(spec), need_box(spec, "a Gaussian actor"), self.hidden, self.initial_log_std)
