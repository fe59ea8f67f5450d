"""Packs several sequences into one row: attention masks, packing and unpacking. Axes: B sequences, T tokens, R rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def same_document_before(document_RT: Tensor) -> Tensor:
    """Returns bool [R, T, T]: token j is visible from token i (same document, not later)."""
    same = document_RT.unsqueeze(2) == document_RT.unsqueeze(1)
    length = document_RT.shape[1]
    return same & torch.ones(length, length, dtype=torch.bool, device=document_RT.device).tril()


def places(length_B: Tensor, row_length: int) -> tuple[Tensor, Tensor, int]:
    """Packs first-fit in order of decreasing length: (row [B], offset [B], number of rows)."""
    lengths = length_B.tolist()
    longest = max([row_length, *lengths])
    used: list[int] = []
    row, offset = [0] * len(lengths), [0] * len(lengths)
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fit = next((r for r, filled in enumerate(used) if filled + lengths[index] <= longest), len(used))
        if fit == len(used):
            used.append(0)
        row[index], offset[index] = fit, used[fit]
        used[fit] += lengths[index]
    return torch.tensor(row), torch.tensor(offset), len(used)


def through_packed(
    trunk: Callable[[Tensor, Tensor, Tensor], Tensor], tokens_BT: Tensor, valid_BT: Tensor, row_length: int
) -> Tensor:
    """Evaluates `trunk(tokens, position, document)` on packed rows and unpacks to [B, T, ...]; zeros if not valid."""
    lengths = valid_BT.sum(1)
    row, offset, num_rows = places(lengths, row_length)
    width = max(row_length, int(lengths.max()))
    sequence, position = valid_BT.nonzero(as_tuple=True)
    rank = valid_BT.long().cumsum(1)[sequence, position] - 1
    at = (row.to(tokens_BT.device)[sequence], offset.to(tokens_BT.device)[sequence] + rank)
    packed = tokens_BT.new_zeros(num_rows, width)
    document = tokens_BT.new_full((num_rows, width), -1)
    places_in_document = tokens_BT.new_zeros(num_rows, width)
    packed[at], document[at], places_in_document[at] = tokens_BT[sequence, position], sequence, rank
    hidden = trunk(packed, places_in_document, document)
    result = hidden.new_zeros(*tokens_BT.shape, *hidden.shape[2:])
    return result.index_put((sequence, position), hidden[at])


# ------------------------------------------------------------------------------------------------ shared prompts
@dataclass(frozen=True)
class Reach:
    """The tokens of each row that a network must process: those before its last decision, of which `prompt_B` come
    before its first. Rows with one `label_B` share a prompt: one group and equal tokens. -1 marks a row without a
    decision.
    """

    prompt_B: np.ndarray
    length_B: np.ndarray
    label_B: np.ndarray


def reach(tokens_BT: Tensor, mask_BT: Tensor, group_B: Tensor | None) -> Reach:
    """Computes `Reach` of rows on the CPU; column 0 is never a decision, and without a group nothing is shared."""
    tokens, mask = tokens_BT.numpy(), mask_BT.numpy().copy()
    mask[:, :1] = False
    decides = mask.any(1)
    prompt = np.where(decides, mask.argmax(1), 0)
    length = np.where(decides, mask.shape[1] - 1 - mask[:, ::-1].argmax(1), 0)
    group = np.arange(len(tokens)) if group_B is None else group_B.numpy()
    known: dict[tuple[int, bytes], int] = {}
    label = np.full(len(tokens), -1)
    for row in np.flatnonzero(decides):
        label[row] = known.setdefault((int(group[row]), tokens[row, : prompt[row]].tobytes()), len(known))
    return Reach(prompt, length, label)


@dataclass(frozen=True)
class Pack:
    """Rows of a batch concatenated: prompts that several rows share, then the rest of those rows, then rows that
    share nothing. A contiguous run of tokens is a piece; it attends to itself and the prompt that it follows.

    N packed tokens, D decisions, S pieces, M keys, P tokens of shared prompts. `token_N` is a token's index in the
    batch [B * T], `position_N` its column. The state before the decision at `place_D` is that of packed token
    `before_D`. `piece_N` and `follows_N` are each token's piece and the prompt that it follows, -1 for none.

    The same as sequences with more keys than queries: piece s has the queries from `begin` [S + 1] and, from
    `begin_key` [S + 1] of `key_M`, the prompt it follows and itself. `own_N` is a token's index among the keys of its
    own piece, `copies_PC` all indices of a prompt's token, padded with M.
    """

    token_N: Tensor
    position_N: Tensor
    place_D: Tensor
    before_D: Tensor
    piece_N: Tensor
    follows_N: Tensor
    begin: Tensor
    begin_key: Tensor
    key_M: Tensor
    own_N: Tensor
    copies_PC: Tensor


def packed(tokens_BT: Tensor, mask_BT: Tensor, group_B: Tensor | None) -> Pack:
    """Returns the pack of all tokens that the decisions of these rows need, each shared prompt once; on the CPU."""
    needs, num_columns = reach(tokens_BT, mask_BT, group_B), tokens_BT.shape[1]
    found = pieces(needs)
    size_S = np.array([stop - start for _, start, stop, _ in found], dtype=np.int64)
    begin = np.concatenate([[0], size_S.cumsum()])
    shift_B = np.zeros(len(tokens_BT), dtype=np.int64)  # from a row's columns to their packed indices
    in_prompt_B = np.zeros(len(tokens_BT), dtype=np.int64)  # the same for columns before the first decision
    for at, (row, start, _, follows) in enumerate(found):
        shift_B[row] = begin[at] - start
        in_prompt_B[row] = begin[follows] if follows >= 0 else shift_B[row]
    mask = mask_BT.numpy().copy()
    mask[:, :1] = False
    row_D, column_D = mask.nonzero()
    is_first = column_D == needs.prompt_B[row_D]
    before_D = np.where(is_first, in_prompt_B[row_D], shift_B[row_D]) + column_D - 1
    follows_S = np.array([follows for *_, follows in found], dtype=np.int64)
    position_N = np.concatenate([np.empty(0, np.int64), *(np.arange(start, stop) for _, start, stop, _ in found)])
    row_N = np.repeat(np.array([row for row, *_ in found], dtype=np.int64), size_S)
    numbers = (row_N * num_columns + position_N, position_N, row_D * num_columns + column_D, before_D)
    names = (np.repeat(np.arange(len(found)), size_S), np.repeat(follows_S, size_S))
    return Pack(*map(torch.from_numpy, (*numbers, *names, *keys(begin, follows_S))))


def pieces(needs: Reach) -> list[tuple[int, int, int, int]]:
    """Returns (row, first column, column after the last, the piece it follows or -1) in the order of a pack."""
    num = np.bincount(needs.label_B + 1, minlength=1)[needs.label_B + 1]
    is_shared, is_alone = (needs.label_B >= 0) & (num > 1), (needs.label_B >= 0) & (num == 1)
    prompt = {int(label): at for at, label in enumerate(np.unique(needs.label_B[is_shared]))}
    leader = {label: int(np.flatnonzero(needs.label_B == label)[0]) for label in prompt}
    found = [(row, 0, int(needs.prompt_B[row]), -1) for row in leader.values()]
    for row in sorted(map(int, np.flatnonzero(is_shared)), key=lambda row: (needs.label_B[row], row)):
        found.append((row, int(needs.prompt_B[row]), int(needs.length_B[row]), prompt[int(needs.label_B[row])]))
    return found + [(row, 0, int(needs.length_B[row]), -1) for row in map(int, np.flatnonzero(is_alone))]


def keys(begin: np.ndarray, follows_S: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns (begin, begin_key, key_M, own_N, copies_PC) of a pack, without pieces that have no tokens."""
    num_prompts = int(follows_S.max(initial=-1)) + 1  # they come first
    found, begin_key = [np.empty(0, np.int64)], [0]
    starts: list[list[int]] = [[] for _ in range(num_prompts)]
    own_N = np.zeros(begin[-1], dtype=np.int64)
    filled = np.flatnonzero(np.diff(begin) > 0)
    for at in filled:
        mine, prompt = np.arange(begin[at], begin[at + 1]), at if at < num_prompts else follows_S[at]
        seen = mine[:0] if at < num_prompts or prompt < 0 else np.arange(begin[prompt], begin[prompt + 1])
        if prompt >= 0:
            starts[prompt].append(begin_key[-1])
        own_N[mine] = begin_key[-1] + len(seen) + np.arange(len(mine))
        found += [seen, mine]
        begin_key.append(begin_key[-1] + len(seen) + len(mine))
    copies_PC = np.full((begin[num_prompts], max(map(len, starts), default=0)), begin_key[-1])
    for prompt, places in enumerate(starts):
        first, last = begin[prompt], begin[prompt + 1]
        copies_PC[first:last, : len(places)] = np.arange(last - first)[:, None] + np.array(places, dtype=np.int64)
    queries = np.concatenate([begin[filled], begin[-1:]]).astype(np.int32)
    return queries, np.array(begin_key, dtype=np.int32), np.concatenate(found), own_N, copies_PC


def sees(piece_N: Tensor, follows_N: Tensor) -> Tensor:
    """Returns bool [N, N]: packed token j is visible from token i."""
    in_reach = (piece_N.unsqueeze(1) == piece_N) | (follows_N.unsqueeze(1) == piece_N)
    return in_reach & torch.ones_like(in_reach).tril()
