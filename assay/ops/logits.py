"""Numbers of whole distributions, one decision at a time. Axes: B rows, T columns, N decisions, V actions, K kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need

LOGITS_AT_ONCE = 1 << 24


@torch.no_grad()
def over_logits(actor: Any, rows: Experience, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns function(logits [n, V], action [n]) of each decision, [B, T, ...], and 0 elsewhere, without gradient.

    Logits of tokens are computed in chunks and discarded: [B, T, V] is never in memory.
    """
    hidden = actor.score(rows, frozenset({Need.LOGP, Need.HIDDEN})).hidden
    if hidden is not None:
        size = max(1, LOGITS_AT_ONCE // actor.vocabulary.size)
        chunks = zip(hidden[rows.mask].split(size), rows.action[rows.mask].split(size), strict=True)
        found = torch.cat([function(actor.logits(some), action) for some, action in chunks])
    else:
        logits = actor.score(rows, frozenset({Need.LOGP, Need.LOGITS})).logits
        if logits is None:
            raise AssayError("a part reads whole distributions, and this policy's actions are continuous. Use a task of"
                             " tokens or of discrete actions")  # fmt: skip
        found = function(logits[rows.mask], rows.action[rows.mask])
    result = found.new_zeros(*rows.mask.shape, *found.shape[1:])
    result[rows.mask] = found
    return result


def likeliest(logits_NV: Tensor, num: int) -> Tensor:
    """Returns the `num` likeliest actions (all if there are fewer) and their log-probabilities, [N, K, 2]."""
    wide = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))  # 16 bits do not hold every id
    logp, action = wide.log_softmax(-1).topk(min(num, wide.shape[-1]))
    return torch.stack((action.to(logp.dtype), logp), -1)


def nucleus_entropy(logp_K: Tensor, mass: float, crossing: bool = False) -> Tensor:
    """Returns the entropy of the likeliest actions whose total probability stays below `mass`, renormalised, [...].

    `crossing` keeps the action that reaches the mass too: the nucleus of top-p sampling. The choice carries no
    gradient. Degenerate: if no action is kept, 0 with gradient 0.
    """
    logp = logp_K.sort(-1, descending=True).values
    prob = logp.detach().exp()
    kept = prob.cumsum(-1) - (prob if crossing else 0.0) < mass
    logp = torch.where(kept, logp, 0.0)
    prob = torch.where(kept, logp.exp(), 0.0)
    total = torch.where(kept.any(-1), prob.sum(-1), 1.0)
    return total.log() - (prob * logp).sum(-1) / total
