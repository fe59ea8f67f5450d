"""Lp-reg's loss by hand, and its slope on single tokens. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.methods.lp_reg.parts import filtered_logp

P = torch.tensor([0.60, 0.25, 0.10, 0.03, 0.012, 0.008], dtype=torch.float64)

Q = torch.tensor(0.0302).double().log()
"""log q of a token that has fallen; without an advantage its slope is the pull."""


def loss_by_hand(seen: probes.Seen, floor: float, share: float) -> Tensor:
    data, logp = seen.experience, seen.logp()
    advantage = by_hand.standardised(data).unsqueeze(1)
    gain = by_hand.clipped(by_hand.ratio(seen), advantage, 1.0, 9.0)
    blamed = sorted((float(data.logp[i, t]), i, t) for i, t in (data.mask & (advantage < 0)).nonzero().tolist())
    num, pull = int(share * len(blamed)), torch.zeros_like(gain)
    for _, i, t in blamed[: num if num > 1 else 0]:
        prob = seen.models["actor"].body.table[data.context["state"][i, t]].softmax(-1).detach()
        kept = prob * (prob >= floor * prob.max())
        q = kept[data.action[i, t]] / kept.sum()
        if q > prob[data.action[i, t]]:
            pull[i, t] = q / logp[i, t].exp() - 1 - (q.log() - logp[i, t])
    return by_hand.mean_of_decisions(pull - gain, data)


def slope(ours: Recipe, filtered: Tensor, prob: float, advantage: float = -1.0) -> Tensor:
    """Returns d loss / d log pi of one on-policy token of this probability and log q."""
    data = probes.outcomes(advantage).add({"logp_filtered": filtered.view(1, 1)})
    data = replace(data, logp=torch.full_like(data.reward, prob).log()).add({"advantage": data.reward})
    return probes.slopes(ours, data, data.logp).squeeze()


def punished(ours: Recipe, token: int, floor: float) -> Tensor:
    """Returns the slope of a token of P with advantage -1."""
    return slope(ours, filtered_logp(P.log().unsqueeze(0), torch.tensor([token]), floor), float(P[token]))

