"""Limits of sessions by option, what a run says about replays, and its metrics."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.errors import AssayError
from assay.core.record import Score
from assay.rollouts.text import CharacterTokenizer
from assay.runs.options import SessionOptions
from assay.runs.signals import Stopped
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Item
from assay.tasks.language.sessions import Waiting


@dataclass
class Echo:
    seconds: float

    def reply(self, utterance: str) -> Reply:
        time.sleep(self.seconds)
        return Reply(utterance, cost=0.5)

    def reward(self) -> Score:
        return Score(1.0)

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class Echoes:
    seconds: float = 0.0
    is_repeatable: bool = False

    def item(self, ordinal: int, split: int) -> Item:
        return Item(f"{ordinal % 10} {split}:", "", "")

    def open(self, item: Item, seed: int) -> Echo:
        return Echo(self.seconds)


def task(**settings: Any) -> DialogueTask:
    return DialogueTask("echo", Echoes(**settings), CharacterTokenizer(), 8, 2, 4, 8)


def test_limits_reach_the_task_and_are_refused_where_there_are_no_sessions() -> None:
    made = SessionOptions(reply_timeout=3.0, concurrency=5, patience=2.0).task(task())
    assert isinstance(made, DialogueTask)
    assert made.waiting == Waiting(3.0, 600.0, 5, 2.0)
    with pytest.raises(AssayError, match="--reply-timeout is for conversations with sessions; task 'countdown"):
        assay.train("grpo", "countdown", steps=1, reply_timeout=3.0)
    for name, value in (("reply_timeout", 0.0), ("episode_timeout", -1.0), ("concurrency", 0), ("patience", 0.0)):
        with pytest.raises(AssayError, match=f"--{name.replace('_', '-')} is"):
            SessionOptions(**{name: value}).check()


def test_a_run_measures_its_sessions_and_says_that_it_cannot_be_replayed(tmp_path: Path) -> None:
    assay.train("grpo", task(), steps=1, warmup=0, evaluations=2, out=tmp_path / "run", prompts=2, group_size=2)
    assert "Its sessions cannot be repeated" in (tmp_path / "run" / "replay.txt").read_text()
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    shown = {name: value for name, value in line.items() if name.startswith("session/")}
    assert shown == {
        "session/replies": 2.0, "session/reply_tokens": shown["session/reply_tokens"], "session/cost": 1.0,
        "session/faults": 0.0, "session/split_waves": 0.0,
    }  # fmt: skip


def test_a_stop_signal_is_answered_while_replies_are_missing(tmp_path: Path) -> None:
    sent = [0.0]

    def stop() -> None:
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(4.0, stop)
    timer.start()
    with pytest.raises(Stopped):
        assay.train("grpo", task(seconds=60.0), steps=1, warmup=0, evaluations=2, out=tmp_path / "run", prompts=2)
    timer.cancel()
    assert sent[0]
    assert time.monotonic() - sent[0] < 2.5
