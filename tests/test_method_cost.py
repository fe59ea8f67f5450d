"""What a method costs, and which shared parts have fewer than two users: each of them has a stated reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REASONS = {
    "Categorical": "the discrete half of `Distribution`, the default head of a policy; users name it alone",
    "Gaussian": "the continuous half of `Distribution`; the error about infinite bounds tells users to take it",
    "ChatJudge": "what --judge puts in the place of the judge of arenarl and think-rm",
    "CostValues": "the annotation that `CostCritic` declares, and with it every recipe of `recipes.constrained`",
    "EndAtCost": "early termination for any recipe with costs and whole episodes; safe-rl-review explains it",
    "Imagine": "any rollout in a learned model, docs/offline.md: users put it around the rollout of their recipe",
    "Dynamics": "as above: the model",
    "DynamicsLikelihood": "as above: what it is fitted by",
    "Ends": "what users' own methods need of their data, beside `Successes`; uni-o4 has learnt ends since",
    "StandardisedInGroup": "a combination of rewards by hand, docs/design.md; alphaalign adds one to a sum",
    "FunctionJudge": "a user's own judge of pairs, docs/preferences.md, for arenarl and think-rm, whose claims ask it",
    "Hinted": "failed groups again with a hint, docs/design.md: the rollout that users put around their own hint",
    "Spliced": "answers finished after their right steps; int and mixed-cot-rl cut and continue by its functions",
    "Spans": "segments of n decisions for SegmentGae, of every length: the plainest rule, which ma-rlhf has",
    "ChatSteps": "--judge of every method whose steps are judged",
    "ByChat": "--judge of rgr-grpo and dr-sci, whose items are judged",
    "Capped": "a transform that `StepRewards` composes, as users do; clip-delta has it with the next one",
    "Telescoping": "as above",
    "Signed": "as above; text2grad has it",
    "Best": "which answers `Refined` writes again, of two kinds: rgr-grpo's",
    "Every": "as above, critique-grpo's",
    "TokenModule": "--body FILE.py:NAME of language tasks, docs/own.md: a user's own network",
    "Convolution": "the default body of tasks with images",
    "Factored": "the default head of tasks with several discrete choices",
    "ModuleBody": "--body FILE.py:NAME, docs/own.md: a user's own network",
    "Hindsight": "goals in hindsight for any off-policy recipe, docs/control.md: users put it in the place of Replay",
    "Prioritised": "replay by priority for any off-policy recipe, docs/control.md",
    "ByImportance": "as above: the weights that go with it",
    "Residual": "SimBa's body for any method on vectors: users put it in the place of Perceptron",
    "WithHistory": "past decisions for any method on vectors, docs/control.md: users put it around a body",
    "ValueSize": "what the scaled critic of td3-bc, prdc and a2pr divides by: that part composes it",
    "Completed": "actions for data without them, for any offline method: users put it around Logged",
    "InverseDynamics": "as above: the model that completes them",
    "Gru": "--body gru, docs/control.md",
    "Lstm": "--body lstm, docs/control.md",
    "SamplerWeight": "--correct-sampling, docs/scale.md: the last credit of any method with a ratio",
    "Narrowed": "temperature, top-k and top-p of a rollout, docs/one_gpu.md: users put it around any rollout",
}
"""Shared parts that no base recipe names and fewer than two methods use: who else uses each."""


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
    assert {name: lines for name, lines in tool.costs().items() if lines > tool.LARGEST} == {}


def test_lines_are_counted_where_they_stand(tool: ModuleType) -> None:
    costs = tool.costs()
    own = sum(len(tool.counted(module)) for module in tool.own_modules("cispo"))
    assert costs["cispo"] > own, "its trust region stands among the shared ones"
    assert ("assay.parts.credit.outcome", "OutcomeCredit") in tool.uses("grpo")


def test_base_recipes_are_shared_by_all_who_import_the_package(tool: ModuleType) -> None:
    """Only prerl-dsrl names a module of the bases by itself: all others reach it through `assay.recipes`."""
    assert "assay.recipes.imitation" in tool.reached(tool.own_modules("dpo"))
    own = sum(len(tool.counted(module)) for module in tool.own_modules("prerl-dsrl"))
    assert tool.costs()["prerl-dsrl"] == own


def test_parts_of_base_recipes_are_shared(tool: ModuleType) -> None:
    """sapo alone uses SoftGate, which its base in `recipes.group` names; ogsrl alone uses EndAtCost."""
    users, few = tool.users_of_parts(), tool.few_users()
    assert users["assay.parts.objectives.trust", "SoftGate"] == {"sapo"}
    assert "assay.parts.objectives.trust.SoftGate" not in few
    assert few["assay.parts.credit.cost.EndAtCost"] == "ogsrl"
