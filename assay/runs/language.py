"""What the options of language tasks change: limits of a task, sizes, sampling and the KL penalty of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from assay.core.errors import AssayError
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Need
from assay.core.settings import children, replaced
from assay.core.slots import Aggregation, ModelSpec, RepeatingTask, Task
from assay.core.spaces import Vocabulary
from assay.decoding.sampling_parameters import Narrowing
from assay.models.heads.categorical import Categorical
from assay.models.heads.gaussian import Distribution
from assay.models.model import Policy
from assay.models.pretrained.transformers import Pretrained, PretrainedTokenizer, pinned
from assay.parts.aggregations import SequenceSum
from assay.parts.credit.off_policy import OldPolicy, SamplerWeight
from assay.parts.credit.shaping import KlInReward
from assay.parts.objectives.ratio import ProductRatio, TokenRatio
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rollouts.narrowed import Narrowed
from assay.parts.rollouts.stale import Stale
from assay.parts.sources.demonstrations import Demonstrations, Pairs
from assay.tasks.adapters.chat_games import ChatGame
from assay.tasks.games.repeated import MatrixTask
from assay.tasks.language.chat_rows import with_train_on
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.redteam_chat import SeedGame
from assay.tasks.language.textfile import Files, TextFile, longest_completion

Part = TypeVar("Part")

LONG_PAIR = 1024
"""Tokens above which a pair is called long: where TRL cuts by default."""


# ---------------------------------------------------------------------------------------------------- the task
def changed_task(
    task: Task, max_tokens: int | None, system: str | None, in_order: bool, train_on: str | None = None
) -> Any:
    """Returns the task with a limit of answers, a system prompt, the order of its rows and the replies that are trained
    changed.
    """
    asked = {"--max-tokens": max_tokens, "--system": system, "--in-order": in_order or None, "--train-on": train_on}
    given = [name for name, value in asked.items() if value is not None]
    if not given:
        return task
    if isinstance(task, PairsTask | SeedGame):
        return replace(task, prompts=changed_task(task.prompts, max_tokens, system, in_order, train_on))
    if isinstance(task, MatrixTask) and not in_order:
        return spoken_game(task, max_tokens, system)
    if not isinstance(task, PromptTask | DialogueTask):
        raise AssayError(f"{given[0]} is for language tasks; '{task.name}' has no prompts. Remove it.")
    if train_on is not None:
        if not isinstance(task, PromptTask) or not isinstance(task.items, TextFile | Files):
            raise AssayError(f"--train-on is for files with 'messages'; '{task.name}' has no files. Remove it.")
        task = replace(task, items=with_train_on(task.items, train_on))
    if in_order:
        if not isinstance(task, PromptTask) or not isinstance(task.items, TextFile | Files):
            raise AssayError(f"--in-order is for files; '{task.name}' draws fresh prompts. Remove it.")
        task = replace(task, items=replace(task.items, in_order=True))
    if max_tokens is not None:
        task = replace(task, max_tokens=max_tokens, is_limited=True)
    return task if system is None else replace(task, system=system)


def spoken_game(task: MatrixTask, max_tokens: int | None, system: str | None) -> MatrixTask:
    """Returns the game of a chat model with the limit of an utterance and the system prompt changed; another game is
    unchanged, since it has neither before it has a model.
    """
    if not isinstance(task, ChatGame):
        return task
    task = task if max_tokens is None else replace(task, max_tokens=max_tokens)
    return task if system is None else replace(task, system=system)


def in_tokens_of(model: str, task: Task, change: Callable[[Task], Task]) -> tuple[ModelSpec, Task]:
    """Returns the pretrained actor, and the task in its tokens; a game has what `change` changes only then."""
    from assay.tasks.adapters.pretrained import check_model_task, with_model

    check_model_task(task)
    actor = pinned(model)
    made = with_model(task, actor)
    return actor, change(made) if isinstance(made, ChatGame) else made


def with_mark(task: Task, mark: str) -> Task:
    """Returns the task whose answers end their reasoning with a mark; what stood behind its own mark is forgotten."""
    if not isinstance(task, PromptTask):
        raise AssayError(f"--mark is for prompts with single answers; '{task.name}' has none. Remove it.")
    try:
        task.tokenizer.encode(mark)
    except ValueError as error:
        raise AssayError(f"--mark is {mark!r}, which task '{task.name}' cannot write: {error}.") from None
    return replace(task, answer_format=replace(task.answer_format, mark=mark, gap=""))


def check_task(recipe: Recipe, task: Task, max_tokens: int | None, system: str | None) -> None:
    """Raises AssayError for a system prompt without a chat template, and for demonstrations over the limit."""
    prompts = task.prompts if isinstance(task, PairsTask | SeedGame) else task
    if isinstance(task, MatrixTask) and not isinstance(task, ChatGame) and (max_tokens or system):
        option = "--max-tokens" if max_tokens else "--system"
        raise AssayError(
            f"{option} is for language tasks; '{task.name}' has no prompts. Add --model FOLDER, or remove it."
        )
    if not isinstance(prompts, PromptTask | DialogueTask):
        return
    tokenizer = prompts.tokenizer
    if system is not None and not (isinstance(tokenizer, PretrainedTokenizer) and any(tokenizer.frame)):
        has = "the model has no chat template" if isinstance(tokenizer, PretrainedTokenizer) else "there is no --model"
        raise AssayError(f"--system is put in by a model's chat template, but {has}. Put it into the prompts instead.")
    if max_tokens is None:
        return
    if prompts.max_tokens != max_tokens:
        least = f"an utterance of '{task.name}' needs up to {prompts.max_tokens} tokens"
        raise AssayError(f"--max-tokens is {max_tokens}, but {least}. Use at least that.")
    reads_answers = recipe.rollout is None or not isinstance(recipe.actor, Pretrained)  # a small model is warmed up
    if isinstance(prompts, PromptTask) and isinstance(prompts.items, TextFile | Files) and reads_answers:
        length, where = longest_completion(prompts)
        if length > max_tokens:
            what = f"--max-tokens is {max_tokens}, but a completion to train on has {length} tokens ({where})"
            raise AssayError(f"{what}. Use --max-tokens {length}, or remove long rows.")


# ---------------------------------------------------------------------------------------------------- the recipe
def long_pairs_note(task: Task, recipe: Recipe) -> str:
    """Returns a sentence on the length of a file's preference pairs if some are longer than `LONG_PAIR`; else ""."""
    if not isinstance(task, PairsTask) or (length := task.spec.horizon) <= LONG_PAIR:
        return ""
    texts = 2 * prompts_of(recipe)
    return (
        f"a prompt with its completion has up to {length:,} tokens, and every step reads {texts} texts, none of them "
        "cut. Remove long rows, or take fewer pairs a step (--prompts) and less at once (--micro-batch)"
    )


def lacks(recipe: Recipe, option: str, why: str) -> AssayError:
    """Returns the error for an option that a recipe has no place for, naming those that it has."""
    sizes = {"--prompts": prompts_of(recipe), "--group-size": first_of(recipe.rollout, "group_size")}
    has = [f"{name} (now {value})" for name, value in sizes.items() if value]
    has += ["--temperature", "--top-p"] if recipe.rollout else []
    return AssayError(f"{option} does not fit '{recipe.name}': {why}. It has {', '.join(has) or 'no such options'}.")


def with_dtype(recipe: Recipe, dtype: str) -> Recipe:
    """Returns the recipe with its pretrained actor, and critics that are built like it, in this precision."""
    if not isinstance(recipe.actor, Pretrained):
        raise AssayError("--dtype needs a pretrained model. Add --model FOLDER.")
    return recipe.set("actor.dtype", dtype)


def with_lora_rank(recipe: Recipe, rank: int) -> Recipe:
    """Returns the recipe with a low-rank adapter on its pretrained actor, and on critics that are built like it."""
    if not isinstance(recipe.actor, Pretrained):
        raise AssayError("--lora-rank needs a pretrained model. Add --model FOLDER.")
    return recipe.set("actor.lora.rank", rank)


def with_temperature(recipe: Recipe, temperature: float) -> Recipe:
    """Returns the recipe whose policy divides its logits by a temperature, wherever it is used."""
    actor = recipe.actor
    if recipe.rollout is None:
        raise lacks(recipe, "--temperature", "it samples no answers in training")
    if isinstance(actor, Pretrained):
        return recipe.set("actor.temperature", temperature)
    if not isinstance(actor, Policy) or not isinstance(actor.head, Categorical | Distribution):
        raise lacks(recipe, "--temperature", f"its actor {type(actor).__name__} has none")
    return replace(recipe, actor=replace(actor, head=Categorical(temperature))).share_models(recipe)


def temperature_of(actor: ModelSpec) -> float:
    """Returns the temperature of an actor's policy."""
    if isinstance(actor, Pretrained):
        return actor.temperature
    return actor.head.temperature if isinstance(actor, Policy) and isinstance(actor.head, Categorical) else 1.0


def with_top_p(recipe: Recipe, top_p: float) -> Recipe:
    """Returns the recipe that samples the nucleus; see `Narrowed`. 1 changes nothing."""
    rollout, narrowing = recipe.rollout, Narrowing(top_p=top_p)
    if rollout is None:
        raise lacks(recipe, "--top-p", "it samples no answers in training")
    if top_p == 1.0:
        return recipe
    if isinstance(rollout, Stale):  # it reads the actor's weights, so that the truncation stands inside
        return replace(recipe, rollout=replace(rollout, gather=Narrowed(rollout.gather, narrowing, own=True)))
    return replace(recipe, rollout=Narrowed(rollout, narrowing, own=True))


def with_correction(recipe: Recipe, kind: str) -> Recipe:
    """Returns the recipe whose clips are around the policy before an update, and whose advantages are multiplied by the
    ratio of that policy to the one that sampled; truncated sampling is then recorded as it was.
    """
    if recipe.rollout is None or not any("advantage" in part.writes for part in recipe.credit):
        raise lacks(recipe, "--correct-sampling", "no advantage of its samples is computed that could be weighed")
    if any(isinstance(part, SamplerWeight) for part in recipe.credit):
        raise lacks(recipe, "--correct-sampling", "it weighs samples of another policy already")
    level = ProductRatio() if kind.startswith("answer") else TokenRatio()
    weight = SamplerWeight(level, low=0.5, masks=True) if kind.endswith("mask") else SamplerWeight(level)
    recipe = replaced(recipe, Narrowed, lambda rollout: replace(rollout, own=False))
    return replace(recipe, credit=(OldPolicy(), *recipe.credit, weight))


def with_group_size(recipe: Recipe, size: int) -> Recipe:
    """Returns the recipe with this many answers per prompt."""
    if recipe.rollout is None or not first_of(recipe.rollout, "group_size"):
        how = "it samples no answers" if recipe.rollout is None else f"{type(recipe.rollout).__name__} has no groups"
        raise lacks(recipe, "--group-size", how)
    return replace(recipe, rollout=with_field(recipe.rollout, "group_size", size))


def with_prompts(recipe: Recipe, number: int) -> Recipe:
    """Returns the recipe with this many prompts, demonstrations or pairs per step."""
    if recipe.rollout is not None and first_of(recipe.rollout, "num_starts"):
        return replace(recipe, rollout=with_field(recipe.rollout, "num_starts", number))
    if recipe.rollout is None and isinstance(recipe.source, Demonstrations | Pairs):
        return replace(recipe, source=replace(recipe.source, batch=number))
    raise lacks(recipe, "--prompts", "it has no number of prompts per step")


def with_kl(recipe: Recipe, coefficient: float) -> Recipe:
    """Returns the recipe with this coefficient of its KL penalty to the reference; without one, a `KlToReference` is
    added to the stage of the actor. 0 removes it.

    The added penalty is aggregated as the policy loss is, so that a nat of KL at a token weighs as much as an advantage
    of `coefficient` there, in every method and at every length of answers.
    """
    stages = [part for stage in recipe.stages for part in stage.regularizers]
    has_own = any(isinstance(part, KlToReference | KlInReward) for part in (*stages, *recipe.credit))
    if has_own and coefficient:
        return mapped_kl(recipe, lambda part: (replace(part, coefficient=coefficient),))
    if has_own:
        return without_reference(mapped_kl(recipe, lambda part: ()))
    if Need.REFERENCE in recipe.needs:
        parts = [part for stage in recipe.stages for part in stage.terms] + list(recipe.credit)
        name = next(type(part).__name__ for part in parts if Need.REFERENCE in part.needs)
        raise lacks(recipe, "--kl", f"{name} holds it near the reference; see 'assay show {recipe.name} --all'")
    place = next((k for k, stage in enumerate(recipe.stages) if "actor" in stage.trains), None)
    if recipe.rollout is None or place is None:
        raise lacks(recipe, "--kl", "a KL penalty is estimated from answers of the policy, and it samples none")
    if not coefficient:
        return recipe
    stage = recipe.stages[place]
    penalty = KlToReference(coefficient, aggregate=policy_aggregation(stage))
    stage = replace(stage, regularizers=(*stage.regularizers, penalty))
    copies = {**recipe.copies, "reference": Copy(of="actor")}
    return replace(recipe, stages=(*recipe.stages[:place], stage, *recipe.stages[place + 1 :]), copies=copies)


def policy_aggregation(stage: Stage) -> Aggregation:
    """Returns the aggregation of the stage's policy loss; a loss without one is of whole answers: the sum over each."""

    def found(part: Any) -> list[Aggregation]:
        if Aggregation in type(part).__mro__:
            return [part]
        return [one for _, below in children(part) for one in found(below)]

    return next(iter(found(stage.objective)), SequenceSum())


def mapped_kl(recipe: Recipe, change: Callable[[Any], tuple[Any, ...]]) -> Recipe:
    """Returns the recipe with every KL penalty replaced by the parts that `change` returns."""

    def through(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        found = [change(part) if isinstance(part, KlToReference | KlInReward) else (part,) for part in parts]
        return tuple(one for some in found for one in some)

    stages = tuple(replace(stage, regularizers=through(stage.regularizers)) for stage in recipe.stages)
    return replace(recipe, stages=stages, credit=through(recipe.credit))


def without_reference(recipe: Recipe) -> Recipe:
    """Returns the recipe without its reference policy if no part needs it."""
    if Need.REFERENCE in recipe.needs:
        return recipe
    lighter = replace(recipe, copies={name: copy for name, copy in recipe.copies.items() if name != "reference"})
    try:
        lighter.check_models()
    except AssayError:
        return recipe
    return lighter


# ---------------------------------------------------------------------------------------------------- numbers
def first_of(part: Any, name: str) -> int:
    """Returns the setting `name` of a part or of the parts inside it; 0 without one."""
    if not is_dataclass(part):
        return 0
    if name in (own := {one.name: getattr(part, one.name) for one in fields(part)}):
        return int(own[name])
    return next((found for value in own.values() if (found := first_of(value, name))), 0)


def with_field(part: Any, name: str, value: Any) -> Any:
    """Returns a part with the setting `name` changed wherever it, or a part inside it, has one."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    own = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
    changes = {key: value if key == name else with_field(old, name, value) for key, old in own.items()}
    changes = {key: new for key, new in changes.items() if new is not own[key]}
    return replace(part, **changes) if changes else part


def prompts_of(recipe: Recipe) -> int:
    """Returns the prompts, demonstrations or pairs of one step; 0 if the recipe has no such number."""
    if recipe.rollout is not None:
        return first_of(recipe.rollout, "num_starts")
    return recipe.source.batch if isinstance(recipe.source, Demonstrations | Pairs) else 0


def steps_of(epochs: float, recipe: Recipe, task: Task) -> int:
    """Returns the steps of some passes over the training prompts, rounded up."""
    number = task.num_training if isinstance(task, RepeatingTask) else 0
    if not number:
        what = "draws fresh prompts" if isinstance(task.spec.action, Vocabulary) else "has no prompts"
        raise AssayError(f"--epochs needs a file of prompts; '{task.name}' {what}. Use --steps.")
    if not (per_step := prompts_of(recipe)):
        raise AssayError(
            f"--epochs does not fit '{recipe.name}', which has no number of prompts per step. Use --steps."
        )
    return max(1, math.ceil(epochs * number / per_step))
