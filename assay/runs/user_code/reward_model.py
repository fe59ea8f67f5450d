"""A trained reward model as a component of a reward: the run folder of `assay train reward-model`.

Axes: B rows; weights have the shapes of parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.models.pretrained.chat_texts import Framed
from assay.parts.critics.score import at_last_decision
from assay.rollouts import text
from assay.tasks.adapters.pretrained import ModelTask
from assay.tasks.language.preferences import PairsTask

SCORE = "score"
PREFIX = "reward-model:"
"""Begins the name of a reward model among the sources of own code."""
AT_ONCE = 32
"""Texts per forward pass."""


def weights_of(folder: str) -> Mapping[str, Tensor]:
    """Returns the weights of the critic `score` in the newest checkpoint of a run; AssayError if there are none."""
    checkpoint = store.load(Path(folder) / "checkpoints") if Path(folder).is_dir() else None
    if checkpoint is None:
        raise AssayError(f"--reward-model {folder} has no checkpoint. Name the folder of 'assay train reward-model'.")
    models = checkpoint.tree["loop"]["engine"]["models"]
    if SCORE not in models:
        raise AssayError(f"--reward-model {folder} is not a run of reward-model: it has no critic '{SCORE}'.")
    found: Mapping[str, Tensor] = models[SCORE]
    return found


def seal(folder: str) -> dict[str, str]:
    """Returns the digest of a reward model's weights."""
    digest = hashlib.sha256()
    for name, value in sorted(leaves(weights_of(folder))):
        digest.update(f"{name} {value.dtype} {list(value.shape)};".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if value.dim() else b"")
    return {"weights": digest.hexdigest()[:16]}


def leaves(tree: Any, above: str = "") -> list[tuple[str, Tensor]]:
    """Returns the tensors of a tree by path."""
    if isinstance(tree, Mapping):
        return [leaf for name, item in tree.items() for leaf in leaves(item, f"{above}.{name}")]
    return [(above, tree)] if isinstance(tree, Tensor) else []


@dataclass(frozen=True)
class RewardModel:
    """Scores a text by a trained reward model, frozen, in the model's own tokens and chat template.

    A completion that was cut is scored as if it ended there, since the model has seen whole texts only.
    """

    folder: str
    model: Any = field(repr=False, compare=False)
    task: PairsTask = field(repr=False, compare=False)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> list[float | None]:
        """Returns the score of each row."""
        found: list[float | None] = []
        for begin in range(0, len(rows), AT_ONCE):
            found += self.scores(rows[begin : begin + AT_ONCE]).tolist()
        return found

    @torch.no_grad()
    def scores(self, rows: Sequence[dict[str, Any]]) -> Tensor:
        """Returns the scores of some rows, [B]."""
        prompts, vocabulary = self.task.prompts, self.task.prompts.tokenizer.vocabulary
        asked = [[vocabulary.bos, *prompts.tokenizer.encode(self.framed(row["prompt"]))] for row in rows]
        said = [[*prompts.tokenizer.encode(row["completion"]), vocabulary.eos] for row in rows]
        batch = text.written(asked, said, torch.arange(len(rows)), vocabulary.pad)
        batch = batch.to(next(self.model.parameters()).device)
        return at_last_decision(self.model(batch.context), batch.mask).double().cpu()

    def framed(self, prompt: str) -> str:
        """Returns the prompt as the reward model's task frames it."""
        prompts = self.task.prompts
        return Framed(prompt, prompts.system) if isinstance(prompts, ModelTask) else str(prompt)


def reward_model(folder: str, loop: Loop) -> RewardModel:
    """Returns the reward model of a run folder, whose recipe and task `loop` runs, with frozen weights."""
    if not isinstance(loop.task, PairsTask):
        raise AssayError(f"--reward-model {folder} was not trained on preference pairs.")
    checkpoint = store.load(Path(folder) / "checkpoints")
    assert checkpoint is not None, "its weights have a digest"
    loop.restore(checkpoint.tree["loop"])
    return RewardModel(folder, loop.engine.models[SCORE].requires_grad_(False).eval(), loop.task)
