"""The loss of pairs by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import probes


def loss_by_hand(seen: probes.Seen, *, is_joint: bool) -> Tensor:
    data = seen.experience
    assert data.group is not None
    moved = torch.where(data.mask, seen.logp() - data.logp, 0.0).sum(1)
    reward = torch.where(data.mask, data.reward - 0.05 * (data.logp - seen.logp("reference").detach()), 0.0).sum(1)
    gains = []
    for label in data.group.unique():
        pair = ((data.group == label) & data.mask.any(1)).nonzero().flatten().tolist()
        for one, other in (pair, pair[::-1]) if len(pair) == 2 else ():
            ahead, rho, fixed = reward[one] - reward[other], moved[one].exp(), moved[other].exp().detach()
            if is_joint:
                odds, scale = moved[one] - moved[other], ahead * (moved[one] + moved[other]).exp().detach()
                done = (scale * odds > 0) & (odds.abs() > 0.2)
                gains.append(scale * (odds.detach() if done else odds) / 4)
            else:
                done = (ahead > 0) & (rho > 1.2) | (ahead < 0) & (rho < 0.8)
                gains.append(ahead * fixed * (rho.detach() if done else rho) / 2)
    return -torch.stack(gains).mean()
