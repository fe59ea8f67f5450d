"""The commands on a trained policy: `assay evaluate` and `assay export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from assay.core.errors import AssayError
from assay.core.spaces import Vocabulary
from assay.core.store import write_text
from assay.engine.dcp import export_weights
from assay.models.exported import export_policy
from assay.report.card import model_card
from assay.runs.agents import CONFIG, write_agent
from assay.runs.config import read_config
from assay.runs.evaluate import evaluated
from assay.runs.folder import PICTURE, README
from assay.runs.options.group import parsed_group
from assay.runs.options.scoring import RebuiltOptions, ScoringOptions
from assay.runs.plan import Plan
from assay.runs.run import load
from assay.runs.user_code.known_runs import trust


def evaluate(options: argparse.Namespace) -> int:
    """`assay evaluate`."""
    asked, rebuilt = parsed_group(ScoringOptions, vars(options)), parsed_group(RebuiltOptions, vars(options))
    if options.trust_code:
        trust(options.folder)
    found = evaluated(
        options.folder, asked, rebuilt, {}, task=asked.task_, accept_changed_code=options.accept_changed_code
    )
    print(json.dumps(found.facts()) if options.json else "\n".join(found.lines()))
    return 0


def export_agent(folder: Path, target: Path, which: str | None, plan: Plan) -> None:
    """Writes the folder of an agent with its model card."""
    found = write_agent(folder, target, which)
    card = model_card(plan, found, read_config(target / CONFIG), target.name, (target / PICTURE).is_file())
    write_text(target / README, card)


def export(options: argparse.Namespace) -> int:
    """`assay export`."""
    from assay.models.pretrained.transformers import export as write

    allowed = {"accept_changed_code": options.accept_changed_code, "trust_code": options.trust_code}
    policy, plan, step = load(options.folder, options.checkpoint, **allowed)
    if options.dcp and options.merge:
        raise AssayError("--dcp writes the weights of a run as they are, and --merge changes them. Remove one of them.")
    if options.dcp:
        export_weights(policy, options.target)
    elif isinstance(plan.task.spec.action, Vocabulary):
        write(policy, plan.recipe.actor, options.target, merge=options.merge)
    elif options.merge:
        raise AssayError("--merge merges the LoRA adapter of a language model; a control policy has none. Remove it.")
    elif options.target.suffix:
        export_policy(policy, plan.task.spec, options.target)
    else:
        export_agent(options.folder, options.target, options.checkpoint, plan)
    if options.json:
        print(json.dumps({"folder": str(options.folder), "step": step, "target": str(options.target)}))
    else:
        print(f"exported {plan.recipe.name} after {step} steps to {options.target}")
    return 0
