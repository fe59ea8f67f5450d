"""A folder full of things that cannot be used: files, data, run folders, model folders and code of a user."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from assay.cli.main import main
from tests.users import agents_place

GOOD = [{"prompt": f"add {k}", "answer": f"x{k}"} for k in range(40)]
PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
ENVIRONMENTS = """
import sys

import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    max_episode_steps = 6
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 3):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.at / self.size], np.float32)

    def step(self, action):
        self.at = max(-self.size, min(self.size, self.at + 2 * int(action) - 1))
        return self.seen(), float(self.at == self.size), self.at == self.size, False, {}


class Box(Walk):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


class NotAnEnv:
    pass


def three():
    return 3


def raises(*_):
    raise ValueError("no\\nway")


def leaves():
    sys.exit(0)


class no_limit(Walk):
    max_episode_steps = None


class text_space(Walk):
    observation_space = gymnasium.spaces.Text(5)


class nan_seen(Walk):
    def seen(self):
        return np.array([np.nan], np.float32)


class wrong_shape(Walk):
    def seen(self):
        return np.zeros(3, np.float32)


class four(Walk):
    def step(self, action):
        return self.seen(), 0.0, False, {}


class reward_text(Walk):
    def step(self, action):
        return self.seen(), "much", False, False, {}


class no_reset(Walk):
    def reset(self, *, seed=None, options=None):
        return self.seen()


class infinite_action(Walk):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
"""
REWARDS = """
import sys, time
VALUE = 3
def right(completions, **columns): return [1.0 for _ in completions]
def fails(completions, **columns): raise KeyError("a\\nb")
def short(completions, **columns): return [1.0]
def text(completions, **columns): return ["a" for _ in completions]
def nans(completions, **columns): return [float("nan") for _ in completions]
def nothing_returned(completions, **columns): pass
def one_number(completions, **columns): return 1.0
def exits(completions, **columns): sys.exit(0)
def unknown_column(completions, colour): return [1.0 for _ in completions]
def slow(completions, **columns): time.sleep(1.0); return [1.0 for _ in completions]
def none_always(completions, **columns): return [None for _ in completions]
def matrix(completions, **columns): return [[1.0] for _ in completions]
def infinite(completions, **columns): return [float("inf") for _ in completions]
def recurses(completions, **columns): return recurses(completions)
class Beyond(BaseException): pass
def beyond(completions, **columns): raise Beyond("far")
"""
TOOLS = '''
VALUE = 3
def search(query: str) -> str:
    """Searches."""
    return query
def stars(*query: str) -> str:
    """Searches."""
    return ""
'''


def lines(rows: list[Any]) -> str:
    """Returns rows as JSON lines."""
    return "\n".join(map(json.dumps, rows)) + "\n"


ROWS: dict[str, str | bytes] = {
    "null": '{"prompt": null, "answer": "a"}',
    "number": '{"prompt": 3, "answer": "a"}',
    "list": '{"prompt": ["a"], "answer": "a"}',
    "empty_prompt": '{"prompt": "", "answer": "a"}',
    "one": '{"prompt": "a", "answer": "b"}',
    "truncated": lines(GOOD) + '{"prompt": "a", "ans',
    "bom": "\ufeff" + lines(GOOD)[:30],
    "utf16": lines(GOOD).encode("utf-16"),
    "nul": b"\0\0\0\0",
    "nan": '{"prompt": "a", "answer": NaN}',
    "deep": "[" * 100_000,
    "array": json.dumps(GOOD),
    "blank": "\n\n\n",
    "messages_text": '{"messages": "a", "answer": "b"}',
    "messages_empty": '{"messages": [], "answer": "b"}',
    "messages_role": '{"messages": [{"role": "wizard", "content": "a"}], "answer": "b"}',
    "messages_content": '{"messages": [{"role": "user", "content": 3}], "answer": "b"}',
    "messages_assistant_first": '{"messages": [{"role": "assistant", "content": "a"}], "answer": "b"}',
    "mixed": lines([*GOOD, PAIR]),
    "no_answer": lines([{"prompt": f"a{k}"} for k in range(40)]),
    "emoji": '{"prömpt😀": "a"}',
    "duplicate_key": '{"prompt": "a", "prompt": "b"}',
    "pairs_missing": '{"prompt": "a", "chosen": "b"}',
    "pairs_equal": '{"prompt": "a", "chosen": "b", "rejected": "b"}',
    "pairs_number": '{"prompt": "a", "chosen": 1, "rejected": 2}',
    "pairs_empty": '{"prompt": "a", "chosen": "", "rejected": "c"}',
    "pairs_other_prompt": lines(
        [
            {
                one: [{"role": "user", "content": one}, {"role": "assistant", "content": "b"}]
                for one in ("chosen", "rejected")
            }
        ]
    ),
    "pairs_mixed": lines([PAIR, {"chosen": "b", "rejected": "c"}]),
}
FILES: dict[str, str | bytes] = {
    "good.jsonl": lines(GOOD),
    "good2.jsonl": lines([{"prompt": f"sub {k}", "answer": f"y{k}"} for k in range(40)]),
    "pairs.jsonl": lines([PAIR | {"prompt": f"p {k}"} for k in range(40)]),
    "good.json": json.dumps(GOOD),
    "good.csv": "prompt,answer\na,b\n",
    **dict.fromkeys(("empty.jsonl", "empty.py", "empty.npz"), ""),
    **dict.fromkeys(("bytes.py", "bytes.jsonl"), b"\xff\xfe\x00"),
    "wrong.py": "def broken(:\n",
    "raises.py": "raise ValueError('no')\n",
    "leaves.py": "import sys\nsys.exit(0)\n",
    "number_recipe.py": "def recipe(defaults):\n    return 3\n",
    "two.py": "x = 1\n",
    "folder/mine.txt": "mine",
    "my_env.py": ENVIRONMENTS,
    "rewards.py": REWARDS,
    "tools.py": TOOLS,
    "rubric.txt": "Rate {completion}. Score: N",
    "braces.txt": "Rate {completion. Score: N",
    "data/torn.safetensors": b'\x10\0\0\0\0\0\0\0{"a":',
    "data/torn.hdf5": b"\x89HDF\r\n\x1a\n\0\0",
    "data/good.txt": "x",
    "data/zip.npz": b"PK\x03\x04torn",
    "journals/torn/trials.jsonl": '{"a": \n{"b":1}\n',
    "journals/other/trials.jsonl": '{"x": 1}\n{"y": 2}\n',
    **{f"rows/{name}.jsonl": text for name, text in ROWS.items()},
}


def make(place: Path) -> None:
    """Fills the folder; trains two runs of a few steps."""
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    agents_place.make(place)
    for name in ("folder.py", "folder.pt"):
        (place / name).mkdir()
    links = {"link.py": "nowhere.py", "dangling": "nowhere", "loop": "loop", "rows/link.jsonl": "nowhere.jsonl"}
    for name, target in (links | {"rows/loop.jsonl": "loop.jsonl"}).items():
        (place / name).symlink_to(target)
    os.mkfifo(place / "rows/fifo.jsonl")
    make_data(place / "data")
    bandit = ["train", "reinforce", "--task", "bandit", "--steps", "3", "--save-every", "1steps"]
    assert main([*bandit, "--out", str(place / "run"), "--json"]) == 0
    small = [f"--set=actor.{one}" for one in ("width=8", "layers=1", "heads=2")]
    words = ["train", "sft", "--task", "addition-1", "--steps", "1", *small, "--set=source.batch=2"]
    assert main([*words, "--out", str(place / "lang"), "--json"]) == 0
    make_runs(place)
    make_models(place)


def make_data(folder: Path) -> None:
    """Writes offline datasets in D4RL's layout."""
    number = 10
    flat, seen = np.zeros(number, np.float32), np.zeros((number, 3), np.float32)
    columns = {"observations": seen, "actions": flat[:, None], "rewards": flat, "next_observations": seen}
    columns |= {"terminals": flat, "timeouts": np.arange(number) % 5 == 4}
    wide = np.zeros((number, 7), np.float32)
    changes: dict[str, dict[str, Any]] = {
        "good": {},
        "no_reward": {"rewards": None},
        "nan": {"observations": seen * np.nan},
        "short": {"actions": flat[:3, None]},
        "text": {"rewards": np.array(["a"] * number)},
        "pickled": {"rewards": np.array([{}] * number, dtype=object)},
        "wide": {"observations": wide, "next_observations": wide},
        "outside": {"actions": flat[:, None] + 900},
        "terminals": {"terminals": flat + 0.5},
        "two_terminals": {"terminals": np.zeros((number, 2))},
        "scalar": {"rewards": np.float32(1.0)},
        "no_rows": {name: column[:0] for name, column in columns.items()},
    }
    for name, change in changes.items():
        kept = {key: column for key, column in (columns | change).items() if column is not None}
        np.savez(folder / f"{name}.npz", **kept)


def make_runs(place: Path) -> None:
    """Copies the finished run and damages each copy."""

    def copied(name: str, **changes: Any) -> Path:
        folder = place / "runs" / name
        shutil.copytree(place / "run", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        return folder

    fifo = copied("fifo_metrics") / "metrics.jsonl"
    fifo.unlink()
    os.mkfifo(fifo)
    for name, file, target in (
        ("link_metrics", "metrics.jsonl", "folder/mine.txt"),
        ("link_config", "config.json", ""),
    ):
        link = copied(name) / file
        link.unlink()
        link.symlink_to(place / (target or "nowhere"))
    (copied("torn_config") / "config.json").write_text('{"a":')
    shutil.rmtree(copied("no_checkpoints") / "checkpoints")
    for path in copied("torn_checkpoint").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    for path in copied("torn_manifest").rglob("manifest.json"):
        path.write_text("{")
    changes: dict[str, dict[str, Any]] = {
        "other_task": {"task": "cartpole"},
        "deep_options": {"options": []},
        "options_text": {"options": "x"},
        "bad_option": {"options": {"num_envs": "x"}},
        "negative_more": {"more_steps": -3},
        "data_text": {"data": "x"},
        "code_text": {"code": "x"},
        "preset_number": {"preset": 3},
        "start_text": {"start": "x"},
        "old_version": {"assay": "0.1.0"},
    }
    for name, change in changes.items():
        copied(name, **change)


def make_models(place: Path) -> None:
    """Saves a tiny language model and damages copies of it; nothing without transformers."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        return
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    save_chat_model(place / "model", TEMPLATES["chatml"])
    folders = {}
    for name in ("broken_config", "no_weights", "no_tokenizer", "torn_weights", "other_type"):
        folders[name] = Path(shutil.copytree(place / "model", place / "models" / name))
    (folders["broken_config"] / "config.json").write_text("{")
    (folders["no_weights"] / "model.safetensors").unlink()
    for path in folders["no_tokenizer"].glob("token*"):
        path.unlink()
    weights = folders["torn_weights"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    config = folders["other_type"] / "config.json"
    other = {"model_type": "nothing", "architectures": ["Nothing"]}
    config.write_text(json.dumps(json.loads(config.read_text()) | other))
