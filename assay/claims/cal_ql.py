"""Claims of cal-ql: its losses by hand, its limits, exact and measured claims, mutants. Axes: B, T decisions."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Dip, Edit, Exact, Measured, follows_schedule, pendulum, probes
from assay.claims import reads_dataset, same_gradient, same_weights, steps
from assay.method import CONTINUOUS, Experience, cql
from assay.methods.cal_ql import fine_tuned, recipe
from assay.parts import RETURN, Calibrated, Log, returns_to_go


def transitions(shift: float = 0.0, dtype: torch.dtype = torch.float64) -> Experience:
    """Returns transitions with returns from -1 to 1, plus a number: about half of the proposals are below them."""
    data = probes.transitions(num=32, dtype=dtype)
    returns = torch.linspace(-1.0, 1.0, 32, dtype=dtype)
    return data.add({RETURN: torch.stack((returns, returns.flip(0)), 1) + shift})


def losses_by_hand(seen: probes.Seen, weight: float = 1.0) -> dict[str, Tensor]:
    squares, penalty = steps.conservative(seen, 0.99, 10, seen.experience.column(RETURN)[:, 0])
    return {"critic": steps.step_of(seen).mean(squares + weight * penalty), "actor": steps.sac_actor(seen)}


def returns_gap() -> float:
    """Returns the largest gap of the returns in a step's batches to sums by hand; two episodes of 200 decisions."""
    reward, gap = Log(2).columns(pendulum())["reward"][:, 0].double(), 0.0
    for batch in probes.drawn(recipe(log=Log(2)).source, ALONE.given(task=pendulum())):
        for paid, found in zip(batch.reward[:8, 0], batch.column(RETURN)[:8, 0], strict=True):
            start = int((reward == paid.double()).nonzero()[0])
            left = 200 - start % 200
            by_hand = (0.99 ** torch.arange(left).double() * reward[start : start + left]).sum()
            gap = probes.worst(gap, float((by_hand - found).abs()))
    return gap


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, transitions, probes.BOX_SPEC,
                      1e-6),
        same_gradient("another weight multiplies the penalty alone", partial(recipe, weight=3.0),
                      partial(losses_by_hand, weight=3.0), transitions, probes.BOX_SPEC, 1e-6),
        same_weights("with returns below all values it is cql to the bit", recipe, partial(cql, CONTINUOUS),
                     data=partial(transitions, -1e6, torch.float32)),
        Exact("its returns are those of the recorded episodes, discounted", returns_gap, at_most=1e-3),
        follows_schedule("target critics follow at rate 0.005", recipe, data=partial(transitions, 0.0, torch.float32),
                         of="target networks"),
        reads_dataset(lambda: recipe(log=Log(3))),
        Exact("the online phase begins with the models of the offline one", lambda: probes.hand_off_gap(
              fine_tuned(), ("actor", "q", "q_target", "temperature"), probes.BOX_SPEC), equals=0.0),
        Measured("less is lost when training goes on online than after cql", "pendulum",
                 replace(fine_tuned(), steps=100), replace(fine_tuned(calibrated=False), steps=100), metric=Dip(),
                 seeds=5, minutes=15, steps=100, about=About.HEADLINE),
    ),
    mutants=(
        Edit("no floor", Calibrated.__call__, "batch.now.column(RETURN)", "None"),
        Edit("returns go on after an end", returns_to_go, "0.0 if is_last else discount * onward",
             "discount * onward"),
        Edit("cql", recipe, "Calibrated(penalty)", "penalty"),
        Edit("returns with another discount", recipe, 'discount=vars(td.target)["discount"]', "discount=0.95"),
    ),
)
