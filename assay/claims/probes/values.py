"""Exact values on tasks whose episodes are all enumerated. Axes: Y episodes, T decisions, S states, A actions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims.probes.episodes import AllEpisodes
from assay.core.errors import AssayError
from assay.core.record import Experience


def exact_values(episodes: AllEpisodes, logits_SA: Tensor, turn_length: int = 1) -> Experience:
    """Returns every episode once, in turns of `turn_length` decisions, with the exact columns `value` (of the state
    before a decision) and `q` (of the decision) under the table `logits_SA`; undiscounted, for one prompt.
    """
    if episodes.num_prompts != 1:
        raise AssayError(f"exact_values takes episodes of one prompt; these have {episodes.num_prompts}")
    record = episodes.record(torch.arange(episodes.num_episodes).unsqueeze(0), logits_SA)
    chance_Y, to_go = record.logp.sum(1).exp(), record.reward.flip(1).cumsum(1).flip(1)
    place = torch.where(record.mask, record.context["state"], episodes.num_states)
    weight = (chance_Y.unsqueeze(1) * record.mask).flatten()
    total, count = (
        torch.zeros(episodes.num_states + 1, dtype=weight.dtype).scatter_add(0, place.flatten(), part)
        for part in (weight * to_go.flatten(), weight)
    )
    value = (total / count.clamp(min=1e-300))[place] * record.mask
    after = torch.nn.functional.pad(value[:, 1:], (0, 1))
    turn = (torch.arange(record.num_columns) // turn_length).expand_as(record.action)
    return replace(record, turn=turn).add({"value": value, "q": (record.reward + after) * record.mask})
