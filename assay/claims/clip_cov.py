"""The functions behind clip-cov's exact claims. Axes: B sequences, T decisions."""

from dataclasses import replace

import numpy as np
import torch

from assay.claims import ALONE, About, AtEqual, Claims, Edit, Exact, Final, Measured, by_hand, probes
from assay.method import BIGRAMS, Experience, Recipe, random, recipes
from assay.methods.clip_cov import DropHighCovariance, covariance_of, kl_cov, recipe
from assay.parts import EntropyBonus

DATA = probes.sequences(num=128, spread=12.0)
"""379 decisions: some are in the band, some above it, and three are dropped."""


def credit_by_hand(data: Experience) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns grpo's advantage of each decision, and its covariance with the log-probability, [B, T]."""
    advantage = by_hand.standardised(data).unsqueeze(1) * data.mask
    parts = [one - one[data.mask].mean() for one in (data.logp, advantage)]
    return advantage, parts[0] * parts[1]


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, (advantage, covariance) = seen.experience, credit_by_hand(seen.experience)
    in_band = data.mask & (covariance > 1.0) & (covariance < 5.0)
    lots = random.uniform(ALONE.draw, *np.ix_(range(32), range(4), range(data.num_columns)))
    lot = torch.from_numpy(lots).view_as(covariance)
    num = int(0.01 * int(data.mask.sum()))
    dropped = in_band & (lot <= lot[in_band].sort().values[num - 1])
    gain = by_hand.clipped(by_hand.ratio(seen), torch.where(dropped, 0.0, advantage), low=0.2, high=0.2)
    return -by_hand.mean_of_sequences(gain, data)


def kl_cov_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, (advantage, covariance) = seen.experience, credit_by_hand(seen.experience)
    largest = covariance[data.mask].sort(descending=True).values[int(0.01 * int(data.mask.sum())) - 1]
    distance = by_hand.ratio(seen).log().abs() * (covariance >= largest)
    return by_hand.mean_of_sequences(distance - by_hand.ratio(seen) * advantage, data)


def watched(one: Recipe) -> Recipe:
    """Returns the recipe with its entropy among the metrics, without an entropy bonus."""
    stage = one.stages[0]
    return replace(one, stages=(replace(stage, regularizers=(*stage.regularizers, EntropyBonus(0.0))),))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(recipe(), DATA, loss_by_hand), at_most=1e-9),
        Exact("the gradient of kl_cov is its formula's",
              lambda: probes.formula_gap(kl_cov(), DATA, kl_cov_by_hand), at_most=1e-9, of="kl-cov"),
        Measured("at an equal pass rate it has more entropy than grpo", "many-ways", watched(recipe(BIGRAMS)),
                 watched(recipes.grpo(BIGRAMS)), AtEqual("entropy"), seeds=10, minutes=10.0, steps=100, looks=2,
                 about=About.MECHANISM),
        Measured("it is right more often than grpo after as many steps", "many-ways", watched(recipe(BIGRAMS)),
                 watched(recipes.grpo(BIGRAMS)), Final("pass_rate"), seeds=10, minutes=10.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("at an equal held-out score kl_cov has more entropy than grpo",
                 "sorting-5", watched(kl_cov()), watched(recipes.grpo()),
                 AtEqual("entropy", "evaluation"), seeds=5, looks=2, steps=100, warmup=60, about=About.MECHANISM),
    ),
    mutants=(
        Edit("the largest ones", DropHighCovariance.apply, "lots(experience, scene.draw)", "-covariance"),
        Edit("a share of the band", DropHighCovariance.apply,
             "num_of(self.share, experience)", "max(1, int(self.share * int(in_band.sum())))"),
        Edit("the size of the covariance", DropHighCovariance.apply,
             "covariance > self.low", "covariance.abs() > self.low"),
        Edit("means within rows", covariance_of,
             "torch.where(experience.mask, column, 0.0).sum() / count", "column.mean(1, keepdim=True)"),
    ),
)
