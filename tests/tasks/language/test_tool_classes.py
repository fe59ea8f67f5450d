"""Classes whose methods are tools: an instance for each rollout, with state, prompt text and reward of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.runs.user_code.tools import tool_class
from assay.tasks.language.addition import addition
from assay.tasks.language.textfile import textfile
from assay.tasks.language.tools import ToolUse, first_rows, with_tools

CLOSED: list[int] = []


class Counter:
    """Counts the calls of its rollout."""

    def reset(self, seed: int, topic: str = "") -> str | None:
        self.count, self.topic = 0, topic
        return f"Count {topic}." if topic else None

    def add(self, by: int = 1) -> str:
        """Adds to the counter.

        Args:
            by: how much
        """
        self.count += by
        return f"count {self.count}"

    async def read(self) -> int:
        """Reads the counter."""
        return self.count

    def reward(self) -> float:
        return self.count / 2

    def close(self) -> None:
        CLOSED.append(self.count)

    def _hidden(self) -> None:
        """No tool."""


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def rows(tmp_path: Path, **more: Any) -> Any:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Row {k}?", **more}) + "\n" for k in range(12)))
    return textfile(str(file), ("prompt", "answer" if "answer" in more else ""))


def test_public_methods_are_the_tools() -> None:
    found = tool_class(Counter, "Counter", None)
    names = [schema["function"]["name"] for schema in found.schemas]
    assert names == ["add", "read"]
    assert found.schemas[0]["function"]["parameters"]["properties"] == {
        "by": {"type": "integer", "description": "how much"}
    }
    assert found.pays


def test_a_counter_counts_per_row() -> None:
    task = addition(1)
    partner = ToolUse(task.items, (tool_class(Counter, "Counter", first_rows(task)[0]),))
    one, two = (partner.open(partner.item(place, 0), 0) for place in range(2))
    assert ["count 1" in session.reply(call("add")).text for session in (one, two)] == [True, True]
    assert "count 4" in one.reply(call("add", by=3)).text
    assert "count 2" in two.reply(call("add")).text
    assert "\n2\n" in two.reply(call("read")).text, "an async method is awaited"
    del CLOSED[:]
    one.close()
    two.close()
    assert CLOSED == [4, 2]


def test_the_reward_of_the_class_is_the_outcome_where_rows_have_no_answers(tmp_path: Path) -> None:
    task = rows(tmp_path, topic="sheep")
    made = with_tools(task, [tool_class(Counter, "Counter", first_rows(task)[0])], 2)
    partner: Any = made.partner
    item = partner.item(0, 0)
    assert item.prompt.endswith("?\n\nCount sheep.")
    session = partner.open(item, 0)
    session.reply(call("add", by=3))
    assert session.reply("done").outcome == Score(1.5)
    assert session.reward() == Score(1.5), "also when the turns ran out"
    with_answers = with_tools(rows(tmp_path, answer="yes"), [tool_class(Counter, "Counter", None)], 2)
    held: Any = with_answers.partner
    assert held.open(held.item(0, 0), 0).reply("no").outcome == Score(0.0), "the verifier comes first"


class Plain:
    """A class without a reward."""

    def look(self) -> str:
        """Looks."""
        return "nothing"


class Needy(Plain):
    def __init__(self, size: int) -> None:
        self.size = size


class Picky(Plain):
    def reset(self, colour: str) -> None:
        self.colour = colour


class Silent(Plain):
    def say(self, word: str) -> str:
        return word


def test_what_cannot_work_is_refused_in_one_sentence(tmp_path: Path) -> None:
    task = rows(tmp_path, topic="a")
    first = first_rows(task)[0]
    with pytest.raises(AssayError, match="nothing scores task 'rows': its rows have no answers"):
        with_tools(task, [tool_class(Plain, "Plain", first)], 2)
    with pytest.raises(AssayError, match=r"its __init__ needs 'size'\. Give it a default"):
        tool_class(Needy, "Needy", first)
    with pytest.raises(
        AssayError, match=r"reset takes 'colour', which the rows do not have\. They have: answer, prompt"
    ):
        tool_class(Picky, "Picky", first)
    with pytest.raises(AssayError, match=r"Silent\.say has no docstring"):
        tool_class(Silent, "Silent", first)


class Moody(Plain):
    times = 0

    def reset(self) -> str:
        Moody.times += 1
        return f"mood {Moody.times}"


def test_a_prompt_text_that_does_not_repeat_is_a_fault_of_the_infrastructure(tmp_path: Path) -> None:
    task = rows(tmp_path, answer="yes")
    made = with_tools(task, [tool_class(Moody, "Moody", first_rows(task)[0])], 1)
    partner: Any = made.partner
    with pytest.raises(ValueError, match="which is not in the prompt of the row"):
        partner.open(partner.item(0, 0), 0)
