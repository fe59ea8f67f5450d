"""Reads JSON-lines files: rows of text, conversations, answers. An unusable row is named by file and line."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.errors import AssayError
from assay.rollouts import text
from assay.rollouts.text import Conversation, Message, Said
from assay.tasks.language.arithmetic import FINAL
from assay.tasks.language.messages import encodable, messages_of, usual, with_trained
from assay.tasks.language.sources import lines_of

ANSWER, ANSWERS = "answer", "answers"
"""The field of the right answer, and the fact that holds all of them where it is a list."""


GOOD, BAD = "good", "bad"
"""Labels of single completions."""


class Row(NamedTuple):
    """One line: its place, for messages, the texts that were read, and other fields (see `is_fact`)."""

    where: str
    fields: tuple[str, ...]
    others: Mapping[str, object] = {}


Reader = Callable[[Mapping[str, Any], str], tuple[str, ...]]
"""Returns the texts of an object, given its place; raises AssayError that names the place."""


def rows_of(path: str | Path, read: Reader, used: Sequence[str]) -> tuple[list[Row], str]:
    """Returns the checked rows of a file without blank lines, and its SHA-256; AssayError names file and line. Fields
    that are not `used` become `others`.
    """
    digest, rows, seen = hashlib.sha256(), [], dict[str, str]()
    for number, line in lines_of(Path(path)):
        digest.update(line)
        where = f"{path}, line {number}"
        found = parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, where)
        if found is None:
            continue
        row = usual(found)
        others = {name: value for name, value in row.items() if name not in used and is_fact(value)}
        if isinstance(row.get(ANSWER), list) and ANSWER in used:
            others[ANSWERS] = answers_of(row, ANSWER, where)
        rows.append(Row(where, read(row, where), others))
        if "id" in row:
            name = json.dumps(row["id"])[:200]
            if seen.setdefault(name, where) != where:
                raise AssayError(f"{where}: the id {name} is also that of {seen[name]}. Ids must differ")
    if not rows:
        raise AssayError(f"{path} has no rows. Each line must be an object with the fields {', '.join(used)}")
    return rows, digest.hexdigest()


def is_fact(value: object) -> bool:
    """Returns whether a field can be a fact of its prompt: text, finite numbers, true or false, and lists and objects
    of them.
    """
    if isinstance(value, list | dict):
        return all(map(is_fact, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def first_columns(path: str | Path) -> set[str]:
    """Returns the fields of the file's first object."""
    return set(first_row(path))


def first_row(path: str | Path) -> dict[str, Any]:
    """Returns the file's first object."""
    for number, line in lines_of(Path(path)):
        row = parsed(line.removeprefix(b"\xef\xbb\xbf"), f"{path}, line {number}")
        if row is not None:
            return usual(row)
    raise AssayError(f'{path} has no rows. Each line must be an object such as {{"prompt": ..., "answer": ...}}')


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
        raise AssayError(f"{where} has no field '{column}' (it has: {there}). {hint}docs/language.md lists the formats")
    value = row[column]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_number or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))):
        raise AssayError(f"{where}: '{column}' is {json.dumps(value)[:60]}. It must be text or a number")
    return checked_text(str(value), column, where)


def checked_text(content: str, column: str, where: str) -> str:
    """Returns a text; AssayError if it is empty or UTF-8 cannot represent it."""
    if not content.strip():
        raise AssayError(f"{where}: '{column}' is empty. Fill it, or remove the row")
    return encodable(content, column, where)


# ---------------------------------------------------------------------------------------------------- conversations
def tools_of(row: Mapping[str, Any], where: str) -> str:
    """Returns the field `tools`, a list of descriptions, as JSON; "" without one."""
    tools = row.get("tools")
    if isinstance(tools, str):  # some files have the list as a text
        tools = (parsed(f'{{"tools": {tools or "null"}}}'.encode(), f"{where}, 'tools'") or {}).get("tools")
    if tools and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise AssayError(f"{where}: 'tools' is {json.dumps(tools)[:60]}. It must be a list of objects")
    return json.dumps(tools, sort_keys=True) if tools else ""


def prompt_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Returns the field as a prompt: a text, or a conversation if it is a list of messages."""
    if isinstance(row.get(column), list):
        return Conversation(messages_of(row[column], column, where), tools_of(row, where))
    return field_of(row, column, where)


def split_off(messages: Sequence[Message], column: str, where: str) -> tuple[tuple[Message, ...], Message]:
    """Returns the messages before the last one, and that one, which must be the assistant's."""
    if messages[-1].role != "assistant":
        raise AssayError(f"{where}: '{column}' ends with the role '{messages[-1].role}'. End it with 'assistant'")
    if len(messages) == 1:
        raise AssayError(f"{where}: '{column}' has an answer and no prompt. Put the user's message before it")
    return tuple(messages[:-1]), messages[-1]


def question_and_answer(columns: tuple[str, str]) -> Reader:
    """Returns a reader of (prompt, answer, demonstration): two fields, or `messages` whose last one, if it is the
    assistant's, is the demonstration (`Said`), and the answer too without a field `answer`. A second
    field "" reads prompts alone: answer and demonstration are empty.
    """

    def read(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        if not columns[1]:
            return prompt_of(row, columns[0], where), "", ""
        if columns[0] != "messages":
            prompt, answer = prompt_of(row, columns[0], where), answers_of(row, columns[1], where)[0]
            return prompt, answer, worked_out(row, answer, where) if columns[1] == ANSWER else answer
        messages, tools = messages_of(row.get("messages"), "messages", where), tools_of(row, where)
        given = answers_of(row, columns[1], where)[0] if columns[1] in row else ""
        if messages[-1].role != "assistant" and given:
            return Conversation(messages, tools), given, given
        split_off(messages, "messages", where)
        *before, last = with_trained(messages, "", where)
        return Conversation(before, tools), given or last.shown, Said(last)

    return read


def worked_out(row: Mapping[str, Any], answer: str, where: str) -> str:
    """Returns the demonstration of a row: the answer; or the text `solution` beside a plain one, which ends in `####`
    and the answer unless it has that mark already.
    """
    found = row.get("solution")
    if not isinstance(found, str) or not found.strip() or FINAL in answer:
        return answer
    found = checked_text(found.rstrip(), "solution", where)
    return found if FINAL in found else f"{found}\n{FINAL} {answer}"


def answers_of(row: Mapping[str, Any], column: str, where: str) -> list[str]:
    """Returns the right answers of a row: one, or those of a list, of which the first is the demonstration."""
    if not isinstance(row.get(column), list):
        return [field_of(row, column, where)]
    if not row[column]:
        raise AssayError(f"{where}: '{column}' is an empty list. Give one right answer or several")
    return [field_of({column: one}, column, where) for one in row[column]]


def pair(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Reads (prompt, chosen, rejected): texts; messages after a prompt; or whole conversations with a common prompt."""
    both = [row.get(name) for name in ("chosen", "rejected")]
    if {list, str} == {type(one) for one in both}:
        raise AssayError(f"{where}: of 'chosen' and 'rejected' one is a text and one messages. Give both in one form")
    if "prompt" in row:
        completions = [completion_of(row, name, where) for name in ("chosen", "rejected")]
        return prompt_of(row, "prompt", where), *completions
    if not all(isinstance(one, list) for one in both):
        for name in ("chosen", "rejected", "prompt"):
            field_of(row, name, where)  # names what is missing
    read = [messages_of(one, name, where) for one, name in zip(both, ("chosen", "rejected"), strict=True)]
    (before, good), (other, bad) = (split_off(m, n, where) for m, n in zip(read, ("chosen", "rejected"), strict=True))
    for message, name in ((good, "chosen"), (bad, "rejected")):
        check_plain(message, name, where)
    if before != other:
        what = "'chosen' and 'rejected' differ before their last message"
        raise AssayError(f"{where}: {what}. Cut them after the first answers that differ")
    return Conversation(before, tools_of(row, where)), good.content, bad.content


def check_plain(message: Message, column: str, where: str) -> None:
    """Raises AssayError for a completion that calls a tool."""
    if message.calls:
        raise AssayError(f"{where}: '{column}' calls a tool, which pairs cannot. Write the call into 'content'")


def labelled(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Reads (prompt, completion, GOOD or BAD): single completions with a label, as for KTO."""
    label = row.get("label")
    if label not in (True, False):
        raise AssayError(f"{where}: 'label' is {label!r}. Use true for a good completion and false for a bad one")
    return prompt_of(row, "prompt", where), completion_of(row, "completion", where), GOOD if label else BAD


def joined_pairs(rows: Sequence[Row]) -> list[Row]:
    """Returns (prompt, chosen, rejected) of `labelled` rows: the first good completion of a prompt with its first bad
    one, and so on; completions without a partner are left out.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row.fields[0], {GOOD: [], BAD: []})[row.fields[2]].append(row)
    return [
        Row(good.where, (prompt, good.fields[1], bad.fields[1]), good.others)
        for prompt, both in found.items()
        for good, bad in zip(both[GOOD], both[BAD], strict=False)
    ]


def completion_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Returns a completion: a text, or the one message of a list."""
    if not isinstance(row.get(column), list):
        return field_of(row, column, where)
    messages = messages_of(row[column], column, where)
    if len(messages) != 1 or messages[0].role != "assistant":
        what = f"'{column}' has {len(messages)} messages after an explicit 'prompt'"
        raise AssayError(f"{where}: {what}. Give one message of the assistant, or leave 'prompt' out")
    check_plain(messages[0], column, where)
    return messages[0].content


def name_of(path: Path) -> str:
    """Returns the file's name, with its folder's if it is only train or test."""
    stem = path.name.partition(".")[0].removesuffix("-*") if path.suffix == ".gz" or "*" in path.name else path.stem
    return f"{path.parent.name}-{stem}" if stem in ("train", "test") and path.parent.name else stem


def is_word_in(word: str, prompt: str) -> bool:
    """Returns whether the prompt contains the word, not merely as a part of a longer word or number."""
    return word in prompt and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt) is not None


def judgement(row: Row) -> str:
    """Returns scores that put the best response of a row first: 2 for it and 1 for the others; AssayError if `best` is
    not the number of one of at least two `responses`.
    """
    responses, best = row.others.get("responses"), row.fields[1]
    if not isinstance(responses, list) or len(responses) < 2 or not all(isinstance(one, str) for one in responses):
        raise AssayError(f"{row.where}: 'responses' must be a list of at least two texts")
    numbers = [str(place) for place in range(1, len(responses) + 1)]
    if best not in numbers:
        raise AssayError(f"{row.where}: 'best' is {best}. It must be the number of a response, 1 to {len(responses)}")
    return ",".join("2" if number == best else "1" for number in numbers)
