"""Bodies with a recurrent state: a GRU or an LSTM over the past decisions of an episode, whose state another body reads
beside the current observation.

Axes: k - 1 past decisions, F numbers of a decision, W of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, History
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.models.bodies.perceptron import vectors
from assay.models.bodies.recalling import RecalledInputs, WithHistory, size_of_step


class Recurrence(nn.Module):
    """Walks along decisions; the state begins as zeros, and one that is not there leaves it as it is."""

    def __init__(self, size: int, width: int, gates: int, parts: int) -> None:
        super().__init__()
        self.width, self.parts = width, parts
        self.enter, self.again = nn.Linear(size, gates * width), nn.Linear(width, gates * width)

    def forward(self, rows: Tensor, there: Tensor) -> Tensor:
        """Returns the state [..., W] after decisions [..., k - 1, F], of which some are there [..., k - 1]."""
        entered = self.enter(rows)
        state = rows.new_zeros(*rows.shape[:-2], self.parts * self.width)
        for time in range(rows.shape[-2]):
            moved = self.moved(entered[..., time, :], state)
            state = torch.where(there[..., time].unsqueeze(-1), moved, state)
        return state[..., : self.width]

    def moved(self, entered: Tensor, state: Tensor) -> Tensor:
        """Returns the state after one decision, given what its numbers add to the gates."""
        raise NotImplementedError


class GruCell(Recurrence):
    """h <- (1 - z) n + z h,  r, z = sigmoid(...),  n = tanh(W x + b + r (U h + c)); the names of gates are torch's."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__(size, width, gates=3, parts=1)

    def moved(self, entered: Tensor, state: Tensor) -> Tensor:
        """Returns h [..., W]."""
        (reset_x, keep_x, new_x), (reset_h, keep_h, new_h) = entered.chunk(3, -1), self.again(state).chunk(3, -1)
        keep = (keep_x + keep_h).sigmoid()
        new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
        return (1.0 - keep) * new + keep * state


class LstmCell(Recurrence):
    """c <- f c + i g,  h = o tanh(c); the state is h, then c. The forget gate begins at a bias of 1."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__(size, width, gates=4, parts=2)
        with torch.no_grad():
            self.again.bias[width : 2 * width] = 1.0

    def moved(self, entered: Tensor, state: Tensor) -> Tensor:
        """Returns h and c [..., 2 W]."""
        output, cell = state.chunk(2, -1)
        enter, forget, new, leave = (entered + self.again(output)).chunk(4, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return torch.cat((leave.sigmoid() * cell.tanh(), cell), -1)


class RecurrentInputs(RecalledInputs):
    """Passes the state after the past decisions, observation and goal to another network."""

    def __init__(self, inner: nn.Module, spec: Spec, history: History, cell: Recurrence) -> None:
        super().__init__(inner, spec, history)
        self.cell = cell

    def past(self, context: Context, seen: Tensor) -> Tensor:
        """Returns the state [..., W]; zeros where there is no past."""
        return self.cell(*self.decisions(context, seen))


def recurrent(body: WithHistory, width: int, cell: Callable[[int, int], Recurrence], spec: Spec, ask: Ask) -> nn.Module:
    """Returns the network of a body with this kind of cell; AssayError for spaces that it cannot read, and no state."""
    inner, seen = vectors(body.body, "a recurrent body"), spec.observation
    if not isinstance(seen, Box) or not isinstance(spec.action, Box | Discrete):
        what = f"the task has {seen} and {spec.action}"
        raise AssayError(f"a recurrent body reads vectors, with discrete or continuous actions; {what}. Use Box")
    if width < 1 or body.steps < 2:
        what = f"a recurrent body has width {width} and {body.steps} steps"
        raise AssayError(f"{what}, which remember nothing. Use such as width=64, steps=16")
    wide = replace(spec, observation=Box((-1.0,) * width + seen.low, (1.0,) * width + seen.high))
    walked = cell(size_of_step(seen.size, spec.action, body.reads_history), width)
    return RecurrentInputs(inner.outputs(wide, ask), spec, body.reads_history, walked)


@dataclass(frozen=True)
class Gru(WithHistory):
    """A GRU of `width` (arXiv:1406.1078) over the last `steps` - 1 decisions of the episode: observation, action and,
    if asked, reward of each; a body reads its state and the current observation.

    The record shows the past with every decision, so every loss computes the state again, from zeros at the first of
    these decisions: with as many steps as an episode has, from the episode's start, with fewer, after that many of
    burn-in. No state grows old in replay, and a row of it stands alone. Degenerate: in the first decision of an episode
    the state is zeros. Assumes vectors; a decision costs `steps` times a step of the cell.
    """

    steps: int = 16
    width: int = 64

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        return recurrent(self, self.width, GruCell, spec, ask)


@dataclass(frozen=True)
class Lstm(WithHistory):
    """The same with an LSTM of `width` (Hochreiter and Schmidhuber 1997).

    Degenerate: in the first decision of an episode the state is zeros. Assumes vectors.
    """

    steps: int = 16
    width: int = 64

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        return recurrent(self, self.width, LstmCell, spec, ask)
