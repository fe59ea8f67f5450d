"""Chat data in a model's template: which tokens are trained, against templates by hand and transformers' own masks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError, DataWarning
from assay.core.record import Draw, Experience, Need
from assay.core.slots import Scene
from assay.models.pretrained.transformers import Pretrained, PretrainedTokenizer
from assay.runs import catalogue
from assay.runs.language import changed_task
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import make_plan
from assay.tasks.adapters.pretrained import ModelTask, with_model
from tests.models.test_conversations import TEMPLATES, save_chat_model

CALLS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] }}{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function']['name'] }}: "
    "{{ ARGUMENTS }}</tool_call>{% endfor %}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETS = (  # drops the reasoning of replies that are not the last one, as Qwen3's does
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' and not loop.last %}"
    "{{ m['content'].split('</think>')[-1] }}{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KINDS = {
    **TEMPLATES,
    "calls": CALLS.replace("ARGUMENTS", "c['function']['arguments'] | tojson"),
    "joins": CALLS.replace("{{ ARGUMENTS }}", "{{ '' + c['function']['arguments'] }}"),
    "forgets": FORGETS,
}
TWO = [("system", "Be brief."), ("user", "the fridge"), ("assistant", "open it"), ("user", "and"), ("assistant", "go")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("chat_data")
    return {name: save_chat_model(base / name, template) for name, template in KINDS.items()}


def chat(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def task_of(folder: Path, model: str, rows: list[dict[str, Any]], train_on: str | None = None) -> ModelTask:
    """The rows, followed by one to hold out, whose hash of the prompt is the first that is."""
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "b.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "held out"}], "answer": "r"}))
    task: Any = catalogue.find_task(f"{folder / 'a.jsonl'},{folder / 'b.jsonl'}")
    made = with_model(changed_task(task, None, None, in_order=True, train_on=train_on), model)
    assert isinstance(made, ModelTask)
    return made


def trained_texts(task: ModelTask, shown: Experience, row: int = 0) -> list[str]:
    """The decisions of a row, run by run, control tokens included."""
    found, before = list[list[int]](), False
    for token, chosen in zip(shown.action[row].tolist(), shown.mask[row].tolist(), strict=True):
        if chosen:
            found = found if before else [*found, []]
            found[-1].append(token)
        before = chosen
    backend = task.tokenizer.backend  # type: ignore[attr-defined]
    return [backend.decode(ids, clean_up_tokenization_spaces=False) for ids in found]


def tokens_of(shown: Experience, row: int = 0) -> list[int]:
    found: list[int] = shown.action[row, shown.context["valid"][row]].tolist()
    return found


# ---------------------------------------------------------------------------------------------------- tokens
@pytest.mark.parametrize("kind", ["chatml", "system", "calls"])
def test_every_reply_and_its_end_token_is_trained_and_nothing_else(
    kind: str, folders: dict[str, str], tmp_path: Path
) -> None:
    task = task_of(tmp_path, folders[kind], [chat(*TWO)])
    shown = task.supervise(np.arange(1), 0)
    assert trained_texts(task, shown) == ["open it<|im_end|>", "go<|im_end|>"]
    backend = PretrainedTokenizer(folders[kind]).backend
    whole = backend.apply_chat_template(chat(*TWO)["messages"], tokenize=False)
    theirs = backend.encode(whole, add_special_tokens=False)
    mine = tokens_of(shown)
    assert mine == theirs[: len(mine)], "up to the last end token"
    assert len(theirs) - len(mine) <= 1
    assert shown.terminal.sum() == 1
    assert shown.terminal[0, len(mine) - 1]


def test_the_mask_is_that_of_templates_with_generation_marks(folders: dict[str, str], tmp_path: Path) -> None:
    rows = [chat(*TWO), chat(*TWO[1:3]), chat(*TWO[:3], ("tool", "cold"), ("assistant", "yes-red no-cat"))]
    task = task_of(tmp_path, folders["calls"], rows)
    shown, backend = task.supervise(np.arange(3), 0), PretrainedTokenizer(folders["calls"]).backend
    for row, own in enumerate(rows):
        found = backend.apply_chat_template(own["messages"], return_assistant_tokens_mask=True, return_dict=True)
        length = len(tokens_of(shown, row))
        assert tokens_of(shown, row) == found["input_ids"][:length]
        assert shown.mask[row, :length].long().tolist() == found["assistant_masks"][:length]
        assert sum(found["assistant_masks"][length:]) == 0


@pytest.mark.parametrize("kind", ["calls", "joins"])
@pytest.mark.parametrize("as_text", [False, True])
def test_calls_are_trained_in_the_words_of_the_template(
    kind: str, as_text: bool, folders: dict[str, str], tmp_path: Path
) -> None:
    arguments: Any = {"what": "fridge", "n": 2}
    call = {"id": "a", "type": "function", "function": {"name": "open", "arguments": arguments}}
    if as_text:
        call["function"]["arguments"] = json.dumps(arguments)  # type: ignore[index]
    calling = {"role": "assistant", "content": None, "tool_calls": [call, {"name": "go", "arguments": {}}]}
    result = {"role": "tool", "content": "cold", "tool_call_id": "a"}
    ask, said = {"role": "user", "content": "the fridge"}, {"role": "assistant", "content": "go"}
    rows = [{"messages": [ask, calling, result, said]}, {"messages": [ask, calling]}]
    task = task_of(tmp_path, folders[kind], rows)
    shown = task.supervise(np.arange(2), 0)
    called = '<tool_call>open: {"what": "fridge", "n": 2}</tool_call><tool_call>go: {}</tool_call><|im_end|>'
    assert trained_texts(task, shown, 0) == [called, "go<|im_end|>"]
    assert trained_texts(task, shown, 1) == [called]
    assert "cold" in task.tokenizer.backend.decode(tokens_of(shown))  # type: ignore[attr-defined]
    assert trained_texts(task, task.demonstrate(np.arange(2), 0), 0) == ["go<|im_end|>"]


def test_the_choice_of_replies(folders: dict[str, str], tmp_path: Path) -> None:
    def texts(train_on: str | None, *marks: Any, name: str = "train") -> list[str]:
        row = chat(*TWO)
        for place, mark in zip((2, 4), marks, strict=False):
            row["messages"][place] |= {} if mark is None else {name: mark}
        task = task_of(tmp_path, folders["chatml"], [row], train_on)
        return trained_texts(task, task.supervise(np.arange(1), 0))

    first, last = "open it<|im_end|>", "go<|im_end|>"
    assert texts(None) == texts("all") == [first, last]
    assert texts("last") == [last]
    assert texts(None, True) == texts("marked", True) == texts(None, True, False) == [first]
    assert texts(None, 0, name="weight") == texts("marked", 0, 1, name="weight") == [last]
    assert texts("all", True, False) == [first, last]
    with pytest.raises(AssayError, match="line 1: no reply is marked"):
        texts("marked")
    with pytest.raises(AssayError, match=r"'weight' of 'messages\[2\]' is 0.5. Use true or false"):
        texts(None, 0.5, name="weight")


def test_the_loss_of_two_turns_is_the_sum_over_both(folders: dict[str, str], tmp_path: Path) -> None:
    both = task_of(tmp_path, folders["chatml"], [chat(*TWO)])
    actor: Any = Pretrained(folders["chatml"]).build(both.spec)
    shown = both.supervise(np.arange(1), 0)
    tokens = torch.tensor([tokens_of(shown)])
    with torch.no_grad():
        logp = actor.network(tokens).logits.double().log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
    expected = sum(float(logp[place - 1]) for place in shown.mask[0].nonzero()[:, 0].tolist())
    parts = [task_of(tmp_path, folders["chatml"], [chat(*TWO[:number])], "last") for number in (3, 5)]
    alone = [one.supervise(np.arange(1), 0) for one in parts]
    sums = [float(nll_sum(actor, one)) for one in (shown, *alone)]
    assert sums[0] == pytest.approx(-expected, abs=1e-3)
    assert sums[0] == pytest.approx(sums[1] + sums[2], abs=1e-4)
    assert int(shown.mask.sum()) == sum(int(one.mask.sum()) for one in alone)


def nll_sum(actor: Any, shown: Experience) -> torch.Tensor:
    return -(actor.score(shown, frozenset({Need.LOGP})).logp * shown.mask).sum().detach()


@pytest.mark.parametrize("words", ["<|im_end|>", "say <|im_end|> twice <|im_start|>", "<|im_end|>\n<|im_start|>user"])
def test_text_that_spells_a_control_token_is_text(words: str, folders: dict[str, str], tmp_path: Path) -> None:
    turns = [("user", words), ("assistant", f"so {words} x"), ("user", "q"), ("assistant", words)]
    task = task_of(tmp_path, folders["chatml"], [chat(*turns)])
    shown = task.supervise(np.arange(1), 0)
    assert trained_texts(task, shown) == [f"so {words} x<|im_end|>", f"{words}<|im_end|>"]
    control = task.tokenizer.control  # type: ignore[attr-defined]
    assert sum(token in control for token in tokens_of(shown)) == 8  # two of each message


def test_single_replies_are_what_they_were(folders: dict[str, str], tmp_path: Path) -> None:
    rows = [chat(*TWO[:3]), chat(*TWO[1:3]), {"prompt": "a", "answer": "b"}]
    for kind, some in (("chatml", rows[:2]), ("chatml", rows[2:]), ("forgets", rows[:2])):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
        task: Any = with_model(catalogue.find_task(str(tmp_path / "a.jsonl")), folders[kind])
        splits = [(split, len(task.items.splits[split])) for split in (0, 1)]
        for split, number in splits:
            ours, theirs = task.supervise(np.arange(number), split), task.demonstrate(np.arange(number), split)
            assert torch.equal(ours.action, theirs.action)
            assert torch.equal(ours.mask, theirs.mask)


# ---------------------------------------------------------------------------------------------------- what does not fit
THINKS = [
    ("user", "q"),
    ("assistant", "<think>it is red</think>yes"),
    ("user", "w"),
    ("assistant", "<think>x</think>n"),
]


def test_a_template_that_drops_earlier_reasoning_trains_the_last_reply_and_says_so(
    folders: dict[str, str], tmp_path: Path
) -> None:
    with pytest.warns(DataWarning, match="of 2 conversations 1 train their last reply alone, because the model's temp"):
        task = task_of(tmp_path, folders["forgets"], [chat(*THINKS), chat(*TWO)])
    shown = task.supervise(np.arange(2), 0)
    assert trained_texts(task, shown, 0) == ["<think>x</think>n<|im_end|>"]
    assert trained_texts(task, shown, 1) == ["open it<|im_end|>", "go<|im_end|>"], "no reasoning, so nothing is dropped"
    kept = task_of(tmp_path, folders["chatml"], [chat(*THINKS)])
    first = "<think>it is red</think>yes<|im_end|>"
    assert trained_texts(kept, kept.supervise(np.arange(1), 0)) == [first, "<think>x</think>n<|im_end|>"]
    marked = chat(*THINKS, ("user", "z"), ("assistant", "y"))
    for place in (1, 3):
        marked["messages"][place]["train"] = True
    with pytest.raises(AssayError, match=r"line 1: the chat template of .* and the row does not train its last reply"):
        task_of(tmp_path, folders["forgets"], [marked])


def test_a_template_without_calls_is_refused(folders: dict[str, str], tmp_path: Path) -> None:
    call = {"function": {"name": "open", "arguments": {}}}
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}
    with pytest.raises(AssayError, match=r"line 1: the chat template of .* leaves 'open' out of the assistant"):
        task_of(tmp_path, folders["chatml"], [row])


def test_a_long_conversation_is_cut_at_a_reply_and_a_longer_one_left_out(
    folders: dict[str, str], tmp_path: Path
) -> None:
    long = "z" * 1500  # the model reads 2,048
    rows = [
        chat(*TWO),
        chat(("user", "q"), ("assistant", "first"), *[("user", long), ("assistant", "w")] * 2),
        chat(("user", long + long), ("assistant", "x")),
    ]
    with pytest.warns(DataWarning, match="of 3 conversations") as caught:
        task = task_of(tmp_path, folders["chatml"], rows)
    said = str(next(one.message for one in caught if one.category is DataWarning))
    assert "1 are cut at an earlier reply, because the model reads 2,048 tokens" in said
    assert "1 are left out, because not even one reply fits" in said
    assert task.num_training == 2
    assert trained_texts(task, task.supervise(np.arange(2), 0), 1) == ["first<|im_end|>", "w<|im_end|>"]
    assert task.spec.horizon <= 2048
    (tmp_path / "c.jsonl").write_text(json.dumps(rows[2]))
    with pytest.raises(AssayError, match="every row is longer than the 2,048 tokens"):
        with_model(catalogue.find_task(str(tmp_path / "c.jsonl")), folders["chatml"])


def test_a_run_trains_all_replies_by_default_and_other_ones_on_request(folders: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(chat(*TWO[1:], ("user", str(k)), ("assistant", "x"))) + "\n" for k in range(30)))

    def decisions(**options: Any) -> int:
        language = replace(LanguageOptions(prompts=4), **options)
        plan = make_plan("sft", str(file), model=folders["chatml"], steps=1, options=RunOptions(language=language))
        source, scene = plan.recipe.source, Scene(plan.task, draw=Draw(0))
        return int(next(iter(source(scene, source.init(scene)))).mask.sum())  # type: ignore[union-attr]

    assert decisions() == decisions(train_on="all") > decisions(train_on="last") > 0
    with pytest.raises(AssayError, match=r"--train-on is 'some'\. Use last, all or marked"):
        LanguageOptions(train_on="some").check()
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n')
    with pytest.raises(AssayError, match="--train-on is for rows with 'messages'"):
        make_plan("sft", str(tmp_path / "p.jsonl"), options=RunOptions(language=LanguageOptions(train_on="all")))
