"""Tool calls in the formats that models write, each parsed in time linear in the utterance.

    hermes     <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>, several in a row    (Hermes, Qwen 2.5 and 3)
    xml        <tool_call><function=f><parameter=x>1</parameter></function></tool_call>         (Qwen3-Coder)
    llama      {"name": "f", "parameters": {"x": 1}}, alone or after <|python_tag|>             (Llama 3.1)
    pythonic   [f(x=1), g()]                                                                    (Llama 3.2, Llama 4)
    mistral    [TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}], or [TOOL_CALLS]f{"x": 1}     (Mistral)

A text without a call is the answer. A call that cannot be read is an error in words, which the policy reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from assay.tasks.language.tool_call_json import (
    CLOSE,
    LONGEST,
    OPEN,
    BadCall,
    Call,
    Calls,
    after_space,
    between_marks,
    call_of,
    read_json,
    whole_call,
)

PYTHON_TAG, MISTRAL, ARGUMENTS = "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"
MARKS = (PYTHON_TAG, MISTRAL, ARGUMENTS, OPEN, CLOSE)
"""Texts that some tokenizers have as control tokens: they stay readable in an utterance that may have calls."""
PYTHONIC = re.compile(r"\[\s*[A-Za-z_][\w.]*\(")


@dataclass(frozen=True)
class CallFormat:
    """A format of calls: how an utterance is parsed, an example with the tool's name as {name}, and what a template
    that writes it contains.
    """

    name: str
    parse: Callable[[str], Calls] = field(repr=False, compare=False)
    example: str
    signs: tuple[str, ...]
    not_a_part: ClassVar[str] = "a format of text"

    def shown(self, name: str) -> str:
        """Returns a call of the tool as text."""
        return self.example.replace("{name}", name)


NOT_CLOSED = BadCall(f"error: {OPEN} without {CLOSE}")


def hermes(said: str) -> Calls:
    """Returns the calls between the marks, each a JSON object."""
    return [NOT_CLOSED if one is None else whole_call(one) for one in between_marks(said)]


def xml(said: str) -> Calls:
    """Returns the calls <function=NAME>, with arguments <parameter=NAME>, each a text without its outer line breaks."""
    found, at = Calls(), said.find("<function=")
    while at >= 0:
        end, after = said.find("</function>", at), said.find(">", at)
        if end < 0 or not at < after < end:
            return [*found, BadCall("error: <function=...> without </function>")]
        found.append(parameters(said[at + len("<function=") : after].strip(), said[after + 1 : end]))
        at = said.find("<function=", end)
    return found or [NOT_CLOSED if one is None else BadCall("error: no <function=...>") for one in between_marks(said)]


def parameters(name: str, body: str) -> Call | BadCall:
    """Returns a call with the arguments that stand in its body."""
    given, at = dict[str, Any](), body.find("<parameter=")
    while at >= 0:
        after, end = body.find(">", at), body.find("</parameter>", at)
        if end < 0 or not at < after < end:
            return BadCall("error: <parameter=...> without </parameter>")
        text = body[after + 1 : end].removeprefix("\n").removesuffix("\n")
        given[body[at + len("<parameter=") : after].strip()] = text
        at = body.find("<parameter=", end)
    return Call(name, given, is_text=True)


def llama(said: str) -> Calls:
    """Returns the JSON objects that an utterance consists of, apart from ';' between them. Without <|python_tag|>, an
    object that has no name is an answer.
    """
    before, tag, after = said.partition(PYTHON_TAG)
    text = (after if tag else before).strip()
    if not tag and not text.startswith("{"):
        return []
    found, at = list[Any](), 0
    try:
        while at < len(text):
            asked, end = read_json(text, at)
            found.append(asked)
            at = after_space(text, end, ";")
    except ValueError as error:
        is_answer = not tag and not ('"name"' in text and '"parameters"' in text)
        return [] if is_answer else [BadCall(f'error: a call must be {{"name": ..., "parameters": {{...}}}} ({error})')]
    if not tag and any(not isinstance(one, dict) or "name" not in one for one in found):
        return []
    return [call_of(one, "parameters") for one in found]


def pythonic(said: str) -> Calls:
    """Returns the calls of a list of calls with constants by name: nothing is evaluated but literals."""
    text = said.replace(PYTHON_TAG, "").replace("<|python_start|>", "").replace("<|python_end|>", "").strip()
    if not PYTHONIC.match(text):
        return []
    wanted = "error: calls must be [name(argument=constant, ...), ...]"
    if len(text) > LONGEST:
        return [BadCall(f"{wanted} (too long)")]
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return [BadCall(f"{wanted} ({type(error).__name__})")]
    if not isinstance(tree, ast.List):
        return [BadCall(wanted)]
    return [pythonic_call(node, wanted) for node in tree.elts]


def pythonic_call(node: ast.expr, wanted: str) -> Call | BadCall:
    """Returns the call of a node of the syntax tree."""
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        return BadCall(wanted)
    try:
        name = ast.unparse(node.func)
        given = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords if one.arg is not None}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return BadCall(f"{wanted} (an argument is no constant)")
    if len(given) != len(node.keywords):
        return BadCall(wanted)
    return Call(name, given)


def mistral(said: str) -> Calls:
    """Returns the calls after each [TOOL_CALLS]: a list of objects, or a name before its arguments."""
    found = Calls()
    for text in said.split(MISTRAL)[1:]:
        at = after_space(text, 0)
        try:
            if text[at : at + 1] in ("[", "{") and not text.startswith(ARGUMENTS, at):
                asked, _ = read_json(text, at)
                found += [call_of(one) for one in (asked if isinstance(asked, list) else [asked])]
                continue
            brace = text.find("{", at)
            name = text[at : brace if brace >= 0 else len(text)].replace(ARGUMENTS, "").partition("[CALL_ID]")[0]
            asked, _ = read_json(text, brace) if brace >= 0 else ({}, 0)
            found.append(call_of({"name": name.strip(), "arguments": asked}))
        except ValueError as error:
            found.append(BadCall(f'error: calls must be {MISTRAL}[{{"name": ..., "arguments": {{...}}}}] ({error})'))
    return found


FORMATS = (
    CallFormat(
        "xml",
        xml,
        f"{OPEN}\n<function={{name}}>\n<parameter=...>\n...\n</parameter>\n</function>\n{CLOSE}",
        ("<function=",),
    ),
    CallFormat("mistral", mistral, f'{MISTRAL}[{{"name": "{{name}}", "arguments": {{...}}}}]', (MISTRAL,)),
    CallFormat("hermes", hermes, f'{OPEN}{{"name": "{{name}}", "arguments": {{...}}}}{CLOSE}', (OPEN,)),
    CallFormat("llama", llama, '{"name": "{name}", "parameters": {...}}', ('"parameters":', PYTHON_TAG)),
    CallFormat("pythonic", pythonic, "[{name}(...)]", ("{called}(",)),
)
HERMES = FORMATS[2]


def format_of(rendered: str, name: str) -> CallFormat:
    """Returns the format that a chat template writes: of the text that it renders for a call of the tool `name` with an
    argument, the part that the tools' descriptions have no share in. Hermes if it writes none of them.
    """
    for one in FORMATS:
        if name in rendered and any(sign.replace("{called}", name) in rendered for sign in one.signs):
            return one
    return HERMES
