"""A user's own conversations: a class with `reset`, `step` and `max_turns`, by file."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from assay.cli.main import main
from assay.core.errors import AssayError
from assay.core.record import Score
from assay.engine import evaluation
from assay.runs import catalogue
from assay.runs.folder import read_metrics
from assay.tasks.language.text_environment import conversation_task

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "environments.md").read_text()


class Guess:
    """A secret below three; every wrong guess costs a tenth."""

    max_turns = 3

    def reset(self, seed: int) -> str:
        self.secret = seed % 3
        return f"secret {seed // 3}?"

    def step(self, said: str) -> tuple[str, float, bool]:
        return ("right", 1.0, True) if said == str(self.secret) else ("wrong", -0.1, False)

    def solution(self) -> list[str]:
        return ["x", str(self.secret)]


def test_replies_are_those_of_the_class_and_rewards_those_of_its_steps() -> None:
    task = conversation_task("Guess", Guess)
    assert (task.max_turns, task.max_tokens, task.max_reply) == (3, 64, 256)
    item = task.partner.item(1, 1)
    assert (item.prompt, item.demonstration, item.facts["seed"]) == ("secret 1?\n", "x\n0", 3)
    first, last = task.replies(item, ["1", "0"])
    assert (first.text, first.outcome, first.reward) == ("wrong\n", None, -0.1)
    assert (last.text, last.outcome, last.reward) == ("right\n", Score(1.0), 0.0)
    shown = task.demonstrate(np.array([0, 1, 2]), 0)
    assert shown.column("score").tolist() == pytest.approx([0.9, 0.9, 0.9])
    assert shown.reward.sum(1).tolist() == pytest.approx([0.9, 0.9, 0.9])


def broken(**changes: object) -> type:
    """Returns the class with some of it changed."""
    return type("Broken", (Guess,), changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_turns": 0}, "Broken.max_turns is 0. Use a whole number"),
        ({"reset": lambda self, seed: 3}, "Broken.reset returned 3. Return the prompt, a text"),
        ({"step": lambda self, said: "x"}, "Broken.step returned 'x'. Return (text, reward, whether it is over)"),
        ({"step": lambda self, said: ("x", float("nan"), True)}, "Broken.step returned the reward nan"),
        (
            {"reset": lambda self, seed, n=iter("ab"): next(n), "solution": None},
            "Broken.reset(0) returned 'a' and then 'b'. Draw",
        ),
    ],
)
def test_what_is_no_conversation_is_refused_before_anything_is_spent(changes: dict[str, object], words: str) -> None:
    with pytest.raises(AssayError, match=re.escape(words)):
        conversation_task("Broken", broken(**changes))


def test_the_class_of_the_page_is_trained_evaluated_and_resumed_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    (file,) = re.findall(r'```python title="guess.py"\n(.*?)```', PAGE, flags=re.S)
    Path("guess.py").write_text(file)
    task = catalogue.find_task("guess.py:Guess")
    assert (task.name, task.max_turns, task.max_tokens) == ("Guess", 4, 8)  # type: ignore[attr-defined]
    small = ["--set", "actor.width=16", "--set", "actor.layers=1", "--set", "actor.heads=2"]
    words = ["train", "grpo", "--task", "guess.py:Guess", "--steps", "1", "--warmup", "1", "--prompts", "2"]
    assert main([*words, "--group-size", "2", *small, "--out", "run", "--json"]) == 0
    assert main(["resume", "run", "--json"]) == 0
    assert main(["evaluate", "run", "--starts", "2", "--json"]) == 0
    assert read_metrics(Path("run"))[-1]["step"] == 1


def test_without_a_solution_nothing_is_imitated(tmp_path: Path) -> None:
    task = conversation_task("Guess", partial(broken(solution=None)))
    assert task.partner.item(0, 0).demonstration == ""


def test_a_pretrained_model_plays_it_in_its_chat_template(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    task = conversation_task("Guess", Guess)
    chat = with_model(task, str(tmp_path / "model"))
    assert chat.max_reply < 2 * task.max_reply, "bytes are the most tokens"  # type: ignore[attr-defined]
    shown = chat.demonstrate(np.array([0, 1]), 0)  # type: ignore[attr-defined]
    assert shown.column("score").tolist() == pytest.approx([0.9, 0.9])
    words = chat.tokenizer.decode(shown.action[0].tolist())  # type: ignore[attr-defined]
    assert words.index("secret 0?") < words.index("assistant") < words.index("wrong") < words.rindex("assistant")
