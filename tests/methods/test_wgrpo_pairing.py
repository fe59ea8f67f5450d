"""wgrpo-pairing on a file: rows that come again are one prompt, and a short file is the whole pool."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from assay.claims import probes
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.methods.wgrpo_pairing import Pair
from assay.tasks.language.files import task_of_files


def visited(starts: list[int], rights: list[float]) -> Experience:
    """Returns answers to these starts."""
    data = probes.bandit_experience([0] * len(starts), rights, torch.zeros(2))
    return data.add({"start": torch.tensor(starts)})


def test_two_visits_of_a_row_are_not_a_pair(tmp_path: Path) -> None:
    for name, number in {"train": 8, "test": 2}.items():
        rows = [{"prompt": f"{name} {k}", "answer": chr(97 + k) * 3} for k in range(number)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = task_of_files(f"{tmp_path / 'train.jsonl'},{tmp_path / 'test.jsonl'}")
    scene = Scene(task, draw=Draw(0), num_starts=4)
    pick = Pair(pool=64)
    state = pick.init(scene)
    assert state["rows"] == 8
    for first in range(0, 8, 4):
        pick.observe(visited([first + k // 2 for k in range(8)], [1.0, 0.0] * 4), scene, state)
    assert sorted(map(int, state["rates"])) == list(range(8))
    pick.observe(visited([8, 8, 8, 8], [1.0, 0.0, 0.0, 0.0]), scene, state)  # row 0 again: its rate is 1/4 now
    assert state["rates"]["0"] == 0.25
    chosen = pick(scene, state).tolist()
    assert chosen[:2] == chosen[2:]
    assert chosen[0] == 0
    assert chosen[1] % 8 != 0, "the other prompt is another row"
