"""The model card of an exported agent: what it is, what it scored, what its method's claims say, how to load it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from assay.claims.headline import abouts, headline_entries
from assay.claims.records import FOLDER, read_record
from assay.core.store import Checkpoint
from assay.engine import evaluation
from assay.runs.folder import PICTURE, cell, results, table
from assay.runs.method_index import entries, stem_of
from assay.runs.plan import Plan
from assay.runs.ranges import range_of
from assay.statistics.intervals import measured_change

USE = """```python
import assay

agent = assay.load("{target}").policy
action = agent.predict(observation)
```

```bash
assay evaluate {target}
```"""


def model_card(plan: Plan, checkpoint: Checkpoint, config: dict[str, Any], target: str, has_picture: bool) -> str:
    """Returns the text of README.md; its head is what the hub reads. A step that was not evaluated has no score."""
    name, task = plan.recipe.name, plan.task.name
    scores = {step: np.asarray(found) for step, found in checkpoint.tree["scores"].items()}
    after = scores.get(str(checkpoint.step))
    sections = {
        "Use": [USE.format(target=target)],
        "Held-out score": scored(plan, scores.get("0"), after) + ["", f"![learning curve]({PICTURE})"] * has_picture,
        "Method": method_lines(str(plan.method)),
        "Training": table(("setting", "value"), trained(plan, checkpoint, config)),
    }
    parts = ["\n".join(head(name, task, after)), f"# {cell(name)} on {cell(task)}"]
    parts += ["\n".join([f"## {title}", "", *lines]) for title, lines in sections.items()]
    return "\n\n".join(parts) + "\n"


def head(name: str, task: str, after: np.ndarray | None) -> Iterator[str]:
    """Yields the lines of YAML at the top; texts are quoted as JSON, which YAML reads."""
    yield from ("---", "library_name: assay", "tags:", "- reinforcement-learning")
    yield from (f"- {json.dumps(one)}" for one in (name, task))
    if after is not None:
        score = {"type": "mean_reward", "name": "mean_reward", "value": f"{after.mean():.2f} +/- {after.std():.2f}"}
        kind = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": kind, "dataset": {"name": task, "type": task}, "metrics": [score]}
        yield "model-index: " + json.dumps([{"name": f"{name} on {task}", "results": [result]}])
    yield "---"


def scored(plan: Plan, before: np.ndarray | None, after: np.ndarray | None) -> list[str]:
    """Returns the table of scores with their intervals."""
    if before is None or after is None:
        return ["This step was not evaluated."]
    same = evaluation.labels(plan.task, len(after))
    change = measured_change("held-out score", before, after, paired=True, labels=same, bounds=range_of(plan.task))
    return results([change])


def method_lines(method: str) -> list[str]:
    """Returns what a built-in method changes and what came of the claims of its headline; another one's name."""
    key = method.partition(":")[0]
    if key not in entries():
        return [f"{cell(method)}, a method of its author's own."]
    record = read_record(FOLDER / f"{stem_of(key)}.json")
    found = headline_entries(key, record) if "claims" in record and abouts(key) else []
    told = [f"- {cell(one['name'])}: **{one['verdict']}**" for one in found]
    claims = ["", "What it promises, measured on other runs:", "", *told] if told else []
    return [f"`{key}`: {cell(entries()[key].summary)} `assay show {key}` has formula and departures.", *claims]


def trained(plan: Plan, checkpoint: Checkpoint, config: dict[str, Any]) -> list[tuple[str, object]]:
    """Returns what decided the weights."""
    told = {"method": plan.method, "task": plan.address or plan.task.name, "preset": plan.preset, "seed": plan.seed}
    told |= {"steps": checkpoint.step, "steps planned": plan.last_step}
    told |= {f"--set {name}": value for name, value in plan.settings.items()}
    told |= {f"data {one.path}": one.hash for one in plan.data}
    versions = ", ".join(f"{name} {version}" for name, version in config.get("versions", {}).items())
    return [*told.items(), ("versions", versions)]
