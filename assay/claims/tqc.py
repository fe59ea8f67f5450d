"""Claims of tqc: its losses by hand, exact and measured claims, mutants. Axes: B rows, N critics, M quantiles."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import MUJOCO, AssayError, sac
from assay.methods.tqc import TruncatedQuantiles, recipe


def losses_by_hand(seen: probes.Seen, drop: int = 2, num: int = 25) -> dict[str, Tensor]:
    """Returns the losses, row by row: pools of quantiles as lists, the highest taken away one after the other."""
    step, models, q = steps.step_of(seen), seen.models, steps.output
    action, logp = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    after, temperature = q(models["q_target"], step.after, action), models["temperature"].log_value.exp()
    found, total = q(models["q"], step.now, step.action), torch.zeros_like(step.reward)
    critics = len(found)
    level = (2 * torch.arange(1, num + 1, dtype=torch.float64) - 1) / (2 * num)
    for row in range(len(seen.experience)):
        pool = after[:, row].flatten().tolist()
        for _ in range(drop * critics):
            pool.remove(max(pool))
        soft = torch.tensor(pool, dtype=torch.float64) - temperature * logp[row]
        aim = (step.reward[row] + 0.99 * step.goes_on[row] * soft).detach()
        for critic in found:
            error = aim.unsqueeze(0) - critic[row].unsqueeze(1)
            huber = torch.where(error.abs() > 1.0, error.abs() - 0.5, 0.5 * error * error)
            side = torch.where(error < 0, (1.0 - level).unsqueeze(1), level.unsqueeze(1))
            total[row] = total[row] + (side * huber).mean()
    actor = steps.sac_actor(seen, lambda now, taken: q(models["q"], now, taken).mean(-1).mean(0))
    return {"critic": step.mean(total), "actor": actor}


def refused() -> float:
    """Returns 1 if a target without quantiles is refused by a sentence that names the setting."""
    try:
        probes.formula_gap(recipe(drop=25), probes.transitions(), losses_by_hand, probes.BOX_SPEC)
    except AssayError as error:
        return float("drop is 25" in str(error))
    return 0.0


CLAIMS = Claims(
    mutants=(
        Edit("the trained critics in the target", TruncatedQuantiles.__call__, "model(self.q)", 'model("q")'),
        Edit("the lowest are dropped", TruncatedQuantiles.__call__, "pool[: num", "pool.flip(0)[: num"),
        Edit("each critic is truncated by itself", TruncatedQuantiles.__call__,
             "outputs.movedim(-1, 1).flatten(0, 1).sort(0).values",
             "outputs.sort(-1).values.movedim(-1, 0).flatten(0, 1)"),
        Edit("the minimum of the critics for the actor", recipe, "averaged=True), MatchE", "averaged=False), MatchE"),
        Edit("always two dropped", recipe, "drop=drop", "drop=2"),
        Edit("always 25 quantiles", recipe, "Quantiles(num)", "Quantiles(25)"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      partial(probes.transitions, num=24), probes.BOX_SPEC, at_most=1e-6),
        same_gradient("three critics of seven quantiles with five dropped have the formula's gradients too",
                      lambda: recipe(critics=3, num=7, drop=5), partial(losses_by_hand, drop=5, num=7),
                      partial(probes.transitions, num=24), probes.BOX_SPEC, at_most=1e-6),
        Exact("a target without any quantile is refused with the setting", refused, equals=1.0, of="refusals"),
        follows_schedule("target critics follow at rate 0.005", recipe),
        Measured("it swings the pendulum up: its return is above -300", "pendulum", recipe(), -300.0, seeds=5,
                 minutes=30.0, about=About.COMPONENT),
        Measured("where critics overestimate it scores higher than sac: Hopper after 100,000 decisions", "Hopper-v5",
                 recipe(MUJOCO), sac(MUJOCO), seeds=5, minutes=600.0, steps=12_500, looks=3, about=About.HEADLINE),
    ),
)
