"""Gathers dialogues: decoded utterances and given replies, in one cache. Axes: B rows, N new columns.

With the actor's own cache all rows advance by one token at a time: a row with a pending reply is fed the reply's
tokens while the others decide. With a sampler (on a GPU) a turn is a call of its session: replies are read at once,
and rows keep their pages from turn to turn. So is a turn of a remote actor a call, with all tokens so far, and of every
actor a turn with a partner whose replies take time (`assay.rollouts.waves`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.spaces import Vocabulary
from assay.decoding import decode as decoding
from assay.decoding.decode import COMPACT_BELOW, draw_next, neighbours, same_texts
from assay.decoding.sampling_parameters import LOGP_MODEL, NarrowedDecoder, unwrapped
from assay.decoding.weight_versions import settled, versioned
from assay.ops import random
from assay.rollouts.completions import Remote
from assay.rollouts.remote_dialogues import RemoteSession
from assay.rollouts.reread_sessions import RereadSession
from assay.rollouts.turns import Answer, Conversations, Limits, utterances
from assay.rollouts.waves import Asking, Since, Waves, talked

if TYPE_CHECKING:
    from assay.decoding.sessions import Session


@torch.no_grad()
def converse(
    actor: Any,
    begun: Experience,
    samples: np.ndarray,
    draw: Draw,
    answer: Answer | Asking,
    *,
    limits: Limits,
    limit: int,
    vocabulary: Vocabulary,
    greedy: bool = False,
) -> Experience:
    """Returns at most `limit` more decisions in the conversation of each row; see `ResumableTask.resume`.

    The token at time t of (start, sample), t counting the decisions of the episode, comes from the uniform number of
    that triple alone. Rows of one start with equal tokens share their prefill. The mask is true on the new decisions;
    replies and earlier tokens are context. `turn` counts the utterances that were finished before a column.
    """
    told, starts = begun.extra.get("answer", begun.mask), begun.column("start").numpy()
    assert begun.turn is not None
    talks = Conversations(len(begun), limits, vocabulary.eos, limit)
    answer = Waves(answer, talks) if isinstance(answer, Asking) else answer
    given = taken_up(begun, told, talks, answer)
    order, distinct, repeats = neighbours(same_texts(starts, given))
    shown, rows = [given[i] for i in distinct], torch.tensor(order)
    numbers = random.uniform(draw, starts[:, None], samples[:, None], np.arange(limits.turns * limits.tokens)[None])
    uniform = None if greedy else random.as_open_float32(numbers)
    inner, narrowing = unwrapped(actor)
    opened: Session | RemoteSession | RereadSession | None = None
    if isinstance(inner, Remote):
        seeds, elapsed = random.hashed(draw, starts, samples), talks.elapsed.numpy()
        opened = RemoteSession(inner, starts[order], seeds[order], elapsed[order], vocabulary)
    inner, newest = settled(inner)
    if decoding.is_on_gpu(inner):
        from assay.decoding import fast

        opened = fast.session_for(inner, shown, repeats, limits.columns, newest)
    if opened is None and isinstance(answer, Waves):
        opened = RereadSession(actor, vocabulary)
    if opened is None:
        since = decode_turns(actor.decoder(shown, repeats, limits.columns), rows, uniform, talks, answer)
    else:
        with opened as session:
            session.open(shown, repeats)
            since = talked(session, rows, uniform, talks, answer, narrowing, newest is not None)
    return join_turns(begun, told, since, talks, samples)


def taken_up(begun: Experience, told: Tensor, talks: Conversations, answer: Any) -> list[list[int]]:
    """Begins each conversation with what was said in its row before; returns the tokens of each row."""
    assert begun.turn is not None
    given: list[list[int]] = []
    for row, there in enumerate(begun.context["valid"]):
        given.append(begun.action[row, there].tolist())
        was_told = told[row, there].tolist()
        said = utterances(given[-1], was_told, begun.turn[row, there].tolist())
        talks.begin(row, said, not was_told[-1], answer)
    return given


def decode_turns(decoder: Any, rows: Tensor, uniform_BN: Tensor | None, talks: Conversations, answer: Answer) -> Since:
    """Plays all turns of the decoder's rows, whose indices in the results are `rows`, token by token."""
    limits, known = talks.limits, versioned(decoder)
    since = Since(len(rows), limits.columns, isinstance(decoder, NarrowedDecoder), known is not None)
    for time in range(limits.columns):
        done = talks.done[rows]
        if bool(done.all()):
            break
        times = talks.elapsed[rows].clamp(max=limits.turns * limits.tokens - 1)
        chosen, chosen_logp = draw_next(decoder, None if uniform_BN is None else uniform_BN[rows, times])
        chosen_here = chosen.cpu()
        live = rows[~done]
        since.turn[live, time] = talks.turn[live]
        token, is_mine = talks.advance(live, chosen_here[~done], answer)
        since.add(live, time, token, is_mine, chosen_logp[~done])
        if since.model is not None:
            since.model[live, time] = decoder.model_logp(chosen).cpu()[~done] * is_mine
        if known is not None and since.version is not None:
            since.version[live, time] = known.version
        pushed, done = chosen_here.masked_scatter(~done, token), talks.done[rows]
        if float((~done).float().mean()) < COMPACT_BELOW and not bool(done.all()):
            keep = (~done).nonzero().squeeze(1)
            decoder.keep(keep.to(chosen.device))
            rows, pushed = rows[keep], pushed[keep]
        decoder.push(pushed.to(chosen.device))
    return since


def join_turns(begun: Experience, told: Tensor, since: Since, talks: Conversations, samples: np.ndarray) -> Experience:
    """Returns the earlier tokens and those since, joined in each row without a gap."""
    length = since.length
    assert begun.turn is not None
    before = begun.context["valid"].sum(1)
    column = torch.arange(int((before + length).max()))
    place = column - before.unsqueeze(1)
    is_new = (place >= 0) & (place < length.unsqueeze(1))

    def joined(old: Tensor, new: Tensor) -> Tensor:
        """Returns the old columns up to `before`, then the new ones."""
        old = torch.nn.functional.pad(old, (0, max(0, len(column) - old.shape[1])))[:, : len(column)]
        return torch.where(is_new, new.gather(1, place.clamp(0, new.shape[1] - 1)), old.masked_fill(place >= 0, 0))

    sequence, new_mask = joined(begun.action, since.tokens), joined(torch.zeros_like(told), since.mask)
    terminal = (place == (length - 1).unsqueeze(1)) & new_mask & talks.over.unsqueeze(1)
    start = begun.column("start")
    return replace(
        begun,
        context={"tokens": sequence, "valid": column < (before + length).unsqueeze(1)},
        action=sequence,
        mask=new_mask,
        logp=joined(torch.zeros(told.shape), since.logp),
        reward=torch.zeros(new_mask.shape),
        terminal=terminal,
        truncated=terminal & talks.cut.unsqueeze(1),
        turn=joined(begun.turn, since.turn),
        group=start,
        source=None,
        version=None if since.version is None else joined(torch.zeros_like(begun.action), since.version),
        extra={
            "start": start,
            "sample": torch.from_numpy(np.asarray(samples, dtype=np.int64)),
            "answer": joined(told, since.mask),
            "elapsed": talks.elapsed.clone(),
            **({} if since.model is None else {LOGP_MODEL: joined(torch.zeros(told.shape), since.model)}),
        },
    )
