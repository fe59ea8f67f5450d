"""wgrpo-pairing: grpo on two prompts, one that is rarely right and one that is rarely wrong.

    q+ = argmin p,  q- = argmax p  over the prompts with 0 < p < 1;   rest: grpo, every batch half q+ and half q-

Pang et al. 2026. The rare event of a group has the largest advantage: sqrt((1 - p) / p) for a success, its inverse for
a failure. The paper also weighs the outcomes, +1 and -lambda, before they are standardised in the group: an affine map
of two values, which changes nothing. The sum of |A| is larger in a group of the highest variance: 7.5 for four right of
eight, 4.9 for one. What is left is the choice of two prompts, which push in opposite directions.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.wgrpo_pairing.claims import wrong_starts
from assay.methods.wgrpo_pairing.pairing import Pair
from assay.parts.rollouts.revisits import Revisits
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.tasks.testbeds.language.sparse import levels


def recipe(world: Defaults = LANGUAGE, pick: Pair = Pair()) -> Recipe:
    base = recipes.grpo(world)
    assert base.rollout is not None
    return replace(base, name="wgrpo-pairing", curriculum=pick, rollout=Revisits(base.rollout.num_starts))


def variance(world: Defaults = LANGUAGE, pool: int = 64) -> Recipe:
    """The two prompts whose success rate is nearest to one half."""
    return recipe(world, Pair(pool, 0.5, 0.5))


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


METHOD = Method(
    paper="arXiv:2602.03452",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="levels",
    family="curriculum",
    base=recipes.grpo,
    variants={"variance": variance},
    departures=(
        "read from the abstract and notes; no code. Outcomes are not weighed: that changes nothing (claimed below)",
        "rates come from the first steps of the run, which train, instead of from a pass over two pools before it",
        "the pair is chosen again at every update, as in the abstract; notes on the paper say once (`once`)",
        "two designs were tried on 3 pilot seeds: with `once` pass@8 was 0.66 against the rival's 0.67",
    ),
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("weights of outcomes before the standardisation are a no-op", lambda: moved(0.5, 1.0, 3.0),
              at_most=1e-12),
        Exact("a rare event has 2.65 times the advantage of one at half", lambda: (
              advantages(1.0, 1, 4, 7)[[0, 8, 23]] - torch.tensor([2.47487, 0.93541, -2.47487])).abs().max(),
              at_most=1e-5),
        Exact("but its group has less in sum", lambda: advantages(0.0, 1).abs().sum() / advantages(0.0, 4).abs().sum(),
              equals=0.66144, tolerance=1e-5),
        Exact("its pair has the lowest and highest rate inside (0, 1), also after other visits if it is chosen once",
              lambda: wrong_starts(recipe(), 7, True, (4, 4, 4, 7, 2), 11, 12), equals=0.0),
        Exact("else that of later ones", lambda: wrong_starts(recipe(), 7, False, (4, 4, 4, 7, 2), 14, 13), equals=0.0),
        Exact("the rival's is nearest to one half", lambda: wrong_starts(variance(), 7, False, (), 13, 14), equals=0.0),
        Exact("new starts come until the pool is known and has a pair", lambda: wrong_starts(
              recipe(), 8, True, (), *range(5)) + wrong_starts(recipe(), 7, False, (8, 8, 0, 8, 1), *range(5)),
              equals=0.0),
        Exact("a visit has samples of its own and is a group", lambda: probes.wrong_visits(recipe(), levels()),
              equals=0.0),
        Measured("on two of 32 prompts, solves more of all in eight samples than the two of the highest variance",
                 "levels", recipe(BIGRAMS, Pair(32)), variance(BIGRAMS, 32), Final("pass@8"), seeds=10, minutes=4.0,
                 steps=50, looks=2),
    ),
    mutants=(
        Edit("hopeless and mastered prompts too", Pair.pair, "0.0 < rate < 1.0", "0.0 <= rate <= 1.0"),
        Edit("the same start twice", Pair.pair, "mixed.keys() - set(chosen)", "mixed.keys()"),
        Edit("the same numbers at every visit", Revisits.__call__, "visits[start] = begun + self.group_size",
             "visits[start] = 0"),
        Edit("visits of a batch in one group", Revisits.__call__, "played.group + visit * FAR", "played.group"),
    ),
)  # fmt: skip
