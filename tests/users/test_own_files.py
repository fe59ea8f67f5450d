"""A user's own files on the command line: methods, environments and rewards, in every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli.main import main

METHOD = '''
"""mine: grpo without its scale."""
from dataclasses import replace
from assay import recipes
from assay.claims.claim import Exact
from own_parts import Half

def recipe(defaults):
    base = recipes.grpo(defaults)
    credit = (replace(base.credit[0], baseline=Half()),)
    return replace(base, name="mine", credit=credit, rollout=replace(base.rollout, group_size=4))

CLAIMS = (Exact("a half is a half", lambda: Half().share, equals=0.5),)
'''
PARTS = '''
from dataclasses import dataclass
from assay.core.slots import RowStatistic
from assay.ops import groups

@dataclass(frozen=True)
class Half(RowStatistic):
    """Half of the mean of the group."""

    share: float = 0.5

    def __call__(self, outcome_B, experience):
        return self.share * groups.mean(outcome_B, groups.row_groups(experience))
'''
ENVIRONMENT = """
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    max_episode_steps = 12

    def __init__(self, size: int = 3):
        self.size = size
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.at / self.size], np.float32)

    def step(self, action):
        self.at = max(-self.size, min(self.size, self.at + 2 * int(action) - 1))
        return self.seen(), float(self.at == self.size), self.at == self.size, False, {}

def wide():
    return Walk(5)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working directory, with the user's files."""
    for name, text in {"my_method": METHOD, "own_parts": PARTS, "my_env": ENVIRONMENT}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Returns the JSON that the last command printed."""
    found = json.loads(capsys.readouterr().out)
    return found[0] if isinstance(found, list) else found


def test_a_method_in_a_file_is_trained_evaluated_shown_and_claimed(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["train", "my_method.py", "--task", "bandit", "--steps", "1", "--out", "run", "--json"]) == 0
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert main(["evaluate", "../run", "--starts", "2", "--json"]) == 0
    capsys.readouterr()
    assert main(["show", "../my_method.py", "--json"]) == 0
    assert str(facts(capsys)["text"]).startswith("mine:")
    assert main(["diff", "../my_method.py", "grpo", "--json"]) == 0
    assert facts(capsys)["changes"]
    assert main(["claim", "../my_method.py", "--exact", "--json"]) == 0
    assert facts(capsys)["verdict"] == "holds"


def test_an_environment_in_a_file_is_a_task(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    for number, name in enumerate(("Walk", "wide", "Walk:size=4")):
        words = ["--task", f"my_env.py:{name}", "--steps", "1", "--out", f"run-{number}", "--json"]
        few = ["--set", "rollout.steps=16", "--set", "source.epochs=1", "--set", "source.minibatches=1"]
        assert main(["train", "ppo", *words, *few]) == 0
    assert main(["evaluate", "run-0", "--starts", "2", "--json"]) == 0
    (place / "my_env.py").write_text(ENVIRONMENT.replace("== self.size)", "== 1)"))
    capsys.readouterr()
    assert main(["evaluate", "run-0", "--starts", "2", "--json"]) == 2
    assert "my_env.py" in capsys.readouterr().err
    assert main(["evaluate", "run-0", "--starts", "2", "--accept-changed-code", "--json"]) == 0


def test_an_environment_without_a_time_limit_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    (place / "my_env.py").write_text(ENVIRONMENT.replace("    max_episode_steps = 12\n", ""))
    assert main(["train", "ppo", "--task", "my_env.py:Walk"]) == 2
    assert "has no time limit. Set --max-episode-steps" in capsys.readouterr().err
