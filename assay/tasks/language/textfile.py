"""JSON-lines files of prompts with answers as tasks.

Every row is checked when the file is read, so that no compute is spent on an unusable file.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.playing import text
from assay.playing.text import ByteTokenizer, Tokenizer
from assay.tasks.language.arithmetic import FINAL, final_answer, is_same_answer, plain_number, stated_numbers
from assay.tasks.language.prompts import Item, PromptTask, check_split, completion_ids, prompt_ids

MAX_LINE = 1 << 24


# ---------------------------------------------------------------------------------------------------- reading
class Row(NamedTuple):
    """One line: its place, for messages, the requested fields, and the other ones that are text or numbers."""

    where: str
    fields: tuple[str, ...]
    others: Mapping[str, object] = {}


def rows_of(path: str | Path, columns: Sequence[str]) -> tuple[list[Row], str]:
    """Returns the checked rows of a file without blank lines, and its SHA-256; AssayError names file and line."""
    digest, rows, seen = hashlib.sha256(), [], dict[str, str]()
    for number, line in lines_of(Path(path)):
        digest.update(line)
        where = f"{path}, line {number}"
        row = parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, where)
        if row is None:
            continue
        others = {name: value for name, value in row.items() if name not in columns and is_fact(value)}
        rows.append(Row(where, tuple(field_of(row, column, where) for column in columns), others))
        if "id" in row:
            name = json.dumps(row["id"])[:200]
            if seen.setdefault(name, where) != where:
                raise AssayError(f"{where}: the id {name} is also that of {seen[name]}. Ids must differ")
    if not rows:
        raise AssayError(f"{path} has no rows. Each line must be an object with the fields {', '.join(columns)}")
    return rows, digest.hexdigest()


def is_fact(value: object) -> bool:
    """Returns whether a field can be a fact of its prompt: a text, a number, true or false."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def first_columns(path: str | Path) -> set[str]:
    """Returns the fields of the file's first object."""
    for number, line in lines_of(Path(path)):
        row = parsed(line.removeprefix(b"\xef\xbb\xbf"), f"{path}, line {number}")
        if row is not None:
            return set(row)
    raise AssayError(f'{path} has no rows. Each line must be an object such as {{"prompt": ..., "answer": ...}}')


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields numbered lines; refuses one longer than 16 MiB."""
    if not path.is_file():
        raise AssayError(f"there is no file '{path}'. Check the path (relative to {Path.cwd()})")
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise AssayError(f"{path}, line {number} is longer than {MAX_LINE} bytes. Is this a JSON-lines file?")
            yield number, line


def parsed(line: bytes, where: str) -> dict[str, Any] | None:
    """Returns the object of a line; None for a blank one."""
    if not line.strip():
        return None
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise AssayError(f"{where} is not UTF-8 (byte {error.start}: {error.reason}). Save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise AssayError(f"{where} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise AssayError(f"{where} is not a JSON object but {json.dumps(row)[:60]}")
    return row


def field_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Returns a field as text; numbers are converted."""
    if column not in row:
        there = ", ".join(text.escaped(name, 40) for name in list(row)[:20])
        near = difflib.get_close_matches(column, list(row), 1, 0.4)
        hint = f"Did you mean '{text.escaped(near[0], 40)}'? " if near else ""
        raise AssayError(f"{where} has no field '{column}' (it has: {there}). {hint}Name the fields with `columns`")
    value = row[column]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_number or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))):
        raise AssayError(f"{where}: '{column}' is {json.dumps(value)[:60]}. It must be text or a number")
    content = str(value)
    if not content.strip():
        raise AssayError(f"{where}: '{column}' is empty")
    return content


def longest_prompt(rows: Sequence[Row], tokenizer: Tokenizer, max_prompt: int, max_tokens: int = sys.maxsize) -> int:
    """Returns the tokens of the longest prompt (field 0); AssayError names a line whose texts do not fit."""
    longest = 0
    for row in rows:
        try:
            longest = max(longest, len(prompt_ids(tokenizer, row.fields[0], max_prompt)))
            for completion in row.fields[1:]:
                completion_ids(tokenizer, completion, max_tokens)
        except (AssayError, ValueError) as error:
            raise AssayError(f"{row.where}: {error}") from None
    return longest


# ---------------------------------------------------------------------------------------------------- answers
@dataclass(frozen=True)
class TextFile:
    """Rows of a file, repeated cyclically. A seeded hash of the prompt decides the split: equal prompts share it.

    An answer is the text after "####", or all of it; whitespace around it is ignored. It is correct if it is the same
    text, or the same number if both are plain numbers ("1,250.0" and "1250"); more than one "####" is wrong.
    In a file of worked numbers (GSM8K: every answer ends in "####" and a plain number) what counts is the one number
    after "####", or the last one of a completion without that mark: "#### $18" and "She makes 18 dollars." are 18.
    """

    path: str
    digest: str
    held_out: float
    seed: int
    rows: tuple[Item, ...] = field(repr=False, compare=False)
    worked: bool = False

    @cached_property
    def splits(self) -> tuple[list[Item], list[Item]]:
        """Returns (training, held out), in the order of the file."""
        is_out = [text.is_held_out(item.prompt, self.held_out, self.seed) for item in self.rows]
        sides = [[i for i, out in zip(self.rows, is_out, strict=True) if out is side] for side in (False, True)]
        return sides[0], sides[1]

    def item(self, ordinal: int, split: int) -> Item:
        """Returns row `ordinal` of the split, modulo the number of rows."""
        check_split(split)
        rows = self.splits[split]
        if not rows:
            raise AssayError(f"{self.path} has no row in split {split}. Change held_out ({self.held_out}) or the seed")
        return rows[ordinal % len(rows)]

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Returns the values of the field `source` in training rows, in order; none if no row has it. AssayError if
        only some have.
        """
        found = [str(item.facts["source"]) for item in self.splits[0] if "source" in item.facts]
        if found and len(found) < len(self.splits[0]):
            missing = len(self.splits[0]) - len(found)
            raise AssayError(f"{self.path}: {missing} training rows have no field 'source'. Add it to all, or to none")
        return tuple(sorted(set(found)))

    @cached_property
    def places(self) -> tuple[list[int], ...]:
        """Returns the training rows of each source."""
        rows = [str(item.facts.get("source")) for item in self.splits[0]]
        return tuple([place for place, own in enumerate(rows) if own == name] for name in self.source_names)

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of row `place` of a source; after its last row its first one follows, as a new start."""
        again, row = divmod(place, len(self.places[source]))
        return again * len(self.splits[0]) + self.places[source][row]

    def source_of(self, start: int) -> int:
        """Returns the number of a training row's source."""
        return self.source_names.index(str(self.item(start, 0).facts["source"]))

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the answer, 0 for all else."""
        given = final_answer(completion)
        if not given:
            return PolicyFault("several final answers" if given is None else "no answer")
        if self.worked:
            numbers = stated_numbers(given)
            if not numbers:
                return PolicyFault("no number")
            is_one = FINAL not in completion or len(numbers) == 1
            return Score(float(is_one and is_same_answer(numbers[-1], item.answer)))
        return Score(float(is_same_answer(given, item.answer)))


@dataclass(frozen=True)
class TwoFiles:
    """Training rows from one file, held-out rows from another: all of both, each repeated cyclically.

    No prompt may be in both, whatever its spaces and capitals: `scored_on` refuses that. Worked numbers are searched
    only if both files have them; see `TextFile`.
    """

    train: TextFile
    test: TextFile

    @property
    def rows(self) -> tuple[Item, ...]:
        """Returns the rows of both files."""
        return self.train.rows + self.test.rows

    @property
    def source_names(self) -> tuple[str, ...]:
        """Returns the sources of the training file."""
        return replace(self.train, held_out=0.0).source_names

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of row `place` of a source in the training file."""
        return replace(self.train, held_out=0.0).start_in(source, place)

    def source_of(self, start: int) -> int:
        """Returns the number of a training row's source."""
        return replace(self.train, held_out=0.0).source_of(start)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns row `ordinal` of the split's file, modulo the number of rows."""
        check_split(split)
        rows = (self.train, self.test)[split].rows
        return rows[ordinal % len(rows)]

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the answer, 0 for all else."""
        return self.train.verify(item, completion)


def scored_on(task: PromptTask, other: PromptTask) -> PromptTask:
    """Returns the task of a file with all rows of another file as the held-out ones; AssayError if rows are in both."""
    train, test = task.items, other.items
    assert isinstance(train, TextFile)
    assert isinstance(test, TextFile)
    known = {alike(item.prompt) for item in train.rows}
    leaks = [item.prompt for item in test.rows if alike(item.prompt) in known]
    if leaks:
        first = f"the first is '{text.escaped(leaks[0], 60)}'"
        what = f"{len(leaks)} of {len(test.rows)} rows of {test.path} are also in {train.path}"
        raise AssayError(f"{what} ({first}). Remove them from one of the two")
    worked = train.worked and test.worked
    items = TwoFiles(replace(train, worked=worked), replace(test, worked=worked))
    name = f"{task.name}-{Path(test.path).stem}"
    prompt, tokens = max(task.max_prompt, other.max_prompt), max(task.max_tokens, other.max_tokens)
    return PromptTask(name, items, task.tokenizer, prompt, tokens)


def alike(prompt: str) -> str:
    """Returns the prompt in lower case with single spaces, to compare prompts."""
    return " ".join(prompt.casefold().split())


def textfile(
    path: str,
    columns: tuple[str, str] = ("prompt", "answer"),
    tokenizer: Tokenizer = ByteTokenizer(),
    max_prompt: int = 1024,
    max_tokens: int = 0,
    held_out: float = 0.1,
    seed: int = 0,
) -> PromptTask:
    """Returns the task of a file with a prompt and an answer in each line; the whole answer is the demonstration. Other
    fields of a line (`label`, `kind`, ...) are facts of its prompt.

    Warns how many prompts contain their answer. The horizon follows the longest prompt of the file; `max_tokens` 0
    means 256, or as many as the longest demonstration needs. Files called train or test are named with their folder.
    """
    rows, digest = rows_of(path, columns)
    longest, items = longest_prompt(rows, tokenizer, max_prompt), []
    for row in rows:
        answer = final_answer(row.fields[1])
        if not answer:
            raise AssayError(f"{row.where}: '{columns[1]}' must have one text after '####', or no '####' at all")
        items.append(Item(row.fields[0], answer, row.fields[1], row.others))
    leaks = sum(is_word_in(item.answer, item.prompt) for item in items)
    if leaks:
        warnings.warn(f"{path}: in {leaks} of {len(items)} rows the prompt contains the answer", stacklevel=2)
    worked = all(FINAL in item.demonstration and plain_number(item.answer) is not None for item in items)
    source = TextFile(path, digest, held_out, seed, tuple(items), worked)
    needed = max(len(tokenizer.encode(item.demonstration)) for item in items) + 1
    return PromptTask(name_of(Path(path)), source, tokenizer, longest, max_tokens or max(256, needed))


def name_of(path: Path) -> str:
    """Returns the file's name, with its folder's if it is only train or test."""
    return f"{path.parent.name}-{path.stem}" if path.stem in ("train", "test") and path.parent.name else path.stem


def is_word_in(word: str, prompt: str) -> bool:
    """Returns whether the prompt contains the word, not merely as a part of a longer word or number."""
    return word in prompt and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt) is not None
