"""Gathers completions of prompts, token by token with a cache. Axes: B rows, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch

from assay.core.record import Draw, Experience
from assay.core.spaces import Vocabulary
from assay.decoding.decode import decode_together, neighbours, same_texts
from assay.decoding.sampling_parameters import LOGP_MODEL, Narrowing, unwrapped
from assay.ops import random
from assay.ops.decoded import Stop, Written
from assay.rollouts import text


@torch.no_grad()
def complete(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    starts: np.ndarray,
    samples: np.ndarray,
    draw: Draw,
    *,
    max_tokens: int,
    vocabulary: Vocabulary,
    greedy: bool,
    stop: Stop | None = None,
) -> Experience:
    """Returns one completion for each row; rows of one start share their prefill if they have one prompt.

    The token at time t of (start, sample) comes from the uniform number of that triple alone, whatever else is in the
    batch. A completion ends with the end token or a stop string, by its own decision (terminal), or at the limit
    (terminal and truncated).
    """
    seeds, ends = random.hashed(draw, starts, samples), Ends(max_tokens, vocabulary, stop)
    inner, narrowing = unwrapped(actor)
    if isinstance(inner, Remote):
        written = inner.answers(prompts, starts, seeds, ends, greedy=greedy, narrowing=narrowing)
    else:
        written = answers(actor, prompts, starts, seeds, ends, greedy=greedy)
    return as_experience(prompts, written, vocabulary, starts, samples)


@dataclass(frozen=True)
class Ends:
    """Where completions end: after `max_tokens`, with the vocabulary's end token, or with a stop string."""

    max_tokens: int
    vocabulary: Vocabulary
    stop: Stop | None = None
    not_a_part: ClassVar[str] = "where a task's completions end"


@runtime_checkable
class Remote(Protocol):
    """An actor whose tokens another process samples, by the rules of `answers`."""

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        starts: np.ndarray,
        seeds: np.ndarray,
        ends: Ends,
        *,
        greedy: bool,
        narrowing: Narrowing = Narrowing(),
        since: np.ndarray | None = None,
    ) -> Written:
        """Returns a completion of each prompt, drawn with these sampling parameters."""


@torch.no_grad()
def answers(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    starts: np.ndarray,
    seeds: np.ndarray,
    ends: Ends,
    *,
    greedy: bool,
    since: np.ndarray | None = None,
) -> Written:
    """Returns a completion of each prompt; its token at time t comes from the uniform number of (seed, t). Time begins
    at 0, or at `since` for each row.
    """
    order, distinct, repeats = neighbours(of_one_prompt(prompts, starts))
    first = np.zeros(len(prompts), dtype=np.int64) if since is None else since
    words = random.hashed_after(seeds[:, None], first[:, None] + np.arange(ends.max_tokens)[None])
    uniform = None if greedy else random.as_open_float32(random.as_uniform(words))
    given, rows = [list(prompts[i]) for i in distinct], torch.tensor(order)
    return decode_together(actor, given, repeats, rows, uniform, ends.max_tokens, ends.vocabulary, ends.stop)


def of_one_prompt(prompts: Sequence[Sequence[int]], starts: np.ndarray) -> np.ndarray:
    """Labels rows, equal if start and prompt are; the start itself if all rows of a start share a prompt."""
    same = same_texts(starts, prompts)
    return starts if len(np.unique(same)) == len(np.unique(starts)) else same


@torch.no_grad()
def continued(
    actor: Any,
    begun: Experience,
    samples: np.ndarray,
    draw: Draw,
    *,
    max_tokens: int,
    limit: int,
    vocabulary: Vocabulary,
    stop: Stop | None = None,
) -> Experience:
    """Returns at most `limit` more tokens for each row, up to `max_tokens` decisions in its episode; see
    `ResumableTask.resume`. Rows of one start with equal tokens share their prefill.

    Existing tokens are context: they use no uniform number and are never a target. A stop string may begin in them.
    """
    answer, starts = begun.extra.get("answer", begun.mask), begun.column("start").numpy()
    elapsed = begun.extra.get("elapsed", answer.sum(1))
    valid = begun.context["valid"]
    given = [row[there].tolist() for row, there in zip(begun.context["tokens"], valid, strict=True)]
    said = [row[there].tolist() for row, there in zip(begun.context["tokens"], answer & valid, strict=True)]
    stopped = [stop is not None and stop.first(row) is not None for row in said]
    is_over = torch.tensor([row[-1] == vocabulary.eos or done for row, done in zip(given, stopped, strict=True)])
    room = (max_tokens - elapsed).clamp(0, limit).masked_fill(is_over, 0)
    longest = max(1, int(room.max()))
    order, distinct, repeats = neighbours(same_texts(starts, given))
    times = elapsed.numpy()[:, None] + np.arange(longest)[None]
    uniform = random.as_open_float32(random.uniform(draw, starts[:, None], samples[:, None], times))
    shown = [given[i] for i in distinct]
    rows = torch.tensor(order)
    written = decode_together(actor, shown, repeats, rows, uniform, longest, vocabulary, stop, said)
    length = torch.minimum(written.length, room)
    written = written._replace(length=length, has_ended=written.has_ended & (written.length <= room))
    record = as_experience(given, written, vocabulary, starts, samples)
    stops = record.truncated & (elapsed + length < max_tokens).unsqueeze(1)
    missing = record.num_columns - answer.shape[1]
    known = torch.nn.functional.pad(answer, (0, missing)) if missing > 0 else answer[:, : record.num_columns]
    record = replace(record, terminal=record.terminal & ~stops, truncated=record.truncated & ~stops)
    return record.add({"answer": known | record.mask, "elapsed": elapsed + length})


def as_experience(
    prompts: Sequence[Sequence[int]],
    written: Written,
    vocabulary: Vocabulary,
    starts: np.ndarray,
    samples: np.ndarray,
) -> Experience:
    """Returns prompt and completion of each row in one sequence, padded at the end; with the column `logp_model` if
    sampling is truncated (top-k, top-p) or has another temperature, and `experts` if they were recorded.
    """
    tokens_BN, length_B = written.tokens, written.length
    prompt_length = torch.tensor([len(prompt) for prompt in prompts])
    num_columns = int((prompt_length + length_B).max())
    column = torch.arange(num_columns)
    new = column - prompt_length.unsqueeze(1)
    mask = (new >= 0) & (new < length_B.unsqueeze(1))
    valid = column < (prompt_length + length_B).unsqueeze(1)
    sequence, _ = text.padded_rows(prompts, vocabulary.pad)
    sequence = torch.nn.functional.pad(sequence, (0, num_columns - sequence.shape[1]), value=vocabulary.pad)
    where = new.clamp(0, tokens_BN.shape[1] - 1)
    sequence = torch.where(mask, tokens_BN.gather(1, where), sequence)
    is_last = new == (length_B - 1).unsqueeze(1)
    more = {} if written.logp_model is None else {LOGP_MODEL: written.logp_model.gather(1, where) * mask}
    if written.experts is not None:
        missing = max(0, num_columns - written.experts.shape[1])
        more["experts"] = torch.nn.functional.pad(written.experts, (0, 0, 0, missing))[:, :num_columns]
    start = torch.from_numpy(np.asarray(starts, dtype=np.int64))
    return Experience(
        context={"tokens": sequence, "valid": valid},
        action=sequence,
        mask=mask,
        logp=written.logp.gather(1, where) * mask,
        reward=torch.zeros(mask.shape),
        terminal=is_last & mask,
        truncated=is_last & mask & ~written.has_ended.unsqueeze(1),
        group=start,
        version=None if written.version is None else written.version.gather(1, where) * mask,
        extra={"start": start, "sample": torch.from_numpy(np.asarray(samples, dtype=np.int64)), **more},
    )
