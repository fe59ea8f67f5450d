"""Off-policy evaluation: do its estimates rank 20 policies as their true returns do?

    python -m benchmarks.ope --out benchmarks/ope.json          continues where the file ends

One SAC agent on pendulum, seed 0, 700 steps, is evaluated every 20 steps; the policies are 20 of its snapshots with
different scores, evenly spaced by the rank of the score. Data are made with the log-probabilities of their actions:

    mixed    10 episodes of 200 decisions of each of five policies of these, evenly spaced by score
    medium   50 episodes of the snapshot that is half way to the last score (with --data medium)

Truth: 100 episodes of each policy on other starts, sampled actions, discount 0.99. Every estimator (`assay evaluate
--ope`) has its default settings. The rank correlation is Spearman's; its 95 % interval is bootstrapped over policies.
Regret is what the policy chosen by the estimates lacks of the best, as a share of the range of true returns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay import recipes
from assay.core.record import Draw, Progress
from assay.core.slots import Task
from assay.datasets import ope
from assay.datasets.agents import Agent, Trained, gathering, played, trained
from assay.datasets.dataset import Dataset, join_datasets
from assay.runs import catalogue

POLICIES, BEHAVIOURS, DISCOUNT, RESAMPLES = 20, 5, 0.99, 2_000
FULL, TOY = (700, 35, 50, 100, ope.Fqe()), (4, 2, 5, 4, ope.Fqe(updates=20))
"""Steps of the agent, its evaluations, episodes of data and of truth, and how values are fitted."""


def spread_by_score(scores: dict[int, float], num: int) -> list[int]:
    """Returns the steps of `num` evaluations of different scores, evenly spaced by rank, lowest first."""
    first = {score: step for step, score in sorted(scores.items(), reverse=True)}
    ordered = [first[score] for score in sorted(first)]
    places = np.unique(np.linspace(0, len(ordered) - 1, num).round().astype(int))
    return [ordered[place] for place in places]


def snapshot(found: Trained, step: int) -> Any:
    """Returns the policy of a step, in place: the next call changes it."""
    found.policy.load_state_dict(found.weights[step])
    return gathering(found.recipe, found.policy, Progress(step, found.num_steps))


def recorded(found: Trained, task: Task, steps: Sequence[int], episodes: int) -> Dataset:
    """Returns episodes of these snapshots, equally many of each."""
    parts = [played(task, snapshot(found, step), episodes // len(steps), step, {}) for step in steps]
    return join_datasets(parts, {"policies": list(steps)})


@torch.no_grad()
def true_return(policy: Any, task: Task, episodes: int) -> tuple[float, float]:
    """Returns the mean discounted return of held-out starts and its standard error."""
    starts = np.arange(episodes, dtype=np.int64)
    one = task.play(policy, starts, np.zeros_like(starts), Draw(0, (64,)), split=1, greedy=False)
    reward = (one.reward * one.mask).double().numpy()
    total = reward @ DISCOUNT ** np.arange(reward.shape[1])
    return float(total.mean()), float(total.std(ddof=1) / len(total) ** 0.5)


def estimates(policy: Any, data: Dataset, task: Task, settings: ope.Fqe) -> dict[str, dict[str, float]]:
    """Returns all estimates of one policy; the values are fitted once."""
    values = ope.Values(data, task.spec, policy, settings, DISCOUNT, seed=0)
    found = {
        "fqe": ope.fitted(values),
        "dr": ope.doubly_robust(values, ope.weights(policy, data, task.spec)),
        "wis": ope.weighted(policy, data, task.spec, DISCOUNT, seed=0),
    }
    return {name: vars(one) for name, one in found.items()}


# ---------------------------------------------------------------------------------------------------- summary
def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the correlation of ranks; equal numbers share the mean of their ranks."""

    def ranks(values: np.ndarray) -> np.ndarray:
        return np.asarray((values[:, None] > values).sum(1) + ((values[:, None] == values).sum(1) - 1) / 2)

    one, other = ranks(first), ranks(second)
    return float(np.corrcoef(one, other)[0, 1]) if one.std() > 0 and other.std() > 0 else 0.0


def summary(truth: np.ndarray, estimate: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Returns the rank correlation with its interval, the regret of the chosen policy and the mean absolute error."""
    draw, num = np.random.default_rng(seed), len(truth)
    rows = draw.integers(0, num, (RESAMPLES, num))
    low, high = np.quantile([spearman(truth[each], estimate[each]) for each in rows], (0.025, 0.975))
    regret = (truth.max() - truth[estimate.argmax()]) / ((truth.max() - truth.min()) or 1.0)
    error = float(np.abs(estimate - truth).mean())
    told = {"low": float(low), "high": float(high), "regret": float(regret), "error": error}
    return {"correlation": spearman(truth, estimate)} | told


def table(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the summary of each dataset and estimator that all policies have."""
    found: dict[str, dict[str, Any]] = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        truth = np.array([row["truth"] for row in mine])
        for name in ope.ESTIMATORS:
            values = np.array([row["estimates"][name]["value"] for row in mine])
            carrying = float(np.median([row["estimates"][name]["effective"] for row in mine]))
            found[f"{data} {name}"] = {"policies": len(mine), **summary(truth, values), "effective": carrying}
    return found


# ---------------------------------------------------------------------------------------------------- command
def keep(out: Path, steps: int, rows: list[dict[str, Any]]) -> None:
    """Writes all estimates so far, with their table."""
    out.write_text(json.dumps({"agent_steps": steps, "rows": rows, "table": table(rows)}, indent=1) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    """Estimates what is not in the file yet, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--data", default="mixed", help="datasets, separated by commas")
    parser.add_argument("--toy", action="store_true", help="a few seconds of it")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    steps, evaluations, episodes, num_true, settings = TOY if given.toy else FULL
    task, rows = catalogue.find_task("pendulum"), list[dict[str, Any]]()
    if given.out.exists():
        rows = json.loads(given.out.read_text())["rows"]
    found = trained(Agent(recipes.sac, steps, 0, evaluations), task)
    policies = spread_by_score(found.scores, POLICIES)
    places = np.linspace(0, len(policies) - 1, min(BEHAVIOURS, len(policies))).astype(int)
    for name in given.data.split(","):
        behaviours = [policies[place] for place in places] if name == "mixed" else [found.half_way]
        data = recorded(found, task, behaviours, episodes)
        for step in policies:
            if any(row["data"] == name and row["step"] == step for row in rows):
                continue
            policy = snapshot(found, step)
            truth, error = true_return(policy, task, num_true)
            told = {"data": name, "hash": data.hash, "behaviours": behaviours, "step": step}
            told |= {"score": found.scores[step], "truth": truth, "truth_error": error}
            rows.append(told | {"estimates": estimates(policy, data, task, settings)})
            keep(given.out, steps, rows)
            values = {key: round(one["value"], 1) for key, one in rows[-1]["estimates"].items()}
            print(name, step, round(truth, 1), values, flush=True)
    print(json.dumps(table(rows), indent=1))


if __name__ == "__main__":
    main()
