"""Claims of ss-orl: what its model recovers, which rows it leaves alone, measured claims. Axes: N rows, T decisions."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Edit, Exact, Measured, pendulum, probes, same_gradient, steps
from assay.method import Draw, td3_bc
from assay.methods.ss_orl import recipe
from assay.parts import Completed, InverseDynamics, Log
from assay.parts.sources.completed import Rows, lowest, windows


def positions(velocity: bool) -> Rows:
    """Returns episodes of a point that is pushed, s'' = a, seen with or without its velocity; half have labels."""
    draw = torch.Generator().manual_seed(0)
    action, place, speed = 0.8 * (2 * torch.rand(100, 6, generator=draw) - 1), torch.zeros(100), torch.zeros(100)
    seen = []
    for t in range(7):
        seen.append(torch.stack((place, speed if velocity else place), 1))
        if t < 6:
            speed = speed + action[:, t]
            place = place + speed
    states = torch.stack(seen, 1)
    ends = torch.zeros(100, 6, dtype=torch.bool)
    ends[:, -1] = True
    acted = torch.arange(100).lt(50).unsqueeze(1).expand(100, 6)
    flat = (one.flatten(0, 1) for one in (states[:, :-1], states[:, 1:], action.unsqueeze(-1), ends, acted))
    return Rows(*flat)


def error(velocity: bool, past: int) -> float:
    """Returns the root mean squared error of completed actions, whose deviation is 0.46; the model is a small one."""
    rows = positions(velocity)
    hidden = replace(rows, action=torch.where(rows.acted.unsqueeze(1), rows.action, 0.0))
    found = InverseDynamics((64, 64), updates=150, learning_rate=3e-3, past=past).completed(hidden, Draw(0))
    return float((found - rows.action)[~rows.acted].square().mean().sqrt())


def window_gap() -> float:
    """Returns the largest gap of windows to those by hand, of two episodes of three rows."""
    seen = torch.arange(6.0).unsqueeze(1)
    ends = torch.tensor([False, False, True] * 2)
    rows = Rows(seen, seen + 0.5, seen, ends, ends)
    unit = (seen - seen.mean()) / (seen.std(correction=0) + 1e-6)
    after = (seen + 0.5 - seen.mean()) / (seen.std(correction=0) + 1e-6)
    before = unit.roll(1, 0)
    before[[0, 3]] = 0.0
    return float((windows(rows, 1) - torch.cat((before, unit, after), 1)).abs().max())


def columns(share: float, log: Log = Log(10)) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the recipe's columns and those of its dataset."""
    source = recipe(log=log, share=share, model=InverseDynamics(updates=20)).source
    assert isinstance(source, Completed)
    (found,) = source.init(ALONE.given(task=pendulum(), draw=Draw(0)))["contents"].columns
    return found, log.columns(pendulum())


def gap_of(found: dict[str, Tensor], data: dict[str, Tensor]) -> float:
    """Returns the largest difference in the columns of the data."""
    return probes.worst(*(float((found[name].double() - data[name].double()).abs().max()) for name in data))


def changed() -> float:
    """Returns how much but hidden actions differs from the data: labelled rows, other columns, next actions."""
    found, data = columns(0.2)
    same = (found["action"][:, 0] == data["action"][:, 0]).all(-1).view(10, 200)
    labelled = same.all(1)
    ends = (data["terminal"] | data["truncated"])[:, 0]
    following = (found["action"][:-1, 1] - found["action"][1:, 0])[~ends[:-1]].abs().max()
    others = gap_of(found, {name: column for name, column in data.items() if name != "action"})
    returns = data["reward"][:, 0].view(10, 200).sum(1)
    above = float((returns[labelled] > returns.median()).sum())
    return abs(float(labelled.sum()) - 2.0) + float(following) + others + above


def all_labelled() -> float:
    found, data = columns(1.0)
    return gap_of(found, data)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of td3-bc's formulas", recipe, steps.td3_bc,
                      partial(probes.transitions, num=2048), probes.BOX_SPEC, at_most=1e-6),
        Exact("a window holds the state before, this one and the next of the same episode", window_gap, at_most=1e-6),
        Exact("two of ten episodes keep their actions, among the five worst, and nothing but hidden actions changes",
              changed, equals=0.0),
        Exact("with all labels it is the dataset to the bit", all_labelled, equals=0.0, tolerance=0.0, of="oracle"),
        Exact("from positions and a position before them it reads accelerations off, which a pair does not show",
              lambda: error(velocity=False, past=1), at_most=0.15),
        Exact("from positions alone, without one before, actions stay unknown", lambda: error(velocity=False, past=0),
              at_least=0.2, of="the window"),
        Exact("with the velocity seen a pair of states is enough", lambda: error(velocity=True, past=0), at_most=0.1,
              illustrates=True),
        Measured("with one episode in ten labelled, of the worse half, it scores higher than learning from those alone",
                 "pendulum", recipe(), recipe(model=None), seeds=5, minutes=8, steps=200, about=About.HEADLINE),
        Measured("it scores no more than 150 below td3-bc with all labels", "pendulum", recipe(), td3_bc(),
                 margin=-150.0, seeds=5, minutes=8, steps=200, about=About.COMPONENT),
    ),
    mutants=(
        Edit("the next row in the place of the next state", windows, "rows.next_observation", "rows.observation"),
        Edit("windows reach into the episode before", windows, "place - back >= first", "place - back >= 0"),
        Edit("labels of the best episodes", lowest, "returns.argsort(stable=True)",
             "returns.argsort(stable=True, descending=True)"),
        Edit("next actions stay hidden", Completed.completed, "action.roll(-1, 0)", "hidden.roll(-1, 0)"),
        Edit("hidden actions are the mean", InverseDynamics.completed, "half * mean(seen).tanh()",
             "0 * mean(seen).tanh()"),
    ),
)
