"""Policy actions in states of an offline dataset. Axes: B, T = 2 columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene, Source
from assay.ops import random


@dataclass(frozen=True)
class OnStates(Rollout):
    """Samples one action per member in every state of the source's next batch; actions are not executed.

    The second column is the recorded next context, rewards are 0: credit comes from critics (offline PPO,
    arXiv:2302.11312). The context's `member` names the acting member; an actor without members ignores it.
    """

    source: Source
    members: int = 1
    num_starts: ClassVar[int] = 0

    def init(self, scene: Scene) -> State:
        """Returns the source's state, and the number of calls."""
        return {"source": self.source.init(scene), "time": 0}

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns each state `members` times in a row; the source gives one batch."""
        actor, draw = scene.actor, scene.draw
        here = draw.at(7, state["time"])
        batch = next(iter(self.source(scene.given(draw=here, fresh=None), state["source"])))
        state["time"] += 1
        row = torch.arange(len(batch)).repeat_interleave(self.members)
        batch = batch.rows(row)
        member = (torch.arange(len(batch)) % self.members).unsqueeze(1).expand(-1, batch.num_columns)
        context = {**batch.context, "member": member.contiguous()}
        uniform = random.uniform(here.at(1), np.arange(len(batch))[:, None], np.arange(actor.num_draws)[None])
        first = {name: value[:, 0] for name, value in context.items()}
        chosen, logp = actor.act(first, random.as_open_float32(uniform))
        action, zeros = torch.zeros_like(batch.action), torch.zeros_like(batch.reward)
        action[:, 0] = chosen
        logp = torch.cat((logp.unsqueeze(1), zeros[:, 1:]), 1) * batch.mask
        no = torch.zeros_like(batch.mask)
        return Experience(context, action, batch.mask, logp, zeros, no, no)
