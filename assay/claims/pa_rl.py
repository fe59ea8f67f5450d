"""Claims of pa-rl: improvement by hand, losses, batches and decisions, a measured claim. Axes: N rows, C candidates."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims import ALONE, About, Claims, Edit, Engine, Exact, Measured, Placement, pendulum, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.method import CONTINUOUS, Box, Context, Draw, iql, random
from assay.methods.pa_rl import Improve, ImprovedActions, Improving, diffusion, recipe
from assay.models import ActionUnits
from assay.parts import Log, ReturnRange
from assay.parts.wrappers.choosing import hashed_uniform

SMALL = Improve(6, 3, 4, 0.2)


class Parabolas(nn.Module):
    """Two critics of actions from -2 to 2 whose mean is -(x - 0.5)^2 of x = a / 2; the first alone rises with x."""

    def __init__(self) -> None:
        super().__init__()
        self.units = ActionUnits(Box((-2.0,), (2.0,)))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns both values, [2, R]."""
        x = action.squeeze(-1) / 2.0
        return torch.stack((4.0 * x - (x - 0.5).square(), -4.0 * x - (x - 0.5).square()))


def by_table(improve: Improve, expected: tuple[float, ...], recorded: float | None = None) -> float:
    """Returns the gap of what the candidates -0.9, -0.2, 0.1, 0.4, 0.95 become, in half-ranges, and of their values."""
    candidates = 2.0 * torch.tensor([[-0.9], [-0.2], [0.1], [0.4], [0.95]]).unsqueeze(0)
    given = None if recorded is None else torch.tensor([[2.0 * recorded]])
    action, value = improve.moved(Parabolas(), {"observation": torch.zeros(1, 1)}, candidates, given)
    right = torch.tensor(expected)
    gap = (action[0, :, 0] / 2.0 - right).abs().max() + (value[0] + (right - 0.5).square()).abs().max()
    return probes.worst(float(gap))


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns iql's losses of the critics, and least squares of the actions that the batch has."""
    step, actor = steps.step_of(seen), seen.models["actor"]
    error = (steps.in_half_ranges(step.action) - steps.output(actor, step.now)) / actor.log_std.exp()
    return {**steps.iql(seen, 0.99, 0.7), "actor": step.mean((error.square() / 2 + actor.log_std).sum(-1))}


def improved_by_hand(q: Any, seen: Tensor, points: list[Tensor], recorded: Tensor | None) -> list[tuple[float, Tensor]]:
    """Returns (value, action) of the candidates of one state, improved one after the other; actions from -2 to 2."""

    def worth(action: Tensor) -> Tensor:
        value: Tensor = q({"observation": seen[None]}, action[None]).mean(0)[0]
        return value

    inside = [point.clamp(-2.0, 2.0) for point in points]
    best = sorted(inside, key=lambda action: float(worth(action).detach()), reverse=True)[:3]
    found = []
    for start in best if recorded is None else [*best[:2], recorded]:
        point, path = start, [(float(worth(start).detach()), start)]
        for _ in range(4):
            here = point.clone().requires_grad_()
            # A step in half-ranges of 2: the slope by a / 2 is twice that by a, and 0.2 of it twice 0.2 in a.
            point = (point + 4.0 * 0.2 * torch.autograd.grad(worth(here), here)[0]).clamp(-2.0, 2.0)
            path.append((float(worth(point).detach()), point))
        found.append(max(path, key=lambda pair: pair[0]))
    return found


def engine_of(log: Log) -> tuple[Any, Any]:
    """Returns the recipe on the pendulum with few candidates, and its engine with random weights."""
    made = recipe(log=log, improve=SMALL)
    engine = Engine(made, pendulum().spec, 0, Placement())
    draw = torch.Generator().manual_seed(2)
    for name in ("actor", "q"):
        values = engine.flats[name].values
        values.add_(0.3 * torch.randn(values.shape, generator=draw))
    return made, engine


def batch_gap() -> float:
    """Returns the largest gap of the actions of a step's first batch to those by hand, 16 rows."""
    made, engine = engine_of(Log(3))
    source = replace(made.stages[1].source, log=replace(made.stages[1].source.log, batch=16, updates=1))
    scene = ALONE.given(task=pendulum(), models=engine, draw=Draw(0))
    (recorded,) = probes.drawn(source.log, scene)
    (batch,) = probes.drawn(source, scene)
    numbers = random.uniform_tensor(scene.draw.at(11, 0), (16, 6)).float()
    chosen_by = random.uniform_tensor(scene.draw.at(11, 0).at(1), (16,))
    actor, q, gap, places = engine.models["actor"], engine.models["q"], 0.0, set()
    for row in range(16):
        seen = recorded.context["observation"][row, 0]
        points = [actor.act({"observation": seen[None]}, numbers[row, c].view(1, 1))[0][0].detach() for c in range(6)]
        found = improved_by_hand(q, seen, points, recorded.action[row, 0])
        weight = torch.tensor([value for value, _ in found]).exp()
        place = int((weight.cumsum(0) / weight.sum() < chosen_by[row]).sum())
        places.add(place)
        gap = probes.worst(gap, float((batch.action[row, 0] - found[place][1]).abs().max()))
    return gap if len(places) > 1 else float("inf")


def decision_gap() -> float:
    """Returns the largest gap of decisions in 16 states to the best improved candidate by hand."""
    made, engine = engine_of(Log(3))
    actor, q = engine.models["actor"], engine.models["q"]
    draw = torch.Generator().manual_seed(1)
    seen, uniform = torch.randn(16, 3, generator=draw), torch.rand(16, 1, generator=draw)
    numbers = torch.cat((uniform, hashed_uniform({"numbers": uniform}, 6)[:, 1:]), 1)
    ours, gap = made.policy(engine.models).act({"observation": seen}, uniform)[0], 0.0
    for row in range(16):
        here = {"observation": seen[row, None]}
        points = [actor.act(here, numbers[row, c].view(1, 1))[0][0].detach() for c in range(6)]
        best = max(improved_by_hand(q, seen[row], points, None), key=lambda pair: pair[0])[1]
        gap = probes.worst(gap, float((ours[row] - best).abs().max()))
    return gap


def one_critic() -> float:
    """Returns how far the critics around both kinds of policy are apart after five updates on the same batches."""
    data = probes.transitions(dtype=torch.float32)
    ours, other = (probes.history(one, data, probes.BOX_SPEC, 5)[-1] for one in (recipe(), diffusion()))
    return max(probes.distance(ours[name], other[name]) for name in ("q", "q_target", "value"))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      partial(probes.transitions, num=64), probes.BOX_SPEC),
        Exact("actions of its batches are the improved candidates by hand, drawn by the softmax of their values",
              batch_gap, at_most=1e-4),
        Exact("it acts by the best improved candidate", decision_gap, at_most=1e-4),
        Exact("two steps on a parabola take 0.95, 0.4 and 0.1 to 0.788, 0.436 and 0.244, the best first",
              lambda: by_table(Improve(5, 3, 2, 0.1), (0.436, 0.244, 0.788)), at_most=1e-5, illustrates=True),
        Exact("steps that go too far leave every candidate where it was", lambda: by_table(Improve(5, 3, 2, 1.2),
              (0.4, 0.1, 0.95)), at_most=1e-5, illustrates=True),
        Exact("critics know nothing of the policy: around both kinds they are the same to the bit", one_critic,
              equals=0.0, tolerance=0.0, of="variants"),
        reads_dataset(lambda: recipe(log=Log(3)), scale=ReturnRange(),
                      name="critics' batches are rows of the dataset, rewards in units of the range of returns"),
        Exact("it begins with the clone's weights", lambda: probes.hand_off_gap(recipe(), ("actor",), probes.BOX_SPEC),
              equals=0.0, of="phases"),
        # What would refute it: that a diffusion policy cannot learn from a critic without a gradient through it.
        Measured("a diffusion policy fitted to its improved actions scores higher than iql", "pendulum", diffusion(),
                 iql(CONTINUOUS), seeds=5, minutes=30, steps=200, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the worst candidates are kept", Improve.moved, "topk(self.keep, 1)", "topk(self.keep, 1, largest=False)"),
        Edit("down the slope", Improve.moved, "self.rate * slope", "-self.rate * slope"),
        Edit("the end of each path", Improve.moved, "value >= best_value", "value == value"),
        Edit("the lowest critic", Improve.values, "found.mean(0)", "found.amin(0)"),
        Edit("the recorded action takes no part", ImprovedActions.__call__, "rows.action.flatten(0, 1)", "None"),
        Edit("the largest value is always fitted", ImprovedActions.__call__,
             'drawn(value.softmax(1), rows.column("chosen_by")[:, 0])', "value.argmax(1)"),
        Edit("the first candidate acts", Improving.act, "value.argmax(1)", "value.argmin(1)"),
    ),
)
