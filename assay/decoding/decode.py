"""Decodes many rows at once, by the sampler or with the actor's own cache. Axes: B results, N tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.spaces import Vocabulary
from assay.decoding.sampling_parameters import NarrowedDecoder, unwrapped
from assay.decoding.weight_versions import settled, versioned
from assay.ops import distributions
from assay.ops.decoded import Ended, Stop, Written

COMPACT_BELOW = 0.8
"""Finished rows are dropped from the batch when fewer than this share of its rows is unfinished."""


def decode_together(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    repeats: Sequence[int],
    rows: Tensor,
    uniform_BN: Tensor | None,
    max_tokens: int,
    vocabulary: Vocabulary,
    stop: Stop | None = None,
    said: Sequence[Sequence[int]] = (),
    ended: Ended | None = None,
) -> Written:
    """Decodes `repeats` rows of each prompt, whose indices in the results are `rows`: by the sampler if the actor is
    on a GPU, else token by token with the actor's own cache. `said` is the part of a result that exists already, for
    stop strings. Without a sampler `ended` hears of results as soon as they end.
    """
    # By index of the result: the sampler's own order of rows changes no token.
    numbers = None if uniform_BN is None else uniform_BN[rows]
    before = [said[row] for row in rows.tolist()] if said else ()
    found: Written | None = None
    inner, narrowing = unwrapped(actor)
    inner, newest = settled(inner)
    if is_on_gpu(inner):
        from assay.decoding import fast

        found = fast.sampled(
            inner,
            prompts,
            repeats,
            numbers,
            vocabulary,
            max_tokens,
            narrowing=narrowing,
            stop=stop,
            said=before,
            newest=newest,
        )
    if found is None:
        decoder = actor.decoder(prompts, repeats, max_tokens)
        return decode(decoder, rows, uniform_BN, max_tokens, vocabulary, stop, said, ended)
    return found.rows(torch.argsort(rows))


def is_on_gpu(actor: Any) -> bool:
    """Returns whether the actor is a model on a GPU, for which a sampler may decode."""
    return isinstance(actor, nn.Module) and next(actor.parameters(), torch.empty(0)).is_cuda


def decode(
    decoder: Any,
    rows: Tensor,
    uniform_BN: Tensor | None,
    max_tokens: int,
    vocabulary: Vocabulary,
    stop: Stop | None = None,
    said: Sequence[Sequence[int]] = (),
    ended: Ended | None = None,
) -> Written:
    """Returns the results of the decoder's rows, whose indices in the results are `rows`."""
    tokens = torch.full((len(rows), max_tokens), vocabulary.pad)
    logp, length = torch.zeros(len(rows), max_tokens), torch.zeros(len(rows), dtype=torch.long)
    model = torch.zeros_like(logp) if isinstance(decoder, NarrowedDecoder) else None
    known = versioned(decoder)
    version = None if known is None else torch.zeros_like(tokens)
    done = torch.zeros(len(rows), dtype=torch.bool)
    has_ended = done.clone()
    for time in range(max_tokens):
        chosen, chosen_logp = draw_next(decoder, None if uniform_BN is None else uniform_BN[rows, time])
        chosen_here = chosen.cpu()  # one transfer a token: what follows is bookkeeping of the host
        live = rows[~done]  # what finished rows choose, until the batch is compacted, is dropped
        tokens[live, time], logp[live, time] = chosen_here[~done], chosen_logp[~done]
        if model is not None:
            model[live, time] = decoder.model_logp(chosen).cpu()[~done]
        if known is not None and version is not None:
            version[live, time] = known.version
        length[live] += 1
        before, done = done, done | (chosen_here == vocabulary.eos)  # the end token is a decision: recorded above
        if stop is not None:
            done = done | stopped(stop, tokens[rows, : time + 1], [said[row] for row in rows.tolist()] if said else ())
        has_ended[rows] |= done
        if ended is not None:
            for row in rows[done & ~before].tolist():
                ended(row, tokens[row, : time + 1].tolist())
        if bool(done.all()) or time + 1 == max_tokens:  # the keys of the last token are never read
            break
        if float((~done).float().mean()) < COMPACT_BELOW:
            rows, done, chosen = compacted(decoder, rows, done, chosen)
        decoder.push(chosen)
    return Written(tokens, logp, length, has_ended, model, version)


def compacted(decoder: Any, rows: Tensor, done: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Drops the rows that are done from the decoder, and returns what is left of rows, done and chosen tokens."""
    keep = (~done).nonzero().squeeze(1)
    there = keep.to(chosen.device)
    decoder.keep(there)
    return rows[keep], done[keep], chosen[there]


def draw_next(decoder: Any, uniform_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns each row's next token, the likeliest without uniform numbers, and on the CPU its log-probability."""
    # In float32: a cumulative sum in bfloat16 would lose unlikely tokens.
    logits = decoder.logits().float()
    if uniform_N is None:
        chosen = logits.argmax(-1)
    else:
        chosen = distributions.categorical_sample(logits, uniform_N.to(logits.device))
    return chosen, distributions.categorical_logp(logits, chosen).cpu()


def stopped(stop: Stop, tokens_NT: Tensor, said: Sequence[Sequence[int]]) -> Tensor:
    """Returns whether the last token of each row completes a stop string, [N]; `said` are the tokens before."""
    tails = tokens_NT[:, -stop.reach :].tolist()
    whole = [[*before[-stop.reach :], *tail] for before, tail in zip(said, tails, strict=True)] if said else tails
    return torch.tensor([stop.first(row, len(row) - 1) is not None for row in whole])


def same_texts(starts: np.ndarray, rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Labels rows, equal if start and tokens are, in the order in which they first occur."""
    names: dict[tuple[int, ...], int] = {}
    return np.array([names.setdefault((start, *row), len(names)) for start, row in zip(starts, rows, strict=True)])


def neighbours(starts: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Orders rows so that equal starts are adjacent: (order, first row of each start, rows of each start)."""
    order = np.argsort(starts, kind="stable")
    _, first, counts = np.unique(starts[order], return_index=True, return_counts=True)
    return order.tolist(), order[first].tolist(), counts.tolist()
