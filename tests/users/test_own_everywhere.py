"""Own methods, environments and rewards in `tune`; goals as dictionaries; ablations and films on the page."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.cli.report_command import ESTIMATES, ablation_of
from assay.core import store
from assay.core.errors import DataWarning
from assay.report import page
from tests.cli.test_page import make_run
from tests.users.place import ENVIRONMENTS, GOOD, REWARDS, lines

METHOD = """
from dataclasses import replace
from assay import recipes

def recipe(defaults):
    return replace(recipes.rloo(defaults), name="mine")
"""
GOALS = """
import gymnasium
import numpy as np

SPACE = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

class Reach(gymnasium.Env):
    max_episode_steps = 4
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = gymnasium.spaces.Dict(observation=SPACE, achieved_goal=SPACE, desired_goal=SPACE)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = np.zeros(2, np.float32), self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen(), {}

    def seen(self):
        return {"observation": self.at.copy(), "achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.linalg.norm(achieved_goal - desired_goal))

    def step(self, action):
        self.at = np.clip(self.at + 0.3 * np.asarray(action, np.float32), -2, 2)
        return self.seen(), self.compute_reward(self.at, self.goal, {}), False, False, {}
"""
FEW = ["--trials", "1", "--steps", "1", "--tuning-seeds", "1", "--seeds", "1", "--json"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the user's files."""
    files = {"mine.py": METHOD, "my_env.py": ENVIRONMENTS, "goals.py": GOALS, "rewards.py": REWARDS}
    for name, text in (files | {"good.jsonl": lines(GOOD)}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_method_of_ones_own_is_tuned_and_the_search_says_what_it_chose(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "mine.py", "rollout.num_starts=2,4", "--task", "bandit", *FEW, "--out", "t"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["rollout.num_starts"] in ("2", "4")
    (config, *_) = (json.loads(path.read_text()) for path in place.rglob("t/*/seed-*/config.json"))
    assert config["method"] == str(place / "mine.py")
    assert config["code"], "the digest of the file is recorded"


def test_an_environment_and_a_reward_of_ones_own_are_tuned(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    walk = ["tune", "ppo", "rollout.num_envs=2,4", "--task", "my_env.py:Walk", "--eval-episodes", "2"]
    assert main([*walk, *FEW, "--out", "walk"]) == 0
    words = ["tune", "grpo", "rollout.num_starts=2,3", "--task", "good.jsonl", "--reward", "rewards.py:right"]
    words += ["--warmup", "0", "--eval-prompts", "2", "--group-size", "2", *FEW, "--out", "rewarded"]
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the task's own verifier is not used; said once in a process
        assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["reported"]["value"] == 1.0, "every answer is right for this reward"


def test_goals_in_a_dictionary_train_as_dictionary_observations(place: Path) -> None:
    pytest.importorskip("gymnasium")
    small = ["--set", "rollout.num_envs=2", "--set", "rollout.steps=4", "--set", "source.minibatches=2"]
    small += ["--eval-episodes", "1", "--json"]
    assert main(["train", "ppo", "--task", "goals.py:Reach", "--steps", "1", *small, "--out", "run"]) == 0
    assert main(["evaluate", "run", "--starts", "1", "--json"]) == 0


def test_the_page_shows_films_and_follows_no_link(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "video").mkdir()
    (folder / "video" / "episode-0.gif").write_bytes(b"GIF89a film")
    (tmp_path / "secret").write_text("secret")
    (folder / "video" / "episode-1.gif").symlink_to(tmp_path / "secret")
    data = page.gather([tmp_path], films=True)
    assert [one["name"] for one in data["videos"]] == ["episode-0"]
    assert data["videos"][0]["data"].startswith("data:image/gif;base64,R0lGODlh")
    assert any("episode-1.gif is not shown (a symbolic link" in note for note in data["notes"])
    text = page.document(data)
    assert "media-src data:" in text
    assert "R0lGODlh" in text
    assert page.gather([tmp_path])["videos"] == [], "a live page does not send films again and again"


def test_the_report_of_an_ablation_folder_has_its_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"value": 0.5, "low": 0.25, "high": 0.75, "count": 2}
    row = {"short": "scale", "first": "NoScale()", "second": "Deviation()", **dict.fromkeys(ESTIMATES, one)}
    facts = {"first": "dr-grpo", "second": "grpo", "seeds": [0, 1], "complete": True, "total": one, "rows": [row]}
    make_run(tmp_path / "ablated" / "run")
    monkeypatch.chdir(tmp_path)
    store.write_json(tmp_path / "ablated" / "ablation.json", facts)
    assert ablation_of([tmp_path / "ablated"]) == facts
    assert main(["report", "ablated", "--json"]) == 0
    assert '"short":"scale"' in (tmp_path / "report.html").read_text().replace(" ", "")
    for text in ("", "[]", "{}", json.dumps(facts | {"rows": [{}]}), json.dumps(facts | {"total": 3})):
        (tmp_path / "ablated" / "ablation.json").write_text(text)
        assert ablation_of([tmp_path / "ablated"]) is None
        assert main(["report", "ablated", "--json"]) == 0
