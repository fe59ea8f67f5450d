"""Experts as tools of a user's file: what is counted, what is refused, and the testbed's exact chances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.claims.testbeds.language.experts import Experts, best_alone, experts
from assay.core.errors import AssayError
from assay.core.record import Score
from assay.core.slots import Scene
from assay.methods.router_r1 import Routed, calls_of
from assay.recipes.presets import BIGRAMS
from assay.runs.user_code.tools import tools_of
from assay.tasks.language.addition import addition
from assay.tasks.language.partners import Reply

PRICES = {"small": 0.18, "large": 1.8}
TOOL = 'def ask(expert: str, question: str) -> str:\n    """Asks an expert."""\n    return f"{expert} says 7"\n'
SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}


def file_of(folder: Path, **facts: object) -> str:
    """A file of questions with these fields."""
    lines = [json.dumps({"prompt": f"{n} plus 500?", "answer": str(n + 500), **facts}) for n in range(1, 41)]
    (folder / "asked.jsonl").write_text("\n".join(lines))
    return str(folder / "asked.jsonl")


def test_experts_are_tools_of_a_file_with_prices(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TOOL)
    options: dict[str, Any] = {"steps": 2, "warmup": 2, "prompts": 2, "group_size": 2, "settings": SIZES}
    data, tool = file_of(tmp_path, prices=PRICES), [f"{tmp_path / 'mine.py'}:ask"]
    run = assay.train("router-r1", data, tool=tool, out=tmp_path / "run", **options)
    assert [row["route_cost"] for row in run.curves if "route_cost" in row] == [0.0, 0.0], "from scratch it never asks"
    with pytest.raises(AssayError, match="has no field 'prices'"):
        assay.train("router-r1", file_of(tmp_path), tool=tool, out=tmp_path / "bare", **options)
    with pytest.raises(AssayError, match=r"has prices \{'small': -1\}"):
        assay.train("router-r1", file_of(tmp_path, prices={"small": -1}), tool=tool, out=tmp_path / "odd", **options)
    with pytest.raises(AssayError, match="needs conversations with experts"):
        assay.train("router-r1", data, out=tmp_path / "alone", **options)


def test_a_chat_models_calls_are_paid_by_the_tokens_of_their_replies(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from assay.tasks.language.textfile import textfile
    from assay.tasks.language.tools import with_tools
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    (tmp_path / "mine.py").write_text(TOOL)
    tools = tools_of([f"{tmp_path / 'mine.py'}:ask"])
    task: Any = with_tools(textfile(file_of(tmp_path, prices=PRICES)), tools, 2, 5.0, 256)
    task = with_model(task, save_chat_model(tmp_path / "model", TEMPLATES["chatml"]))
    item = task.items_of(np.arange(1), 0)[0]
    call = '<tool_call>{"name": "ask", "arguments": {"expert": "large", "question": "?"}}</tool_call>'
    talk = task.messages(item, [call, item.answer], [Reply("<tool_response>large says 7"), Reply("", Score(1.0))])
    ((who, reply),) = calls_of({"prices": PRICES, "messages": talk})
    assert who == "large"
    assert len(task.tokenizer.encode(reply)) > 0
    assert Routed().init(Scene(task)) == {"roots": []}


def test_a_call_is_to_the_first_expert_that_it_names() -> None:
    said = ['{"expert": "small", "question": "does large know?"}', "smaller", "large?", "7"]
    talk = [{"content": "q"}, *({"content": one} for words in said for one in (words, "reply"))][:-1]
    assert calls_of({"prices": PRICES, "messages": talk}) == [("small", "reply"), (None, "reply"), ("large", "reply")]


def test_other_tasks_and_shares_are_refused() -> None:
    with pytest.raises(AssayError, match="needs conversations with experts"):
        Routed().init(Scene(addition(1)))
    with pytest.raises(AssayError, match=r"alpha is 1.5"):
        Routed(1.5)


@pytest.mark.parametrize("hops", [1, 2])
def test_chances_of_experts_are_those_of_their_questions(hops: int) -> None:
    task, partner = experts(hops), Experts(hops)
    draws = [task.items_of(np.array([4 * number]), 0)[0] for number in range(2000)]
    for said, chance in list(partner.chances("a").items())[:: 11**hops]:
        right = [partner.reply(item, list(said)).outcome for item in draws]
        assert np.mean([getattr(one, "value", 0.0) for one in right]) == pytest.approx(chance, abs=0.04)
    alone = [max(partner.chances(sign)[one * hops + "9"] for one in "01234567") for sign in "abcd"]
    assert best_alone(hops) == pytest.approx(np.mean(alone)), "whichever expert is best for a prompt"


def test_the_start_succeeds_as_often_as_its_chances_say() -> None:
    task = experts(2)
    actor = BIGRAMS.actor.build(task.spec)
    each = 2 * (0.6 + 0.95 + 0.2 + 0.2)
    assert task.exact(actor)["pass_rate"] == pytest.approx(each**2 * 9e-3, rel=1e-5)
