"""What a method costs, and which shared parts have fewer than two users: each of them has a stated reason."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path
from types import ModuleType

import pytest

VOCABULARY = "a word of its slot that users swap in by hand; no method here needs it"
BASE = "a starting recipe of assay.recipes is made of it"
ARGUMENT = "a word of its slot beside others of the same kind; one method is shown with it so far"
REASONS = {
    "FixedLength": BASE, "Informative": BASE, "ConservativeChoices": BASE, "MaximizeQ": BASE,
    "SequenceRatio": BASE, "SoftGate": BASE, "StopGradientWeight": BASE, "GaussianNoise": BASE,
    "DemonstratedDecisions": BASE, "BradleyTerry": BASE,
    "PromptMean": VOCABULARY, "CostValues": VOCABULARY, "EndAtCost": VOCABULARY, "NoBaseline": VOCABULARY,
    "OverlongPenalty": VOCABULARY, "RewardToGo": VOCABULARY, "ProductRatio": VOCABULARY,
    "Narrowed": VOCABULARY, "ByLabel": ARGUMENT, "Gated": VOCABULARY, "StandardisedInGroup": ARGUMENT,
    "ByVerdict": ARGUMENT, "Says": ARGUMENT, "Confidence": ARGUMENT, "CosineLength": ARGUMENT,
    "Floored": ARGUMENT, "Jittered": ARGUMENT, "NoisyChannel": ARGUMENT, "Rates": ARGUMENT,
    "ModelJudge": VOCABULARY,
    "Hinted": VOCABULARY, "CostCritic": BASE,
    "ActionValues": ARGUMENT, "CriticAdvantage": ARGUMENT, "AlignAdvantages": ARGUMENT, "LeaveOneOutToGo": ARGUMENT,
    "PlayerDeviation": ARGUMENT, "PlayerMean": ARGUMENT, "Ahead": ARGUMENT, "CostToGo": ARGUMENT,
    "Unclipped": ARGUMENT, "KlToBehaviour": ARGUMENT, "KlWhereMarked": ARGUMENT,
    "Rewarded": ARGUMENT,
    "Categorical": VOCABULARY, "Gaussian": VOCABULARY, "TextScore": BASE,
}  # fmt: skip
"""Shared parts that fewer than two methods use, and why they are shared."""

OVER_BUDGET = {"zero-shot-rl": "528 lines, to be cut: networks of waves, measures and goals of its own"}
"""Methods that cost more than the budget of the largest one."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "tools" / "method_cost.py"
    spec = importlib.util.spec_from_file_location("method_cost", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shared_parts_have_two_users_or_a_reason(tool: ModuleType) -> None:
    found = {name.rsplit(".", 1)[1]: user for name, user in tool.few_users().items()}
    unexplained = {name: user for name, user in found.items() if name not in REASONS}
    assert not unexplained, "move each into the folder of its user, or give a reason"
    assert sorted(set(REASONS) - set(found)) == [], "these have two users or are gone; take them off the list"


def test_methods_keep_their_budget(tool: ModuleType) -> None:
    costs = tool.costs()
    assert statistics.median(costs.values()) <= tool.MEDIAN
    over = {name: lines for name, lines in costs.items() if lines > tool.LARGEST}
    assert set(over) == set(OVER_BUDGET), over


def test_lines_are_counted_where_they_stand(tool: ModuleType) -> None:
    costs = tool.costs()
    own = sum(len(tool.counted(module)) for module in tool.folder_modules("cql"))
    assert costs["cql"] > own, "its penalty for discrete actions stands among the shared critics"
    assert ("assay.parts.credit.outcome", "OutcomeCredit") in tool.uses("grpo")
