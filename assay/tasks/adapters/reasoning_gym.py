"""reasoning-gym's generators as tasks: reasoning-gym:NAME, with their own scorers as verifiers.

Settings of a generator follow its name: reasoning-gym:leg_counting:min_animals=2,max_animals=3.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts import text
from assay.rollouts.text import ByteTokenizer, Tokenizer
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.items import HELD_OUT, Item, check_split
from assay.tasks.language.prompts import PromptTask

PREFIX = "reasoning-gym:"
SIZES = (10_000, 1_000, 100)
"""Items of a generator: the first of these that it can make."""
ATTEMPTS = 1_000
EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify|parse_latex)\(")


@dataclass(frozen=True)
class Generated:
    """The items of one generator. A tenth of the questions is held out, by a hash of the question.

    An answer is the text after "####", or all of it. The generator's own scorer gives the score; a scorer that raises
    is a fault of the infrastructure, never a number. Questions and answers that do not fit are skipped.
    A generator whose module evaluates text as code is refused: a model's answer is never run.
    """

    generator: str
    settings: tuple[tuple[str, Any], ...]
    max_prompt: int
    max_tokens: int

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the first of the items (ordinal, 0), (ordinal, 1), ... whose question is in the split and fits."""
        return found_item(self, ordinal, split)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the score of the generator's scorer."""
        given = final_answer(completion)
        if not given:
            return PolicyFault("several final answers" if given is None else "no answer")
        if len(given.encode("utf-8", "surrogatepass")) > 4 * self.max_tokens:
            return PolicyFault("longer than any answer")
        try:
            score = float(dataset_of(self).score_answer(given, item.facts["entry"]))
        except Exception as error:
            return InfraFault(f"the scorer of {self.generator} raised {type(error).__name__}")
        return Score(score) if score == score else InfraFault(f"the scorer of {self.generator} gave nan")


@lru_cache(maxsize=16)
def dataset_of(generator: Generated) -> Any:
    """Returns the generator, built once per process."""
    package = require("reasoning_gym", "tasks", f"task '{PREFIX}{generator.generator}'")
    known = package.factory.DATASETS
    if generator.generator not in known:
        near = get_close_matches(generator.generator, list(known), 1, 0.0)[0]
        raise AssayError(f"reasoning-gym has no generator '{generator.generator}'. The nearest is '{near}'")
    refuse_evaluation(generator.generator, known[generator.generator][0])
    refusals = []
    for size in SIZES:
        try:
            return package.create_dataset(generator.generator, **({"size": size, "seed": 0} | dict(generator.settings)))
        except (AssertionError, TypeError, ValueError, IndexError) as error:
            refusals.append(str(error))
    raise AssayError(f"reasoning-gym refuses {generator.generator} {dict(generator.settings)}: {refusals[-1]}")


def refuse_evaluation(name: str, dataset: type) -> None:
    """Raises AssayError if the generator's module can execute an answer; sympy's parser evaluates code too."""
    module = inspect.getmodule(dataset)
    words = EVALUATES.findall(inspect.getsource(module)) if module else ["code that cannot be read"]
    if words:
        raise AssayError(
            f"reasoning-gym's {name} may evaluate answers as code ({', '.join(sorted(set(words)))}), but text "
            "of a model is never executed. Use another generator"
        )


@lru_cache(maxsize=1 << 14)
def found_item(generator: Generated, ordinal: int, split: int) -> Item:
    """Returns item `ordinal` of the split."""
    check_split(split)
    dataset = dataset_of(generator)
    for attempt in range(ATTEMPTS):
        entry: Mapping[str, Any] = dataset[text.hashed_words(f"{ordinal},{attempt}", 1)[0] % len(dataset)]
        question, answer = entry["question"], entry["answer"]
        if answer is None:
            raise AssayError(
                f"reasoning-gym's {generator.generator} has no answers to demonstrate. Use another generator"
            )
        fits = len(question.encode()) < generator.max_prompt and len(str(answer).encode()) < generator.max_tokens
        if fits and text.is_held_out(question, HELD_OUT) == bool(split):
            return Item(question, str(answer), str(answer), {"entry": entry})
    raise AssayError(
        f"reasoning-gym's {generator.generator}: none of {ATTEMPTS} items is in split {split} and fits into "
        f"{generator.max_prompt} bytes. Raise max_prompt, or change its settings"
    )


def reasoning_gym_task(
    name: str, max_prompt: int = 2048, max_tokens: int = 256, tokenizer: Tokenizer = ByteTokenizer()
) -> PromptTask:
    """Returns the task of an address reasoning-gym:NAME or reasoning-gym:NAME:setting=value,...; sizes are in bytes."""
    generator, _, words = name.removeprefix(PREFIX).partition(":")
    items = Generated(generator, parsed(words, name), max_prompt, max_tokens)
    longest = max(len(items.item(k // 2, k % 2).prompt.encode()) for k in range(12))
    bounded = Generated(generator, items.settings, min(max_prompt, 2 * longest), max_tokens)
    bounded.item(0, 0)
    return PromptTask(name, bounded, tokenizer, bounded.max_prompt + 1, max_tokens)


def parsed(words: str, name: str) -> tuple[tuple[str, Any], ...]:
    """Parses `a=1,b=[2, 3]` into settings."""
    try:
        call = ast.parse(f"f({words})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        return tuple((str(word.arg), fixed(ast.literal_eval(word.value))) for word in call.keywords)
    except (SyntaxError, ValueError, AssertionError):
        raise AssayError(f"the settings of task '{name}' cannot be parsed. Write NAME:name=value,name=value") from None


def fixed(value: Any) -> Any:
    """Returns a list as a tuple, all the way down: settings are values."""
    return tuple(map(fixed, value)) if isinstance(value, list) else value
