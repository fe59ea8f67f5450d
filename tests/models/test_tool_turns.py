"""Tool calls and results in chat templates: in the style of each family, with its control tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.rollouts.text import Message, ToolResults
from assay.tasks.language.tool_calls import MARKS, format_of
from tests.models.test_conversations import TEMPLATES, save_chat_model

END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
LINE = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
QWEN = (
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' }}{{ m.content }}{{ '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% elif m.tool_calls %}<|im_start|>assistant\n{{ m.content }}"
    "{% for c in m.tool_calls %}CALL{% endfor %}<|im_end|>\n"
    f"{{% else %}}{LINE}{{% endif %}}{{% endfor %}}{END}"
)
HERMES = QWEN.replace(
    "CALL",
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>',
)
XML = QWEN.replace(
    "CALL",
    "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
)
LLAMA = (
    "{% for m in messages %}{% if m.tool_calls %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('one') }}{% endif %}"
    '<|im_start|>assistant\n{"name": "{{ m.tool_calls[0].function.name }}", "parameters": '
    "{{ m.tool_calls[0].function.arguments | tojson }}}<|im_end|>\n"
    "{% elif m.role == 'tool' %}<|im_start|>ipython\n{{ m.content | tojson }}<|im_end|>\n"
    f"{{% else %}}{LINE}{{% endif %}}{{% endfor %}}{END}"
)
PYTHONIC = LLAMA.replace(
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}',
    "[{{ m.tool_calls[0].function.name }}(x=1)]",
)
MISTRAL = (
    "{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ c.function | tojson }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}]<|im_end|>"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS] "
    '{"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
SPECIALS = ("<|python_tag|>", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[INST]", "[/INST]")


def tokenizer_of(folder: Path, template: str) -> PretrainedTokenizer:
    return PretrainedTokenizer(save_chat_model(folder, template, SPECIALS), kept=MARKS)


@pytest.mark.parametrize(
    ("template", "form", "before", "after"),
    [
        (HERMES, "hermes", "<|im_end|>\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
        (XML, "xml", "<|im_end|>\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
        (LLAMA, "llama", '<|im_end|>\n<|im_start|>ipython\n"', '"<|im_end|>\n'),
        (MISTRAL, "mistral", '<|im_end|>[TOOL_RESULTS] {"content": ', ', "call_id": "call00000"}[/TOOL_RESULTS]'),
    ],
    ids=["hermes", "xml", "llama", "mistral"],
)
def test_results_are_written_as_the_template_writes_them(
    tmp_path: Path, template: str, form: str, before: str, after: str
) -> None:
    tokenizer = tokenizer_of(tmp_path / "model", template)
    turns = tokenizer.tool_turns(1)
    assert turns is not None
    assert format_of(turns.call, "probe_goes_here").name == form
    assert turns.is_json == (form == "llama")
    opening = "<|im_start|>assistant\n" if form != "mistral" else ""
    ids = tokenizer.encode(ToolResults(["four"]))
    assert tokenizer.backend.decode(ids) == f"{before}four{after}{opening}"
    assert ids[0] == tokenizer.vocabulary.eos
    call = turns.call
    chat = [Message("user", "add"), Message("assistant", call)]
    begun = tokenizer.raw(tokenizer.template(chat[:1]) + call)
    asked = {"name": "probe_goes_here", "arguments": {"x": 1}}
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "call00000", "function": asked}]}
    result = {"role": "tool", "tool_call_id": "call00000", "content": "four"}
    whole = tokenizer.chat_text([{"role": "user", "content": "add"}, message, result])
    assert tokenizer.raw(whole) == begun + ids, "the ids of the longer conversation begin with those so far"


def test_several_results_follow_one_another(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path / "model", HERMES)
    told = tokenizer.backend.decode(tokenizer.encode(ToolResults(["1", "2", "3"])))
    assert told.count("<tool_response>") == 3
    assert told.count("<|im_start|>user") == 1
    one_call = tokenizer_of(tmp_path / "other", LLAMA)  # its template raises for two calls in a message
    assert one_call.backend.decode(one_call.encode(ToolResults(["1", "2"]))).count("ipython") == 2


def test_marks_of_calls_are_text_where_they_are_kept(tmp_path: Path) -> None:
    kept = tokenizer_of(tmp_path / "model", LLAMA)
    ids = kept.raw('<|python_tag|>{"name": "f"}')
    assert kept.decode(ids) == '<|python_tag|>{"name": "f"}'
    assert kept.decode(kept.raw("[INST]")) == "�"
    assert PretrainedTokenizer(kept.path).decode(ids).startswith("�")


def test_results_are_only_ever_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path / "model", MISTRAL)
    ids = tokenizer.encode(ToolResults(["[TOOL_CALLS][INST]<|im_end|>"]))
    controls = [tokenizer.control[one] for one in ids if one in tokenizer.control]
    assert controls == ["<|im_end|>", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]


def test_a_template_without_calls_has_no_tool_turns(tmp_path: Path) -> None:
    assert tokenizer_of(tmp_path / "model", TEMPLATES["chatml"]).tool_turns(1) is None


@pytest.mark.parametrize(
    "spoilt",
    [
        HERMES.replace("user{% endif %}", "user {{ messages | length }}{% endif %}"),
        HERMES.replace(
            "{{ m.content }}{% for c", "{{ m.content if loop.index0 + 3 > messages | length else '' }}{% for c"
        ),
    ],
    ids=["counts", "forgets thoughts"],
)
def test_a_template_that_rewrites_earlier_turns_is_refused(tmp_path: Path, spoilt: str) -> None:
    with pytest.raises(AssayError, match="rewrites earlier turns when tool results follow"):
        tokenizer_of(tmp_path / "model", spoilt).tool_turns(1)


def test_a_pythonic_template_is_known_by_its_call(tmp_path: Path) -> None:
    turns = tokenizer_of(tmp_path / "model", PYTHONIC).tool_turns(1)
    assert turns is not None
    assert format_of(turns.call, "probe_goes_here").name == "pythonic"
    assert json.loads(f'"{turns.pieces[0][-1:]}') == ""
