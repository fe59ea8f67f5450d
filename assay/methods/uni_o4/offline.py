"""What makes PPO offline: actions in recorded states, credit of critics, a gated old policy. Axes: N, B, T."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import Annotation, Credit, Experience, Gate, Need, Rollout, Scene, Source, State, decided_again
from assay.parts import ActionValues


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
        here = scene.draw.at(7, state["time"])
        batch = next(iter(self.source(scene.given(draw=here, fresh=None), state["source"])))
        state["time"] += 1
        batch = batch.rows(torch.arange(len(batch)).repeat_interleave(self.members))
        member = (torch.arange(len(batch)) % self.members).unsqueeze(1).expand(-1, batch.num_columns)
        batch = replace(batch, context={**batch.context, "member": member.contiguous()})
        new, no = decided_again(scene.actor, batch, here.at(1)), torch.zeros_like(batch.mask)
        return Experience(new.context, new.action, new.mask, new.logp, new.reward, no, no)


def some_values(experience: Experience) -> Tensor:
    """Returns stand-in values for the contract tests, where no critic has written any."""
    return experience.reward + 0.5 * experience.column("value")


@dataclass(frozen=True)
class CriticAdvantage(Credit):
    """A(s, a) = min_i Q_i(s, a) - V(s), from the critics `q` and `value`; rewards are not read (arXiv:2302.11312)."""

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.VALUE, ActionValues()})
    centred: ClassVar[bool] = False
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"q": some_values}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        value = experience.column("q") - experience.column("value")
        return experience.add({"advantage": torch.where(experience.mask, value, 0.0)})


@dataclass(frozen=True)
class Rising(Gate):
    """Updates a member if its score is above its best so far: score_i > best_i, and then best_i <- score_i.

    The score is the parameter `standing` [N] of the model `model`, which a loss keeps up to date; the copy then
    always holds the best-scoring weights. The first score is always accepted. Of k independent scores of one
    unchanged policy the k-th is accepted with probability 1/k: noise is accepted too, ever more rarely.
    """

    model: str = "actor"

    def init(self) -> State:
        """Returns the state without a best score."""
        return {"best": None}

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """Returns the accepted members [N]; NaN is never accepted."""
        score: Tensor = models[self.model].standing.detach().clone()
        best = torch.full_like(score, -torch.inf) if state["best"] is None else state["best"].to(score)
        goes = score > best
        state["best"] = torch.where(goes, score, best)
        return goes
