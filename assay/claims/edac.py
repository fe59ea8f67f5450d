"""Claims of edac: its losses by hand, exact and measured claims, mutants. Axes: B sequences, T decisions, N critics."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, StageView, follows_schedule, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.methods.edac import Diversity, recipe
from assay.parts import Log


def losses_by_hand(seen: probes.Seen, weight: float = 0.5) -> dict[str, Tensor]:
    """Returns the losses of critics, actor and temperature; cosines one pair of critics after the other."""
    step = steps.step_of(seen)
    action = step.action.clone().requires_grad_()
    values = steps.output(seen.models["q"], step.now, action)
    error = values - steps.soft_target(seen)
    slopes = [steps.HALF * torch.autograd.grad(one.sum(), action, create_graph=True)[0] for one in values]
    pairs = [torch.nn.functional.cosine_similarity(slopes[i], slopes[j], -1, 1e-12)
             for i in range(len(slopes)) for j in range(len(slopes)) if i != j]
    alike = torch.stack(pairs).sum(0) / (len(slopes) - 1) if pairs else torch.zeros(())
    critic = step.mean(error.square()) / 2 + weight * step.mean(alike)
    return {"critic": critic, "actor": steps.sac_actor(seen, least=2.0)}


def of_one_critic() -> float:
    """Returns the absolute sum of the term for a single critic."""
    engine, data = probes.formulas.built(recipe(critics=1), probes.BOX_SPEC), probes.transitions()
    view = StageView(engine.models, data, frozenset(), engine.draw)
    return abs(float(Diversity()(data, view).sum.detach()))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      partial(probes.transitions, num=64), probes.BOX_SPEC, 1e-6),
        same_gradient("with three critics and another weight its gradient is that of the formula",
                      partial(recipe, critics=3, diversity=2.0), partial(losses_by_hand, weight=2.0),
                      partial(probes.transitions, num=64), probes.BOX_SPEC, 1e-6, of="variants"),
        same_gradient("without diversity its gradients are those of sac with ten critics", partial(recipe,
                      diversity=0.0), partial(losses_by_hand, weight=0.0), partial(probes.transitions, num=64),
                      probes.BOX_SPEC, 1e-6, of="variants"),
        Exact("a single critic is compared with no other: the term is 0", of_one_critic, at_most=1e-9, of="one critic"),
        follows_schedule("target critics follow at rate 0.005", recipe),
        reads_dataset(lambda: recipe(log=Log(3))),
        Measured("on an expert's log it scores higher than as many critics without diversity", "pendulum",
                 recipe(log=Log(20, noise=0.1)), recipe(log=Log(20, noise=0.1), diversity=0.0), seeds=5, minutes=8,
                 steps=150, about=About.HEADLINE),
    ),
    equivalent={
        "Diversity.__call__: slope.norm(dim=-1, keepdim=True) + TINY -> "
        "slope.norm(dim=-1, keepdim=True) - TINY": "1e-10 keeps a slope of 0 from being divided by 0; either sign does",
    },
    mutants=(
        Edit("slopes are not normalised", Diversity.__call__, "slope / (slope.norm(dim=-1, keepdim=True) + TINY)",
             "slope"),
        Edit("the critics are made alike", Diversity.__call__, "self.weight * alike.sum()",
             "-self.weight * alike.sum()"),
        Edit("slopes in the task's units", Diversity.__call__, "q.units.of_task(action_NBTA)",
             "action_NBTA * q.units.half_range.mean() + q.units.centre"),
    ),
)
