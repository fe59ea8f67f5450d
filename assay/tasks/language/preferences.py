"""Preference pairs in a JSON-lines file as a task. Axes: B sequences, T tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError, DataWarning, warn
from assay.core.record import Draw, Experience, Score
from assay.core.spaces import Spec
from assay.rollouts import text
from assay.rollouts.text import ByteTokenizer, Tokenizer
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask, completion_ids, prompt_ids
from assay.tasks.language.rows import GOOD, Row, first_columns, joined_pairs, labelled, pair, rows_of
from assay.tasks.language.textfile import MAX_PROMPT, TextFile, longest_completion, longest_prompt

LABELLED = frozenset({"prompt", "completion", "label"})
"""Fields of a file of single completions with labels."""


@dataclass(frozen=True)
class PairsTask:
    """Preference pairs: the items of `prompts` demonstrate the chosen completion and keep the other as `rejected`.

    There is no verifier: `judge` raises, because only a learned reward can score a completion.
    """

    prompts: PromptTask

    @property
    def name(self) -> str:
        """Returns the file's name."""
        return self.prompts.name

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out."""
        return self.prompts.spec

    @property
    def num_training(self) -> int:
        """Returns the number of training pairs."""
        return self.prompts.num_training

    @property
    def num_testing(self) -> int:
        """Returns the number of held-out pairs."""
        return self.prompts.num_testing

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the training pair at each place of the run's order."""
        return self.prompts.order(ordinals, draw)

    def prompts_of(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the prompt of each pair."""
        return self.prompts.prompts_of(starts, split)

    def pairs(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the pairs: rows 2i and 2i + 1 are the chosen and the rejected completion of pair i, rewards 1 and 0.

        `group` is the pair's ordinal; the column `chosen` is +1 and -1.
        """
        tokenizer, limit = self.prompts.tokenizer, self.prompts.max_tokens
        items = [item for item in self.prompts.items_of(starts, split) for _ in range(2)]
        prompts = [prompt_ids(tokenizer, item.prompt, self.prompts.max_prompt) for item in items]
        both = [str(item.facts["rejected"]) if k % 2 else item.demonstration for k, item in enumerate(items)]
        start_B = torch.as_tensor(np.repeat(starts, 2), dtype=torch.int64)
        completions = [completion_ids(tokenizer, completion, limit) for completion in both]
        record = text.written(prompts, completions, start_B, tokenizer.vocabulary.pad)
        record = text.with_outcomes(record, [Score(1.0), Score(0.0)] * len(starts))
        sign_B = torch.tensor([1.0, -1.0]).repeat(len(starts))
        return record.add({"chosen": sign_B, "sample": (sign_B < 0).long(), "split": torch.full_like(start_B, split)})

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the chosen completions, with reward 1."""
        return self.prompts.demonstrate(starts, split)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Samples a completion for each (start, sample); rewards are still 0."""
        return self.prompts.play(actor, starts, samples, draw, split=split, greedy=greedy)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Raises AssayError: there is no verifier."""
        raise AssayError(f"{self.name} has preference pairs but no verifier. Give the recipe a learned reward")

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns one sequence for display; the answer is the chosen completion."""
        return self.prompts.describe(experience, row)


def preferences(
    path: str,
    tokenizer: Tokenizer = ByteTokenizer(),
    max_prompt: int = MAX_PROMPT,
    max_tokens: int = 0,
    held_out: float = 0.1,
    seed: int = 0,
) -> PairsTask:
    """Returns the pairs of a file with a prompt and two different completions in each line; `rows.pair` reads them.

    Single completions with a label are joined to pairs. `max_tokens` 0 means as many as the longest completion needs.
    """
    if first_columns(path) >= LABELLED:
        rows, digest = labelled_pairs(path)
    else:
        rows, digest = rows_of(path, pair, ("prompt", "chosen", "rejected", "tools"))
    same = [row.where for row in rows if row.fields[1] == row.fields[2]]
    if same:
        raise AssayError(f"{same[0]}: 'chosen' and 'rejected' are equal (in {len(same)} rows); remove them")
    longest = longest_prompt(rows, tokenizer, max_prompt, max_tokens or sys.maxsize)
    items = tuple(Item(row.fields[0], row.fields[1], row.fields[1], facts_of(row), row.where) for row in rows)
    task = PromptTask(Path(path).stem, TextFile(path, digest, held_out, seed, items), tokenizer, longest, max_tokens)
    return PairsTask(task if max_tokens else replace(task, max_tokens=longest_completion(task)[0]))


def labelled_pairs(path: str) -> tuple[list[Row], str]:
    """Returns the pairs of a file of single completions with labels, and its digest; warns of completions without a
    partner, and raises AssayError if none has one.
    """
    rows, digest = rows_of(path, labelled, ("prompt", "completion", "label"))
    pairs = joined_pairs(rows)
    if not pairs:
        good = sum(row.fields[2] == GOOD for row in rows)
        what = f"{path}: no prompt has a good and a bad completion ({good} good, {len(rows) - good} bad)"
        raise AssayError(f'{what}. Add the other kind, or keep the good ones as {{"prompt", "answer"}} for sft')
    if lone := len(rows) - 2 * len(pairs):
        what = f"{lone} of {len(rows)} completions have no partner with the other label"
        warn(f"{path}: {what} and the same prompt, and are left out", DataWarning)
    return pairs, digest


def facts_of(row: Row) -> dict[str, object]:
    """Returns the rejected completion, and the source of a pair if it has one."""
    source = {"source": row.others["source"]} if "source" in row.others else {}
    return {"rejected": row.fields[2], **source}
