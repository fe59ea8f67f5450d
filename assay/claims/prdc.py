"""Claims of prdc: its loss by hand, its neighbours by a plain search, its limits, a measured claim. Axes: B, T, N."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Edit, Engine, Exact, Measured, Placement, pendulum, probes, same_gradient
from assay.claims import steps
from assay.method import CONTINUOUS, Box, Draw, Experience, td3_bc
from assay.methods.prdc import NEAREST, NearNeighbour, Neighbours, Rows, recipe
from assay.parts import Log, Logged


def transitions() -> Experience:
    """Returns transitions with other actions in the column of the nearest ones."""
    data = probes.transitions(num=1024)
    return data.add({NEAREST: data.action.flip(0)})


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    b = steps.smoothed(seen)
    recorded, decided = q(models["q"], step.now, step.action), steps.bounded(models["actor"], step.now)
    error = recorded - step.target(0.99, q(models["q_target"], step.after, b).amin(0))
    scaled = q(models["q"], step.now, decided)[0] / step.mean(recorded[0].abs()).detach()
    near = ((decided - seen.experience.column(NEAREST)[:, 0]) / steps.HALF).square().mean(-1)
    return {"critic": step.mean(error.square()) / 2, "actor": step.mean(near - 2.5 * scaled)}


def drawn(beta: float, log: Log = Log(4, noise=0.5)) -> tuple[list[Experience], Any, Any]:
    """Returns a step's batches with an untrained actor, the actor, and the dataset's columns."""
    task, made = pendulum(), recipe(log=log, beta=beta)
    engine = Engine(made, task.spec, 0, Placement())
    scene = ALONE.given(task=task, models=engine, draw=Draw(0))
    return list(probes.drawn(made.source, scene)), engine.models["actor"], log.columns(task)


def wrong_neighbours(beta: float) -> float:
    """Returns how many rows have another nearest action than a plain search finds; states standardised by hand."""
    batches, actor, rows = drawn(beta)
    seen, action = rows["context.observation"][:, 0].double(), rows["action"][:, 0].double() / 2.0
    unit = seen.std(0, correction=0) + 1e-3
    wrong = 0
    for batch in batches:
        here = batch.context["observation"][:, :1]
        decided = actor.decide({"observation": here})[:, 0].detach().double() / 2.0
        for state, own, found in zip(here[:, 0].double(), decided, batch.column(NEAREST)[:, 0], strict=True):
            gap = (beta * (seen - state) / unit).square().sum(-1) + (action - own).square().sum(-1)
            wrong += int(gap[(rows["action"][:, 0] == found).all(-1)].min() > gap.min() + 1e-6)
    return float(wrong)


def table() -> list[float]:
    """Returns the nearest actions to 0.6 in (0, 0) among (0, 0 | -1), (0.5, 0 | 0.8), (2, 0 | 1), whose first number
    has deviation 0.85; beta is 0, 0.5, 1, 2, 7.5 in units in which it is 1.
    """
    seen = torch.tensor([[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    action, here = torch.tensor([[-1.0], [0.8], [1.0]]), {"observation": torch.zeros(1, 2)}
    unit = float(seen[:, 0].std(correction=0)) + 1e-3
    space = Box((-1.0,), (1.0,))
    betas = (0.0, 0.5, 1.0, 2.0, 7.5)
    return [
        float(Rows({"observation": seen}, action, space, beta * unit).near(here, torch.tensor([[0.6]])))
        for beta in betas
    ]


def not_recorded(beta: float) -> float:
    """Returns the largest gap of nearest to recorded actions."""
    batches, _, _ = drawn(beta, Log(4, noise=1.0))
    return probes.worst(*(float((one.column(NEAREST) - one.action)[:, 0].abs().max()) for one in batches))


POOR = (Log(45, noise=1.0), Log(5, noise=0.1, first=100))
"""Nine of ten episodes are random, the others an expert's."""


def mixed(given: Any) -> Any:
    """Returns the recipe on those data."""
    source = given.source
    if isinstance(source, Neighbours):
        return replace(given, source=replace(source, log=replace(source.log, logs=POOR, batch=64)))
    assert isinstance(source, Logged)
    return replace(given, source=replace(source, logs=POOR, batch=64))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, transitions, probes.BOX_SPEC,
                      1e-8),
        Exact("its neighbours are those of a plain search in standardised states", lambda: wrong_neighbours(2.0),
              equals=0.0),
        Exact("three rows of a table have the nearest actions 0.8 up to beta 2 and -1 at 7.5",
              lambda: sum(abs(a - b) for a, b in zip(table(), (0.8, 0.8, 0.8, 0.8, -1.0), strict=True)), at_most=1e-6,
              of="neighbours"),
        Exact("with a large beta the nearest action is the recorded one, as in td3-bc", lambda: not_recorded(1e5),
              equals=0.0, illustrates=True),
        Measured("where nine in ten episodes are random it scores higher than td3-bc", "pendulum", mixed(recipe()),
                 mixed(td3_bc(CONTINUOUS)), seeds=5, minutes=25, looks=2, steps=1_000, about=About.HEADLINE),
    ),
    mutants=(
        Edit("states are not standardised", Rows.__init__, "beta / (deviation + EPSILON).to(seen.dtype)",
             "beta * torch.ones_like(mean).to(seen.dtype)"),
        Edit("neighbours of the recorded action", Neighbours.__call__, "near(batch.now.context, action)",
             "near(batch.now.context, batch.now.action)"),
        Edit("actions in the task's units", Rows.key, "action / self.half_range", "action"),
        Edit("the pull to the recorded action", NearNeighbour.goal, "column(NEAREST)", "action"),
    ),
)
