"""Claims of qr-dqn: its loss by hand, exact and measured claims, mutants. Axes: B transitions, M quantiles."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import COPIED, About, Average, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient
from assay.claims import steps
from assay.method import CONTROL, dqn
from assay.methods.qr_dqn import NextQuantiles, recipe
from assay.parts import QuantileHuber, quantile_huber

SPEC = probes.CHOICE_SPEC


def loss_by_hand(seen: probes.Seen, num: int = 200, limit: float = 1.0) -> Tensor:
    """Returns the loss; the levels of the quantiles are counted from 1."""
    step, row = steps.step_of(seen), torch.arange(len(seen.experience))
    after = steps.output(seen.models["target"], step.after)
    best = after.sum(-1).argmax(-1)
    target = step.reward.unsqueeze(-1) + 0.99 * step.goes_on.unsqueeze(-1) * after[row, best]
    found = steps.output(seen.models["actor"], step.now)[row, step.action]
    error = target.detach().unsqueeze(1) - found.unsqueeze(2)
    huber = torch.where(error.abs() > limit, error.abs() - 0.5 * limit, 0.5 * error * error / limit)
    level = ((2 * torch.arange(1, num + 1, dtype=torch.float64) - 1) / (2 * num)).unsqueeze(1)
    return step.mean(torch.where(error < 0, (1.0 - level) * huber, level * huber).sum((1, 2)) / num)


def noted(limit: float) -> float:
    """Returns the largest gap of four quantiles, fitted with a limit, to those of 1,000 numbers that are skewed."""
    numbers = 10.0 * torch.linspace(0.0005, 0.9995, 1_000, dtype=torch.float64).square()
    level = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
    found = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    for place in range(150):
        (slope,) = torch.autograd.grad(quantile_huber(found, numbers, level, limit), found)
        found = (found - 10.0 * (1.0 - place / 150) * slope).detach().requires_grad_()
    return probes.worst(*(found.detach() - torch.quantile(numbers, level)).abs().tolist())


CLAIMS = Claims(
    mutants=(
        Edit("the trained network in the target", NextQuantiles.__call__, "model(self.target)", 'model("actor")'),
        Edit("the trained network chooses", NextQuantiles.__call__, "model(self.actor)", 'model("actor")'),
        Edit("squares without a limit", quantile_huber, "if limit:", "if False:"),
        Edit("every level is the median", quantile_huber, "level_M.unsqueeze(-1)", "0.5"),
        Edit("the mean over quantiles", QuantileHuber.__call__, "if self.averaged", "if True"),
        Edit("always 200 quantiles", recipe, "Quantiles(num)", "Quantiles(200)"),
        Edit("always limit 1", recipe, "QuantileHuber(limit)", "QuantileHuber()"),
    ),
    claims=(
        same_gradient("its gradient is that of the formula", recipe, loss_by_hand,
                      partial(probes.transitions, SPEC, num=16), SPEC),
        same_gradient("seven quantiles and another limit have the formula's gradient too",
                      lambda: recipe(num=7, limit=0.3), partial(loss_by_hand, num=7, limit=0.3),
                      partial(probes.transitions, SPEC, num=16), SPEC),
        Exact("without a limit the fitted numbers are the quantiles of a skewed distribution", lambda: noted(0.0),
              at_most=0.02, of="quantiles"),
        follows_schedule("the target network is a copy made every 128 updates", recipe, {"actor": 1}, COPIED, spec=SPEC,
                         num=130),
        Measured("where every move changes the return it scores higher than dqn over the run", "hazards",
                 recipe(CONTROL), dqn(CONTROL), metric=Average("evaluation"), seeds=5, minutes=20.0, steps=60, looks=4,
                 about=About.HEADLINE),
    ),
)
