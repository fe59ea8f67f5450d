"""Gathering by decoding: prompts in, completions out, token by token with a cache. Axes: B rows, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.ops import distributions, random
from assay.sampling import sampled
from assay.types import Draw, Experience, Vocabulary

COMPACT_BELOW = 0.8
"""The batch is packed anew when fewer than this share of its rows is unfinished."""


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
) -> Experience:
    """One completion for each row; rows of one start share their prompt's prefill.

    The token at time t of (start, sample) comes from the uniform number of that triple alone, whatever else is in the
    batch. A completion ends with the end token (terminal) or at the limit (terminal and truncated).
    """
    order, distinct, repeats = neighbours(starts)
    numbers = random.uniform(draw, starts[:, None], samples[:, None], np.arange(max_tokens)[None])
    uniform = None if greedy else random.as_open_float32(numbers)
    given = [list(prompts[i]) for i in distinct]
    tokens, logp, length = decode_together(actor, given, repeats, torch.tensor(order), uniform, max_tokens, vocabulary)
    return as_experience(prompts, tokens, logp, length, vocabulary, starts, samples)


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
) -> Experience:
    """At most `limit` more tokens for each row, up to `max_tokens` decisions in its episode; see
    `ResumableTask.resume`. Rows of one start with equal tokens share their prefill.
    """
    answer, starts = begun.extra.get("answer", begun.mask), begun.column("start").numpy()
    elapsed = begun.extra.get("elapsed", answer.sum(1))
    valid = begun.context["valid"]
    given = [row[there].tolist() for row, there in zip(begun.context["tokens"], valid, strict=True)]
    is_over = torch.tensor([row[-1] == vocabulary.eos for row in given])
    room = (max_tokens - elapsed).clamp(0, limit).masked_fill(is_over, 0)
    longest = max(1, int(room.max()))
    names: dict[Any, int] = {}
    same = [names.setdefault((start, *row), len(names)) for start, row in zip(starts.tolist(), given, strict=True)]
    order, distinct, repeats = neighbours(np.array(same))
    times = elapsed.numpy()[:, None] + np.arange(longest)[None]
    uniform = random.as_open_float32(random.uniform(draw, starts[:, None], samples[:, None], times))
    shown = [given[i] for i in distinct]
    tokens, logp, length = decode_together(actor, shown, repeats, torch.tensor(order), uniform, longest, vocabulary)
    length = torch.minimum(length, room)
    record = as_experience(given, tokens, logp, length, vocabulary, starts, samples)
    stops = record.truncated & (elapsed + length < max_tokens).unsqueeze(1)
    missing = record.num_columns - answer.shape[1]
    known = torch.nn.functional.pad(answer, (0, missing)) if missing > 0 else answer[:, : record.num_columns]
    record = replace(record, terminal=record.terminal & ~stops, truncated=record.truncated & ~stops)
    return record.add({"answer": known | record.mask, "elapsed": elapsed + length})


def decode_together(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    repeats: Sequence[int],
    rows: Tensor,
    uniform_BN: Tensor | None,
    max_tokens: int,
    vocabulary: Vocabulary,
) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens [B, N], logp [B, N], length [B]) of `repeats` rows of each prompt, which stand at `rows` of the results:
    by the sampler where the actor is on a GPU, else token by token with the actor's own cache.
    """
    found = sampled(actor, prompts, repeats, None if uniform_BN is None else uniform_BN[rows], vocabulary, max_tokens)
    if found is None:
        return decode(actor.decoder(prompts, repeats, max_tokens), rows, uniform_BN, max_tokens, vocabulary)
    place = torch.argsort(rows)
    tokens, logp, length = (some[place] for some in found)
    return tokens, logp, length


def decode(
    decoder: Any, rows: Tensor, uniform_BN: Tensor | None, max_tokens: int, vocabulary: Vocabulary
) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens [B, N], logp [B, N], length [B]) of the decoder's rows, which stand at `rows` of the results."""
    tokens = torch.full((len(rows), max_tokens), vocabulary.pad)
    logp, length = torch.zeros(len(rows), max_tokens), torch.zeros(len(rows), dtype=torch.long)
    done = torch.zeros(len(rows), dtype=torch.bool)
    for time in range(max_tokens):
        logits = decoder.logits().float()
        if uniform_BN is None:
            chosen = logits.argmax(-1)
        else:
            chosen = distributions.categorical_sample(logits, uniform_BN[rows, time].to(logits.device))
        chosen_logp, chosen_here = distributions.categorical_logp(logits, chosen).cpu(), chosen.cpu()
        live = rows[~done]
        tokens[live, time], logp[live, time] = chosen_here[~done], chosen_logp[~done]
        length[live] += 1
        done = done | (chosen_here == vocabulary.eos)
        if bool(done.all()) or time + 1 == max_tokens:
            break
        if float((~done).float().mean()) < COMPACT_BELOW:
            keep = (~done).nonzero().squeeze(1)
            there = keep.to(chosen.device)
            decoder.keep(there)
            rows, done, chosen = rows[keep], done[keep], chosen[there]
        decoder.push(chosen)
    return tokens, logp, length


def neighbours(starts: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Rows ordered so that equal starts stand together: (order, first row of each start, rows of each start)."""
    order = np.argsort(starts, kind="stable")
    _, first, counts = np.unique(starts[order], return_index=True, return_counts=True)
    return order.tolist(), order[first].tolist(), counts.tolist()


def as_experience(
    prompts: Sequence[Sequence[int]],
    tokens_BN: Tensor,
    logp_BN: Tensor,
    length_B: Tensor,
    vocabulary: Vocabulary,
    starts: np.ndarray,
    samples: np.ndarray,
) -> Experience:
    """Prompt and completion of each row in one sequence, padded at the end."""
    prompt_length = torch.tensor([len(prompt) for prompt in prompts])
    num_columns = int((prompt_length + length_B).max())
    column = torch.arange(num_columns)
    new = column - prompt_length.unsqueeze(1)
    mask = (new >= 0) & (new < length_B.unsqueeze(1))
    valid = column < (prompt_length + length_B).unsqueeze(1)
    sequence = torch.full((len(prompts), num_columns), vocabulary.pad)
    for row, prompt in enumerate(prompts):
        sequence[row, : len(prompt)] = torch.tensor(prompt)
    where = new.clamp(0, tokens_BN.shape[1] - 1)
    sequence = torch.where(mask, tokens_BN.gather(1, where), sequence)
    is_last = new == (length_B - 1).unsqueeze(1)
    ended = tokens_BN.gather(1, (length_B - 1).clamp(min=0).unsqueeze(1)) == vocabulary.eos
    start = torch.from_numpy(np.asarray(starts, dtype=np.int64))
    return Experience(
        context={"tokens": sequence, "valid": valid},
        action=sequence,
        mask=mask,
        logp=logp_BN.gather(1, where) * mask,
        reward=torch.zeros(mask.shape),
        terminal=is_last & mask,
        truncated=is_last & mask & ~ended,
        group=start,
        extra={"start": start, "sample": torch.from_numpy(np.asarray(samples, dtype=np.int64))},
    )
