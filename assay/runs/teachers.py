"""The teacher of `--teacher`: a frozen model of a folder or at an address, as a model and a part of any recipe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import models_read
from assay.core.slots import ModelSpec, Task
from assay.models.pretrained.teacher import PretrainedTeacher, check_vocabularies
from assay.models.pretrained.transformers import Pretrained, PretrainedTokenizer, pinned
from assay.parts.credit.teacher import TeacherCandidates, TeacherReward

TEACHER = "teacher"
"""The name of the model that teaches."""


def with_teacher(recipe: Recipe, task: Task, address: str | None, weight: float | None = None) -> Recipe:
    """Returns the recipe with the model at `address` as its teacher; a recipe without one has it in its rewards, by
    `weight`. Raises AssayError if the recipe needs a teacher that it does not have.
    """
    samples = recipe.rollout is not None and TEACHER in models_read(recipe.rollout)
    has_place = samples or any(isinstance(part, TeacherCandidates | TeacherReward) for part in recipe.credit)
    if address is None:
        if has_place and isinstance(recipe.actor, Pretrained) and TEACHER not in recipe.critics:
            raise AssayError(f"{recipe.name} with a pretrained model needs a teacher. Add --teacher FOLDER.")
        return recipe
    if not isinstance(recipe.actor, Pretrained):
        raise AssayError("--teacher is for pretrained models, whose tokens it must share. Add --model FOLDER.")
    if recipe.rollout is None:
        raise AssayError(f"--teacher does not fit '{recipe.name}', which samples no answers. Train gkd.")
    if has_place and weight is not None:
        raise AssayError(f"--teacher-weight is for methods without a teacher; {recipe.name} has one. Remove it.")
    if TEACHER in recipe.models and not has_place:
        raise AssayError(f"the teacher of '{recipe.name}' is the policy itself. Remove --teacher, or train gkd.")
    if not has_place and weight is None:
        what = f"{recipe.name} has no teacher of its own"
        raise AssayError(f"{what}. Add --teacher-weight 0.1 for the teacher's log-ratio in its rewards, or train gkd.")
    teacher = teacher_at(address, recipe.actor, task)
    if samples and not isinstance(teacher, PretrainedTeacher):
        what = f"{recipe.name} lets its teacher write, and one at an address scores answers alone"
        raise AssayError(f"{what}. Use --teacher FOLDER.")
    credit = recipe.credit if weight is None else (TeacherReward(weight), *recipe.credit)
    before = tuple(phase for phase in recipe.before if TEACHER not in {name for _, name in phase.handed})
    before = tuple(replace(one, recipe=in_place(one.recipe, teacher)) for one in before)
    return in_place(replace(recipe, credit=credit, before=before), teacher, always=True)


def in_place(recipe: Recipe, teacher: ModelSpec, always: bool = False) -> Recipe:
    """Returns the recipe with the teacher in the place of its own, if it has one, or `always`."""
    if TEACHER not in recipe.copies and not always:
        return recipe
    copies = {name: copy for name, copy in recipe.copies.items() if name != TEACHER}
    return replace(recipe, copies=copies, critics={**recipe.critics, TEACHER: teacher})


def teacher_at(address: str, student: Pretrained, task: Any) -> ModelSpec:
    """Returns the teacher of a folder or a hub id, in the student's precision, or at an address."""
    if address.startswith(("http://", "https://")):
        from assay.runs.distributed.teacher import ServedTeacher

        return ServedTeacher(address.rstrip("/"))
    model = replace(pinned(address), dtype=student.dtype)
    check_vocabularies(PretrainedTokenizer(student.path, student.revision), model)
    return PretrainedTeacher(model)
