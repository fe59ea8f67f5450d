"""Near-real tasks: a task with one difficulty of a real system, and the log of a cautious controller as its dataset.

    near-pipeline              what is done arrives nineteen decisions later; a slow PID controller
    near-dmsd                  two masses and three springs; PD control that does not know the springs
    near-delayed-pendulum      actions come two decisions late; half of the expert's torque
    near-disturbed-cartpole    15 pushes in 100 are the other one; control of the pole's angle alone
    near-budgeted-pendulum     effort for 20 decisions at full torque; three tenths of the expert's torque

The score is 0 for uniform actions and 100 for the scripted expert on the task without the difficulty, both as policies
are evaluated: so 100 may be out of reach. The controllers score from 50 to 80, as NeoRL-2's (arXiv:2503.19267) do; in
their logs a tenth of the actions is uniform. Scores are these tasks' own and not NeoRL-2's.

Axes: N instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from assay.core.spaces import Context
from assay.tasks.control import dmsd, pipeline
from assay.tasks.control.benchmark import Benchmark, Policy, benchmark, log_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum, swing_up
from assay.tasks.control.stepping import SteppedTask
from assay.tasks.control.transforms import budgeted, delayed, disturbed

NOISE = 0.1
"""The share of uniform actions in a log."""


def weakly(share: float, context: Context) -> Tensor:
    """Swings a pendulum up with a share of the expert's torque."""
    return share * swing_up(context)


def upright(context: Context) -> Tensor:
    """Pushes a cart to the side to which its pole falls, wherever the cart is."""
    return (context["observation"][:, 2] + 0.5 * context["observation"][:, 3] > 0).long()


@dataclass(frozen=True)
class Near:
    """A near-real task: what it is, its controller, the episodes of its log, and the returns of score 0 and 100."""

    task: Callable[[], SteppedTask]
    behaviour: Policy
    episodes: int
    reference: tuple[float, float]


NEAR: Mapping[str, Near] = {
    "near-pipeline": Near(pipeline.pipeline, pipeline.pid, 10, (-138.0, 791.0)),
    "near-dmsd": Near(dmsd.dmsd, dmsd.pid, 100, (29.3, 827.4)),
    "near-delayed-pendulum": Near(lambda: delayed(pendulum(), 2), partial(weakly, 0.5), 50, (-1234.0, -107.9)),
    "near-disturbed-cartpole": Near(lambda: disturbed(cartpole(), 0.15), upright, 50, (21.1, 500.0)),
    "near-budgeted-pendulum": Near(lambda: budgeted(pendulum(), 20.0), partial(weakly, 0.3), 50, (-1229.0, -107.9)),
}
"""Reference returns are means over held-out episodes: 500 of uniform actions, the 20 of an evaluation of the expert."""


def near_real(name: str) -> Benchmark:
    """Returns a near-real task with the log of its controller, one for each draw."""
    found = NEAR[name]
    task = found.task()
    return benchmark(task, name, found.reference, log_of(task, found.behaviour, found.episodes, NOISE))


LEVELS = {
    "near-pipeline": partial(near_real, "near-pipeline"),
    "near-dmsd": partial(near_real, "near-dmsd"),
    "near-delayed-pendulum": partial(near_real, "near-delayed-pendulum"),
    "near-disturbed-cartpole": partial(near_real, "near-disturbed-cartpole"),
    "near-budgeted-pendulum": partial(near_real, "near-budgeted-pendulum"),
}
