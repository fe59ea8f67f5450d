"""Checks a command of the documentation up to where compute would be spent: real parser, real plan, made-up files."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assay.cli import commands, data_commands
from assay.cli import main as cli
from assay.datasets import files, made
from assay.report import methods
from assay.runs import catalogue, pools, run
from assay.runs.distributed import ray_pool
from assay.runs.options.training import parse_settings
from tests.docs.blocks import ROOT

SMALL = 12
"""Rows of a made-up file."""

OWN = {
    "my_agent.py": "",
    "rewards.py": "def correct(prompts, completions, **columns):\n    return [1.0] * len(completions)\n",
    "my_method.py": "from assay import recipes\n\n\ndef recipe(defaults):\n    return recipes.grpo(defaults)\n",
    "my_env.py": """
import gymnasium
import numpy


class MyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        self.place += 0.1 * (2 * int(action) - 1)
        return numpy.full(2, self.place, numpy.float32), self.place, False, False, {}
""",
}
"""What the files of own code hold that commands name."""


class Planned(Exception):
    """Raised where a run would begin."""


def stop(*arguments: Any, **options: Any) -> None:
    """Stands for what would spend compute."""
    raise Planned


# ---------------------------------------------------------------------------------------------------- files
def write_prompts(path: Path, **fields: Sequence[str]) -> None:
    """Writes rows of prompts, or of pairs where the file is called so, with further fields whose values take turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = 0 if "test" not in path.name else SMALL
    rows = []
    for number in range(begin, begin + SMALL):
        right = {"chosen": f"{number + 1}", "rejected": "no"} if "pairs" in path.name else {"answer": f"{number + 1}"}
        more = {name: values[number % len(values)] for name, values in fields.items()}
        rows.append({"prompt": f"{number} plus 1?"} | right | more)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_files(options: argparse.Namespace, model: Callable[[], Path]) -> None:
    """Writes the files that a command names, and the folder of its model, unless they exist."""
    named = vars(options)
    for name, text in OWN.items():
        if name in str(named) and not Path(name).exists():
            Path(name).write_text(text)
    tasks = named.get("task") or []
    for task in [tasks] if isinstance(tasks, str) else tasks:
        for named_file in (one.partition("=")[0] for one in task.split(",")):
            game, _, name = named_file.rpartition(":")
            if name.endswith(".jsonl") and not Path(name).exists():
                write_prompts(Path(name), **({"label": ("harmful", "benign")} if game else {}))
    for name in named.get("data") or []:
        if not Path(name).exists() and not name.startswith("minari:"):
            task = catalogue.find_task(tasks if isinstance(tasks, str) and tasks else "pendulum")
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            files.write(made.Random(2, 0).make(task), name)
    if named.get("model") and not Path(named["model"]).exists() and "/" not in named["model"]:
        Path(named["model"]).symlink_to(model())


# ---------------------------------------------------------------------------------------------------- commands
def check_assay(words: list[str], monkeypatch: pytest.MonkeyPatch, model: Callable[[], Path]) -> None:
    """Runs a command of assay up to where compute would be spent."""
    options = cli.parser().parse_args(words)
    write_files(options, model)
    if reads_run(words):
        return
    if options.command in ("train", "compare", "tune"):
        monkeypatch.setattr(run, "Loop", stop)
        monkeypatch.setattr(pools.Processes, "start", stop)
        monkeypatch.setattr(ray_pool, "ray_pool", stop)
        with pytest.raises(Planned):
            commands.command_function(options.command)(options)
    elif options.command == "ablate":
        options.dry = True
        assert commands.command_function("ablate")(options) == 0
    elif options.command in ("show", "diff"):
        assert commands.command_function(options.command)(options) == 0
    elif options.command == "list":
        methods.Filter(options.family, options.kind, options.changes, options.verdict)(rows())
    elif options.command == "claim" and options.name:
        catalogue.find_method(options.name)
    elif options.command == "data" and options.data_command == "make":
        task = catalogue.find_task(options.task)
        options.settings = parse_settings(options.set_)
        assert [data_commands.kind_of(kind, task, options) for kind in options.kinds]


def reads_run(words: list[str]) -> bool:
    """Returns whether a command continues or reads a run that is not there; such a command is only parsed."""
    named = [word for before, word in zip(["", *words], words, strict=False) if before != "--out"]
    return "--more-steps" in words or any(word.startswith("runs/") and not Path(word).exists() for word in named)


@cache
def rows() -> list[dict[str, Any]]:
    """Returns the rows of `assay list`."""
    return methods.method_rows()


def check_make(words: list[str]) -> None:
    """Checks that the Makefile has the targets."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert {word for word in words if "=" not in word} <= targets


def check_pip(words: list[str]) -> None:
    """Checks that the extras exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if found := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert set(found[1].split(",")) <= set(extras)


def check_python(words: list[str]) -> None:
    """Checks that the module or file exists."""
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]), words[1]
        words = [word for word in words[2:] if "/" in word and not word.startswith("-")] if words[1] == "pytest" else []
    for word in words[:1]:
        assert (ROOT / word).exists(), word


def check(command: str, monkeypatch: pytest.MonkeyPatch, model: Callable[[], Path]) -> None:
    """Checks one command; an unknown program is an error."""
    for part in re.split(r" && | '&&' ", command):
        program, *words = shlex.split(part)
        program = Path(program).name
        while "=" in program:  # FOO=bar program
            program, *words = words
        if program == "assay":
            check_assay(words, monkeypatch, model)
        else:
            checks = {"make": check_make, "pip": check_pip, "python": check_python, "source": len, "pre-commit": len}
            assert program in checks, f"unknown program in the documentation: {command}"
            checks[program](words)
