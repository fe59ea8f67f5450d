"""The sequential test by simulation: false alarms among equal arms, power and seeds used against the size of an effect.

    python -m benchmarks.sequential_power           one process, about six minutes; prints the tables of the docs
    python -m benchmarks.sequential_power quick     a tenth of the repetitions; with toy instead, two

Every experiment is replayed as a runner would: scores are revealed interim by interim to the arms that still need them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.statistics.intervals import difference_interval
from assay.statistics.sequential import Decision, SequentialTest, Verdict, decide

Sampler = Callable[[np.random.Generator, int], np.ndarray]

DISTRIBUTIONS: dict[str, Sampler] = {
    "normal": lambda generator, count: generator.normal(size=count),
    "log-normal": lambda generator, count: generator.lognormal(0.0, 1.0, size=count),
    "two modes": lambda generator, count: generator.normal(size=count) * 0.2 + 2.0 * (generator.random(count) < 0.3),
    "success of 10": lambda generator, count: generator.binomial(10, 0.8, size=count) / 10.0,
}
LOG_NORMAL = math.sqrt((math.e - 1.0) * math.e)
"""The standard deviation of the log-normal distribution above, 2.16."""
TEST = SequentialTest(size=5, interims=5, alpha=0.05, permutations=2000)


def seeded(repeat: int, *, beta: float = 0.0, safety: float = TEST.safety, signed_null: bool = False) -> SequentialTest:
    """The test with one of twelve sets of permutations."""
    return replace(TEST, seed=repeat % 12, beta=beta, safety=safety, signed_null=signed_null)


def measure(repeats: int = 2000) -> list[dict[str, Any]]:
    """One row for each situation."""
    return [*false_alarms(repeats), *mixed_arms(repeats), *powers(repeats // 2)]


def replayed(test: SequentialTest, arms: Sequence[np.ndarray]) -> tuple[Decision, float]:
    """The decision when scores come as they are asked for, and the mean number of scores an arm needed."""
    decision = decide(test, {str(arm): scores.tolist() for arm, scores in enumerate(arms)})
    used = dict.fromkeys(range(len(arms)), 0)
    for each in decision.comparisons:
        for arm in (int(each.first), int(each.second)):
            used[arm] = max(used[arm], each.interim * test.size)
    return decision, float(np.mean(list(used.values())))


def told_apart(decision: Decision, equal: Sequence[tuple[str, str]]) -> bool:
    """Whether one of these pairs was called larger or smaller."""
    return any(decision.verdict(*pair) in (Verdict.LARGER, Verdict.SMALLER) for pair in equal)


def false_alarms(repeats: int) -> list[dict[str, Any]]:
    """All arms alike: the share of experiments in which any pair is told apart, here and with the package's null."""
    rows = []
    for name, sampler in DISTRIBUTIONS.items():
        for count in (2, 3, 5):
            rows.append(alarm_rates(repeats, f"{count}, {name}", [sampler] * count))
    wide, wider, skewed = scaled("normal", 3.0), scaled("normal", 10.0), scaled("log-normal", 1.0, math.exp(0.5))
    narrow, level = DISTRIBUTIONS["normal"], scaled("log-normal", 1.0 / LOG_NORMAL, math.exp(0.5))
    rows.append(alarm_rates(repeats, "2, normal, spread 1 and 3", [narrow, wide]))
    rows.append(alarm_rates(repeats, "3, normal, spread 1, 1 and 3", [narrow, narrow, wide]))
    rows.append(alarm_rates(repeats, "2, normal, spread 1 and 10", [narrow, wider]))
    rows.append(alarm_rates(repeats, "2, log-normal and normal of equal spread", [level, narrow]))
    rows.append(alarm_rates(repeats, "2, log-normal and normal, spread 2.16 and 1", [skewed, narrow]))
    return rows


def scaled(name: str, scale: float, mean: float = 0.0) -> Sampler:
    """A distribution with its mean moved to 0 and stretched."""
    return lambda generator, count: scale * (DISTRIBUTIONS[name](generator, count) - mean)


def alarm_rates(repeats: int, name: str, samplers: Sequence[Sampler]) -> dict[str, Any]:
    """Family-wise error of the test, of its permutations alone (safety 0) and of the package's null, and the seeds that
    the first used; own numbers for each row.
    """
    names = [str(arm) for arm in range(len(samplers))]
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    alarms, alone, signed, seeds = [], [], [], []
    for repeat in range(repeats):
        generator = np.random.default_rng((1, repeat, *name.encode()))
        arms = [sampler(generator, TEST.size * TEST.interims) for sampler in samplers]
        decision, used = replayed(seeded(repeat), arms)
        alarms.append(told_apart(decision, pairs))
        seeds.append(used)
        alone.append(told_apart(replayed(seeded(repeat, safety=0.0), arms)[0], pairs))
        if len(samplers) <= 3:
            signed.append(told_apart(replayed(seeded(repeat, signed_null=True), arms)[0], pairs))
    seen = {"false alarms": share(alarms), "permutations alone": share(alone), "signed null": share(signed)}
    return {"equal arms": name} | seen | {"seeds an arm": f"{np.mean(seeds):.1f}"}


def mixed_arms(repeats: int) -> list[dict[str, Any]]:
    """Three arms of which the third is better: errors between the equal two must stay rare as well."""
    rows = []
    for effect in (1.0, 3.0):
        alarms, found = [], []
        for repeat in range(repeats):
            generator = np.random.default_rng((2, repeat))
            arms = [generator.normal(size=25) for _ in range(2)] + [generator.normal(size=25) + effect]
            decision, _ = replayed(seeded(repeat), arms)
            alarms.append(told_apart(decision, [("0", "1")]))
            found.append(all(decision.verdict("2", other) is Verdict.LARGER for other in ("0", "1")))
        rows.append({"two equal, one better by": effect, "false alarms": share(alarms), "both found": share(found)})
    return rows


def powers(repeats: int) -> list[dict[str, Any]]:
    """Two normal arms that differ by an effect in standard deviations; Welch's t on all 25 seeds beside it."""
    rows = []
    for effect in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0):
        columns: dict[str, list[float]] = {name: [] for name in ("found", "seeds", "early", "early seeds", "fixed")}
        for repeat in range(repeats):
            generator = np.random.default_rng((3, repeat))
            arms = [generator.normal(size=25), generator.normal(size=25) + effect]
            for beta, found, seeds in ((0.0, "found", "seeds"), (0.2, "early", "early seeds")):
                decision, used = replayed(seeded(repeat, beta=beta), arms)
                columns[found].append(told_apart(decision, [("0", "1")]))
                columns[seeds].append(used)
            change = difference_interval(arms[1], arms[0], paired=False)
            columns["fixed"].append(change.low > 0 or change.high < 0)
        rows.append(
            {
                "effect": effect,
                "told apart": share(columns["found"]),
                "seeds an arm": f"{np.mean(columns['seeds']):.1f}",
                "told apart, beta 0.2": share(columns["early"]),
                "seeds, beta 0.2": f"{np.mean(columns['early seeds']):.1f}",
                "t-test on 25": share(columns["fixed"]),
            }
        )
    return rows


def share(hits: Sequence[float]) -> str:
    """A share in percent with its standard error; empty where nothing was run."""
    if not hits:
        return ""
    mean = float(np.mean(hits))
    return f"{100 * mean:.1f} ± {100 * math.sqrt(mean * (1 - mean) / len(hits)):.1f} %"


def printed(rows: Sequence[dict[str, Any]]) -> None:
    """Markdown tables, a new one where the columns change."""
    columns: list[str] = []
    for row in rows:
        if list(row) != columns:
            columns = list(row)
            print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        print(f"| {' | '.join(str(value) for value in row.values())} |")


if __name__ == "__main__":
    printed(measure(2 if "toy" in sys.argv[1:] else 200 if "quick" in sys.argv[1:] else 2000))
