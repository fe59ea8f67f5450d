"""Claims of redq: its losses by hand, its limit, exact and measured claims, mutants. Axes: B rows, N critics."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient
from assay.claims import same_report, same_weights, steps
from assay.method import CONTINUOUS, AssayError, Recipe, sac
from assay.methods.redq import SoftSubset, recipe


def critics_by_hand(seen: probes.Seen, critics: int = 10, subset: int = 2) -> tuple[Tensor, Tensor]:
    """Returns values and errors [N, B]: each row's subset are the critics with the lowest random numbers."""
    step, drawn = steps.step_of(seen), seen.uniform(1, critics, tag=3)[:, 0]

    def lowest(state: Tensor, action: Tensor) -> Tensor:
        found, after = [], steps.output(seen.models["q_target"], state, action)
        for row in range(len(state)):
            among = sorted(range(critics), key=lambda one: float(drawn[row, one]))[:subset]
            found.append(torch.stack([after[one, row] for one in among]).min())
        return torch.stack(found)

    recorded = steps.output(seen.models["q"], step.now, step.action)
    return recorded, recorded - steps.soft_target(seen, q=lowest)


def climbed(seen: probes.Seen, state: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of the critics."""
    values = steps.output(seen.models["q"], state, action)
    return values.sum(0) / len(values)


def losses_by_hand(seen: probes.Seen, critics: int = 10, subset: int = 2) -> dict[str, Tensor]:
    """Returns the losses."""
    _, error = critics_by_hand(seen, critics, subset)
    critic = steps.step_of(seen).mean(error.square()) / 2
    return {"critic": critic, "actor": steps.sac_actor(seen, partial(climbed, seen))}


def report(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns what an update reports."""
    return steps.sac_report(seen, *critics_by_hand(seen), partial(climbed, seen))


def averaged_sac() -> Recipe:
    """Returns sac whose actor climbs the mean of its critics."""
    critic, actor = sac().stages
    return replace(sac(), stages=(critic, replace(actor, objective=recipe().stages[1].objective)))


def updates_told() -> float:
    """Returns updates for each decision of the default preset."""
    source, rollout = recipe().source, CONTINUOUS.off_policy.rollout
    return float(source.updates / (rollout.num_envs * rollout.steps))  # type: ignore[attr-defined]


def refused() -> float:
    """Returns 1 if a subset larger than the ensemble is refused by a sentence that names the setting."""
    try:
        probes.formula_gap(recipe(subset=11), probes.transitions(), losses_by_hand, probes.BOX_SPEC)
    except AssayError as error:
        return float("subset is 11, of 10 critics" in str(error))
    return 0.0


DATA = partial(probes.transitions, num=24)

CLAIMS = Claims(
    mutants=(
        Edit("the trained critics in the target", SoftSubset.__call__, "model(self.q)", 'model("q")'),
        Edit("the first critics", SoftSubset.__call__, "values.gather(0, order[: self.subset])",
             "values[: self.subset]"),
        Edit("the minimum of the critics for the actor", recipe, "averaged=True", "averaged=False"),
        Edit("as many updates as sac", recipe, "ratio * replay.updates", "replay.updates"),
        Edit("the actor moves at every update", recipe, "every=ratio", "every=1"),
        Edit("always ten critics", recipe, "ActionValue(critics)", "ActionValue(10)"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, DATA,
                      probes.BOX_SPEC, at_most=1e-6),
        same_gradient("three of five critics have the formulas' gradients too", lambda: recipe(critics=5, subset=3),
                      partial(losses_by_hand, critics=5, subset=3), DATA, probes.BOX_SPEC, at_most=1e-6),
        same_report(recipe, report, DATA, probes.BOX_SPEC),
        same_weights("with two critics, both in the subset, and one update a decision it is sac with their mean to the "
                     "bit", lambda: recipe(critics=2, ratio=1), averaged_sac),
        follows_schedule("the actor moves at every twentieth update, target critics follow at rate 0.005", recipe,
                         {"actor": 20, "q": 1, "temperature": 20}, num=22),
        Exact("twenty updates for each decision", updates_told, equals=20.0, of="schedules"),
        Exact("a subset larger than the ensemble is refused with the setting", refused, equals=1.0, of="refusals"),
        Measured("it learns more of the pendulum in 2,400 decisions than sac with as many updates", "pendulum",
                 recipe(), replace(sac(), source=recipe().source), metric=Area(), seeds=5, minutes=120.0, steps=300,
                 looks=3, about=About.HEADLINE),
    ),
)
