"""Claims of redq: its losses by hand, its limit, exact and measured claims, mutants. Axes: B rows, N critics."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, probes, same_gradient
from assay.claims.probes import steps
from assay.method import CONTINUOUS, AssayError, sac
from assay.methods.redq import SoftSubset, recipe


def critics_by_hand(seen: probes.Seen, critics: int = 10, subset: int = 2) -> tuple[Tensor, Tensor]:
    """Returns values and errors [N, B]: each row's subset are the critics with the lowest random numbers."""
    step, models, q = steps.step_of(seen), seen.models, steps.output
    action, logp = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    after, drawn = q(models["q_target"], step.after, action), seen.uniform(1, critics, tag=3)[:, 0]
    lowest = []
    for row in range(len(seen.experience)):
        among = sorted(range(critics), key=lambda one: float(drawn[row, one]))[:subset]
        lowest.append(torch.stack([after[one, row] for one in among]).min())
    soft = torch.stack(lowest) - models["temperature"].log_value.exp() * logp
    recorded = q(models["q"], step.now, step.action)
    return recorded, recorded - step.target(0.99, soft)


def climbed(seen: probes.Seen, state: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of the critics."""
    values = steps.output(seen.models["q"], state, action)
    return values.sum(0) / len(values)


def losses_by_hand(seen: probes.Seen, critics: int = 10, subset: int = 2) -> dict[str, Tensor]:
    """Returns the losses."""
    _, error = critics_by_hand(seen, critics, subset)
    critic = steps.step_of(seen).mean(error.square()) / 2
    return {"critic": critic, "actor": steps.sac_actor(seen, partial(climbed, seen))}


def report_gap() -> float:
    def report(seen: probes.Seen) -> dict[str, Tensor]:
        return steps.sac_report(seen, *critics_by_hand(seen), partial(climbed, seen))

    return probes.formulas.report_gap(recipe(), DATA, report, probes.BOX_SPEC)


def distance_from_sac() -> float:
    """Returns the largest difference of any weight in five updates of two critics, both in the subset; the actors are
    those of the mean.
    """
    data = probes.transitions(dtype=torch.float32)
    averaged = recipe().stages[1].objective
    base = replace(sac(), stages=(sac().stages[0], replace(sac().stages[1], objective=averaged)))
    ours, theirs = (probes.history(one, data, probes.BOX_SPEC, 5) for one in (recipe(critics=2, ratio=1), base))
    return probes.worst(*(probes.distance(a[name], b[name]) for a, b in zip(ours, theirs, strict=True) for name in b))


def schedule_gap() -> float:
    data, trained = probes.transitions(dtype=torch.float32), {"actor": 20, "q": 1, "temperature": 20}
    return probes.schedule_gap(recipe(), data, probes.BOX_SPEC, trained, {"q_target": ("q", 0.005, 1)}, num=22)


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
        Exact("its reports are means over rows with a decision and over critics, and carry no gradient", report_gap,
              at_most=1e-6),
        Exact("with two critics, both in the subset, and one update a decision it is sac with their mean to the bit",
              distance_from_sac, equals=0.0, tolerance=0.0),
        Exact("the actor moves at every twentieth update, target critics follow at rate 0.005", schedule_gap,
              at_most=1e-7),
        Exact("twenty updates for each decision", updates_told, equals=20.0, of="schedules"),
        Exact("a subset larger than the ensemble is refused with the setting", refused, equals=1.0, of="refusals"),
        Measured("it learns more of the pendulum in 2,400 decisions than sac with as many updates", "pendulum",
                 recipe(), replace(sac(), source=recipe().source), metric=Area(), seeds=5, minutes=120.0, steps=300,
                 looks=3, about=About.HEADLINE),
    ),
)
