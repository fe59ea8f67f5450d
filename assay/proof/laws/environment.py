"""Rules of Gymnasium environments, as findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.core.errors import AssayError
from assay.proof.laws.laws import Finding, raised
from assay.tasks.adapters import gymnasium

RULES = {
    "make": "it can be made",
    "spaces": "its spaces are Discrete or Box",
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
}
FIRST = ("make", "spaces")
"""Without these nothing else can be tried."""


def check_environment(make: Callable[[], Any], num_steps: int = 200) -> list[Finding]:
    """Checks the rules of an environment that `make` builds; needs the extra `control`."""
    try:
        sentences = gymnasium.check_environment(make, num_steps)
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        return [Finding("environment", False, f"it {raised(error)}; subclass gymnasium.Env", "seed 0, random actions")]
    broken = {sentence.partition(":")[0]: sentence.partition(": ")[2] for sentence in sentences}
    tried = [rule for rule in RULES if rule in FIRST] if broken.keys() & set(FIRST) else list(RULES)
    where = f"seed 0, {num_steps} random actions"
    found = [
        Finding(
            rule, rule not in broken, f"{RULES[rule]}; here {broken[rule]}" if rule in broken else RULES[rule], where
        )
        for rule in tried
    ]
    return found + [Finding(rule, False, text, where) for rule, text in broken.items() if rule not in RULES]
