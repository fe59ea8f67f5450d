"""Plays conversations turn by turn, with replies that are there at once or that are waited for. Axes: B rows, N new
columns.

A wave is one utterance of each row that is ready. Of a partner that is asked (`Asking`) the reply to an utterance is
asked for as soon as that ends, while other rows still write; the next wave begins with rows whose replies are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.decoding.sampling_parameters import Narrowing
from assay.ops.decoded import Ended
from assay.rollouts.remote_dialogues import RemoteSession
from assay.rollouts.reread_sessions import RereadSession
from assay.rollouts.turns import Answer, Conversations, Heard

if TYPE_CHECKING:
    from assay.decoding.sessions import Session


@runtime_checkable
class Asking(Protocol):
    """Partners of many rows whose replies take time."""

    def ask(self, row: int, said: Sequence[list[int]]) -> None:
        """Asks for the reply to the last of a row's utterances so far; does nothing if that was done before."""

    def heard(self, rows: Collection[int]) -> Mapping[int, Heard]:
        """Waits for replies that were asked for; returns those of all these rows, or of some of them, at least one."""


class Waves:
    """Rows whose replies are pending; as an `Answer` it asks, and nothing is heard yet."""

    def __init__(self, asking: Asking, talks: Conversations) -> None:
        self.asking, self.talks = asking, talks
        self.pending: dict[int, None] = {}

    def __call__(self, row: int, said: Sequence[list[int]]) -> Heard:
        """Asks for a row's reply."""
        self.asking.ask(row, said)
        self.pending[row] = None
        return Heard([])

    def ready(self) -> Tensor:
        """Returns the rows of the next wave, which have heard what there is to hear; none at the end."""
        while True:
            if self.pending:
                for row, heard in self.asking.heard(list(self.pending)).items():
                    self.talks.hear(row, lambda _row, _said, heard=heard: heard)  # type: ignore[misc]
                    del self.pending[row]
            waits = torch.zeros_like(self.talks.done)
            waits[list(self.pending)] = True
            rows = (~self.talks.done & ~waits).nonzero().squeeze(1)
            if len(rows) or not self.pending:
                return rows

    def early(self, live: Tensor, limit: Tensor) -> Ended:
        """Returns what asks for the reply of a row as soon as its utterance ends, in a wave of the rows `live`."""
        talks, most = self.talks, limit.tolist()

        def ended(result: int, tokens: list[int]) -> None:
            row = int(live[result])
            utterance = [*talks.open[row, : talks.spoken[row]].tolist(), *tokens[: most[result]]]
            if utterance[-1] == talks.eos or len(utterance) == talks.limits.tokens:
                self.asking.ask(row, [*talks.said[row], utterance])

        return ended


class Since:
    """The tokens of rows since they were begun: tokens, turn, logp, mask [B, N], length [B]; and the model's own
    log-probabilities if they differ, and versions if weights may change meanwhile.
    """

    def __init__(self, num: int, columns: int, has_model: bool, has_version: bool = False) -> None:
        self.tokens, self.turn = torch.zeros(2, num, columns, dtype=torch.long).unbind()
        self.logp, self.mask = torch.zeros(num, columns), torch.zeros(num, columns, dtype=torch.bool)
        self.model = torch.zeros(num, columns) if has_model else None
        self.version = torch.zeros_like(self.tokens) if has_version else None
        self.length = torch.zeros(num, dtype=torch.long)

    def add(self, rows: Tensor, time: Tensor | int, token: Tensor, is_mine: Tensor, logp: Tensor) -> None:
        """Appends one token to some rows, at their column `time`."""
        self.tokens[rows, time], self.mask[rows, time], self.logp[rows, time] = token, is_mine, logp * is_mine
        self.length[rows] = torch.where(is_mine, time + 1, self.length[rows])


def talked(
    session: Session | RemoteSession | RereadSession,
    rows: Tensor,
    uniform_BN: Tensor | None,
    talks: Conversations,
    answer: Answer | Waves,
    narrowing: Narrowing,
    has_version: bool,
) -> Since:
    """Plays all turns of a session's rows, whose indices in the results are `rows`, wave by wave."""
    from assay.decoding.fast import on_the_host
    from assay.decoding.pages import Way

    since, place = Since(len(rows), talks.limits.columns, narrowing.changes, has_version), torch.argsort(rows)
    column, way = torch.zeros(len(rows), dtype=torch.long), Way(talks.eos, uniform_BN is None, narrowing)
    waves = answer if isinstance(answer, Waves) else None
    while len(live := (~talks.done).nonzero().squeeze(1) if waves is None else waves.ready()):
        for row in live.tolist():
            reply = talks.queue[row, talks.heard[row] : talks.waiting[row]]
            end = int(column[row]) + len(reply)
            since.tokens[row, column[row] : end], since.turn[row, column[row] : end] = reply, talks.turn[row]
            session.extend([int(place[row])], [reply.tolist()])
            column[row], talks.heard[row] = end, talks.waiting[row]
        limit = torch.minimum(talks.limits.tokens - talks.spoken, talks.room)[live]
        times = talks.elapsed[live].unsqueeze(1) + torch.arange(int(limit.max()))
        numbers = None if uniform_BN is None else uniform_BN[live].gather(1, times.clamp(max=uniform_BN.shape[1] - 1))
        ended = None if waves is None else waves.early(live, limit)
        written = on_the_host(session.sample(place[live].tolist(), numbers, limit, way, ended=ended), 0)
        for time in range(int(written.length.max())):
            speak = written.length > time
            who = live[speak]
            since.turn[who, column[who]] = talks.turn[who]
            token, is_mine = talks.advance(who, written.tokens[speak, time], answer)
            since.add(who, column[who], token, is_mine, written.logp[speak, time])
            for into, new in ((since.model, written.logp_model), (since.version, written.version)):
                if into is not None and new is not None:
                    into[who, column[who]] = new[speak, time]
            column[who] += 1
        session.close(place[live[talks.done[live]]].tolist())
    return since
