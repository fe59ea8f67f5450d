"""Claims of droq: its losses by hand, exact and measured claims, mutants. Axes: B rows, N critics, W units."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient
from assay.claims import same_report, steps
from assay.method import AssayError, sac
from assay.methods.droq import Dropping, DroppingCritics, DroppingView, recipe
from assay.models import Critic, Value

SPEC = probes.BOX_SPEC


def critic_by_hand(model: Any, state: Tensor, action: Tensor, uniform: Tensor, rate: float) -> Tensor:
    """Returns values [N, B], one member and one layer after the other; `uniform` [B, N * 512] says what is left out."""
    net, found = model.body.net, []
    for member in range(2):
        hidden = torch.cat((state, steps.in_half_ranges(action)), -1)
        for place, (matrix, bias) in enumerate(list(net.linear.layers)[:-1]):
            first = member * 512 + place * 256
            left = (uniform[:, first : first + 256] >= rate).double() / (1.0 - rate)
            inner = (hidden @ matrix[member] + bias[member]) * left
            centred = inner - inner.mean(-1, keepdim=True)
            normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            hidden = torch.relu(normed * net.scales[place][member] + net.shifts[place][member])
        matrix, bias = list(net.linear.layers)[-1]
        found.append((hidden @ matrix[member] + bias[member]).squeeze(-1))
    return torch.stack(found)


def critics(seen: probes.Seen, rate: float = 0.01) -> tuple[Tensor, Tensor]:
    """Returns values and errors [N, B]: other units are left out in the prediction and in the target."""
    step = steps.step_of(seen)
    told, aimed = (seen.uniform(1, 1024, tag=tag)[:, 0] for tag in (21, 22))
    recorded = critic_by_hand(seen.models["q"], step.now, step.action, told, rate)
    target = steps.soft_target(
        seen, q=lambda state, taken: critic_by_hand(seen.models["q_target"], state, taken, aimed, rate).amin(0)
    )
    return recorded, recorded - target


def climbed(seen: probes.Seen, rate: float, state: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of both critics, with units of its own left out."""
    return critic_by_hand(seen.models["q"], state, action, seen.uniform(1, 1024, tag=23)[:, 0], rate).mean(0)


def losses_by_hand(seen: probes.Seen, rate: float = 0.01) -> dict[str, Tensor]:
    """Returns the losses."""
    _, error = critics(seen, rate)
    critic = steps.step_of(seen).mean(error.square()) / 2
    return {"critic": critic, "actor": steps.sac_actor(seen, partial(climbed, seen, rate))}


def report(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns what an update reports."""
    return steps.sac_report(seen, *critics(seen), partial(climbed, seen, 0.01))


def refused() -> float:
    """Returns 1 if a body with dropout is refused where it is not that of critics of actions."""
    try:
        Critic(Dropping(), Value()).build(SPEC)
    except AssayError as error:
        return float("Use Normalised()" in str(error))
    return 0.0


def updates_told() -> float:
    """Returns updates for each decision of the default preset."""
    source = recipe().source
    return float(source.updates / 8.0)  # type: ignore[attr-defined]


DATA = partial(probes.transitions, num=16)

CLAIMS = Claims(
    mutants=(
        Edit("no dropout in the target", recipe, "DroppedTd()", "Td(SoftTwin())"),
        Edit("no dropout for the actor", recipe, "DroppedQ()", "MaximizeSoftQ(averaged=True)"),
        Edit("kept units are not scaled", DroppingCritics.forward, " / (1.0 - self.rate)", ""),
        Edit("the same units everywhere", DroppingView.model, "self.tags[name]", "21"),
        Edit("always a hundredth", recipe, ", rate)", ", 0.01)"),
        Edit("as many updates as sac", recipe, "ratio * replay.updates", "replay.updates"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, DATA, SPEC, at_most=1e-6),
        same_gradient("its gradients are those of the formulas with more dropout too", lambda: recipe(rate=0.3),
                      partial(losses_by_hand, rate=0.3), DATA, SPEC, at_most=1e-6),
        same_report(recipe, report, DATA, SPEC),
        follows_schedule("the actor moves at every twentieth update, target critics follow at rate 0.005", recipe,
                         {"actor": 20, "q": 1, "temperature": 20}, num=22),
        Exact("twenty updates for each decision", updates_told, equals=20.0, of="schedules"),
        Exact("a body with dropout is refused in other models", refused, equals=1.0, of="refusals"),
        Measured("it learns more of the pendulum in 2,400 decisions than sac with as many updates", "pendulum",
                 recipe(), replace(sac(), source=recipe().source), metric=Area(), seeds=5, minutes=120.0, steps=300,
                 looks=3, about=About.HEADLINE),
    ),
)
