"""Options of language tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, flag, option

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.core.recipe import Recipe
    from assay.core.slots import Task

MOST_RANK = 4096
"""Largest rank of an adapter: more is a slip of the hand."""
PRECISIONS = ("float32", "bfloat16")
CORRECTIONS = ("token", "answer", "token-mask", "answer-mask")
TRAIN_ON = ("last", "all", "marked")
SIZES = ("max_tokens", "group_size", "prompts", "lora_rank")


@dataclass(frozen=True)
class LanguageOptions(Group):
    """Options of language tasks; docs/language.md explains each. What a recipe does not have is refused.

    `temperature` divides the policy's logits everywhere: in sampling, ratios, the reference and evaluation. `top_p`
    truncates the sampling of training only; recorded log-probabilities stay those of the policy.
    """

    title: ClassVar[str] = "language tasks"

    max_tokens: int | None = option(
        None, "limit of an answer in tokens (default with a model and a file: 512, or the longest demonstration)"
    )
    temperature: float | None = option(None, "temperature of the policy, in sampling and training (default: 1)")
    top_p: float | None = option(None, "nucleus sampling in training: share of probability to keep (default: 1)")
    correct_sampling: str | None = option(
        None,
        "weigh samples of another policy than the one that an update begins with (--lag, --server, --top-p): by "
        "decision or by answer, truncated at 2, or dropped outside of 1/2 to 2",
        metavar="token|answer|token-mask|answer-mask",
    )
    group_size: int | None = option(None, "answers per prompt")
    prompts: int | None = option(None, "prompts (demonstrations, pairs) per step")
    kl: float | None = option(None, "coefficient of the KL penalty to the reference policy; 0 removes it")
    teacher: str | None = option(
        None,
        "pretrained model to learn from: a folder, a hub id, or http://HOST:PORT of a server with this model's tokens",
        metavar="PATH|URL",
    )
    teacher_weight: float | None = option(
        None, "weight of the teacher's log-ratio in the rewards of a method that has no teacher of its own"
    )
    system: str | None = option(None, "system prompt, put in by the model's chat template")
    epochs: float | None = option(None, "passes over the training prompts of a file, instead of --steps")
    lora_rank: int | None = option(None, "train a low-rank adapter of this rank on the model; 0: all weights")
    dtype: str | None = option(
        None,
        "precision of the model: float32, or bfloat16 with float32 master weights (default: bfloat16 on a GPU)",
        metavar="float32|bfloat16",
    )
    mark: str | None = option(
        None, "text that ends the reasoning of answers, such as '####' (default: the task's, or that of a file's rows)"
    )
    in_order: bool = option(False, "take the rows of a file in their order instead of shuffled")
    train_on: str | None = option(
        None,
        "replies of a conversation in a file that supervised training reads: all, the last one, or those that the row "
        'marks with "train" or "weight" (default: marked ones where a row has marks, else all)',
        metavar="last|all|marked",
    )

    def check(self) -> None:
        """Raises AssayError for values out of range."""
        for name in SIZES:
            value, least = getattr(self, name), 0 if name == "lora_rank" else 1
            if value is not None and value < least:
                raise AssayError(f"{flag(name)} is {value}. Use at least {least}.")
        if self.lora_rank is not None and self.lora_rank > MOST_RANK:
            raise AssayError(f"--lora-rank is {self.lora_rank}. Use at most {MOST_RANK:,}.")
        if self.dtype is not None and self.dtype not in PRECISIONS:
            raise AssayError(f"--dtype is '{self.dtype}'. Use {' or '.join(PRECISIONS)}.")
        if self.train_on is not None and self.train_on not in TRAIN_ON:
            raise AssayError(f"--train-on is '{self.train_on}'. Use {', '.join(TRAIN_ON[:-1])} or {TRAIN_ON[-1]}.")
        if self.correct_sampling is not None and self.correct_sampling not in CORRECTIONS:
            raise AssayError(f"--correct-sampling is '{self.correct_sampling}'. Use {', '.join(CORRECTIONS)}.")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise AssayError(f"--top-p is {self.top_p}. Use a share above 0, 1 for all.")
        if self.kl is not None and not 0.0 <= self.kl < math.inf:
            raise AssayError(f"--kl is {self.kl}. Use 0 (no penalty) or a positive number.")
        if self.teacher_weight is not None and not 0.0 < self.teacher_weight < math.inf:
            raise AssayError(f"--teacher-weight is {self.teacher_weight}. Use a positive number.")
        if self.teacher_weight is not None and self.teacher is None:
            raise AssayError("--teacher-weight is given without a teacher. Add --teacher PATH, or leave it out.")
        if self.epochs is not None and not 0.0 < self.epochs < math.inf:
            raise AssayError(f"--epochs is {self.epochs}. Use a positive number.")
        if self.system is not None and not self.system.strip():
            raise AssayError("--system is empty. Leave it out, or give a text.")
        if self.mark is not None and not self.mark.strip():
            raise AssayError("--mark is blank. Leave it out, or give the text that ends the reasoning.")

    def anchored(self) -> LanguageOptions:
        """Returns the options with the teacher's folder as an absolute path: a run is resumed from anywhere."""
        from pathlib import Path

        folder = None if self.teacher is None else Path(self.teacher).expanduser()
        return replace(self, teacher=str(folder.resolve())) if folder is not None and folder.is_dir() else self

    def task(self, task: Task) -> Task:
        """Returns the task with its limit of answers, its system prompt, its order of rows and its trained replies."""
        from assay.runs import language

        task = language.changed_task(task, self.max_tokens, self.system, self.in_order, self.train_on)
        return task if self.mark is None else language.with_mark(task, self.mark)

    def recipe(self, recipe: Recipe, task: Task) -> Recipe:
        """Returns the recipe with sampling parameters, sizes, KL penalty, precision, adapter and teacher."""
        from assay.core.spaces import Vocabulary
        from assay.runs import language

        language.check_task(recipe, task, self.max_tokens, self.system)
        if self.top_p is not None and not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"--top-p is for language tasks; '{task.name}' has no tokens. Remove it.")
        changes: list[tuple[float | str | None, Callable[..., Recipe]]] = [
            (self.dtype, language.with_dtype),
            (self.lora_rank, language.with_lora_rank),
            (self.temperature, language.with_temperature),
            (self.group_size, language.with_group_size),
            (self.prompts, language.with_prompts),
            (self.kl, language.with_kl),
            (self.top_p, language.with_top_p),
            (self.correct_sampling, language.with_correction),
        ]
        for given, change in changes:
            recipe = recipe if given is None else change(recipe, given)
        if self.teacher is None and "teacher" not in recipe.models:
            return recipe
        from assay.runs.teachers import with_teacher

        return with_teacher(recipe, task, self.teacher, self.teacher_weight)

    def count_steps(self, steps: int | None, recipe: Recipe, task: Task) -> int | None:
        """Returns the steps of `epochs` passes over the training prompts."""
        if self.epochs is None:
            return steps
        from assay.runs import language

        needed = language.steps_of(self.epochs, recipe, task)
        if steps not in (None, needed):
            raise AssayError(
                f"--steps is {steps}, but --epochs {self.epochs:g} is {needed} steps. Give one of the two."
            )
        return needed
