"""Pairs of starts, against what is counted by hand. Axes: B sequences, T decisions."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.sparse import levels
from assay.method import BIGRAMS, Experience, Recipe, Scene
from assay.methods.wgrpo_pairing import Pair, recipe, variance
from assay.parts import Revisits

RIGHT = (1, 1, 7, 4, 5, 0, 8)
"""Right answers of eight at starts 10, 11, ...: none without the first row; hard, easy, two near half, none, all."""


def seen(*right: int) -> Experience:
    """Returns groups of eight from starts 10, 11, ...; the first row has no decision."""
    data, start = probes.groups_with_right(*right), torch.arange(len(right)).repeat_interleave(8) + 10
    return replace(data, mask=data.mask & (torch.arange(len(data)) != 0).unsqueeze(1)).add({"start": start})


def wrong_starts(recipe: Recipe, pool: int, once: bool, then: tuple[int, ...], *wanted: int) -> float:
    """Returns how many of the next five starts are not these by turns, after `RIGHT` and then other rates were seen."""
    assert isinstance(recipe.curriculum, Pair)
    curriculum, scene = replace(recipe.curriculum, pool=pool, once=once), Scene(levels(), num_starts=5)
    state = curriculum.init(scene)
    for right in (RIGHT, then):
        curriculum.observe(seen(*right), scene, state)
    return float((curriculum(scene, state) != np.resize(wanted, 5)).sum())


def advantages(penalty: float, *right: int) -> Tensor:
    """Returns A of groups of eight with these numbers of right answers, worth 1, and wrong ones, worth -`penalty`; the
    deviation has no epsilon.
    """
    rewards = [1.0 if member < num else -penalty for num in right for member in range(8)]
    return probes.advantages(recipe().set("credit.scale.epsilon", 0.0), probes.outcomes(*rewards, members=8))


def moved(*penalties: float) -> Tensor:
    """Returns the largest change of an advantage from penalty 0 to these, for 1, 4 and 7 right of eight."""
    plain = advantages(0.0, 1, 4, 7)
    return torch.stack([(advantages(one, 1, 4, 7) / plain - 1.0).abs().max() for one in penalties]).max()


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("weights of outcomes before the standardisation are a no-op", lambda: moved(0.5, 1.0, 3.0),
              at_most=1e-12),
        Exact("its pair has the lowest and highest rate inside (0, 1), also after other visits if it is chosen once",
              lambda: wrong_starts(recipe(), 7, True, (4, 4, 4, 7, 2), 11, 12), equals=0.0),
        Exact("the rival's pair is nearest to one half",
              lambda: wrong_starts(variance(), 7, False, (), 13, 14), equals=0.0),
        Exact("new starts come until the pool is known and has a pair", lambda: wrong_starts(
              recipe(), 8, True, (), *range(5)) + wrong_starts(recipe(), 7, False, (8, 8, 0, 8, 1), *range(5)),
              equals=0.0),
        Exact("a visit has samples of its own and is a group", lambda: probes.wrong_visits(recipe(), levels()),
              equals=0.0),
        Measured("on two of 32 prompts it solves more of all in eight samples than the two of the highest variance",
                 "levels", recipe(BIGRAMS, Pair(32)), variance(BIGRAMS, 32), Final("pass@8"), seeds=10, minutes=4.0,
                 steps=50, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("hopeless and mastered prompts too", Pair.pair, "0.0 < rate < 1.0", "0.0 <= rate <= 1.0"),
        Edit("the same start twice", Pair.pair, "mixed.keys() - set(chosen)", "mixed.keys()"),
        Edit("the same numbers at every visit", Revisits.__call__, "visits[start] = begun + self.group_size",
             "visits[start] = 0"),
        Edit("visits of a batch in one group", Revisits.__call__, "played.group + visit * FAR", "played.group"),
    ),
)
