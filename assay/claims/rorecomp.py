"""Which rows train now and which later, with what columns; lengths after training. Axes: B rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil

import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Loop, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.ladder import free
from assay.method import BIGRAMS, Draw, Experience, Preset, Recipe, Scene, recipes
from assay.methods.rorecomp import Recomposed, comes_first, plain, recipe, without_others


def answers(rows: list[tuple[int, int, float]]) -> Experience:
    """Returns answers given as (group, length, reward of the end), one with reward below 0 without a decision."""
    longest = max(length for _, length, _ in rows) + 1
    one = torch.arange(longest)
    length = torch.tensor([length for _, length, _ in rows]).unsqueeze(1)
    paid = torch.tensor([reward for _, _, reward in rows]).unsqueeze(1)
    mask, ends = (one < length) & (paid >= 0), one == length - 1
    return Experience(
        context={"tokens": torch.ones(len(rows), longest, dtype=torch.long)}, action=mask.long(), mask=mask,
        logp=-torch.rand(len(rows), longest, generator=torch.Generator().manual_seed(longest)), reward=paid * ends,
        terminal=ends & mask, truncated=torch.zeros_like(mask), group=torch.tensor([group for group, _, _ in rows]),
    ).add({"sample": torch.arange(len(rows)).flip(0)})  # fmt: skip


def now_by_hand(data: Experience) -> set[int]:
    """Returns the rows that train at once."""
    length, found = data.mask.sum(1).tolist(), {row for row in range(len(data)) if not data.mask[row].any()}
    for rows in by_hand.rows_of_groups(data):
        for sign in (1, -1):
            own = [row for row in rows if (by_hand.outcome(data)[row] > 0.5) == (sign == 1)]
            own.sort(key=lambda row: (sign * length[row], int(data.column("sample")[row])))
            found |= set(own[: ceil(len(own) / 2)])
    return found


def batches(time: int) -> Experience:
    """Returns 24 answers in three groups, of lengths that differ from batch to batch, some equal, one not trained."""
    words = [(row * 7 + time * 5) % 11 for row in range(24)]
    rows = [(row // 8, 1 + words[row] % (4 + time), float(words[row] % 3 > 0) - 2.0 * (row == 5)) for row in range(24)]
    number = torch.arange(24) + 24 * time
    return answers(rows).add({"number": number, "advantage": number.unsqueeze(1) * 1.0})


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows of eight steps are in a batch that they do not belong to: those that come first in the one
    of their step, the others in batches of 10, oldest first; and how many columns changed meanwhile.
    """
    if not isinstance(ours.source, Recomposed):
        return torch.inf
    part = replace(ours.source, batch=10)
    state, waiting, wrong = part.init(Scene()), [], 0
    made = [batches(time) for time in range(8)]
    for time, data in enumerate(made):
        found = list(part(Scene(fresh=data, draw=Draw(0, (time,))), state))
        now = sorted(now_by_hand(data))
        waiting += [24 * time + row for row in range(24) if row not in now]
        expected = [[24 * time + row for row in now]]
        while len(waiting) >= 10:
            expected, waiting = [*expected, waiting[:10]], waiting[10:]
        wrong += [batch.column("number").tolist() for batch in found] != expected
        for batch in found:
            for row, number in enumerate(batch.column("number").tolist()):
                own, mask = made[number // 24].rows(slice(number % 24, number % 24 + 1)), batch.mask[row]
                same = torch.equal(batch.logp[row][mask], own.logp[own.mask])
                wrong += not same or float(batch.column("advantage")[row, 0]) != number
    return float(wrong)


def changed_by_share_one() -> float:
    """Returns 1 if share 1 changes the fresh rows or keeps any, 0 if not."""
    data, part = batches(0), recipe(source=Recomposed(share=1.0)).source
    state = part.init(Scene())
    found = list(part(Scene(fresh=data), state))
    return float(len(found) != 1 or found[0] is not data or bool(state["waiting"]))


def pushed() -> Tensor:
    """Returns the advantages of the rows that train at once, of right answers of 10, 20 and 30 tokens and wrong ones of
    15 and 40.
    """
    data = answers([(0, 10, 1.0), (0, 20, 1.0), (0, 30, 1.0), (0, 15, 0.0), (0, 40, 0.0)])
    advantage = probes.advantages(recipe(), data)
    return advantage[comes_first(data, 0.5)]


def started(seed: int) -> Loop:
    """Returns a policy cloned from demonstrations of every length."""
    loop = Loop(recipes.sft(BIGRAMS).set("actor.rank", 0).set("learning_rate", 0.05), free(), seed=seed, num_steps=100)
    for _ in range(100):
        loop.step()
    return loop


def after(make: Callable[[Preset], Recipe], what: str, seed: int, steps: int = 80) -> float:
    """Returns a quantity of the cloned policy after a run, in which its answers are mostly right from the start."""
    loop = Loop(make(BIGRAMS).set("actor.rank", 0).set("learning_rate", 0.02), free(), seed=seed, num_steps=80)
    loop.engine.flats["actor"].values.copy_(started(seed).engine.flats["actor"].values)
    for _ in range(steps):
        loop.step()
    return float(free().exact(loop.actor)[what])


def side(make: Callable[[Preset], Recipe], what: str) -> Computed:
    """Returns a side of `after`; small, with three steps."""
    return Computed(partial(after, make, what), small=partial(after, make, what, steps=3))


CLAIMS = Claims(
    claims=(
        Exact("the shortest right and longest wrong answers train now, others once, oldest first, as recorded",
              lambda: wrong_rows(recipe()), equals=0.0),
        same_gradient("its gradient is grpo's with a mean over tokens", recipe,
                      lambda seen: by_hand.token_loss(seen, by_hand.standardised(seen.experience))),
        Exact("a share of 1 trains on the fresh rows as they are, and none waits", changed_by_share_one, equals=0.0,
              of="a variant"),
        Exact("without the others nothing waits",
              lambda: len(list(without_others().source(Scene(fresh=batches(0)), {"waiting": {}}))), equals=1.0,
              of="a variant"),
        Exact("among lengths 10, 20, 30 (right) and 15, 40 (wrong) 10, 20 and 40 train, with 0.7303, 0.7303, -1.0954",
              lambda: probes.distance(pushed(), [0.7303, 0.7303, -1.0954]), equals=0.0, tolerance=1e-3,
              illustrates=True),
        Measured("from a start that is mostly right its answers end shorter than grpo's by a third of a token", "",
                 side(recipe, "mean_length"), side(plain, "mean_length"), expect=Expect.BELOW, margin=1 / 3, seeds=5,
                 minutes=6.0, about=About.HEADLINE),
        Measured("from a start that is mostly right its answers are right as often as grpo's, to 0.05", "",
                 side(recipe, "pass_rate"), side(plain, "pass_rate"), margin=-0.05, seeds=5, minutes=6.0,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("the longest right answers", comes_first, "(1 if is_so else -1)", "(-1 if is_so else 1)"),
        Edit("the newest first", Recomposed.__call__, "rows.rows(torch.arange(self.batch))",
             "rows.rows(torch.arange(len(rows) - self.batch, len(rows)))"),
        Edit("what was trained stays", Recomposed.__call__, "torch.arange(self.batch, len(rows))",
             "torch.arange(self.batch - 1, len(rows))"),
        Edit("everything at once", recipe, "source=source", "source=plain(preset).source"),
    ),
)
