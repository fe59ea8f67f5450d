"""The losses of ota by hand, the rows that its stages draw, and values of goals on a line, whose fixed point is known.

Axes: B rows, L places, N heads.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Average, Claims, Computed, Edit, Exact, Measured, follows_schedule, probes
from assay.method import Draw, Experience, Recipe
from assay.methods.ota import ExpectileByTarget, ProposeSubgoal, TowardsSubgoal, gains, recipe
from assay.models import of_length_root
from assay.parts import Places, Relabelled
from assay.runs.catalogue import find_task
from assay.tasks.tabular.grids import CORRIDOR, GoalGrid

NO_TASK: Any = None
"""A task that only knows distances."""


def phi(model: Any, seen: Tensor, goal: Tensor) -> Tensor:
    found: Tensor = model.phi(torch.cat((seen, goal), -1))
    return 10**0.5 * found / found.square().sum(-1, keepdim=True).sqrt()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, models = seen.experience, seen.models
    (now, after), goal, here = data.context["observation"].unbind(1), data.context["goal"][:, 0], data.mask[:, 0]

    def value(name: str, place: Tensor) -> Tensor:
        rows = torch.cat((place, phi(models[name], place, goal)), -1)
        return torch.stack([one.flatten() for one in models[name].heads(rows)])

    def fitted(name: str) -> Tensor:
        onward = torch.where(data.terminal[:, 0], 0.0, value(f"{name}_target", after))
        target = (data.reward[:, 0] + 0.95 * onward).detach()
        is_gain = torch.minimum(target[0], target[1]) >= value(f"{name}_target", now).mean(0)
        error = (value(name, now) - target).square() * (0.3 + 0.4 * is_gain.double())
        return error[:, here].sum() / here.sum()

    def weight(name: str) -> Tensor:
        gain = value(name, after).mean(0) - value(name, now).mean(0)
        return (3.0 * gain).exp().clamp(max=100.0).detach()[here]

    subgoal = phi(models["value"], now, goal).detach()
    logits = models["actor"].low.body({"observation": now.unsqueeze(1), "goal": subgoal.unsqueeze(1)})[:, 0]
    logp = logits.log_softmax(-1)[torch.arange(len(now)), data.action[:, 0]]
    asked = models["actor"].high({"observation": now.unsqueeze(1), "goal": goal.unsqueeze(1)})[:, 0]
    reached = phi(models["value"], now, data.context["achieved"][:, 1]).detach()
    apart = (asked - reached).square().sum(-1) / 2
    return {
        "value": fitted("value"),
        "high value": fitted("high_value"),
        "low actor": -(weight("value") * logp[here]).mean(),
        "high actor": (weight("high_value") * apart[here]).mean(),
    }


# ---------------------------------------------------------------------------------------------------- rows
def drawn(source: Any, num: int = 4096) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns place, place after the jump, goal and reward [num] of rows of two walks: 40 steps from 0 on, 20 from
    1,000 on.
    """
    steps = torch.cat([torch.arange(41), 1000 + torch.arange(21)]).unsqueeze(-1)
    columns = {"observation": steps, "achieved": steps, "action": 0 * steps[..., 0], "last": torch.tensor([40, 20])}
    scene, state = ALONE.given(draw=Draw(1)), {"contents": SimpleNamespace(columns=(columns,))}
    (rows,) = replace(source, batch=num, updates=1)(scene, state)
    place, after = rows.context["achieved"][..., 0].unbind(1)
    return place, after, rows.context["goal"][:, 0, 0], rows.reward[:, 0]


def source_errors(recipe: Recipe, option: int) -> float:
    """Returns the number of rows that no stage may draw, and of shares of rows and goals that are off by over 0.025."""
    by_name = {stage.name: stage.source or recipe.source for stage in recipe.stages}
    wrong = 0.0
    for name, jump in (("value", 1), ("high value", option), ("low actor", 1), ("high actor", 10)):
        place, after, goal, reward = drawn(by_name[name])
        left, here = torch.where(place < 1000, 40, 20) - place % 1000, goal == place
        ahead = (goal > place) & (goal // 1000 == place // 1000)
        whole = torch.minimum(torch.tensor(jump), left)
        cut = torch.minimum(whole, torch.where(ahead, goal - place, whole))
        wrong += int(((after - place != whole) & (after - place != cut)).sum()) + is_off(place < 1000, 40 / 60)
        wrong += int(((reward != -1) & ~here).sum()) + int((left == 0).sum())
        if name == "low actor":
            wrong += int((goal - place != torch.minimum(torch.tensor(10), left)).sum())
        elif name == "high actor":
            wrong += int((~ahead & (left > 0)).sum())
        else:
            other = 0.3 * (40 * 21 + 20 * 41) / (60 * 62)
            wrong += is_off(here, 0.2 + 0.3 / 62) + is_off(goal // 1000 != place // 1000, other)
    return wrong


def is_off(event: Tensor, share: float) -> bool:
    return not abs(float(event.double().mean()) - share) <= 0.025


# ---------------------------------------------------------------------------------------------------- values
class LineValue:
    """V(s, g) of places 0 to L - 1 as a table [L, L], one head."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, context: Any) -> Tensor:
        """Returns values [1, B, T]."""
        place, goal = (context[name][..., 0].long() for name in ("observation", "goal"))
        return self.table[place, goal].unsqueeze(0)


class LineView:
    """A view in which every model is the same table."""

    def __init__(self, table: Tensor) -> None:
        self.value = LineValue(table)

    def model(self, name: str) -> LineValue:
        """Returns the table."""
        return self.value


def line_rows(source: Relabelled, length: int) -> Experience:
    """Returns every (place, goal here or ahead) of one episode that walks a line to its end, as rows of the source."""
    steps = torch.arange(length, dtype=torch.float64).unsqueeze(-1)
    columns = {"observation": steps, "achieved": steps, "action": torch.zeros(length, dtype=torch.long)}
    columns["last"] = torch.tensor([length - 1])
    time, goal = (index.numpy() for index in torch.triu_indices(length, length))
    episode, ahead = torch.zeros(len(time), dtype=torch.long).numpy(), goal > time
    places = Places(episode, goal, ahead)
    end = source.ends(time, places, length - 1)
    record = source.rows(columns, (episode, time, end), places, NO_TASK)
    return record.with_columns(reward=record.reward.double())


def right_proposals(seed: int, option: int, steps: int = 40) -> float:
    """Returns how often the policy's subgoal is nearer to the cell ten moves ahead than to that ten moves back, as the
    low level's value represents them, of all cells of the corridor and held-out goals 40 and more moves apart; with
    options of `option` steps, after training.
    """
    loop, grid = probes.trained(recipe(option=option), find_task("corridor"), seed, steps), GoalGrid(CORRIDOR, 1, 200)
    along = CORRIDOR.distance[int(CORRIDOR.distance[0].argmax())]  # the place of each cell on the one path
    cell_at = along.argsort()
    cell, goal = (each.ravel() for each in np.meshgrid(np.arange(len(along)), CORRIDOR.goals(1)))
    inside = (along[cell] >= 10) & (along[cell] < len(along) - 10) & (np.abs(along[goal] - along[cell]) >= 40)
    cell, goal = cell[inside], goal[inside]
    way = 10 * np.sign(along[goal] - along[cell])
    actor, value = (cast(Any, loop.engine.models[name]) for name in ("actor", "value"))
    with torch.no_grad():
        asked = of_length_root(actor.propose(grid.observe(np.stack([cell, goal]))))
        places = (cell_at[along[cell] + way], cell_at[along[cell] - way])
        ahead, back = (value.represent(grid.observe(np.stack([cell, place]))) for place in places)
    return float(((asked - ahead).norm(dim=-1) < (asked - back).norm(dim=-1)).double().mean())


def proposing(option: int) -> Computed:
    """Returns the side of `right_proposals` with options of this length."""
    return Computed(partial(right_proposals, option=option), small=partial(right_proposals, option=option, steps=2))


def of_one_source() -> Recipe:
    """Returns the recipe whose stages all learn from the same batches."""
    return replace(recipe(), stages=tuple(replace(stage, source=None) for stage in recipe().stages))


CLAIMS = Claims(
    mutants=(
        Edit("values of both times change places", gains, "batch.after.context).mean(0) - value(batch.now.context)",
             "batch.now.context).mean(0) - value(batch.after.context)"),
        Edit("one head decides", gains, "value(batch.after.context).mean(0)", "value(batch.after.context)[0]"),
        Edit("the live value decides the expectile", ExpectileByTarget.__call__, "self.copy", "of.model"),
        Edit("subgoals by the low level's value", ProposeSubgoal.__call__, "self.critic)", '"value")'),
        Edit("the goal in place of the state reached", ProposeSubgoal.__call__, 'batch.after.context["achieved"]',
             'now.context["goal"]'),
        Edit("the low level sees the goal", TowardsSubgoal.__call__, "now, subgoal",
             "now, now.context['goal'].repeat(1, 1, 5)"),
        Edit("the low level learns without subgoals", recipe, "goals=Ahead(10)", "goals=Mixed()"),
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              recipe(), probes.goal_transitions(), losses_by_hand, probes.GOAL_CHOICE), at_most=1e-9),
        Exact("its stages jump 1, 5, 1 and 10 steps; subgoals are 10 ahead, goals ahead, those of the values mixed",
              lambda: source_errors(recipe(), 5), equals=0.0),
        follows_schedule("targets follow at rate 0.02", of_one_source, {"actor": 1, "value": 1, "high_value": 1},
                         {f"{name}_target": (name, 0.02, 1) for name in ("value", "high_value")},
                         data=partial(probes.goal_transitions, dtype=torch.float32), spec=probes.GOAL_CHOICE,
                         of="target networks"),
        Measured(
            "for goals 40 and more steps away the advantage's sign is right more often than with n = 1",
            "corridor", recipe(far=40.0), recipe(option=1, far=40.0), Average("right_signs", 0.25),
            seeds=5, minutes=2.5, steps=80, about=About.MECHANISM,
        ),
        Measured(
            "for goals 40 and more steps away the advantage's sign is right not less often than with one step and the "
            "same horizon, discount^(1/n)",
            "corridor", recipe(far=40.0), recipe(option=1, high_discount=0.95**0.2, far=40.0),
            Average("right_signs", 0.25), margin=-0.05, seeds=5, minutes=2.5, steps=80, about=About.COMPONENT,
        ),
        Measured(
            "for held-out goals 40 and more steps away the policy's subgoal is ahead, not back, more often than with n "
            "= 1", "", proposing(5), proposing(1), seeds=5, minutes=6.0, looks=4, about=About.HEADLINE,
        ),
        Measured(
            "the policy reaches more held-out goals than with n = 1",
            "pointmaze-large", recipe(), recipe(option=1), seeds=5, minutes=15.0, steps=100, looks=4,
            about=About.HEADLINE,
        ),
    ),
)
