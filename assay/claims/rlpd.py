"""Claims of rlpd: its losses by hand, what its batches hold, measured claims, mutants. Axes: B, T = 2, N critics."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import ALONE, About, Area, Claims, Edit, Exact, Measured, follows_schedule, pendulum, probes
from assay.claims import same_gradient, steps
from assay.method import Draw, Experience, Origin, Scene, rlpd
from assay.methods.rlpd import recipe
from assay.parts import Log, MaximizeSoftQ


def losses_by_hand(seen: probes.Seen, discount: float = 0.95) -> dict[str, Tensor]:
    mean = partial(climbed, seen)
    return {"critic": steps.rlpd_critics(seen, discount), "actor": steps.sac_actor(seen, mean)}


def climbed(seen: probes.Seen, state: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of the critics, which the actor climbs."""
    return steps.output(seen.models["q"], state, action).mean(0)


def batches() -> list[Experience]:
    """Returns the batches of the eleven first steps of eight decisions each."""
    source: Any = recipe(log=Log(2)).source
    scene = ALONE.given(task=pendulum())
    state, found = source.init(scene), []
    first = torch.tensor([True, False]).expand(8, 2)
    for step in range(11):
        seen, no = {"observation": torch.zeros(8, 2, 3)}, torch.zeros_like(first)
        reward = 100.0 + step + torch.zeros(8, 2)
        fresh = Experience(seen, torch.zeros(8, 2, 1), first, 0 * reward, reward, no, no)
        found.append(list(source(Scene(pendulum(), draw=Draw(0, (step,)), fresh=fresh), state)))
    return [len(found[6]), *found[7]]


def offline_share() -> float:
    """Returns the largest gap of the share of offline rows to a half, with rewards of whom the column says."""
    _, *drawn = batches()
    shares = [float((one.source == int(Origin.DATASET)).double().mean()) for one in drawn if one.source is not None]
    paid = [float(((one.reward[:, 0] >= 100.0) == (one.source != int(Origin.DATASET))).double().mean())
            for one in drawn]
    gap = probes.worst(*(abs(share - 0.5) for share in shares))
    return gap + probes.worst(*(1.0 - right for right in paid)) + abs(len(drawn) - 32)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      partial(probes.transitions, num=64), probes.BOX_SPEC, 1e-6),
        follows_schedule("critics take four steps for each of the actor, targets follow at rate 0.02", recipe,
                         {"actor": 4, "q": 1, "temperature": 4}, {"q_target": ("q", 0.02, 1)}, at_most=1e-6),
        Exact("half of every batch are offline rows, 32 batches for 8 decisions", offline_share, equals=0.0),
        Exact("updates begin after 64 decisions", lambda: batches()[0], equals=0.0, of="sources"),
        Measured("with half offline rows it scores more over the run than without any", "pendulum", recipe(),
                 recipe(share=0.0), metric=Area(), seeds=5, minutes=15, steps=100, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the actor climbs the minimum", MaximizeSoftQ.__call__, "values.mean(0) if self.averaged",
             "values.amin(0) if self.averaged"),
        Edit("all critics in the target", rlpd, "subset=2 if critics > 2 else 0", "subset=0"),
        Edit("no offline rows", recipe, "kept=share", "kept=0.0"),
        Edit("the actor moves at every update", rlpd, "optimizer=OPTIMIZER, every=4", "optimizer=OPTIMIZER"),
    ),
)
