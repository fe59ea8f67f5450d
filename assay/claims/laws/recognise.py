"""Recognises values of a user's file: a part of a slot, a plain function, an environment, a recipe, or none of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from assay.claims.discover import slot_of
from assay.claims.laws.benches import benches_of, smaller
from assay.claims.laws.contracts import CONTRACTS
from assay.claims.laws.credit import is_credit
from assay.claims.laws.environment import check_environment
from assay.claims.laws.function import check_advantage, check_loss
from assay.claims.laws.laws import Finding
from assay.claims.laws.reward import check_reward
from assay.claims.laws.rollout import check_rollout
from assay.claims.laws.session import check_sessions
from assay.claims.laws.term import cases_on
from assay.claims.laws.wrapper import check_wrapper
from assay.core.calls import FIRST
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Progress
from assay.models.bodies.module import ModuleBody
from assay.models.bodies.token_module import TokenModule
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.functions import MINE
from assay.runs.user_code.methods_and_tasks import method_of
from assay.tasks.language.sessions import Sessions
from assay.tasks.language.text_environment import is_conversation

NETWORK, SESSIONS = "network", "partner with sessions"
ENVIRONMENT, LOSS, ADVANTAGE, REWARD = "environment", "loss function", "advantage function", "reward function"


@dataclass(frozen=True)
class Thing:
    """Something to check: its name in the file, what it is, and how to check it. Equal keys are the same part twice."""

    name: str
    kind: str
    check: Callable[[], list[Finding]]
    key: str = ""


# ---------------------------------------------------------------------------------------------------- classes
def kind_of(cls: type) -> str | None:
    """Returns the slot that a class inherits, "environment" for one that can be reset and stepped, "network" for a
    module that is made of an observation's shape, or None.
    """
    slot = slot_of(cls)
    if slot is None and issubclass(cls, nn.Module) and required_of(cls) in (["shape"], ["vocab_size"]):
        return NETWORK
    has = all(callable(getattr(cls, name, None)) for name in ("reset", "step"))
    if slot is None and has and not is_conversation(cls):  # which is tried when its task is made
        return ENVIRONMENT
    return slot


def instances(cls: type) -> list[Any]:
    """Returns the default instance of a class, or those of its `examples`."""
    listed = [cls(**settings) for settings in getattr(cls, "examples", ())]
    if is_dataclass(cls):
        required = [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
        if required and not listed:
            names = ", ".join(required)
            raise AssayError(f"{cls.__name__} has settings without a default ({names}). Add defaults, or `examples`")
        return listed if required else [cls(), *listed]
    return listed or [cls()]


# ---------------------------------------------------------------------------------------------------- functions
def kind_of_function(function: Callable[..., Any]) -> str | None:
    """Returns reward, loss or advantage function, by the names of its arguments, then by its own; None for others."""
    arguments = list(inspect.signature(function).parameters)
    name = function.__name__.lower()
    if not arguments or name.startswith("_"):
        return None
    known = {alias: role for role, aliases in MINE.items() for alias in aliases}
    found = {known[argument] for argument in arguments if argument in known}
    if arguments[0] == "rows" or arguments[0] in FIRST:
        return REWARD
    if "logp" in found and ("advantage" in found or "loss" in name):
        return LOSS
    if arguments[0] in MINE["reward"] or ("advantage" in name and "reward" in found):
        return ADVANTAGE
    if "reward" in name and len(required_of(function)) == 1:
        return REWARD
    return LOSS if "loss" in name and "advantage" in found else None


def required_of(function: Callable[..., Any]) -> list[str]:
    """Returns arguments without a default."""
    return [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]


FUNCTIONS: dict[str, Callable[[Any], list[Finding]]] = {
    REWARD: check_reward,
    LOSS: check_loss,
    ADVANTAGE: check_advantage,
}


# ---------------------------------------------------------------------------------------------------- recipes
def recipe_things(name: str, recipe: Recipe) -> Iterator[Thing]:
    """Yields every part of a recipe; its terms are tried with its own models, made small."""
    for phase in recipe.before:
        yield from recipe_things(f"{name}, {phase.name}", phase.recipe)
    recipe = recipe.at(Progress())
    benches = benches_of(recipe)

    def thing(slot: str, part: Any, check: Callable[[], list[Finding]]) -> Thing:
        return Thing(f"{name}: {type(part).__name__}", slot, check, f"{slot} {part!r}")

    def term(slot: str, part: Any) -> Thing:
        return thing(slot, part, lambda: CONTRACTS[slot].check(part, cases_on(part, benches)))

    def plain(slot: str, part: Any) -> Thing:
        return thing(slot, part, lambda: CONTRACTS[slot].check(part))

    yield plain("actor", smaller(recipe.actor))
    yield from (plain("critic", smaller(critic)) for critic in recipe.critics.values())
    if recipe.rollout is not None:
        rollout, actor = recipe.rollout, smaller(recipe.actor)
        yield thing("rollout", rollout, lambda: check_rollout(rollout, actor=actor))
    yield from (plain("reward", part) for part in recipe.rewards)
    yield from (plain("select", part) for part in (recipe.select,) if part is not None)
    yield from (plain("credit" if is_credit(part) else "prepare", part) for part in recipe.credit)
    yield from (plain("constraint", part) for part in recipe.constraints)
    yield from (plain("curriculum", part) for part in (recipe.curriculum,) if part is not None)
    yield from (plain("source", feed.source) for feed in recipe.feeds)
    if recipe.wrapper is not None:
        wrapper = recipe.wrapper
        yield thing("wrapper", wrapper, lambda: check_wrapper(wrapper, recipe))
    yield from (plain("gate", copy.gate) for copy in recipe.copies.values() if copy.gate is not None)
    yield from (plain("certificate", part) for part in (recipe.certificate,) if part is not None)
    for stage in recipe.stages:
        yield from (term("objective", part) for part in stage.objective)
        yield from (term("regularizer", part) for part in stage.regularizers)
        yield from (term("critic_loss", part) for part in stage.critic)


def recipes_in(module: ModuleType) -> dict[str, Recipe]:
    """Returns recipes by name: values, and `METHOD` or the function `recipe` in each of its worlds."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Recipe)}
    method, function = vars(module).get("METHOD"), vars(module).get("recipe")
    for world in getattr(method, "worlds", ()):
        found[f"METHOD in {world.name}"] = method.recipe(world)  # type: ignore[union-attr]
    if method is None and inspect.isfunction(function) and not required_of(function):
        found["recipe()"] = function()
    elif method is None and inspect.isfunction(function):
        made = method_of(function, Address(str(module.__file__), "recipe"))
        found |= {f"recipe in {world.name}": made.recipe(world) for world in made.presets}
    return found


# ---------------------------------------------------------------------------------------------------- files
def things_in(module: ModuleType) -> Iterator[Thing]:
    """Yields everything in a module that can be checked, in the order of the file; parts of several recipes once."""
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    # A wrapper reads the models of its recipe, and is checked there.
    made = {type(value) for value in values.values()} | {type(one.wrapper) for one in recipes_in(module).values()}
    for name, value in values.items():
        if value not in made if isinstance(value, type) else True:
            yield from thing_of(name, value, module.__name__)
    seen: set[str] = set()
    for name, recipe in recipes_in(module).items():
        for thing in recipe_things(name, recipe):
            if thing.key not in seen:
                yield thing
            seen.add(thing.key)


def thing_of(name: str, value: Any, module: str) -> Iterator[Thing]:
    """Returns a function or class that the module defines, or an instance of any part; None for all else."""
    if inspect.isfunction(value):
        kind = kind_of_function(value) if value.__module__ == module else None
        if kind is not None:
            yield Thing(name, kind, partial(FUNCTIONS[kind], value))
    elif isinstance(value, type):
        kind = kind_of(value) if value.__module__ == module else None
        if kind is not None:
            yield Thing(name, kind, partial(check_class, kind, value))
    elif not isinstance(value, ModuleType | Recipe):
        own = type(value).__module__ == module
        kind = kind_of(type(value)) if own else slot_of(type(value))
        if kind is not None and kind in CONTRACTS:
            yield Thing(name, kind, partial(CONTRACTS[kind].check, value))
        elif own and isinstance(value, Sessions):
            yield Thing(name, SESSIONS, partial(check_sessions, value))


def check_class(kind: str, cls: type) -> list[Finding]:
    """Checks the laws on every instance of a class; an environment is made by the class itself."""
    if kind == ENVIRONMENT:
        return check_environment(cls)
    if kind == NETWORK:
        reads_tokens = required_of(cls) == ["vocab_size"]
        return CONTRACTS["body"].check(TokenModule(cls) if reads_tokens else ModuleBody(cls))
    return [finding for instance in instances(cls) for finding in CONTRACTS[kind].check(instance)]
