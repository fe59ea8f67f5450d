"""The decisions before and after each column of a row. Axes: B sequences, T columns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def decision_before(mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (whether the row has an earlier decision, that decision's column or 0), both [B, T]."""
    column = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last = torch.where(mask_BT, column, -1).cummax(1).values
    before = pad(last[:, :-1], (1, 0), value=-1)
    return before >= 0, before.clamp(min=0)


def decision_after(mask_BT: Tensor) -> Tensor:
    """Returns the column of the row's next decision, T if there are no more, [B, T]."""
    num = mask_BT.shape[1]
    here = torch.where(mask_BT, torch.arange(num, device=mask_BT.device), num).flip(1).cummin(1).values.flip(1)
    return pad(here[:, 1:], (0, 1), value=num)
