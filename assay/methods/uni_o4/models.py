"""An ensemble of Gaussian policies, critics that clip actions to the bounds, and a learned dynamics model.

Axes: N members, B, T, R rows, A, F numbers of an observation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.method import ActorHead, Ask, Body, Box, Context, CriticHead, Experience, Space, Spec, distributions
from assay.models import ActionUnits, ActionValue, GaussianPolicy, feature_size, need_bounds, need_box


class GaussianCommittee(GaussianPolicy):
    """pi_i(a|s) = N(tanh(f_i(s)), exp(log_std_i)) of actions in half-ranges, i = 1..N.

    The context's `member` selects the acting member; without it the one with the highest `standing` acts, a score
    without policy gradient. Every parameter has the members along its first axis.
    """

    def __init__(self, body: nn.Module, num: int, space: Box, initial_log_std: float) -> None:
        super().__init__(body, space, initial_log_std)
        self.num_members = num
        self.log_std = nn.Parameter(torch.full((num, space.size), initial_log_std))
        self.standing = nn.Parameter(torch.zeros(num))

    def means(self, context: Context) -> Tensor:
        """Returns the mean of every member in half-ranges, [N, ..., A]."""
        means: Tensor = self.body(context).tanh()
        return means

    def parameters_of(self, context: Context) -> tuple[Tensor, Tensor]:
        """Returns mean and log standard deviation of the acting member, [..., A] both."""
        means, scale = self.means(context), self.log_std
        if "member" not in context:
            best = self.standing.argmax()
            return means[best], scale[best].expand_as(means[0])
        member = context["member"]
        index = member.unsqueeze(-1).expand(*member.shape, self.num_draws).unsqueeze(0)
        return means.gather(0, index).squeeze(0), scale[member]

    def all_logp(self, batch: Experience) -> Tensor:
        """Returns the log-densities of the recorded decisions under every member, [N, B, T], zero where masked."""
        action, scale = self.units(batch.action), self.log_std.view(-1, 1, 1, self.num_draws)
        return distributions.normal_logp(action, self.means(batch.context), scale) * batch.mask


@dataclass(frozen=True)
class Committee(ActorHead):
    """`num` Gaussian policies for bounded continuous actions; the one with the best standing acts."""

    num: int = 4
    initial_log_std: float = -0.5

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space = need_bounds(spec, "a committee")
        ask = Ask((space.size,), activation=nn.ReLU, members=self.num)
        return GaussianCommittee(body.outputs(spec, ask), self.num, space, self.initial_log_std)


# ---------------------------------------------------------------------------------------------------- critics
class WithinBounds(nn.Module):
    """Clips the action to the bounds before a function of context and action, as the task does."""

    low: Tensor
    high: Tensor

    def __init__(self, inner: nn.Module, spec: Spec) -> None:
        super().__init__()
        space, self.inner = need_box(spec, "a critic of clipped actions"), inner
        self.register_buffer("low", torch.tensor(space.low))
        self.register_buffer("high", torch.tensor(space.high))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the inner function of the executed action."""
        said: Tensor = self.inner(context, torch.minimum(torch.maximum(action, self.low), self.high))
        return said


@dataclass(frozen=True)
class ClampedQ(CriticHead):
    """`members` critics Q(s, a) for policies whose samples may exceed the action bounds."""

    members: int = 2

    def on(self, body: Body, spec: Spec) -> nn.Module:
        return WithinBounds(ActionValue(self.members).on(body, spec), spec)


class NextStep(nn.Module):
    """Predicts the change of the observation, and the reward, by N functions."""

    def __init__(self, body: nn.Module, space: Space) -> None:
        super().__init__()
        self.body, self.units = body, ActionUnits(space)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns [N, F + 1, ...]: each member's prediction, the reward last."""
        expected: Tensor = self.body(context, self.units(action))
        return expected.movedim(-1, 1)


@dataclass(frozen=True)
class LearnedDynamics(CriticHead):
    """A dynamics model for vector observations: `members` functions that predict change and reward."""

    members: int = 3

    def on(self, body: Body, spec: Spec) -> nn.Module:
        ask = Ask((feature_size(spec) + 1,), activation=nn.ReLU, members=self.members, action=True)
        return WithinBounds(NextStep(body.outputs(spec, ask), spec.action), spec)
