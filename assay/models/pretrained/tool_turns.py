"""Tool calls and their results as a model's chat template writes them.

The template is asked once for a conversation with a call that is known, and what it writes after the end token of the
call is what stands around results in every conversation: sampled tokens are never rendered or encoded again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.errors import AssayError

PROBE, THOUGHT = "probe_goes_here", "thought-goes-here-1+1"
SPECIAL = 'a"b'
"""A text that JSON escapes."""
ChatText = Callable[[Sequence[Mapping[str, Any]]], str]


@dataclass(frozen=True)
class ToolTurns:
    """What a template writes for a call, and before, between and after the results of an utterance, from its end token
    to the next utterance; and whether it writes a result as a JSON string.
    """

    call: str
    pieces: tuple[str, ...]
    is_json: bool
    not_a_part: ClassVar[str] = "texts of a template"


def called(num_calls: int, content: str, as_text: bool) -> dict[str, Any]:
    """Returns an assistant's message with calls; some templates take the arguments as JSON text."""
    arguments: Any = {"x": 1}
    function = {"name": PROBE, "arguments": json.dumps(arguments) if as_text else arguments}
    calls = [{"id": f"call{place:05d}", "type": "function", "function": function} for place in range(num_calls)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def answered(results: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the messages of results."""
    return [
        {"role": "tool", "name": PROBE, "tool_call_id": f"call{place:05d}", "content": result}
        for place, result in enumerate(results)
    ]


def tool_turns(path: str, chat_text: ChatText, eos: str, num_results: int) -> ToolTurns | None:
    """Returns the texts for this number of results; None for a template that does not write calls and results.

    AssayError for one that rewrites earlier turns when results follow.
    """
    marks = [f"result-{place}-goes-here-1+1" for place in range(num_results)]
    user = {"role": "user", "content": "prompt"}
    for num_calls, as_text in ((num_results, False), (1, False), (num_results, True), (1, True)):
        turn = [called(num_calls, "", as_text), *answered(marks)]
        think = [called(num_calls, f"<think>\n{THOUGHT}\n</think>\n\n", as_text), *turn[1:]]
        try:
            begun, whole, longer = (chat_text([user, *more]) for more in ([], turn, [*turn, *turn]))
            thinking, thought = (chat_text([user, *more]) for more in (think, [*think, *turn]))
        except AssayError:  # a message of this form is not for the template
            continue
        call, end, rest = whole.removeprefix(begun).partition(eos)
        if PROBE not in call or any(mark not in rest for mark in marks):
            continue
        pieces = tuple(re.split("|".join(map(re.escape, marks)), end + rest))
        appends = whole.startswith(begun) and longer == whole + call + end + rest and len(pieces) == num_results + 1
        if not appends or (THOUGHT in thinking and THOUGHT not in thought):
            what = f"the chat template of '{path}' rewrites earlier turns when tool results follow"
            raise AssayError(f"{what}. Use a model whose template appends, or one turn without tools")
        quoted = chat_text([user, turn[0], *answered([SPECIAL] * num_results)])
        return ToolTurns(call, pieces, json.dumps(SPECIAL)[1:-1] in quoted)
    return None
