"""Files of prompts with answers as tasks: finitely many rows, taken in a shuffled order, pass by pass.

Every row is checked when the file is read, so that no compute is spent on an unusable file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from assay.core.answers import AnswerFormat, found_format
from assay.core.errors import AssayError, DataWarning, warn
from assay.rollouts import text
from assay.rollouts.text import ByteTokenizer, Said, Tokenizer
from assay.tasks.language.arithmetic import FINAL, final_answer, plain_number
from assay.tasks.language.file_rows import Rows, first
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask, completion_ids, prompt_ids
from assay.tasks.language.rows import Row, is_word_in, judgement, name_of, question_and_answer, rows_of
from assay.tasks.language.turns import trains_turns
from assay.tasks.language.verifying import Grader

BEST = "best"
"""The field that makes a file one of judgements: the number of the best of its `responses`, from 1."""
MAX_PROMPT = 1 << 17
"""Longest prompt of a file, in bytes; with a pretrained model, its own limit applies too."""


@dataclass(frozen=True)
class TextFile(Rows):
    """Rows of a file. A seeded hash of the prompt decides the split: equal prompts share it.

    An answer is the text after "####", or all of it; whitespace around it is ignored. It is correct if it is the same
    text, or the same number if both are plain numbers ("1,250.0" and "1250"); more than one "####" is wrong.
    In a file of worked numbers (GSM8K: every answer ends in "####" and a plain number) what counts is the one number
    after "####", or the last one of a completion without that mark: "#### $18" and "She makes 18 dollars." are 18.
    In a file of judgements (fields `responses` and `best`) a completion scores each response; see `judging.ranked`.
    """

    path: str
    digest: str
    held_out: float
    seed: int
    rows: tuple[Item, ...] = field(repr=False, compare=False)
    worked: bool = False
    in_order: bool = False
    judged: bool = False
    grader: Grader | None = None

    @property
    def names(self) -> str:
        return self.path

    @cached_property
    def splits(self) -> tuple[list[Item], list[Item]]:
        """Returns (training, held out), in the order of the file."""
        is_out = [text.is_held_out(item.prompt, self.held_out, self.seed) for item in self.rows]
        sides = [[i for i, out in zip(self.rows, is_out, strict=True) if out is side] for side in (False, True)]
        return sides[0], sides[1]


@dataclass(frozen=True)
class Files(Rows):
    """Training rows of one or several files, and held-out rows of another; without it, those that are held out of the
    training files.

    `weights` are the files' shares of a pass, which takes as many rows as all files have; none: every row once. No
    prompt may be in training and test, whatever its spaces and capitals: `together` refuses that. Worked numbers are
    searched only if all files have them; see `TextFile`.
    """

    train: tuple[TextFile, ...]
    test: TextFile | None = None
    weights: tuple[float, ...] = ()
    in_order: bool = False

    @property
    def worked(self) -> bool:  # type: ignore[override]
        """Returns whether all files have worked numbers."""
        return all(file.worked for file in (*self.train, *([self.test] if self.test else [])))

    @property
    def judged(self) -> bool:  # type: ignore[override]
        """Returns whether these are files of judgements; `together` refuses a mixture."""
        return self.train[0].judged

    @property
    def grader(self) -> Grader | None:  # type: ignore[override]
        """Returns the grader of the files."""
        return self.train[0].grader

    @property
    def names(self) -> str:
        return ",".join(file.path for file in self.train)

    @property
    def rows(self) -> tuple[Item, ...]:
        """Returns the rows of all files."""
        return tuple(row for file in (*self.train, *([self.test] if self.test else [])) for row in file.rows)

    @cached_property
    def sides(self) -> list[list[Item]]:
        """Returns the training rows of each file."""
        return [list(file.rows) if self.test else file.splits[0] for file in self.train]

    @cached_property
    def splits(self) -> tuple[list[Item], list[Item]]:
        """Returns (training, held out), file after file."""
        held = list(self.test.rows) if self.test else [item for file in self.train for item in file.splits[1]]
        return [item for side in self.sides for item in side], held

    @cached_property
    def portions(self) -> list[tuple[np.ndarray, int]]:
        """Returns the rows of each file with its share of a pass, at least one row; without weights all rows."""
        counts = [len(side) for side in self.sides]
        if not self.weights:
            return super().portions
        ends, share = np.cumsum(counts), np.asarray(self.weights) / sum(self.weights)
        quotas = np.maximum(1, np.round(share * sum(counts))).astype(int).tolist()
        return [(np.arange(end - count, end), quota) for end, count, quota in zip(ends, counts, quotas, strict=True)]


def together(train: Sequence[PromptTask], test: PromptTask | None, weights: Sequence[float]) -> PromptTask:
    """Returns the task of several files; AssayError if rows are in training and test. With several training files,
    rows without a `source` have their file's name as one.
    """
    several = len(train) > 1
    files = [task.items for task in train]
    tested = None if test is None else test.items
    assert all(isinstance(file, TextFile) for file in files)
    assert tested is None or isinstance(tested, TextFile)
    if len({file.judged for file in (*files, *([tested] if tested else [])) if isinstance(file, TextFile)}) > 1:
        raise AssayError("some of the files have judgements ('responses' and 'best'), others answers. Use one kind")
    sourced = tuple(with_source(file) if several else file for file in files if isinstance(file, TextFile))
    if tested is not None:
        known = {alike(item.prompt): file.path for file in sourced for item in file.rows}
        leaks = [item.prompt for item in tested.rows if alike(item.prompt) in known]
        if leaks:
            first = f"the first is '{text.escaped(leaks[0], 60)}'"
            what = f"{len(leaks)} of {len(tested.rows)} rows of {tested.path} are also in {known[alike(leaks[0])]}"
            raise AssayError(f"{what} ({first}). Remove them from one of the two")
    tasks = [*train, *([test] if test else [])]
    name = "-".join([task.name for task in train] + ([Path(tested.path).stem] if tested else []))
    prompt, tokens = max(task.max_prompt for task in tasks), max(task.max_tokens for task in tasks)
    formats = {task.answer_format for task in train}
    written = formats.pop() if len(formats) == 1 else AnswerFormat()
    items = Files(sourced, tested, tuple(weights))
    return PromptTask(name, items, train[0].tokenizer, prompt, tokens, answer_format=written)


def with_source(file: TextFile) -> TextFile:
    """Returns a file whose rows without a `source` have its name as one."""
    name = name_of(Path(file.path))
    rows = [i if "source" in i.facts else replace(i, facts={**i.facts, "source": name}) for i in file.rows]
    return replace(file, rows=tuple(rows))


def alike(prompt: str) -> str:
    """Returns the prompt in lower case with single spaces, to compare prompts."""
    return " ".join(prompt.casefold().split())


# ---------------------------------------------------------------------------------------------------- lengths
def longest_of(
    texts: Sequence[tuple[str, str]], count: Callable[[list[str]], list[int]], extra: int = 0, at_once: int = 1
) -> tuple[int, str]:
    """Returns the largest count of tokens of (text, place), and its place: longer texts first, `at_once` of them, until
    no shorter one can have more, since no token is shorter than a byte. `extra` bytes are added to each text's own.
    """
    most, place = 0, ""
    sized = sorted(((len(words.encode()), words, where) for words, where in texts), key=negative)
    for begin in range(0, len(sized), at_once):
        some = sized[begin : begin + at_once]
        if some[0][0] + extra <= most:
            break
        try:
            counts = count([words for _, words, _ in some])
        except (AssayError, ValueError) as error:
            raise AssayError(f"{some[0][2]}: {error}" if some[0][2] else str(error)) from None
        most, place = max([(most, place), *zip(counts, [where for _, _, where in some], strict=True)], key=first)
    return most, place


def each(count: Callable[[str], int]) -> Callable[[list[str]], list[int]]:
    """Returns a function of several texts from one of a single text."""
    return lambda some: [count(words) for words in some]


def negative(sized: tuple[int, str, str]) -> int:
    """Returns minus the size, to sort long texts first."""
    return -sized[0]


def longest_prompt(rows: Sequence[Row], tokenizer: Tokenizer, max_prompt: int, max_tokens: int = sys.maxsize) -> int:
    """Returns the tokens of the longest prompt (field 0); AssayError names a line whose texts do not fit."""
    longest, _ = longest_of(
        [(row.fields[0], row.where) for row in rows],
        each(lambda words: len(prompt_ids(tokenizer, words, max_prompt)) - 1),
    )
    completions = [(words, row.where) for row in rows for words in row.fields[1:]]
    if not isinstance(tokenizer, ByteTokenizer):  # which writes every text
        for words, where in [*((row.fields[0], row.where) for row in rows), *completions]:
            longest_of([(words, where)], each(lambda one: len(tokenizer.encode(one))))
    longest_of(completions, each(lambda words: len(completion_ids(tokenizer, words, max_tokens))))
    return longest + 1


def longest_completion(task: PromptTask) -> tuple[int, str]:
    """Returns the tokens of the longest demonstration or rejected completion of a file, and its place."""
    assert isinstance(task.items, TextFile | Files)
    pairs = [(item.demonstration, item.where) for item in task.items.rows]
    pairs += [(str(item.facts["rejected"]), item.where) for item in task.items.rows if "rejected" in item.facts]
    most, where = longest_of(pairs, each(lambda words: len(task.tokenizer.encode(words))))
    return most + 1, where


# ---------------------------------------------------------------------------------------------------- one file
def textfile(
    path: str,
    columns: tuple[str, str] = ("prompt", "answer"),
    tokenizer: Tokenizer = ByteTokenizer(),
    max_prompt: int = MAX_PROMPT,
    max_tokens: int = 0,
    held_out: float = 0.1,
    seed: int = 0,
) -> PromptTask:
    """Returns the task of a file with a prompt and an answer in each line, or with `messages`; the whole answer is the
    demonstration. Other fields of a line (`label`, `source`, ...) are facts of its prompt.

    Warns how many prompts contain their answer. The horizon follows the longest prompt of the file; `max_tokens` 0
    means 256, or as many as the longest demonstration needs. Files called train or test are named with their folder.
    With "" as the second column, rows have prompts alone, and only a scorer can reward completions; with "best" they
    are judgements.
    """
    rows, digest = rows_of(path, question_and_answer(columns), (*columns, "tools"))
    longest, items = longest_prompt(rows, tokenizer, max_prompt), []
    judged = columns[1] == BEST
    for row in rows:
        answer = final_answer(row.fields[1])
        if not answer and row.fields[1] == row.fields[2] and isinstance(row.fields[2], Said):
            answer = str(row.fields[1])  # a chat may have several headings that begin with ####
        if not answer and columns[1]:
            raise AssayError(f"{row.where}: '{columns[1]}' must have one text after '####', or no '####' at all")
        shown = judgement(row) if judged else row.fields[2]
        items.append(Item(row.fields[0], answer or "", shown, row.others, row.where))
    asked = [] if judged else [item for item in items if not trains_turns(item.prompt, item.demonstration)]
    leaks = sum(is_word_in(item.answer, item.prompt) for item in asked if item.answer)
    if leaks:
        warn(f"{path}: in {leaks} of {len(items)} rows the prompt contains the answer", DataWarning)
    worked = all(FINAL in item.demonstration and plain_number(item.answer) is not None for item in items)
    source = TextFile(path, digest, held_out, seed, tuple(items), worked, judged=judged)
    pairs = [(item.demonstration, item.where) for item in items]
    needed = longest_of(pairs, each(lambda words: len(tokenizer.encode(words))))[0] + 1
    limit, written = max_tokens or max(256, needed), found_format([item.demonstration for item in items])
    return PromptTask(name_of(Path(path)), source, tokenizer, longest, limit, answer_format=written)
