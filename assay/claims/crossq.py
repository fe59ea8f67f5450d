"""Claims of crossq: its losses by hand, its statistics, exact and measured claims, mutants. Axes: B rows, N critics."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import MUJOCO, sac
from assay.methods.crossq import BatchNorm, JointTd, NormedCritics, recipe

SPEC = probes.BOX_SPEC


def normalised(layer: Any, rows: Tensor, member: int, here: Tensor | None) -> Tensor:
    """Returns rows [R, W] of one member, normalised by the rows marked `here`, or by running statistics."""
    mean, variance = layer.mean[member, 0], layer.variance[member, 0]
    if here is not None:
        mean, variance = rows[here].mean(0), rows[here].var(0, correction=0)
    found: Tensor = (rows - mean) / (variance + 1e-3).sqrt() * layer.scale[member, 0] + layer.shift[member, 0]
    return found


def critic_by_hand(model: Any, rows: Tensor, here: Tensor | None) -> Tensor:
    """Returns values [N, R], one member and one layer after the other."""
    found = []
    for member in range(2):
        norms, layers = list(model.body.norms), list(model.body.linear.layers)
        hidden = normalised(norms[0], rows, member, here)
        for (matrix, bias), norm in zip(layers[:-1], norms[1:], strict=True):
            hidden = normalised(norm, torch.relu(hidden @ matrix[member] + bias[member]), member, here)
        found.append((hidden @ layers[-1][0][member] + layers[-1][1][member]).squeeze(-1))
    return torch.stack(found)


def with_statistics(models: Any) -> None:
    """Sets running statistics that are not those of the batch."""
    draw = torch.Generator().manual_seed(0)
    for layer in models["q"].body.norms:
        layer.mean.uniform_(-0.5, 0.5, generator=draw)
        layer.variance.uniform_(0.5, 2.0, generator=draw)


def critic_loss(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the critics' loss, from one pass over both halves."""
    step, models = steps.step_of(seen), seen.models
    with_statistics(models)
    action, logp = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    pairs = ((step.now, step.action), (step.after, action.detach()))
    rows = torch.cat([torch.cat((state, steps.in_half_ranges(taken)), -1) for state, taken in pairs])
    value, onward = critic_by_hand(models["q"], rows, step.here.repeat(2)).chunk(2, -1)
    soft = onward.amin(0) - models["temperature"].log_value.exp() * logp
    return {"critic": step.mean((value - step.target(0.99, soft)).square()) / 2}


def actor_loss(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the loss of actor and temperature, with critics by running statistics."""
    with_statistics(seen.models)

    def climbed(state: Tensor, taken: Tensor) -> Tensor:
        rows = torch.cat((state, steps.in_half_ranges(taken)), -1)
        return critic_by_hand(seen.models["q"], rows, None).amin(0)

    return {"actor": steps.sac_actor(seen, climbed)}


def statistics_gap() -> float:
    """Returns how far running statistics are from a hundredth of a batch's after one loss, rows without a decision
    left out, and whether saved ones come back.
    """
    draw = torch.Generator().manual_seed(1)
    layer = BatchNorm(2, 3, 0.99).double()
    rows = torch.randn(2, 8, 3, generator=draw, dtype=torch.float64)
    layer(rows, torch.tensor([1.0] * 5 + [0.0] * 3, dtype=torch.float64).unsqueeze(-1))
    mean, variance = 0.01 * rows[:, :5].mean(1), 0.99 + 0.01 * rows[:, :5].var(1, correction=0)
    other = BatchNorm(2, 3, 0.99).double()
    other.keep(layer.kept())
    gaps = (layer.mean[:, 0] - mean, layer.variance[:, 0] - variance, other.mean - layer.mean)
    return probes.worst(*(float(gap.abs().max()) for gap in gaps), float((other.variance - layer.variance).abs().max()))


DATA = partial(probes.transitions, num=64)

CLAIMS = Claims(
    mutants=(
        Edit("each half has statistics of its own", JointTd.__call__,
             "critic.body.of_rows(torch.cat(rows), None, weight).chunk(2, -1)",
             "(critic.body.of_rows(one, None, weight[: len(one)]) for one in rows)"),
        Edit("rows without a decision count", JointTd.__call__, "now.weight.flatten()",
             "torch.ones_like(now.weight).flatten()"),
        Edit("statistics follow at once", BatchNorm.forward, "lerp_(mean, 1.0 - self.momentum)",
             "lerp_(mean, 1.0)"),
        Edit("normalisation before the ReLU alone", NormedCritics.of_rows, ".relu(), weight)", ", weight).relu()"),
        Edit("the actor moves at every update", recipe, "every=3", "every=1"),
    ),
    claims=(
        same_gradient("its critics' gradient is that of the formula", recipe, critic_loss, DATA, SPEC, at_most=1e-6),
        same_gradient("its actor's gradient is that of the formula, by running statistics", recipe, actor_loss, DATA,
                      SPEC, at_most=1e-6),
        same_gradient("wide critics have the formula's gradient too", lambda: recipe(width=32), critic_loss, DATA, SPEC,
                      at_most=1e-6, of="wide"),
        Exact("running statistics move by a hundredth towards those of rows with a decision, and are saved",
              statistics_gap, at_most=1e-12),
        follows_schedule("the actor moves at every third update, and there is no target network", recipe,
                         {"actor": 3, "q": 1, "temperature": 3}, {}),
        Measured("it scores higher over the run than sac without target networks and normalisation", "pendulum",
                 recipe(), replace(sac(), copies={"q_target": replace(sac().copies["q_target"], rate=1.0)}),
                 metric=Area(), seeds=5, minutes=60.0, steps=400, looks=3, about=About.MECHANISM),
        Measured("on HalfCheetah it scores higher than sac after 100,000 decisions", "HalfCheetah-v5",
                 recipe(MUJOCO, 1024), sac(MUJOCO), seeds=5, minutes=900.0, steps=12_500, looks=3,
                 about=About.HEADLINE),
    ),
)
