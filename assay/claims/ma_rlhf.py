"""The credit of macro actions by hand, and its expectation over all episodes of a table.

Axes: B sequences, T decisions.
"""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Exact, Expect, Measured, by_hand, probes
from assay.method import CONTROL, PLACES, Experience, recipes
from assay.methods.ma_rlhf import recipe

def macro_actions(data: Experience, row: int, length: int) -> list[list[int]]:
    """Returns the columns of each macro action of a row: at most `length` decisions, none across an episode's end."""
    found: list[list[int]] = [[]]
    for column in data.mask[row].nonzero().flatten().tolist():
        if len(found[-1]) == length:
            found.append([])
        found[-1].append(column)
        if data.terminal[row, column] or data.truncated[row, column]:
            found.append([])
    return [columns for columns in found if columns]


def macro_gae(data: Experience, value: Tensor, length: int, discount: float, decay: float) -> tuple[Tensor, Tensor]:
    """Returns advantages and targets of the critic, macro action by macro action from the last one, both [B, T]."""
    advantage, target = torch.zeros_like(value), torch.zeros_like(value)
    for row in range(len(value)):
        later: int | None = None
        for columns in reversed(macro_actions(data, row, length)):
            last = columns[-1]
            ends, cut = bool(data.terminal[row, last]), bool(data.truncated[row, last])
            goes_on = later is not None and not ends and not cut
            place = later if goes_on else last + 1
            assert place is not None
            after = 0.0 if ends or place == value.shape[1] else value[row, place]
            after = after + (decay * advantage[row, place] if goes_on else 0.0)
            for column in reversed(columns):
                after = data.reward[row, column] + discount * after
                target[row, column] = after
            advantage[row, columns] = target[row, columns[0]] - value[row, columns[0]]
            later = columns[0]
    return advantage.detach(), target.detach()


def losses_by_hand(length: int, discount: float, decay: float, seen: probes.Seen) -> dict[str, Tensor]:
    data, value = seen.experience, seen.value()
    advantage, target = macro_gae(data, value, length, discount, decay)
    gain = by_hand.clipped(by_hand.ratio(seen), by_hand.whitened(advantage, data), low=0.2, high=0.2)
    return {
        "policy": -by_hand.mean_of_decisions(gain + 0.003 * by_hand.entropy(seen), data),
        "value": by_hand.mean_of_decisions((value - target).square() / 2, data),
    }


def gap_to_formula() -> float:
    """Returns the larger gap of the recipe as shipped (5 tokens) and of pairs with the discount of control."""
    shipped, pairs = recipe(), recipe(CONTROL, length=2)
    return max(
        probes.formula_gap(shipped, probes.fragments(), partial(losses_by_hand, 5, 1.0, 0.95)),
        probes.formula_gap(pairs, probes.fragments(), partial(losses_by_hand, 2, 0.98, 0.9)),
    )


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradients are the formula's", gap_to_formula, at_most=1e-9),
        Measured("where 2 of 32 tokens decide it learns faster than ppo: mean pass rate over the run",
                 "key-decisions:length=32", recipe(PLACES), recipes.ppo(PLACES), Area("pass_rate"), seeds=5,
                 minutes=10.0, steps=40, looks=3, about=About.HEADLINE),
        Measured("where 2 of 32 tokens decide it learns faster than ppo whose lambda of 0.95^(1/5) looks as far ahead: "
                 "mean pass rate over the run", "key-decisions:length=32", recipe(PLACES),
                 recipes.ppo(PLACES).set("gae_lambda", 0.95**0.2), Area("pass_rate"), seeds=5, minutes=10.0, steps=40,
                 looks=3, about=About.MECHANISM),
        Measured("where there are 2 tokens and both decide it learns as fast as ppo, within 0.05",
                 "key-decisions:length=2",
                 recipe(PLACES), recipes.ppo(PLACES), Area("pass_rate"), Expect.WITHIN, margin=0.05, seeds=5,
                 minutes=3.0, steps=40, about=About.COMPONENT),
    ),
)
