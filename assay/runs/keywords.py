"""The options of the command line as keywords of Python: `assay.train("grpo", task, max_tokens=300, reward=f)`.

The words are those of `assay train --help`, without dashes. `Keywords` lists them for editors and type checkers; a test
holds it against the groups of options, where each is declared with its default and its help.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

from assay.core.errors import AssayError
from assay.core.hints import option_hint
from assay.engine.placement import Placement
from assay.runs.given_rows import written_text
from assay.runs.options import RunOptions, run_options
from assay.runs.options.group import flag, parsed_group
from assay.runs.options.placement import PlacementOptions
from assay.runs.user_code.objects import address_of_function, address_of_object

Function = Callable[..., Any]
Own = str | Function | Sequence[str | Function] | Mapping[str | Function, float]
"""An address, a function, several of them, or a mapping from each to its weight."""
FUNCTIONS = ("reward", "tool")
"""Options whose words name functions."""
OBJECTS = ("judge", "wrapper", "loss", "advantage", "body")
"""Options whose words name functions, classes or objects, without weights."""

FOLDERS = ("from", "reward_model")
"""Options whose words name run folders; a run stands for its own."""
TEXTS = {"judge_prompt": ".txt", "rubric": ".json"}
"""Options whose words name files of text, and the endings of those that texts and criteria are written to."""


class Keywords(TypedDict, total=False):
    """The options of a run, one keyword each; see `assay train --help` for defaults and meaning."""

    # own code
    reward: Own
    reward_timeout: float
    in_process: bool
    worker_memory: float
    worker_file: float
    reward_range: tuple[float, float]
    tool: Own
    tool_calls: int
    tool_bytes: int
    tool_timeout: float
    agent: str
    agent_calls: int
    agent_tokens: int
    agent_timeout: float
    agent_workers: int
    loss: str | Function
    advantage: str | Function
    body: str | Function
    judge: str | Function
    judge_model: str
    judge_prompt: str
    judge_pairs: bool
    judge_weight: float
    rubric: str | Sequence[Mapping[str, Any]]
    reward_model: Any
    reward_model_weight: float
    # a teacher
    teacher: str
    teacher_weight: float
    correct_sampling: str
    # verifiers and the sandbox
    verifier: str
    sandbox: str
    sandbox_seconds: float
    # conversations with sessions
    reply_timeout: float
    episode_timeout: float
    concurrency: int
    patience: float
    # language tasks
    max_tokens: int
    temperature: float
    top_p: float
    group_size: int
    prompts: int
    kl: float
    system: str
    epochs: float
    lora_rank: int
    dtype: str
    mark: str
    in_order: bool
    train_on: str
    # control tasks
    decisions: int
    normalize: str
    frame_stack: int
    num_envs: int
    env_workers: int
    env_ready: int
    env_set: str | Sequence[str]
    wrapper: str | Function | Sequence[str | Function]
    max_episode_steps: int
    one_hot: bool
    # evaluation and checkpoints
    eval_prompts: int
    eval_episodes: int
    save_every: str
    keep: int
    best: bool
    until: str
    from_: Any
    # separate samplers
    gatherers: int
    lag: int
    pieces: int
    on: str
    in_flight: bool
    ipc: bool
    server: str | Sequence[str]
    # device and sizes
    device: str
    micro_batch: int
    tokens: int
    recompute: bool
    compiled: bool
    shards: int
    ranks: int
    sharded: bool
    deterministic: bool


ARGUMENTS = ("task", "steps", "out", "settings", "warmup", "model", "data", "preset", "evaluations")
"""Arguments that train, compare, ablate and tune have besides the options."""


def option_names() -> dict[str, str]:
    """Returns the field of each keyword: `from_` is both `from_` and, in a mapping, `from`."""
    groups = [*RunOptions(), PlacementOptions()]
    return {one.name.rstrip("_"): one.name for group in groups for one in fields(group)}


def with_keywords(
    options: RunOptions, placement: Placement | None, keywords: Mapping[str, Any], more: Sequence[str] = ()
) -> tuple[RunOptions, Placement | None, dict[str, Any]]:
    """Returns the options with those of the keywords in their place, the placement, and the words of the hardware
    (device, compiled) that were given; AssayError for a name that is no option, with the nearest one. `more` are
    further arguments of the caller.
    """
    names, values = option_names(), dict[str, Any]()
    for word, value in keywords.items():
        if word.rstrip("_") not in names:
            near = option_hint(word, ["--set", *map(flag, (*names, *ARGUMENTS, *more))])
            near = re.sub(r"--set ([\w.]+)=(X|VALUE)", r"settings={'\1': \2}", near)
            near = re.sub(r"(?<!METHOD )--([a-z-]+)", lambda found: f"{found[1].replace('-', '_')}=", near)
            raise AssayError(f"'{word}' is no option.{near or ' `assay train --help` lists the options.'}")
        if word in OBJECTS:
            value = word_of_object(word, value)
        elif word.rstrip("_") in FOLDERS and value is not None:
            value = str(getattr(value, "folder", value))
        elif word in TEXTS:
            value = file_of_text(word, value)
        values[names[word.rstrip("_")]] = words_of_own(word, value) if word in FUNCTIONS else value
    where = {one.name: values.pop(one.name) for one in fields(PlacementOptions) if one.name in values}
    repeatable = {one.name for group in RunOptions() for one in fields(group) if isinstance(one.default, tuple)}
    values = {
        name: (value,) if name in repeatable and isinstance(value, str) else value for name, value in values.items()
    }
    if where:
        if placement is not None:
            raise AssayError(f"placement and {', '.join(where)} are both given. Use one of the two.")
        chosen = parsed_group(PlacementOptions, where)
        placement = Placement(**{name: getattr(chosen, name) for name in where if name not in ("device", "compiled")})
    given: dict[str, Any] = {name: where[name] for name in ("device", "compiled") if name in where}
    return run_options(values).or_else(options), placement, given


def words_of_own(option: str, value: Own) -> tuple[str, ...]:
    """Returns functions and addresses as the words of an option, each with its weight."""
    if isinstance(value, Mapping):
        return tuple(
            f"{word}={weight!r}"
            for word, weight in zip(words_of_own(option, tuple(value)), value.values(), strict=True)
        )
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    return tuple(
        one
        if isinstance(one, str)
        else (address_of_object if option == "tool" and isinstance(one, type) else address_of_function)(
            one, option, place
        )
        for place, one in enumerate(several)
    )


def file_of_text(option: str, value: Any) -> Any:
    """Returns the file that a prompt with placeholders, or a list of criteria, is written to; a file's name stays."""
    if isinstance(value, str) and "{" in value:
        return str(written_text(value, TEXTS[option]))
    if isinstance(value, list | tuple):
        return str(written_text(json.dumps(list(value)), TEXTS[option]))
    return value if value is None else str(value)


def word_of_object(option: str, value: Any) -> Any:
    """Returns a function, class or object as the word of an option, several of a list as a tuple; text stays."""
    if isinstance(value, list | tuple):
        return tuple(word_of_object(option, one) for one in value)
    if value is None or isinstance(value, str):
        return value
    if not callable(value):
        raise AssayError(f"{option}={value!r:.60} cannot be called. Give a function or class, or FILE.py:NAME as text.")
    return address_of_object(value, option)
