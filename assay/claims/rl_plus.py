"""Demonstrations in groups by hand. Axes: B sequences, T decisions."""

from dataclasses import replace

import numpy as np
import torch

from assay.claims import About, Area, Claims, Exact, Final, Measured, addition, by_hand, probes
from assay.method import PLACES, Experience, Origin, Recipe, recipes
from assay.methods.rl_plus import mixed, recipe


def data_with_demonstrations() -> Experience:
    """Returns off-policy groups in which every fourth row is another's, with its probability under an older policy."""
    data, draw = probes.sequences(), torch.Generator().manual_seed(1)
    shown = data.column("sample") == 3
    source = torch.where(shown, int(Origin.TEACHER), int(Origin.POLICY))
    older = data.logp + 0.7 * torch.randn(data.mask.shape, generator=draw, dtype=torch.float64)
    known = {"logp_shown": older.clamp(max=-0.01) * (data.mask & shown.unsqueeze(1))}
    return replace(data, source=source).add({"uniform": torch.full((len(data),), 0.25), **known})


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, advantage = seen.experience, by_hand.standardised(seen.experience).unsqueeze(1)
    own = by_hand.clipped(by_hand.ratio(seen), advantage, low=0.2, high=0.2)
    pi, old = seen.logp().exp(), data.extra.get("logp_shown", seen.logp().detach()).exp()
    balanced = 2 * pi / (old + (old + 0.25) / 2)
    shown = balanced * advantage * (1 - pi.detach()).clamp(min=0).sqrt()
    assert data.source is not None
    gain = torch.where((data.source == int(Origin.POLICY)).unsqueeze(1), own, shown)
    return -by_hand.mean_of_sequences(gain, data)


def gap_to_formula(recipe: Recipe) -> float:
    """Returns the larger gap: with probabilities of an older policy given, and with those of the policy itself."""
    data = data_with_demonstrations()
    fresh = replace(data, extra={name: value for name, value in data.extra.items() if name != "logp_shown"})
    return max(probes.formula_gap(recipe, one, loss_by_hand) for one in (data, fresh))


def distance_from_demonstrations(recipe: Recipe) -> float:
    """Returns how far the rollout is from 3 groups of 8 own rows and the task's demonstration, at 1 / 64."""
    (found,), _, _ = probes.gathered(recipe, addition(1))
    assert found.source is not None
    assert found.group is not None
    shown, right = found.rows(found.source != int(Origin.POLICY)), addition(1).demonstrate(np.arange(3), 0)
    assert shown.group is not None
    wrong = [found.group.bincount().tolist() != [9] * 3, shown.group.tolist() != [0, 1, 2]]
    wrong.append(shown.action[shown.mask].tolist() != right.action[right.mask].tolist())
    return float(sum(wrong)) + float((found.column("uniform") - 1 / 64).abs().max())


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, with 1 / |A| as the uniform policy",
              lambda: gap_to_formula(recipe()), at_most=1e-9),
        Exact("a group is 8 own answers and the task's demonstration",
              lambda: distance_from_demonstrations(recipe()), equals=0.0),
        Measured("where the start is right once in 100,000 it is right more often than grpo", "lock:digits=5",
                 recipe(PLACES), recipes.grpo(PLACES), Final("pass_rate"), margin=0.3, seeds=5, minutes=3.0, steps=100,
                 about=About.HEADLINE),
        Measured("where the start is right once in 100,000 it learns faster than naive importance sampling of the "
                 "demonstrations: mean pass rate",
                 "lock:digits=5", recipe(PLACES), mixed(PLACES), Area("pass_rate"), seeds=5, minutes=9.0, steps=100,
                 looks=4, about=About.COMPONENT),
    ),
)
