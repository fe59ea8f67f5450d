"""Claims of c51: its projection and loss by hand, exact and measured claims, mutants. Axes: B transitions, M atoms."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import COPIED, About, Average, Claims, Edit, Exact, Measured, follows_schedule, probes, same_gradient
from assay.claims import steps
from assay.method import CONTROL, Experience, Recipe, dqn
from assay.methods.c51 import CategoricalTd, projected, rainbow, recipe
from assay.models import Bins, two_hot_labels

SPEC = probes.CHOICE_SPEC


def loud() -> Experience:
    """Returns transitions with rewards so large that some targets lie beyond the atoms."""
    data = probes.transitions(SPEC, num=32)
    return replace(data, reward=4.0 * data.reward)


def ranged(num: int = 51) -> Recipe:
    """Returns the recipe with atoms between -6 and 6, the outermost at half a width from there."""
    return recipe(num=num).set("bins.low", -6.0).set("bins.high", 6.0)


def ranged_rainbow() -> Recipe:
    """Returns the variant with the same atoms."""
    return rainbow().set("bins.low", -6.0).set("bins.high", 6.0)


def projected_by_hand(atoms: Tensor, probability: Tensor, first: float, width: float) -> Tensor:
    """Returns algorithm 1 of the paper, atom by atom: each gives its probability to the atoms below and above it."""
    found = torch.zeros_like(probability)
    last = len(atoms) - 1
    for atom, share in zip(atoms.tolist(), probability, strict=True):
        place = (min(max(atom, first), first + last * width) - first) / width
        below = min(int(place), last)
        above = min(below + 1, last)
        found[below] += share * (1.0 - (place - below))
        found[above] += share * (place - below)
    return found


def several_steps() -> Experience:
    """Returns such transitions over one to three steps, drawn by priority: with a column of weights."""
    data = loud()
    ahead = (1 + torch.arange(len(data)) % 3).to(data.reward).unsqueeze(1).expand(-1, 2)
    weight = torch.linspace(0.1, 1.0, len(data), dtype=data.reward.dtype).unsqueeze(1).expand(-1, 2)
    return data.add({"steps_ahead": ahead, "importance": weight})


def loss_by_hand(seen: probes.Seen, num: int = 51, is_rainbow: bool = False) -> Tensor:
    """Returns the cross-entropy with the projected distributions, row by row."""
    step, width = steps.step_of(seen), 12.0 / num
    first = -6.0 + width / 2
    atoms = first + width * torch.arange(num, dtype=torch.float64)
    after = steps.output(seen.models["target"], step.after).detach().softmax(-1)
    found, rows = steps.output(seen.models["actor"], step.now), []
    for row in range(len(seen.experience)):
        chooser = steps.output(seen.models["actor"], step.after)[row].softmax(-1) if is_rainbow else after[row]
        best = int((chooser * atoms).sum(-1).argmax())
        power = int(seen.experience.extra["steps_ahead"][row, 0]) if is_rainbow else 1
        moved = step.reward[row] + 0.99**power * step.goes_on[row] * atoms
        label = projected_by_hand(moved, after[row, best], first, width)
        rows.append(-(label * found[row, step.action[row]].log_softmax(-1)).sum())
    weight = seen.experience.extra["importance"][:, 0] if is_rainbow else torch.ones_like(step.reward)
    return step.mean(torch.stack(rows) * weight)


def mean_gap() -> float:
    """Returns how far projections of distributions inside the atoms are from their means, and from a sum of 1."""
    draw = torch.Generator().manual_seed(0)
    bins, probability = Bins(-4.0, 4.0, 16), torch.rand(50, 9, generator=draw, dtype=torch.float64)
    probability = probability / probability.sum(-1, keepdim=True)
    atoms = 7.0 * torch.rand(50, 9, generator=draw, dtype=torch.float64) - 3.5
    found = projected(atoms, probability, bins)
    means = found @ bins.centres(found) - (atoms * probability).sum(-1)
    return probes.worst(*means.abs().tolist(), *(found.sum(-1) - 1.0).abs().tolist())


CLAIMS = Claims(
    mutants=(
        Edit("the trained network in the target", CategoricalTd.labels, "model(self.target)", 'model("actor")'),
        Edit("the trained network chooses", CategoricalTd.labels, "model(self.actor)", 'model("actor")'),
        Edit("all of an atom goes to the nearest", two_hot_labels, "place).abs()", "place).abs().round()"),
        Edit("always 51 atoms", recipe, "BinsOfTask(num=num)", "BinsOfTask(num=51)"),
    ),
    claims=(
        same_gradient("its gradient is that of the formula", ranged, loss_by_hand, (loud,), SPEC),
        same_gradient("its gradient is that of the formula with 9 atoms too", partial(ranged, 9),
                      partial(loss_by_hand, num=9), (loud,), SPEC),
        same_gradient("rainbow's gradient is that of the formula, weighted, over one to three steps", ranged_rainbow,
                      partial(loss_by_hand, is_rainbow=True), (several_steps,), SPEC, of="rainbow"),
        Exact("a projection keeps the mean and the sum of what lies inside the atoms", mean_gap, at_most=1e-12,
              illustrates=True),
        follows_schedule("the target network is a copy made every 128 updates", ranged, {"actor": 1}, COPIED, spec=SPEC,
                         num=130),
        Measured("where every move changes the return it scores higher than dqn over the run", "hazards",
                 recipe(CONTROL), dqn(CONTROL), metric=Average("evaluation"), seeds=5, minutes=20.0, steps=60, looks=4,
                 about=About.HEADLINE),
    ),
)
