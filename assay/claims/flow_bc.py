"""Claims of flow-bc: its loss and its paths by hand, measured claims. Axes: B, T decisions, K = 10 steps."""

from functools import partial
from typing import Any

import torch

from assay.claims import UNMASKED, Claims, Edit, Exact, built, has_two_modes, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.methods.flow_bc import recipe
from assay.models.heads.flow import FlowPolicy
from assay.parts import Log


def walk_gap(num: int = 10) -> float:
    """Returns the largest gap of sampled actions to Euler steps by hand, with noise and without any."""
    actor: Any = built(recipe(), probes.BOX_SPEC).models["actor"]
    seen, gap = probes.transitions(num=64).context["observation"][:, 0], 0.0
    uniform = torch.rand(64, 2 * (num + 1), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for given in (uniform, None):
        noise = torch.zeros(64, num + 1, 2).double() if given is None else steps.normal(given).view(64, num + 1, 2)
        point = noise[:, 0]
        for k in range(num):
            time = torch.full((64, 1), k / num, dtype=torch.float64)
            point = point + steps.velocity(actor, seen, time, point) / num + 1e-3 * noise[:, k + 1]
        action, _ = actor.act({"observation": seen}, given)
        aim = steps.CENTRE + steps.HALF * point.detach().clamp(-1, 1)
        gap = probes.worst(gap, float((action.detach() - aim).abs().max()))
    return gap


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the formula", recipe, steps.matched_flow,
                      partial(probes.transitions, num=64), probes.BOX_SPEC, 1e-6),
        Exact("an action is the end of ten Euler steps with noise of 0.001", walk_gap, at_most=1e-5),
        reads_dataset(lambda: recipe(log=Log(3))),
        *has_two_modes(recipe),
    ),
    mutants=(
        Edit("the end is regressed", FlowPolicy.misfit, "(velocity - (goal - start))", "(velocity - goal)"),
        Edit("time runs backwards", FlowPolicy.misfit, "start + time.unsqueeze(-1) * (goal - start)",
             "goal + time.unsqueeze(-1) * (start - goal)"),
        Edit("steps of 1", FlowPolicy.walk, "point) / self.steps", "point)"),
        UNMASKED,
    ),
)
