"""Search in a task whose episodes are enumerated. Axes: P prompts, Y episodes, T decisions, S, A."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims.probes.episodes import AllEpisodes


def beam_search(episodes: AllEpisodes, logits_SA: Tensor, width: int) -> Tensor:
    """Returns the index of the episode [P] that beam search with `width` beams ends with; width 1 is greedy."""
    logp_PYT = episodes.decision_logp(logits_SA.detach().double())
    return torch.stack([beam_of(episodes, prompt, logp_PYT[prompt], width) for prompt in range(len(logp_PYT))])


def beam_of(episodes: AllEpisodes, prompt: int, logp_YT: Tensor, width: int) -> Tensor:
    """Returns the episode of one prompt. A prefix is a decision, or a finished episode."""
    mask, score = episodes.mask[prompt], logp_YT.cumsum(1)
    decision = episodes.state[prompt] * episodes.num_actions + episodes.action[prompt]
    over = episodes.num_states * episodes.num_actions + torch.arange(len(mask))
    live = torch.ones(len(mask), dtype=torch.bool)
    for time in range(mask.shape[1]):
        prefix = torch.where(mask[:, time], decision[:, time], over)
        best = {int(prefix[y]): float(score[y, time]) for y in live.nonzero().squeeze(1).tolist()}
        kept = sorted(best, key=lambda one: -best[one])[:width]
        live &= torch.isin(prefix, torch.tensor(kept))
    return torch.where(live, score[:, -1], -torch.inf).argmax()
