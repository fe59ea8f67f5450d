"""Claims of bc: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from assay.claims import ALONE, About, Claims, Edit, Exact, Measured, gridworld, probes, same_gradient, steps
from assay.method import CONTINUOUS, TABLE, Experience, recipes
from assay.parts import LogLikelihood


def likelihood(seen: probes.Seen) -> torch.Tensor:
    return -seen.logp().sum() / seen.experience.mask.sum()


def least_squares(seen: probes.Seen) -> torch.Tensor:
    """Returns the loss of a Gaussian with mean f(s) and one deviation, without its constant."""
    step, actor = steps.step_of(seen), seen.models["actor"]
    error = (steps.in_half_ranges(step.action) - steps.output(actor, step.now)) / actor.log_std.exp()
    return step.mean((error.square() / 2 + actor.log_std).sum(-1))


def not_cloned() -> float:
    """Returns how many decisions of the expert's episodes a step leaves out, repeats or changes."""
    task = gridworld()
    batches = list(probes.drawn(recipes.bc(TABLE).source, ALONE.given(task=task)))
    rows = [decisions(batches), decisions([task.demonstrate(np.arange(8), 0)])]
    return abs(len(batches) - 16) + float(rows[0] != rows[1])


def decisions(batches: Sequence[Experience]) -> list[list[int]]:
    """Returns the states and actions of all decisions, sorted."""
    return sorted(torch.cat([torch.stack((b.context["state"], b.action), -1)[b.mask] for b in batches]).tolist())


CLAIMS = Claims(
    mutants=(
        Edit("the log-likelihood of the other sign", LogLikelihood.__call__, "-view.scored.logp * ",
             "view.scored.logp * "),
    ),
    claims=(
        same_gradient("its gradient is that of the likelihood", partial(recipes.bc, TABLE), likelihood,
                      probes.sequences),
        same_gradient("with a Gaussian its gradient is that of least squares", partial(recipes.bc, CONTINUOUS),
                      least_squares, probes.transitions, probes.BOX_SPEC, of="continuous-control"),
        Exact("a step clones every decision of 8 expert episodes once, in 16 batches", not_cloned, equals=0.0),
        Measured("it imitates a perfect expert", "cartpole", recipes.bc(), 475.0, seeds=5, minutes=1,
                 about=About.HEADLINE),
    ),
)
