"""Claims of dqn: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch

from assay.claims import COPIED, About, Claims, Edit, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import recipes
from assay.parts import DoubleQ


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return steps.step_of(seen).mean(steps.double_q(seen, 0.99)[1])


CLAIMS = Claims(
    mutants=(
        Edit("the target network chooses the action", DoubleQ.__call__, "model(self.actor)", "model(self.target)"),
        Edit("no target network", DoubleQ.__call__, "model(self.target)", "model(self.actor)"),
        Edit("the target network stays as it was", recipes.dqn, "rate=1.0, every", "rate=0.0, every"),
        Edit("the target network is copied at every update", recipes.dqn, "every=settings.copy_every", "every=1"),
        Edit("another discount", recipes.dqn, "DoubleQ(0.99)", "DoubleQ(0.9)"),
    ),
    claims=(
        same_gradient("its gradient is that of the formula", recipes.dqn, loss_by_hand,
                      partial(probes.transitions, probes.CHOICE_SPEC), probes.CHOICE_SPEC),
        follows_schedule("the target network is a copy made every 128 updates", recipes.dqn, {"actor": 1}, COPIED,
                         spec=probes.CHOICE_SPEC, num=130),
        Measured("it balances the pole: its return is above 475", "cartpole", recipes.dqn(), 475.0, seeds=5, minutes=8,
                 about=About.HEADLINE),
    ),
)
