"""A user's script for the type checker: mypy reads it with the package, nothing runs it.

A wrong word is an error that the line says it ignores; if mypy no longer sees it, the unused `type: ignore` is one.
"""

import torch
from torch import nn

import assay
from assay import AssayError, Recipe, Run, load, train


def correct(completions: list[str], answer: list[str]) -> list[float]:
    return [float(text.strip() == right) for text, right in zip(completions, answer, strict=True)]


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

assay.train("grpo", "bandit", max_token=8)  # type: ignore[call-arg]
assay.train("grpo", "bandit", max_tokens="8")  # type: ignore[arg-type]
assay.trian()  # type: ignore[attr-defined]
