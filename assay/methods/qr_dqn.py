"""qr-dqn: the return's distribution by quantiles at fixed levels, fitted by quantile regression; acts on their mean.

    y_k = r + discount * (1 - terminal) * theta'_k(s', a*),   a* = argmax_a mean_k theta'_k(s', a)
    loss = sum_i mean_k |level_i - 1(u < 0)| * h(u),   u = y_k - theta_i(s, a),   level_i = (i + 1/2) / 200

Dabney et al. 2018 (QR-DQN-1: h is Huber's with limit 1). The quantiles need no range of returns. Each level weighs the
side of an error, not its size: a rare large return pulls the upper quantiles and leaves the others alone.

Axes: B sequences, T decisions, A actions, K quantiles.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.method import CONTROL, Experience, Method, Preset, Recipe, Target, View, dqn, model_name
from assay.models import Greedy, Policy, Quantiles
from assay.parts import OfChoice, QuantileHuber, Td, one_step_target


@dataclass(frozen=True)
class NextQuantiles(Target):
    """y_k = r + discount * theta_k(s', a*),  a* = argmax of the mean of `actor`, [K, B, T].

    As in the paper the target network chooses the action too; `actor="actor"` is the target of double DQN. Degenerate:
    with one quantile it is DQN's.
    """

    discount: float = 0.99
    actor: str = model_name("target")
    target: str = model_name("target")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns one sample for each quantile."""
        context = batch.after.context
        best, outputs = view.model(self.actor).values(context).argmax(-1), view.model(self.target).outputs(context)
        place = best[..., None, None].expand(*best.shape, 1, outputs.shape[-1])
        return one_step_target(batch.now, outputs.gather(-2, place).squeeze(-2).movedim(-1, 0), self.discount)


def recipe(preset: Preset = CONTROL, num: int = 200, limit: float = 1.0) -> Recipe:
    """Returns dqn whose network gives `num` quantiles for each action."""
    base = dqn(preset)
    stage = replace(base.stages[0], critic=(Td(NextQuantiles(), QuantileHuber(limit), OfChoice()),))
    return replace(base, name="qr-dqn", actor=Policy(preset.off_policy.body, Greedy(Quantiles(num))), stages=(stage,))


METHOD = Method(
    paper="arXiv:1710.10044",
    recipe=recipe,
    presets=(CONTROL,),
    default_task="cartpole",
    family="value-based",
    base=dqn,
    departures=(
        "steps, buffer, copies, exploration and Adam's rate are dqn's on each preset (Adam 5e-5 with epsilon 0.01 / 32 "
        "for Atari in the paper)",
    ),
)
