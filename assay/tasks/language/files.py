"""Tasks named by files: FILE.jsonl, TRAIN.jsonl,TEST.jsonl or A.jsonl=0.7,B.jsonl=0.3 with a test file at the end.

In the place of a file may stand a folder with splits, see `sources`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.tasks.language.preferences import LABELLED, PairsTask, preferences
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.rows import first_row
from assay.tasks.language.sources import SUFFIXES, training_and_held_out
from assay.tasks.language.textfile import BEST, textfile, together

FORMATS = "TRAIN.jsonl, TRAIN.jsonl,TEST.jsonl or A.jsonl=0.7,B.jsonl=0.3,TEST.jsonl"
TESTS = {"tests", "test_list"}


def parts_of(address: str) -> list[tuple[str, str]]:
    """Returns (path, weight as it was written) of the files between commas; an existing path is one file."""
    if Path(address).exists():
        return [(address, "")]
    found = []
    for one in address.split(","):
        path, sign, weight = one.rpartition("=")
        found.append((path, weight) if sign and not Path(one).exists() else (one, ""))
    return found


def names_files(address: str) -> bool:
    """Returns whether an address names files and no other task."""
    return any(path.endswith(SUFFIXES) or Path(path).exists() for path, _ in parts_of(address))


def anchored_files(address: str) -> str:
    """Returns the address with paths of existing files made absolute."""
    whole = [str(Path(path).resolve()) if path and Path(path).exists() else path for path, _ in parts_of(address)]
    weights = [f"={weight}" if weight else "" for _, weight in parts_of(address)]
    return ",".join(path + weight for path, weight in zip(whole, weights, strict=True))


def task_of_files(address: str, needs_answers: bool = True) -> PromptTask | PairsTask:
    """Returns the task of the files: prompts with answers, or preference pairs if a file's first line has `chosen`.

    Of two files without weights the second is held out; of files with weights, the last one if it has none.
    """
    parts = expanded(parts_of(address))
    if not all(path.strip() for path, _ in parts):
        raise AssayError(f"'{address}' has no file beside a comma. Write {FORMATS}")
    tasks = [task_of_file(path, needs_answers) for path, _ in parts]
    weighed = [weight for _, weight in parts if weight]
    if len(tasks) == 1 and not weighed:
        return tasks[0]
    num_test = 0 if parts[-1][1] else 1
    is_two = len(parts) == 2 and not weighed
    if not is_two and len(weighed) != len(parts) - num_test:
        raise AssayError(f"'{address}' does not say what each file is for. Write {FORMATS}")
    weights = [] if is_two else [weight_of(path, weight) for path, weight in parts if weight]
    pairs = [task for task in tasks if isinstance(task, PairsTask)]
    if pairs and len(pairs) < len(tasks):
        raise AssayError(f"'{address}' names files of prompts and files of pairs. Use one kind")
    prompts = [task.prompts if isinstance(task, PairsTask) else task for task in tasks]
    train, test = (prompts[:-1], prompts[-1]) if num_test else (prompts, None)
    joined = together(train, test, weights)
    return replace(pairs[0], prompts=joined) if pairs else joined


def expanded(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the parts with folders as paths of their rows: a folder alone as its training and its held-out split, one
    among others as its training split, the last one of those without a weight as its held-out split if it has one.
    """
    found = list[tuple[str, str]]()
    for place, (path, weight) in enumerate(parts):
        if not path.strip() or not Path(path).is_dir():
            found.append((path, weight))
            continue
        train, test = training_and_held_out(Path(path))
        is_test = len(parts) > 1 and place == len(parts) - 1 and not weight
        found.append((test if is_test and test else train, weight))
        found += [(test, "")] if len(parts) == 1 and test else []
    return found


def weight_of(path: str, written: str) -> float:
    """Returns a file's weight."""
    try:
        weight = float(written)
    except ValueError:
        weight = math.nan
    if not 0.0 < weight < math.inf:
        raise AssayError(f"the weight of {path} is '{written}'. Use a positive number: {path}=0.5")
    return weight


def task_of_file(path: str, needs_answers: bool = True) -> PromptTask | PairsTask:
    """Returns the task of one file, by the fields of its first line; without `needs_answers` prompts alone will do."""
    first = first_row(path)
    columns = set(first)
    if "chosen" in columns or (columns >= LABELLED and "answer" not in columns):
        return preferences(path)
    if "answer" not in columns and (is_problem(first) or (needs_answers and is_asked(first) and columns & TESTS)):
        from assay.tasks.language.programs import program_file  # and with it the sandbox

        return program_file(path)
    if {"responses", BEST} <= columns and "answer" not in columns:
        return textfile(path, ("prompt", BEST))
    if not needs_answers and "answer" not in columns and columns & {"prompt", "question"}:
        return textfile(path, ("prompt" if "prompt" in columns else "question", ""))
    if {"completion", "score"} <= columns and "answer" not in columns:
        raise AssayError(
            f"{path} has single completions with a score, which no method reads. Give a label, true or false, or join "
            'two completions of each prompt as {"prompt", "chosen", "rejected"}'
        )
    if "messages" in columns:
        return textfile(path, ("messages", "answer"))
    known = [("prompt", "answer"), ("question", "answer")]
    return textfile(path, next((pair for pair in known if set(pair) <= columns), known[0]))


def is_problem(row: Mapping[str, Any]) -> bool:
    """Returns whether a row is a programming problem: a prompt with a list of tests, or with HumanEval's fields. Other
    things under the name of tests are facts for a reward of the user's.
    """
    tests = row.get("test_list", row.get("tests"))
    has_tests = isinstance(tests, list) and bool(tests) and all(is_test(one) for one in tests)
    return is_asked(row) and (has_tests or row.keys() >= {"test", "entry_point"})


def is_asked(row: Mapping[str, Any]) -> bool:
    """Returns whether a row has a prompt of a programming problem."""
    return bool(row.keys() & {"prompt", "text", "question"})


def is_test(value: object) -> bool:
    """Returns whether a value is an assertion, or an input with its output."""
    if isinstance(value, dict):
        return bool(value.keys() & {"stdin", "input"}) and bool(value.keys() & {"stdout", "output"})
    return isinstance(value, str)
