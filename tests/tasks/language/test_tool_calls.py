"""Tool calls in the formats of models: parsed exactly, in linear time, and never by evaluating a text."""

from __future__ import annotations

import time
from typing import Any

import pytest

from assay.tasks.language.tool_arguments import fitted
from assay.tasks.language.tool_call_json import BadCall, Call
from assay.tasks.language.tool_calls import FORMATS, format_of

PARSE = {one.name: one.parse for one in FORMATS}
F1, G = Call("f", {"x": 1}), Call("g", {})


@pytest.mark.parametrize(
    ("form", "said", "calls"),
    [
        ("hermes", 'a<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>b', [F1]),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><tool_call>{"name": "g"}</tool_call>',
            [F1, G],
        ),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', [F1]),
        ("hermes", "The answer is 4.", []),
        (
            "xml",
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=y>\na\nb\n</parameter>\n</function>\n</tool_call>",
            [Call("f", {"x": "1", "y": "a\nb"}, is_text=True)],
        ),
        ("xml", "<function=f></function> and <function=g></function>", [Call(n, {}, is_text=True) for n in "fg"]),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {"x": 1}}', [F1]),
        ("llama", ' {"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}\n', [F1, G]),
        ("llama", '{"answer": 4}', []),
        ("llama", "{4, 5} is the set", []),
        ("pythonic", "[f(x=1), g()]", [F1, G]),
        ("pythonic", "[f(x=-1.5, y=['a', {'b': None}])]", [Call("f", {"x": -1.5, "y": ["a", {"b": None}]})]),
        ("pythonic", "[1, 2]", []),
        (
            "mistral",
            '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}, "id": "abc"}, {"name": "g", "arguments": {}}]',
            [F1, G],
        ),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g{}', [F1, G]),
        ("mistral", "It is 4.", []),
    ],
)
def test_calls_are_those_that_were_written(form: str, said: str, calls: list[Call]) -> None:
    assert PARSE[form](said) == calls


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("hermes", "<tool_call>{</tool_call>"),
        ("hermes", '<tool_call>{"name": "f"'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>'),
        ("hermes", "<tool_call>" + "[" * 100_000 + "</tool_call>"),
        ("xml", "<tool_call><function=f><parameter=x>1</function></tool_call>"),
        ("xml", "<tool_call>f(1)</tool_call>"),
        ("llama", '<|python_tag|>print("hi")'),
        ("llama", '{"name": "f", "parameters": {"x": 1}'),
        ("pythonic", "[f(1)]"),
        ("pythonic", "[f(x=__import__('os').getcwd())]"),
        ("pythonic", "[f(x=" + "-" * 9_000 + "1)]"),
        ("pythonic", "[f(**{'x': 1})]"),
        ("mistral", "[TOOL_CALLS][{]"),
    ],
)
def test_a_call_that_cannot_be_read_is_an_error_in_words(form: str, said: str) -> None:
    (found,) = PARSE[form](said)
    assert isinstance(found, BadCall)
    assert found.error.startswith("error: ")
    assert len(found.error) < 300


@pytest.mark.parametrize("form", PARSE)
@pytest.mark.parametrize(
    "piece",
    [
        " ",
        "<tool_call>",
        "<tool_call> </tool_call>",
        "\n{",
        "[TOOL_CALLS]",
        "[f(",
        '{"a":',
        "<function=",
        "<parameter=a>",
        ";",
        '{"name":"f"}',
        "-",
    ],
)
def test_an_utterance_is_read_in_time_linear_in_its_length(form: str, piece: str) -> None:
    """Twice the length takes about twice as long, also where nothing closes."""
    for head in ("", "<tool_call>", "[f(x=", "<|python_tag|>", "<function=a>"):
        said = (head + piece * 200_000)[:200_000]
        begin = time.process_time()
        PARSE[form](said)
        assert time.process_time() - begin < 2.0


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "s": {"type": "string"},
        "how": {"enum": ["fast", "full"]},
        "many": {"type": "array", "items": {"type": "number"}},
        "either": {"anyOf": [{"type": "boolean"}, {"type": "integer"}]},
    },
    "required": ["x"],
}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (Call("f", {"x": 1}), {"x": 1}),
        (Call("f", {"x": 1, "s": None}), {"x": 1}),
        (Call("f", {"x": 1, "many": [1, 2.5], "either": True}), {"x": 1, "many": [1, 2.5], "either": True}),
        (Call("f", {"x": "1", "s": "2", "either": "True"}, is_text=True), {"x": 1, "s": "2", "either": True}),
        (Call("f", {}), "error: f needs the argument 'x'"),
        (Call("f", {"x": True}), "error: argument 'x' of f is True, not integer"),
        (Call("f", {"x": 1, "how": "slow"}), "error: argument 'how' of f is 'slow', not one of fast, full"),
        (Call("f", {"x": 1, "many": ["a"]}), "error: argument 'many' of f is ['a'], not array"),
        (Call("f", {"x": 1, "y": 2}), "error: f has no argument 'y'. Arguments: x, s, how, many, either"),
        (Call("f", {"x": "one"}, is_text=True), "error: argument 'x' of f is 'one', not integer"),
    ],
)
def test_arguments_are_held_against_the_schema(call: Call, arguments: Any) -> None:
    assert fitted(call, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("rendered", "name"),
    [
        ('<|im_start|>assistant\n<tool_call>\n{"name": "probe", "arguments": {"x": 1}}\n</tool_call>', "hermes"),
        ("<tool_call>\n<function=probe>\n<parameter=x>\n1\n</parameter>", "xml"),
        ('{"name": "probe", "parameters": {"x": 1}}<|eot_id|>', "llama"),
        ("[probe(x=1)]<|eot_id|>", "pythonic"),
        ('[TOOL_CALLS] [{"name": "probe", "arguments": {"x": 1}}]</s>', "mistral"),
        ("<|assistant|>", "hermes"),
    ],
)
def test_the_format_is_that_of_the_template(rendered: str, name: str) -> None:
    assert format_of(rendered, "probe").name == name
