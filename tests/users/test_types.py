"""What a type checker says of a user's script: strict mypy knows the public names, their words and their results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = '''
import torch
from torch import nn

import assay
from assay import AssayError, Recipe, Run, load, train


def correct(completions: list[str], answer: list[str]) -> list[float]:
    return [float(text.strip() == right) for text, right in zip(completions, answer)]


class Wide(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 64)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(observation))


rows = [{"prompt": "1+1=", "answer": "2"}]
run: Run = train("grpo", rows, steps=3, reward={correct: 1.0}, max_tokens=8, group_size=4, lora_rank=8)
train("ppo", "cartpole", steps=3, seed=1, body=Wide, settings={"learning_rate": 1e-3})
value: float = run.after.value
seen = assay.evaluate(run, samples=4, passk=[1, 4], of="correct")
low: float = seen.mean.low
found = assay.compare(["grpo", "rloo"], "bandit", seeds=3, steps=3)
count: int = len(found.failures)
tuned = assay.tune("ppo", "cartpole", {"policy.learning_rate": (1e-4, 1e-2)})
recipe: Recipe = assay.recipes.ppo(assay.presets.CONTROL)
step: int = load("runs/x").step
clip = assay.parts.Clip(0.2)
try:
    assay.resume(run.folder, functions=[correct])
except AssayError as error:
    print(error)
'''
WRONG = {
    'import assay\nassay.train("grpo", "bandit", max_token=8)\n': 'Unexpected keyword argument "max_token"',
    'import assay\nassay.train("grpo", "bandit", max_tokens="8")\n': '"max_tokens" to "train" has incompatible type',
    "import assay\nassay.trian()\n": 'Module has no attribute "trian"',
}


@pytest.mark.slow
def test_a_typed_script_is_typed_and_a_wrong_word_in_it_is_found(tmp_path: Path) -> None:
    files = [tmp_path / "right.py", *(tmp_path / f"wrong_{place}.py" for place in range(len(WRONG)))]
    for file, text in zip(files, (SCRIPT, *WRONG), strict=True):
        file.write_text(text)
    words = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *map(str, files)], cwd=ROOT, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    told = [line for line in ended.stdout.splitlines() if ": error:" in line]
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for line, said in zip(sorted(told), WRONG.values(), strict=True):
        assert said in line
