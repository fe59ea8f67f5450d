"""Options of environments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, flag, option

if TYPE_CHECKING:
    from assay.core.recipe import Recipe
    from assay.core.slots import Task

RANGES = {
    "decisions": (1, 10**12),
    "max_episode_steps": (1, 10**9),
    "num_envs": (1, 65_536),
    "env_workers": (0, 1_024),
    "env_ready": (0, 1_024),
    "frame_stack": (1, 64),
}
"""The least and the largest value of each number."""
NORMALISED = ("obs", "reward")
"""What --normalize takes."""


@dataclass(frozen=True)
class EnvironmentOptions(Group):
    """Options of environments."""

    title: ClassVar[str] = "control tasks"

    decisions: int | None = option(None, "environment steps to train on, instead of --steps")
    normalize: str | None = option(
        None, "standardise by running moments: obs, reward or obs,reward (saved; fixed in evaluation)", metavar="WHAT"
    )
    frame_stack: int = option(1, "show the last N observations (default: 1)")
    num_envs: int | None = option(None, "environments side by side; a step keeps its number of decisions")
    env_workers: int = option(
        0,
        "processes for the environments: the same numbers, and a crash costs one process (default: 0)",
        decisive=False,
    )
    env_ready: int = option(
        0,
        "step on when N of the processes have answered: the same numbers, without waiting for slow ones (default: all)",
        decisive=False,
    )
    env_set: tuple[str, ...] = option((), "keyword argument of the environment; repeatable", metavar="KEY=VALUE")
    wrapper: tuple[str, ...] = option(
        (), "wrapper around the environment, the first one innermost; repeatable", metavar="MODULE:NAME"
    )
    max_episode_steps: int | None = option(None, "time limit of an episode, in decisions")
    one_hot: bool = option(False, "one-hot vectors for numbered states instead of tables")

    def sources(self) -> Iterator[str]:
        from assay.runs.user_code.addresses import needed_address

        for word in self.wrapper:
            yield needed_address(word, "--wrapper").source

    def check(self) -> None:
        """Raises AssayError for values out of range."""
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise AssayError(f"{flag(name)} is {value}. Use a whole number from {least} to {most:,}.")
        for word in self.normalised:
            if word not in NORMALISED:
                raise AssayError(f"--normalize is '{self.normalize}'. Use obs, reward, or obs,reward.")
        if self.env_ready > self.env_workers:
            raise AssayError(
                f"--env-ready is {self.env_ready}, but --env-workers is {self.env_workers}. Use at most as many."
            )
        if self.env_ready and self.frame_stack > 1:
            raise AssayError(
                f"--env-ready is {self.env_ready}, but --frame-stack {self.frame_stack} shows all environments at one "
                "time. Remove one of the two."
            )
        self.keywords()

    @property
    def normalised(self) -> tuple[str, ...]:
        """Returns the words of --normalize."""
        return () if self.normalize is None else tuple(word.strip() for word in self.normalize.split(","))

    def keywords(self) -> dict[str, Any]:
        """Returns the keyword arguments of --env-set: Python literals, or else text."""
        found: dict[str, Any] = {}
        for word in self.env_set:
            key, sign, value = word.partition("=")
            if not sign or not key.strip().isidentifier():
                raise AssayError(f"--env-set {word} is not of the form key=value. Example: --env-set gravity=9.8")
            try:
                found[key.strip()] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                found[key.strip()] = value.strip()
        return found

    def task(self, task: Task) -> Task:
        """Returns the task with its environments made, limited, stacked and distributed as the options say."""
        from assay.runs.environments import remade, stack_frames, with_workers

        task = remade(task, self.keywords(), self.wrapper, self.max_episode_steps, one_hot=self.one_hot)
        task = with_workers(task, self.env_workers, self.env_ready) if self.env_workers else task
        return stack_frames(task, self.frame_stack) if self.frame_stack > 1 else task

    def recipe(self, recipe: Recipe, task: Task) -> Recipe:
        """Returns the recipe with this many environments, and with standardised observations and rewards."""
        from assay.runs.environments import check_fragments, normalised, with_num_envs

        if self.env_ready:
            check_fragments(recipe, f"--env-ready is {self.env_ready}")
        if self.num_envs is not None:
            recipe = with_num_envs(recipe, self.num_envs)
        return normalised(recipe, task, self.normalised) if self.normalised else recipe

    def count_steps(self, steps: int | None, recipe: Recipe, task: Task) -> int | None:
        """Returns the steps that gather `decisions`, rounded up."""
        from assay.runs.environments import steps_for

        if self.decisions is None:
            return steps
        found = steps_for(self.decisions, recipe, task)
        if steps is not None and steps != found:
            raise AssayError(
                f"--steps {steps} and --decisions {self.decisions} (which is --steps {found}) disagree. Use one option."
            )
        return found
