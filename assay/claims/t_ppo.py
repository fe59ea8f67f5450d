"""Windows by hand: their credit, their critic's targets, and what they gather. Axes: B sequences, T decisions."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Exact, Measured, addition, by_hand, probes
from assay.method import STALE, Experience, Recipe, recipes
from assay.methods.t_ppo import recipe


def in_windows() -> Experience:
    """Returns off-policy rows of which a third stop open, with an earlier decision before some and tails that are
    dropped.
    """
    data, row = probes.sequences(num=64, spread=4.0), torch.arange(64).unsqueeze(1)
    is_open, column = row % 3 == 2, torch.arange(7)
    left = (5 - column).clamp(min=0) + 9 * (row % 7 == 0)
    answer = data.mask | ((column == 0) & (row % 2 == 0))
    fault = torch.arange(64) == 63
    data = replace(data, terminal=data.terminal & ~is_open, truncated=data.truncated & ~is_open)
    return data.add({"left": torch.where(data.mask, left, 3), "answer": answer, "infra_fault": fault})


def extended(data: Experience, value: Tensor) -> Tensor:
    """Returns generalised advantages, discount 1 and lambda 0.95; after an open row's end the value before it."""
    result = torch.zeros_like(value)
    for row in range(len(value)):
        columns = data.mask[row].nonzero().flatten().tolist()
        later = torch.zeros((), dtype=value.dtype)
        for column in reversed(columns):
            after = value[row, min(column + 1, value.shape[1] - 1)]
            if data.terminal[row, column]:
                after = torch.zeros_like(after)
            elif column == columns[-1] and not data.truncated[row, column]:
                after = value[row, column]
            later = data.reward[row, column] + after - value[row, column] + 0.95 * later
            result[row, column] = later
    return result.detach()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, value = seen.experience, seen.value()
    advantage = extended(data, value)
    kept = replace(data, mask=data.mask & (data.column("left") >= 1))
    A, ratio = by_hand.whitened(advantage, kept), by_hand.ratio(seen)
    gain = torch.minimum(ratio * A, ratio.clamp(1 - 0.2, 1 + 0.28) * A)
    errors = []
    for row in data.terminal.any(1).nonzero().flatten().tolist():
        told = data.column("answer")[row].nonzero().flatten().tolist() if not data.column("infra_fault")[row] else []
        errors += [(value[row, t] - sum(data.reward[row, u] for u in told if u >= t)).square() / 2 for t in told]
    return {
        "policy": -by_hand.mean_of_decisions(torch.where(A < 0, torch.maximum(gain, 10 * A), gain), kept),
        "value": torch.stack(errors).mean(),
    }


def wrong_windows(recipe: Recipe) -> float:
    """Returns how many rows of 40 steps of answers up to 12 tokens do not continue an unfinished answer or begin the
    next one, are longer than their window or shorter without an end, have other log-probabilities or another `left`;
    plus places that are decided and never trained, and window lengths other than 2, 3 and 4.
    """
    task, wrong = replace(addition(1), max_tokens=12), 0.0
    played, actor, _ = probes.gathered(recipe, task, calls=40)
    decided, trained, lengths, answers = np.zeros(12, int), np.zeros(12, int), set(), dict[int, list[int]]()
    for fresh in played:
        with torch.no_grad():
            wrong += float(not ((actor.score(fresh, frozenset()).logp - fresh.logp) * fresh.mask).abs().max() <= 1e-4)
        window, there = int(fresh.mask.sum(1).max()), recipe.credit[1](fresh).mask
        lengths.add(window)
        unfinished, begun = set(answers), set()
        for row, start in enumerate(fresh.column("start").tolist()):
            before, now = answers.pop(start, []), fresh.action[row][fresh.mask[row]].tolist()
            wrong += fresh.action[row][fresh.column("answer")[row]].tolist() != before + now
            ended = bool((fresh.terminal | fresh.truncated)[row].any())
            wrong += len(now) > window or (len(now) < window and not ended)
            reaches = len(before) + window >= 12
            for place in range(len(now)):
                decided[len(before) + place] += 1
                trained[len(before) + place] += int(there[row][fresh.mask[row]][place])
                left = int(fresh.column("left")[row][fresh.mask[row]][place])
                wrong += left < 12 if reaches else left != window - 1 - place
            begun |= {start}
            if not ended:
                answers[start] = before + now
        wrong += len(unfinished - begun) + (len(fresh) != 8)
    return wrong + float(((decided > 20) & (trained == 0)).sum()) + float(lengths != {2, 3, 4}) + float(decided[4] < 9)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradients are the formula's: open windows, dropped tails, finished answers",
              lambda: probes.formula_gap(recipe(), in_windows(), losses_by_hand), at_most=1e-9),
        Exact("windows continue answers, and every place of an answer is trained",
              lambda: wrong_windows(recipe(slots=8)), equals=0.0),
        Measured("after 660 decisions one after the other, 6 a step and not 33, its score is above ppo's; refuted by a "
                 "lead below 0.05", "register-walk", replace(recipe(STALE), steps=110),
                 replace(recipes.ppo(STALE), steps=20), margin=0.05, seeds=5, minutes=5.0, about=About.HEADLINE),
    ),
)
