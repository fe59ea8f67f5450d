"""Rules of Gymnasium environments, as findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from assay.claims.laws.laws import Broke, Finding, Law, judged, raised, runs
from assay.core.errors import AssayError
from assay.tasks.adapters import gymnasium
from assay.tasks.adapters.gymnasium_checks import allowed_action, shown_of
from assay.tasks.adapters.gymnasium_masks import find_reader
from assay.tasks.adapters.gymnasium_spaces import port_of

RULES = {
    "make": "it can be made",
    "spaces": "its spaces can be read: Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple",
    "reset": "reset returns (observation, info)",
    "step": "step returns five values",
    "observation": "observations lie in their space",
    "reward": "rewards are finite numbers",
    "terminated": "terminated is a bool",
    "truncated": "truncated is a bool",
    "ending": "an end is terminated or truncated",
    "info": "info is a dict",
    "cost": "costs are finite numbers",
    "step after the end": "a step after the end does not raise",
    "length": "episodes end, or have a time limit",
    "determinism": "equal seeds and actions give equal episodes",
    "time limit": "a time limit is reported as truncated, or shows in the observation",
}
FIRST = ("make", "spaces")
"""Without these nothing else can be tried."""
EPISODES, LONGEST = 6, 1000
"""Episodes of random actions whose lengths are compared, and the longest that is played."""


def check_environment(make: Callable[[], Any], num_steps: int = 200) -> list[Finding]:
    """Checks the rules of an environment that `make` builds; needs the extra `control`. A class that rightly breaks a
    rule says so as a part does, `breaks = {"time limit": "a game of five rounds"}`.
    """
    try:
        sentences = gymnasium.check_environment(make, num_steps)
        limit = hidden_limit(make) if not sentences else ""
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        return [Finding("environment", False, f"it {raised(error)}; subclass gymnasium.Env", "seed 0, random actions")]
    broken = {sentence.partition(":")[0]: sentence.partition(": ")[2] for sentence in sentences}
    broken |= {"time limit": limit} if limit else {}
    tried = [rule for rule in RULES if rule in FIRST] if broken.keys() & set(FIRST) else list(RULES)
    where, excused = f"seed 0, {num_steps} random actions", getattr(make, "breaks", {})
    rules = {rule: RULES[rule] for rule in tried} | {rule: "" for rule in broken if rule not in RULES}
    breaks = {rule: Broke(text, where, raised=False) for rule, text in broken.items()}
    return [judged(Law(rule, says, runs.test), breaks.get(rule), excused) for rule, says in rules.items()]


def hidden_limit(make: Callable[[], Any]) -> str:
    """Returns what is wrong if every episode ends as terminated after the same number of decisions, whatever seed and
    actions, and no number of the last observation tells it from the others: a value of that state would be learnt as
    if it ended there by itself. Episodes of one decision are never wrong.
    """
    environment = make()
    space, choices = environment.observation_space, environment.action_space
    before: list[np.ndarray] = []
    last: list[np.ndarray] = []
    lengths: set[int] = set()
    for seed in range(EPISODES):
        answer = environment.reset(seed=seed)
        port = port_of(space, choices, "environment", masks_from=find_reader(environment, *answer))
        seen, generator = [numbers(space, answer[0])], np.random.default_rng(seed)
        choices.seed(seed)
        while not any(answer[2:4]) and len(seen) <= LONGEST:
            answer = environment.step(allowed_action(environment, port, answer, generator))
            seen.append(numbers(space, answer[0]))
        lengths.add(len(seen) - 1)
        if not answer[2] or len(lengths) > 1 or lengths == {1}:
            return ""
        before, last = [*before, *seen[:-1]], [*last, seen[-1]]
    early, late = np.stack(before), np.stack(last)
    is_apart = (late.min(0) > early.max(0)) | (late.max(0) < early.min(0))
    is_mark = (late == late[0]).all(0) & ~(early == late[0]).any(0)
    if bool((is_apart | is_mark).any()):
        return ""
    return (
        f"{EPISODES} episodes of random actions all end as terminated after {lengths.pop()} decisions, and the last "
        "observation looks like the others; return truncated=True there, or observe the time"
    )


def numbers(space: Any, observation: Any) -> np.ndarray:
    """Returns an observation as a vector."""
    return np.concatenate([np.reshape(np.asarray(one, np.float64), -1) for one in shown_of(space, observation)])
