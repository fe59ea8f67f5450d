"""A pretrained model that is never trained and says what it would have written: the teacher of a distillation.

Axes: B sequences, T decisions, D decisions of all rows, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import ModelSpec
from assay.core.spaces import Spec, Vocabulary
from assay.models.pretrained.causal import PretrainedActor, check_numbers
from assay.models.pretrained.transformers import Pretrained, PretrainedTokenizer, loaded

UNUSED = -20.0
"""How far below the smallest logit the tokens are that the teacher's output layer does not have."""


@dataclass(frozen=True)
class PretrainedTeacher(ModelSpec):
    """The model of a folder as a frozen policy over the student's tokens; it is read again when a run is resumed, and
    no checkpoint holds it.

    Output layers may be padded to different sizes: numbers that no text has are left out or have next to no
    probability. Which tokens these are is for `check_vocabularies`.
    """

    model: Pretrained
    not_a_part: ClassVar[str] = "needs a folder with a model"

    def build(self, spec: Spec) -> nn.Module:
        """Returns the frozen policy, checked against the network's own forward pass."""
        network = loaded(self.model)
        limit = getattr(network.config.get_text_config(), "max_position_embeddings", 0) or spec.horizon
        if spec.horizon > limit:
            what = f"the teacher '{self.model.path}' reads {limit} tokens, the task needs {spec.horizon}"
            raise AssayError(f"{what}. Lower --max-tokens")
        size = int(network.get_output_embeddings().weight.shape[0])
        own = Vocabulary(size, *(getattr(spec.action, name) for name in ("pad", "bos", "eos")))
        check_numbers(PretrainedActor(own, network), self.model.path)
        return TeacherPolicy(cast(Vocabulary, spec.action), network).requires_grad_(False)


class TeacherPolicy(PretrainedActor):
    """A pretrained policy whose output layer is cut or extended to the student's vocabulary."""

    def logits(self, hidden_DW: Tensor) -> Tensor:
        """Returns [D, V] of the student's V tokens."""
        found, size = super().logits(hidden_DW), self.vocabulary.size
        if (more := size - found.shape[-1]) <= 0:
            return found[..., :size]
        least = found.amin(-1, keepdim=True) + UNUSED
        return torch.cat((found, least.expand(*found.shape[:-1], more)), -1)


def check_vocabularies(student: PretrainedTokenizer, teacher: Pretrained) -> None:
    """Raises AssayError if a token has another number, or another text, for the teacher than for the student."""
    ours, theirs = (one.backend.get_vocab() for one in (student, PretrainedTokenizer(teacher.path, teacher.revision)))
    missing = [token for token, number in ours.items() if theirs.get(token) != number]
    if missing:
        example = min(missing, key=ours.__getitem__)
        other = theirs.get(example)
        told = "does not have it" if other is None else f"has it as {other}"
        raise AssayError(
            f"--teacher '{teacher.path}' has another vocabulary than the model '{student.path}': {len(missing):,} of "
            f"{len(ours):,} tokens differ; {example!r} is {ours[example]} there, the teacher {told}. Use a teacher of "
            "the same family"
        )
