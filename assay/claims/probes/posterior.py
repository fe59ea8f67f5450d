"""The optimum of KL-regularised learning, by enumeration. Axes: P prompts, Y episodes, S, A.

pi*(y) = pi_ref(y) exp(R(y) / beta) / Z,   V*(s) = beta log sum_(y through s) pi_ref(y | s) exp(R(y) / beta)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.claims.probes.episodes import AllEpisodes


@dataclass(frozen=True, eq=False)
class Posterior:
    """pi* as log-probabilities of episodes [P, Y] and as a table [S, A] of log-probabilities of decisions.

    `log_z` [P] is log Z; `value` [S] is V*, the soft value of a state: beta log Z in the first one.
    """

    logp: Tensor
    table: Tensor
    log_z: Tensor
    value: Tensor


def posterior(episodes: AllEpisodes, reference_SA: Tensor, beta: float) -> Posterior:
    """Returns pi* of a reference table. Assumes that a state belongs to one prompt. float64."""
    prior_PY = episodes.logp(reference_SA.detach().double())
    tilted_PY = prior_PY + episodes.outcome / beta
    plain_SA, mass_SA = (through(episodes, log_weight.exp()) for log_weight in (prior_PY, tilted_PY))
    log_z = tilted_PY.logsumexp(1)
    return Posterior(
        logp=tilted_PY - log_z.unsqueeze(1),
        table=(mass_SA / mass_SA.sum(1, keepdim=True)).log(),
        log_z=log_z,
        value=beta * (mass_SA.sum(1) / plain_SA.sum(1)).log(),
    )


def through(episodes: AllEpisodes, weight_PY: Tensor) -> Tensor:
    """Returns the total weight of the episodes that take each decision, [S, A]."""
    place = (episodes.state * episodes.num_actions + episodes.action)[episodes.mask]
    weight = weight_PY.unsqueeze(-1).expand(episodes.mask.shape)[episodes.mask]
    flat = weight.new_zeros(episodes.num_states * episodes.num_actions).index_add(0, place, weight)
    return flat.view(episodes.num_states, episodes.num_actions)


def divergence(logp_PY: Tensor, other_PY: Tensor) -> Tensor:
    """Returns KL(p || q) = sum_y p(y) (log p(y) - log q(y)), mean over prompts; with gradient."""
    return (logp_PY.exp() * torch.where(logp_PY.exp() > 0, logp_PY - other_PY, 0.0)).sum(1).mean()
