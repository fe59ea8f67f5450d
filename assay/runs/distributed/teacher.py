"""A teacher at an address: a server of vLLM, or `assay serve`, that scores given tokens and samples none.

Axes: B sequences, T decisions, K candidates.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ModelSpec
from assay.core.spaces import Spec, Vocabulary
from assay.runs.distributed.rollout_worker import Lost
from assay.runs.distributed.servers import AWAY, ROWS, Server

DEADLINE = 600.0
"""Seconds in which the server scores the rows of one batch."""


@dataclass(frozen=True)
class ServedTeacher(ModelSpec):
    """The model that a server at `url` has. Its tokens must be the student's: their number is compared, their texts
    cannot be.
    """

    url: str
    not_a_part: ClassVar[str] = "needs a server"

    def build(self, spec: Spec) -> nn.Module:
        """Returns the teacher; raises AssayError if the server does not answer, or has other tokens."""
        server = Server(self.url, cast(Vocabulary, spec.action))
        try:
            server.check()
        except AssayError as error:
            raise AssayError(str(error).replace("--server", "--teacher", 1)) from None
        return TeacherAtAddress(server)


class TeacherAtAddress(nn.Module):
    """Log-probabilities of given tokens, and the likeliest ones beside them, from a server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server, self.vocabulary = server, server.vocabulary

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-probabilities of the decisions; raises AssayError for anything else."""
        if other := needs - {Need.LOGP}:
            what = f"a teacher at an address cannot tell {min(one.value for one in other)}"
            raise AssayError(f"{what}. Use the candidates that the teacher ranks, or --teacher FOLDER")
        return Scored(self.told(batch, 0)[..., 0, 1])

    def ranked(self, rows: Experience, num: int) -> Tensor:
        """Returns the `num` likeliest tokens of each decision with their log-probabilities, [B, T, K, 2]."""
        return self.told(rows, num)

    def told(self, batch: Experience, num: int) -> Tensor:
        """Returns the decision itself (`num` 0) or the `num` likeliest tokens of each, with log-probabilities."""
        tokens, valid, num = batch.context["tokens"], batch.context["valid"].bool(), min(num, self.vocabulary.size)
        found = torch.zeros(*batch.mask.shape, max(1, num), 2)
        rows = [row[keep].tolist() for row, keep in zip(tokens.cpu(), valid.cpu(), strict=True)]
        for first in range(0, len(rows), ROWS):
            some = range(first, min(first + ROWS, len(rows)))
            for row, answer in zip(some, self.asked([rows[place] for place in some], num), strict=True):
                places = valid[row].cpu().nonzero().squeeze(1).tolist()
                for place, token, entries in zip(places, rows[row], answer, strict=True):
                    if batch.mask[row, place]:
                        found[row, place] = self.row(entries, token, num)
        return found.to(batch.mask.device)

    def asked(self, rows: list[list[int]], num: int) -> list[list[Any]]:
        """Returns what the server says about each token of each row; waits for a server that is away for a while."""
        how = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": num}
        bodies = [{"token_ids": row, "sampling_params": how} for row in rows]
        while True:
            self.server.until = time.monotonic() + DEADLINE
            try:
                answers = self.server.together(bodies)
            except Lost:
                self.server.is_closed = False
                self.server.wait(AWAY)
                continue
            told = [answer.get("prompt_logprobs") for answer in answers]
            if not all(isinstance(one, list) and len(one) == len(row) for one, row in zip(told, rows, strict=True)):
                raise AssayError(f"{self.server.url} answers without log-probabilities of the prompt. Use vLLM 0.32")
            return cast("list[list[Any]]", told)

    def row(self, entries: Any, token: int, num: int) -> Tensor:
        """Returns one decision, [K, 2]."""
        try:
            known = {int(one): float(told["logprob"]) for one, told in entries.items()}
            chosen = sorted(known, key=known.__getitem__, reverse=True)[:num] if num else [token]
            values = [(float(one), known[one]) for one in chosen]
            is_right = len(values) == max(1, num) and all(
                0 <= one < self.vocabulary.size and math.isfinite(logp) and logp <= 1e-3 for one, logp in values
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            is_right, values = False, []
        if not is_right:
            what = f"{self.server.url} does not give {max(1, num)} log-probabilities of tokens of this model"
            raise AssayError(f"{what}. Start vLLM with --max-logprobs {max(1, num)}, and the student's vocabulary")
        return torch.tensor(values)
