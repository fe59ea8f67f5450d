"""rl-plus: adds demonstrations to the groups, weighted by multiple importance sampling, more where unlikely.

    loss = mean_i 1/|y_i| sum_t { -min(rho_t A_i, clip(rho_t) A_i)         own answers
                                { -r_t (1 - pi(e_t))^0.5 A_i               demonstrations e
    r_t = 2 pi(e_t) / (pi_old(e_t) + pi_other(e_t)),   pi_other = (pi_old + uniform) / 2

Dong et al. 2025. What the policy never samples cannot be reinforced: grpo sharpens and does not reach beyond its
start. A demonstration enters its group's mean; the balanced ratio needs no model of its author, and has little
variance.
"""

from dataclasses import replace

import numpy as np
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.claims.probes import by_hand
from assay.core.recipe import Recipe
from assay.core.record import Experience, Origin
from assay.methods.rl_plus.objectives import HybridPolicy
from assay.methods.rl_plus.rollout import WithDemonstrations
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults
from assay.tasks.language.addition import addition


def mixed(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo with demonstrations of recorded probability 1: naive importance sampling."""
    assert world.episodes is not None
    return replace(recipes.grpo(world), name="grpo-mixed", rollout=WithDemonstrations(world.episodes))


def recipe(world: Defaults = LANGUAGE, focus: float = 0.5, uniform: float = 0.0) -> Recipe:
    """Returns grpo with demonstrations by the balanced ratio; `uniform` 1 is the released code, 0 the paper."""
    policy = replace(mixed(world).stages[0], objective=(HybridPolicy(Clip(), focus, uniform, SequenceMean()),))
    return replace(mixed(world), name="rl-plus", stages=(policy,))


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


def gap_to_formula() -> float:
    """Returns the larger gap: with probabilities of an older policy given, and with those of the policy itself."""
    data = data_with_demonstrations()
    fresh = replace(data, extra={name: value for name, value in data.extra.items() if name != "logp_shown"})
    return max(probes.formula_gap(recipe(), one, loss_by_hand) for one in (data, fresh))


def distance_from_demonstrations() -> float:
    """Returns how far the rollout is from 3 groups of 8 own rows and the task's demonstration, at 1 / 64."""
    (found,), _, _ = probes.gathered(recipe(), addition(1))
    assert found.source is not None
    assert found.group is not None
    shown, right = found.rows(found.source != int(Origin.POLICY)), addition(1).demonstrate(np.arange(3), 0)
    assert shown.group is not None
    wrong = [found.group.bincount().tolist() != [9] * 3, shown.group.tolist() != [0, 1, 2]]
    wrong.append(shown.action[shown.mask].tolist() != right.action[right.mask].tolist())
    return float(sum(wrong)) + float((found.column("uniform") - 1 / 64).abs().max())


METHOD = Method(
    "arXiv:2508.00222", recipe, EVERY, default_task="countdown",
    family="guidance",
    base=recipes.grpo,
    variants={"grpo-mixed": mixed},
    departures=(
        "eight own answers and one demonstration in a group instead of seven and one",
        "the uniform policy's probability is 1 / |V|, as in the paper; 1 in the released code (`uniform`)",
        "own answers as in the paper (clip, deviation, mean within a sequence), which the released script switches off",
    ),
    claims=(
        Exact("off-policy its gradient is the formula's, with 1 / |A| as the uniform policy", gap_to_formula,
              at_most=1e-9),
        Exact("a group is 8 own answers and the task's demonstration", distance_from_demonstrations, equals=0.0),
        Measured("scores higher than grpo where right answers are rare", "sorting-10", recipe(), recipes.grpo(),
                 seeds=5, steps=40, warmup=60),
        Measured("scores higher than naive importance sampling of the demonstrations", "sorting-10", recipe(), mixed(),
                 seeds=5, steps=40, warmup=60),
    ),
)  # fmt: skip
