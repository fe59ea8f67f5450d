"""A run that is killed while a thread writes a checkpoint resumes from the one before, to the bitwise same result."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np

from assay.core import store
from assay.runs.folder import read_metrics, without_time
from assay.runs.progress import Mode
from assay.runs.run import resume
from assay.runs.saving import LONGEST, Saver
from tests import warm

KILLED = """
import os, signal, sys, threading
from assay.core import store
from assay.cli import main as cli

rename = os.rename

def killed(source, target, **more):
    # the new checkpoint is complete and not yet in its place; training goes on in the main thread meanwhile
    if threading.current_thread() is not threading.main_thread() and str(target).endswith("step-00000004"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target, **more)

os.rename = killed
words = ["train", "reinforce", "--task", "bandit", "--steps", "6", "--save-every", "2steps", "--json", "--out"]
cli.main([*words, sys.argv[1]])
"""


def test_a_kill_while_the_thread_writes_costs_at_most_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, _, errors = warm.Process(KILLED, str(folder)).ended(within=900)
    assert code == -signal.SIGKILL, errors
    assert store.saved_steps(folder / "checkpoints") == [2], "the one that was being written does not count"
    there = store.load(folder / "checkpoints")
    assert there is not None
    assert there.step == 2
    finished = resume(folder, mode=Mode.SILENT)
    assert store.saved_steps(folder / "checkpoints")[-1] == 6
    assert not list((folder / "checkpoints").glob(".tmp*")), "what the killed thread left is removed"
    from assay.runs.run import train

    whole = train("reinforce", "bandit", steps=6, out=tmp_path / "whole", mode=Mode.SILENT)
    assert np.array_equal(finished.scores_after, whole.scores_after)
    assert without_time(read_metrics(folder)) == without_time(read_metrics(tmp_path / "whole"))


def test_no_more_than_ten_minutes_are_lost_however_long_a_save_takes(tmp_path: Path) -> None:
    now = [0.0]
    saver = Saver(tmp_path, clock=lambda: now[0])
    saver.start(10**15)  # a disk that writes for days: the share of the time would never allow a save
    assert saver.spacing == LONGEST == 600.0
    now[0] = 570.0
    assert not saver.due(1, 20.0)
    assert saver.due(1, 31.0), "the next step would end after the bound"
