"""Expected gradient of a preference loss by enumeration of pairs. Axes: P prompts, Y episodes, B rows, S, A."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims.probes.episodes import AllEpisodes
from assay.claims.probes.tensors import decision_weights
from assay.core.recipe import Recipe


def preference_push(recipe: Recipe, episodes: AllEpisodes, logits_SA: Tensor, reference_SA: Tensor) -> Tensor:
    """Returns -d loss / d log pi(y), [P, Y], over all pairs of each prompt with Bradley-Terry preferences.

    P(y beats y') = sigmoid(R(y) - R(y')). All pairs are equally likely.
    """
    logits, reference = logits_SA.detach().double(), reference_SA.detach().double()
    pair = torch.tensor(list(itertools.permutations(range(episodes.num_episodes), 2)))
    row_PB = pair.view(1, -1).expand(episodes.num_prompts, -1)
    num_pairs = episodes.num_prompts * len(pair)
    logp_ref = episodes.decision_logp(reference).flatten(0, 1)[place_of(row_PB, episodes)]
    record = replace(episodes.record(row_PB, logits), group=torch.arange(num_pairs).repeat_interleave(2))
    record = record.add({"chosen": torch.tensor([1.0, -1.0]).double().repeat(num_pairs)})
    push = decision_weights(recipe, record, record.logp, logp_ref=logp_ref)[:, 0]
    outcome_P2 = episodes.outcome[:, pair]
    beats = (outcome_P2[..., 0] - outcome_P2[..., 1]).sigmoid().view(-1).repeat_interleave(2)
    total = push.new_zeros(episodes.num_prompts * episodes.num_episodes)
    return total.index_add(0, place_of(row_PB, episodes), push * beats).view(episodes.num_prompts, -1)


def place_of(row_PB: Tensor, episodes: AllEpisodes) -> Tensor:
    """Returns the indices of these episodes in the concatenated list of all prompts' episodes."""
    return (row_PB + episodes.num_episodes * torch.arange(episodes.num_prompts).unsqueeze(1)).reshape(-1)
