"""Own tools: schemas from functions, calls in the policy's text, results as context, faults that are never rewards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from assay.core.errors import AssayError, DataWarning
from assay.core.record import Draw, InfraFault, PolicyFault, Score
from assay.core.slots import Scene
from assay.engine import evaluation
from assay.parts.curricula.in_order import next_starts
from assay.rollouts import text
from assay.rollouts.text import TOOL_RESPONSE as RESPONSE
from assay.runs.user_code.tools import schema_of, tools_of
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.adapters.tool_room import OPTIONS, Room, smaller
from assay.tasks.language.addition import addition
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.items import Item
from assay.tasks.language.partners import Reply
from assay.tasks.language.textfile import textfile
from assay.tasks.language.tools import Tool, ToolUse, with_tools
from tests.models.test_conversations import TEMPLATES, save_chat_model


def search(query: str, limit: int = 3, kinds: list[str] | None = None, how: Literal["fast", "full"] = "fast") -> str:
    """Searches the notes.

    Newest first.

    Args:
        query: what to look for
        limit (int): the most results
    """
    if query == "boom":
        raise ValueError("no such note")
    if query == "slow":
        time.sleep(1.0)
    return f"{limit} notes about {query}"


TOOL = Tool("search", search, schema_of(search, "search"))


def test_the_schema_is_that_of_signature_and_docstring() -> None:
    function: Any = TOOL.schema["function"]
    assert function["description"] == "Searches the notes. Newest first."
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "description": "the most results"},
            "kinds": {"type": "array", "items": {"type": "string"}},
            "how": {"enum": ["fast", "full"]},
        },
        "required": ["query"],
    }
    with pytest.raises(AssayError, match="'rest' has no name in a call"):
        schema_of(lambda *rest: rest, "open")


def replied(partner: Any, said: str, place: int = 0) -> Reply:
    """Returns the reply of a new session to one utterance."""
    session = partner.open(partner.item(place, 0), 0)
    reply: Reply = session.reply(said)
    session.close()
    return reply


def call(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'search', 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (call(query="cats"), "3 notes about cats"),
        (f"I look it up. {call(query='cats', limit=1)}", "1 notes about cats"),
        (call(query="boom"), "error: ValueError: no such note"),
        (call(), "error: search needs the argument 'query'"),
        (call(query=1), "error: argument 'query' of search is 1, not string"),
        (call(query="cats", limit=None), "3 notes about cats"),
        ("<tool_call>{</tool_call>", "error: a call must be"),
        ('<tool_call>{"name": "fly"}</tool_call>', "error: there is no tool 'fly'. Tools: search"),
        ("<tool_call>", "error: <tool_call> without </tool_call>"),
    ],
)
def test_calls_are_answered_with_text_and_errors_are_text_for_the_policy(said: str, answered: str) -> None:
    partner = ToolUse(addition(1).items, (TOOL,))
    reply = replied(partner, said)
    assert reply.outcome is None
    assert reply.text.startswith(f"<tool_response>\n{answered}")


def test_an_utterance_without_a_call_is_the_answer() -> None:
    partner = ToolUse(addition(1).items, (TOOL,))
    session = partner.open(item := partner.item(0, 0), 0)
    assert session.reply(call(query="cats")).outcome is None
    assert session.reply(item.answer).outcome == Score(1.0)
    assert session.reward() == PolicyFault("the turns ran out")


def test_a_call_that_hangs_is_a_fault_of_the_infrastructure() -> None:
    partner = ToolUse(addition(1).items, (TOOL,), seconds=0.05)
    begin = time.monotonic()
    assert replied(partner, call(query="slow")).outcome == InfraFault("tool timeout")
    assert time.monotonic() - begin < 0.5


def test_a_fault_that_a_tool_returns_ends_the_row() -> None:
    gone = Tool("search", lambda query: InfraFault("the index is away"), TOOL.schema)
    assert replied(ToolUse(addition(1).items, (gone,)), call(query="a")).outcome == InfraFault("the index is away")


def test_a_function_is_called_for_every_call_and_may_be_async() -> None:
    made = list[str]()

    async def search(query: str) -> str:
        made.append(query)
        return f"{query}, call {len(made)}"

    partner = ToolUse(addition(1).items, (Tool("search", search, TOOL.schema),))
    assert "cats, call 1" in replied(partner, call(query="cats")).text
    assert "cats, call 2" in replied(partner, call(query="cats"), 1).text


@pytest.mark.parametrize("num", [1, 2, 5, 40])
@pytest.mark.parametrize("size", [3, 512, 5000])
def test_the_results_of_an_utterance_never_exceed_the_limit_of_a_reply(num: int, size: int) -> None:
    """Two long results ended the run: each had the room of the whole reply."""
    long = Tool("search", lambda query, limit=3: "é" * size + query, TOOL.schema)
    task = with_tools(addition(1), [long], 2)
    said = "".join(call(query=str(place)) for place in range(num))
    reply = replied(task.partner, said)
    assert len(task.reply_ids(reply.text, task.tokenizer.vocabulary.eos)) <= task.max_reply
    told = reply.text.split("</tool_response>")[:-1]
    assert len(told) == min(num, (512 + len(RESPONSE) - 2) // (len(RESPONSE) - 1))
    assert all("[cut]" in one for one in told) == (size > 3 and num <= 5)


def test_short_results_stay_whole_beside_a_long_one() -> None:
    partner = ToolUse(addition(1).items, (Tool("search", lambda query: query * 300, TOOL.schema),), most_bytes=400)
    told = replied(partner, call(query="") + call(query="ab")).text
    assert told.startswith("<tool_response>\n\n</tool_response>\n<tool_response>\nabab")
    assert told.endswith("ab [cut]\n</tool_response>")
    assert len(told) == 400 + len(RESPONSE) - 2


@dataclass(frozen=True)
class Shown(ToolUse):
    """Tools whose items demonstrate a call before the answer."""

    first: str = ""
    is_repeatable = True

    def item(self, ordinal: int, split: int) -> Item:
        item = super().item(ordinal, split)
        return replace(item, demonstration=f"{self.first}\n{item.demonstration}")


def shown(task: DialogueTask, first: str) -> DialogueTask:
    """Returns the task with demonstrations of two utterances."""
    assert isinstance(task.partner, ToolUse)
    own = {one.name: getattr(task.partner, one.name) for one in fields(task.partner)}
    return replace(task, partner=Shown(**own, first=first))


def test_results_are_context_and_the_answer_is_rewarded(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Note {k}?", "answer": f"yes {k}"}) + "\n" for k in range(30)))
    task = with_tools(textfile(str(file)), [TOOL], max_calls=2, seconds=1.0)
    assert task.num_training + task.num_testing == 30
    assert evaluation.num_starts(task) == task.num_testing, "no held-out row is scored twice"
    assert evaluation.labels(task, 2 * task.num_testing).max() < task.num_testing, "and equal prompts count once"
    rows = next_starts(Scene(task, {}, Draw(0)), {"next": 0}, task.num_training).tolist()
    assert sorted(rows) == list(range(task.num_training)) != rows, "a pass is shuffled"
    item = task.partner.item(0, 0)
    task = replace(shown(task, call(query="cats")), max_tokens=200)
    judged = task.demonstrate(np.zeros(1, np.int64), 0)
    assert judged.column("score").tolist() == [1.0]
    told = text.readable(task.tokenizer, judged.action[judged.mask].tolist())
    assert "notes about cats" not in told
    row = task.texts(judged, 0)[0]
    assert row["completion"] == item.answer
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "user", "assistant"]
    assert row["messages"][2]["content"] == RESPONSE.format("3 notes about cats")


@pytest.mark.parametrize("reads_tools", [True, False])
def test_a_chat_template_that_reads_tools_gets_them_and_another_finds_them_in_the_prompt(
    tmp_path: Path, reads_tools: bool
) -> None:
    pytest.importorskip("transformers")
    shown = "{% if tools %}<|im_start|>tools\\n{{ tools | tojson }}<|im_end|>\\n{% endif %}" if reads_tools else ""
    path = save_chat_model(tmp_path / "model", shown + TEMPLATES["chatml"])
    task = with_model(with_tools(addition(1), [TOOL], max_calls=2, seconds=1.0, most_bytes=64), path)
    prompt = task.begin(np.zeros(1, np.int64), 0)  # type: ignore[union-attr]
    written = task.tokenizer.backend.decode(prompt.action[0].tolist())  # type: ignore[union-attr, attr-defined]
    assert written.count("what to look for") == 1
    assert written.startswith("<|im_start|>tools") is reads_tools
    assert ("You may call tools" in written) is not reads_tools


def test_what_nobody_chose_is_halved_then_calls_are_given_up() -> None:
    every = frozenset(OPTIONS)
    found = [tuple(room) for room in smaller(Room(4, 256, 512), every, 20)]
    halved = [(4, 256, 512), (4, 256, 256), (4, 256, 128), (4, 128, 128), (4, 128, 64), (4, 64, 64)]
    assert found == [*halved, (3, 64, 64), (2, 64, 64), (1, 64, 64), (1, 64, 32), (1, 32, 32), (1, 32, 16), (1, 20, 16)]
    assert [tuple(room) for room in smaller(Room(2, 8, 512), every - {"max_tokens", "tool_bytes"}, 20)] == [
        (2, 8, 512),
        (1, 8, 512),
    ]
    assert len([*smaller(Room(4, 256, 512), frozenset(), 20)]) == 1


def test_a_call_has_room_where_answers_are_short(tmp_path: Path) -> None:
    """Sums of two digits have three bytes, in which no policy can write a call."""
    assert addition(1).max_tokens == 3
    assert with_tools(addition(1), [TOOL]).max_tokens >= len(call(query="cats", limit=3)) + 1
    assert with_tools(replace(addition(1), max_tokens=9, is_limited=True), [TOOL]).max_tokens == 9


def test_limits_of_tools_fit_a_model_that_reads_little_unless_they_were_chosen(tmp_path: Path) -> None:
    """A model of 1,024 tokens was refused: four calls with results of 512 bytes did not fit."""
    pytest.importorskip("transformers")

    def model_of(reads: int) -> str:
        path = Path(save_chat_model(tmp_path / str(reads), TEMPLATES["chatml"]))
        settings = json.loads((path / "config.json").read_text()) | {"max_position_embeddings": reads}
        (path / "config.json").write_text(json.dumps(settings))
        return str(path)

    roomy: Any = with_model(with_tools(addition(1), [TOOL]), model_of(8192))
    assert (roomy.max_turns, roomy.partner.most_bytes) == (5, 512)
    with pytest.warns(DataWarning, match="reads 1,200 tokens, .*: --tool-calls 2, --max-tokens 64, --tool-bytes 64"):
        task: Any = with_model(with_tools(addition(1), [TOOL]), model_of(1200))
    assert (task.max_turns, task.max_tokens, task.partner.most_bytes) == (3, 64, 64)
    assert task.spec.horizon <= 1200 < task.spec.horizon + 64 + task.max_reply, "a third call would not fit"
    long = Tool("search", lambda query, limit=3: "é" * 5000, TOOL.schema)
    reply = replied(replace(task.partner, tools=(long,)), call(query="cats"))
    assert 0 < len(task.reply_ids(reply.text, task.tokenizer.vocabulary.eos)) <= task.max_reply
    with pytest.raises(AssayError, match=r"takes .*,.* a prompt with its tools\. Lower --tool-bytes, or shorten"):
        with_model(with_tools(addition(1), [TOOL], most_bytes=2000), model_of(1200))


def test_tools_are_functions_by_name_each_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    one = 'def one(x: int) -> int:\n    """Returns x."""\n    return x\n\n'
    bare = "def bare(x: int) -> int:\n    return x\n\ndef loose(x):\n    'Returns x.'\n    return x\n\n"
    file.write_text(one + bare + "class Empty:\n    pass\n\nTWO = 2\n")
    assert [tool.schemas[0]["function"]["name"] for tool in tools_of([f"{file}:one"])] == ["one"]
    for words, message in (
        ([f"{file}"], "Name the function or class in it"),
        ([f"{file}:TWO"], "is not a function or a class"),
        ([f"{file}:bare"], "bare has no docstring. Describe"),
        ([f"{file}:loose"], "its argument 'x' has no type. Annotate it: x: str"),
        ([f"{file}:Empty"], "Empty has no public methods"),
        (["mcp:"], "names no server"),
        ([f"{file}:one", f"{file}:one"], "names two tools 'one'"),
    ):
        with pytest.raises(AssayError, match=message):
            tools_of(words)
    with pytest.raises(AssayError, match="--tool needs prompts"):
        with_tools(catalogue_task("cartpole"), [TOOL], 1, 1.0)


def catalogue_task(name: str) -> Any:
    from assay.runs import catalogue

    return catalogue.find_task(name)
