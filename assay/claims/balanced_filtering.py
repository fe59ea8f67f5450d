"""Claims of balanced-filtering: its loss by hand, its limits, exact and measured claims, mutants.

Axes: B sequences, T decisions.
"""

import torch
from torch import Tensor

from assay.claims import About, Claims, DecisionsTo, Edit, Exact, Expect, Final, Loop, Measured, bandit, by_hand, probes
from assay.claims import same_gradient
from assay.method import BIGRAMS, TABLE, Experience, Recipe, recipes
from assay.methods.balanced_filtering import Band, recipe


def groups_of_all_rates() -> Experience:
    """Returns nine groups of eight with 7, 8, 0, 1, ..., 6 right answers; the last lacks a wrong one: 6 of 7."""
    data, row = probes.sequences(num=72, group_size=8), torch.arange(72)
    right = (row % 8 < (row // 8 + 7) % 9).unsqueeze(1) & (data.terminal | data.truncated)
    return data.with_columns(reward=torch.where(data.mask, right.double(), data.reward))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    rate = by_hand.in_groups(by_hand.outcome(data), data, lambda one: one.mean().expand_as(one))
    gain = by_hand.clipped(by_hand.ratio(seen), by_hand.standardised(data).unsqueeze(1), 0.2, 0.2)
    kept = [row for row in range(len(data)) if data.mask[row].any() and 0.25 <= rate[row] <= 0.75]
    return -torch.stack([gain[row][data.mask[row]].mean() for row in kept]).mean()


def kept(one: Recipe) -> set[int]:
    """Returns the rows that a recipe trains on, of groups of eight with 0 to 8 right answers."""
    data = probes.groups_with_right(*range(9)).add({"row": torch.arange(72)})
    return set((one.select(data) if one.select else data).column("row").tolist())


def foreign_rows() -> float:
    """Returns how many rows are kept by one of two and not by the other."""
    pairs = ((recipe(low=1 / 8, high=7 / 8), recipes.dapo()), (recipe(low=0.0, high=1.0), recipes.grpo()))
    return float(sum(len(kept(ours) ^ kept(theirs)) for ours, theirs in pairs))


def rounds(reward: float) -> float:
    """Returns how many batches of 8 starts x 8 samples are sampled for a step where every answer has this reward."""
    loop = Loop(recipe(TABLE), bandit((reward, reward)), seed=0, num_steps=1)
    loop.step()
    return loop.progress.decisions / 64


def gain_of_a_step(chance: float) -> Tensor:
    """Returns the first-order gain of an exact step, in a bandit whose first arm alone is right, over the step size."""
    logits = torch.tensor([chance, 1.0 - chance]).double().log()
    return probes.exact_bandit_gradient(logits, torch.tensor([1.0, 0.0]).double()).square().sum()


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's on groups of which a quarter to three quarters are right", recipe,
                      loss_by_hand, groups_of_all_rates),
        Exact("from 1/8 to 7/8 its groups of eight are dapo's, from 0 to 1 grpo's, to the bit", foreign_rows,
              equals=0.0),
        Exact("where no group is inside, eight rounds are sampled", lambda: rounds(0.0), equals=8.0),
        Exact("an exact step in a bandit gains 7.7 times more at p = 1/2 than at 1/10",
              lambda: gain_of_a_step(0.5) / gain_of_a_step(0.1), equals=7.71605, tolerance=1e-5, illustrates=True),
        Measured("after as many steps more prompts are solved than by grpo", "levels", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Final("pass_rate"), seeds=5, looks=2, steps=40, about=About.HEADLINE),
        Measured("after as many steps more prompts are solved than with dapo's selection", "levels", recipe(BIGRAMS),
                 recipe(BIGRAMS, 1 / 8, 7 / 8), Final("pass_rate"), seeds=5, looks=2, steps=40, about=About.COMPONENT),
        Measured("a pass rate of 0.45 takes fewer sampled tokens than in grpo, dropped groups included", "levels",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), DecisionsTo(0.45, "pass_rate"), Expect.BELOW, seeds=5,
                 steps=60, about=About.MECHANISM),
    ),
    mutants=(
        Edit("edges are dropped", Band.apply, "(mean >= self.low)", "(mean > self.low)"),
        Edit("dapo's selection always", recipe, "Band(low, high)", "Band(1 / 8, 7 / 8)"),
        Edit("settings are ignored", recipe, "Band(low, high)", "Band()"),
        Edit("one round", recipe, "Band(low, high)", "Band(low, high, 1)"),
    ),
)
