"""Gathering by talking: utterances that are decoded, replies that are given, in one cache. Axes: B rows, N new columns.

All rows advance by one token at a time, whoever speaks: a row whose partner has answered is fed the reply's tokens
while the others decide. So rows of a batch may be in different turns, and each costs as many steps as it has tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.ops import distributions, random
from assay.rollouts.completions import COMPACT_BELOW, neighbours
from assay.rollouts.turns import Answer, Conversations, Limits, utterances
from assay.types import Draw, Experience, Vocabulary


@torch.no_grad()
def converse(
    actor: Any,
    begun: Experience,
    samples: np.ndarray,
    draw: Draw,
    answer: Answer,
    *,
    limits: Limits,
    limit: int,
    vocabulary: Vocabulary,
    greedy: bool = False,
) -> Experience:
    """At most `limit` more decisions in the conversation of each row; see `ResumableTask.resume`.

    The token at time t of (start, sample), t counting the decisions of the episode, comes from the uniform number of
    that triple alone. Rows of one start with equal tokens share their prefill. The mask is true on the new decisions;
    replies, and what was there before, are context. `turn` counts the utterances that were finished before a column.
    """
    told, starts = begun.extra.get("answer", begun.mask), begun.column("start").numpy()
    assert begun.turn is not None
    talks = Conversations(len(begun), limits, vocabulary.eos, limit)
    given: list[list[int]] = []
    for row, there in enumerate(begun.context["valid"]):
        given.append(begun.action[row, there].tolist())
        was_told = told[row, there].tolist()
        said = utterances(given[-1], was_told, begun.turn[row, there].tolist())
        talks.begin(row, said, not was_told[-1], answer)
    names: dict[Any, int] = {}
    same = [names.setdefault((start, *row), len(names)) for start, row in zip(starts.tolist(), given, strict=True)]
    order, distinct, repeats = neighbours(np.array(same))
    decoder = actor.decoder([given[i] for i in distinct], repeats, limits.columns)
    times = np.arange(limits.turns * limits.tokens)[None]
    numbers = random.uniform(draw, starts[:, None], samples[:, None], times)
    uniform = None if greedy else random.as_open_float32(numbers)
    said_since = decoded(decoder, torch.tensor(order), uniform, talks, answer)
    return recorded(begun, told, said_since, talks, samples)


def decoded(
    decoder: Any, rows: Tensor, uniform_BN: Tensor | None, talks: Conversations, answer: Answer
) -> tuple[Tensor, ...]:
    """(tokens, turn, logp, mask [B, N], length [B]) of the decoder's rows, which stand at `rows` of the results."""
    shape = len(rows), talks.limits.columns
    tokens, turn = torch.zeros(2, *shape, dtype=torch.long).unbind()
    logp, mask = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    length = torch.zeros(len(rows), dtype=torch.long)
    for time in range(shape[1]):
        done = talks.done[rows]
        if bool(done.all()):
            break
        logits = decoder.logits().float()
        if uniform_BN is None:
            chosen = logits.argmax(-1)
        else:
            number = uniform_BN[rows, talks.elapsed[rows].clamp(max=uniform_BN.shape[1] - 1)]
            chosen = distributions.categorical_sample(logits, number.to(logits.device))
        chosen_logp, chosen_here = distributions.categorical_logp(logits, chosen).cpu(), chosen.cpu()
        live = rows[~done]
        turn[live, time] = talks.turn[live]
        token, is_mine = talks.advance(live, chosen_here[~done], answer)
        tokens[live, time], mask[live, time], logp[live, time] = token, is_mine, chosen_logp[~done] * is_mine
        length[live] = torch.where(is_mine, time + 1, length[live])
        pushed, done = chosen_here.masked_scatter(~done, token), talks.done[rows]
        if float((~done).float().mean()) < COMPACT_BELOW and not bool(done.all()):
            keep = (~done).nonzero().squeeze(1)
            decoder.keep(keep.to(logits.device))
            rows, pushed = rows[keep], pushed[keep]
        decoder.push(pushed.to(logits.device))
    return tokens, turn, logp, mask, length


def recorded(
    begun: Experience, told: Tensor, said: tuple[Tensor, ...], talks: Conversations, samples: np.ndarray
) -> Experience:
    """What was there and what was said since, row by row without a gap."""
    tokens, turn, logp, mask, length = said
    assert begun.turn is not None
    before = begun.context["valid"].sum(1)
    column = torch.arange(int((before + length).max()))
    place = column - before.unsqueeze(1)
    is_new = (place >= 0) & (place < length.unsqueeze(1))

    def joined(old: Tensor, new: Tensor) -> Tensor:
        """The old columns up to `before`, then the new ones."""
        old = torch.nn.functional.pad(old, (0, max(0, len(column) - old.shape[1])))[:, : len(column)]
        return torch.where(is_new, new.gather(1, place.clamp(0, new.shape[1] - 1)), old.masked_fill(place >= 0, 0))

    sequence, new_mask = joined(begun.action, tokens), joined(torch.zeros_like(told), mask)
    terminal = (place == (length - 1).unsqueeze(1)) & new_mask & talks.over.unsqueeze(1)
    start = begun.column("start")
    return replace(
        begun,
        context={"tokens": sequence, "valid": column < (before + length).unsqueeze(1)},
        action=sequence,
        mask=new_mask,
        logp=joined(torch.zeros(told.shape), logp),
        reward=torch.zeros(new_mask.shape),
        terminal=terminal,
        truncated=terminal & talks.cut.unsqueeze(1),
        turn=joined(begun.turn, turn),
        group=start,
        source=None,
        extra={
            "start": start,
            "sample": torch.from_numpy(np.asarray(samples, dtype=np.int64)),
            "answer": joined(told, mask),
            "elapsed": talks.elapsed.clone(),
        },
    )
