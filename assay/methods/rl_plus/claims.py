"""Demonstrations in groups by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Experience, Origin
from assay.tasks.language.addition import addition


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
