"""Options of language tasks: what they change, what they refuse, and that ratios start at 1."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Experience, Need
from assay.engine.loop import Loop
from assay.parts.aggregations import FixedLength
from assay.parts.credit.shaping import KlInReward
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rollouts.narrowed import Narrowed
from assay.runs.language import long_pairs_note
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import Plan, make_plan, plan_of
from assay.runs.run import execute

SMALL = {"actor.width": 16, "actor.layers": 1, "actor.heads": 1}


def planned(method: str, task: str = "sorting-3", **given: Any) -> Plan:
    """Returns the plan of a small run with these options of language tasks."""
    steps, model, settings = given.pop("steps", None), given.pop("model", None), given.pop("settings", {})
    settings = settings if model else SMALL | settings
    options = RunOptions(language=LanguageOptions(**given))
    return make_plan(method, task, steps=steps, settings=settings, warmup=0, model=model, options=options)


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [{"prompt": f"after {k} comes", "answer": str(k + 1)} for k in range(50)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "sums.jsonl")


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    rows = [{"prompt": f"after {k} comes", "chosen": str(k + 1), "rejected": "no"} for k in range(50)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "pairs.jsonl")


def test_long_pairs_get_a_word_before_compute(tmp_path: Path, pairs: str) -> None:
    rows = [{"prompt": f"{k}", "chosen": "a" * 1500, "rejected": "b"} for k in range(50)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = planned("dpo", str(tmp_path / "long.jsonl"), steps=1, prompts=2)
    note = long_pairs_note(plan.task, plan.recipe)
    assert f"up to {plan.task.spec.horizon:,} tokens" in note
    assert plan.task.spec.horizon > 1500
    assert "every step reads 4 texts" in note
    short = planned("dpo", pairs)
    assert long_pairs_note(short.task, short.recipe) == ""


@pytest.mark.parametrize("options", [{"temperature": 0.6}, {"top_p": 0.7}, {"temperature": 1.5, "top_p": 0.8}, {}])
@pytest.mark.parametrize("method", ["grpo", "rloo", "ppo"])
def test_ratios_are_one_on_the_first_update(method: str, options: dict[str, float]) -> None:
    """The recorded log-probabilities are those of the policy that is trained, whatever its sampling parameters."""
    plan = planned(method, prompts=4, group_size=4, **options)
    loop = Loop(plan.recipe, plan.task, seed=0, num_steps=2)
    scored, fresh = [], []
    update = loop.engine.update_together

    def watched(stages: Any, batch: Any) -> Any:
        if not scored:
            scored.append(loop.actor.score(batch, frozenset({Need.LOGP})).logp)
            fresh.append(batch)
        return update(stages, batch)

    loop.engine.update_together = watched  # type: ignore[method-assign]
    step = loop.step()
    assert not [alarm for alarm in step.alarms if alarm.stop]
    mask = fresh[0].mask
    assert int(mask.sum()) > 0
    ratio = (scored[0] - fresh[0].logp)[mask].exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-4, rtol=0)


def test_the_temperature_is_that_of_the_samples() -> None:
    """At a low temperature the sampled policy is less random, by the entropy of the tempered policy itself."""
    entropies = []
    for temperature in (0.2, 1.0):
        plan = planned("grpo", temperature=temperature)
        actor = Loop(plan.recipe, plan.task, seed=0, num_steps=1).actor
        with torch.no_grad():
            actor.output.weight *= 30
            fresh = plan.task.play(actor, *starts(64), split=0, greedy=False)
            found = actor.score(fresh, frozenset({Need.LOGP, Need.ENTROPY}))
        torch.testing.assert_close(found.logp[fresh.mask], fresh.logp[fresh.mask], atol=1e-4, rtol=0)
        entropies.append((float(-fresh.logp[fresh.mask].mean()), float(found.entropy[fresh.mask].mean())))
    assert entropies[0][0] < 0.6 * entropies[1][0]
    for sampled, exact in entropies:
        assert sampled == pytest.approx(exact, rel=0.15)


def starts(num: int) -> Any:
    import numpy as np

    from assay.core.record import Draw

    return np.arange(num), np.zeros(num, dtype=np.int64), Draw(3)


def test_sizes_are_those_of_the_rollout_or_of_the_batch(pairs: str) -> None:
    rollout = planned("grpo", group_size=3, prompts=5).recipe.rollout
    assert rollout is not None
    assert (vars(rollout)["group_size"], rollout.num_starts) == (3, 5)
    assert vars(planned("sft", prompts=7).recipe.source)["batch"] == 7
    assert vars(planned("dpo", pairs, prompts=7).recipe.source)["batch"] == 7
    wrapped = planned("grpo", top_p=0.9, group_size=3, prompts=5).recipe.rollout
    assert isinstance(wrapped, Narrowed)
    assert wrapped.num_starts == 5


def test_kl_is_added_set_and_removed() -> None:
    added = planned("grpo", kl=0.02).recipe
    assert [type(part) for part in added.stages[0].regularizers] == [KlToReference]
    assert vars(added.stages[0].regularizers[0])["coefficient"] == 0.02
    assert "reference" in added.copies
    salu = planned("salu", kl=0.3).recipe
    found = [part for stage in salu.stages for part in stage.regularizers if isinstance(part, KlToReference)]
    assert [part.coefficient for part in found] == [0.3]
    rewarded = planned("kl-bayes", kl=0.3).recipe
    assert [part.coefficient for part in rewarded.credit if isinstance(part, KlInReward)] == [0.3]
    without = planned("kl-bayes", kl=0.0).recipe
    assert not any(isinstance(part, KlInReward) for part in without.credit)
    assert "reference" not in without.copies
    assert planned("grpo", kl=0.0).recipe == planned("grpo").recipe


def answers(*lengths: int) -> Experience:
    """Returns one answer of each length, with log-probability -0.5 and advantage 0.7 at every decision."""
    there = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    number = there.double()
    last = torch.arange(max(lengths)) == torch.tensor(lengths).unsqueeze(1) - 1
    return Experience(
        context={"state": torch.zeros_like(number, dtype=torch.long)},
        action=torch.zeros_like(number, dtype=torch.long),
        mask=there,
        logp=-0.5 * number,
        reward=0.0 * number,
        terminal=last,
        truncated=torch.zeros_like(there),
        group=torch.zeros(len(lengths), dtype=torch.long),
        extra={"advantage": 0.7 * number},
    )


@pytest.mark.parametrize("method", ["grpo", "rloo", "reinforce", "dr-grpo", "ppo"])
@pytest.mark.parametrize("lengths", [(4, 4), (32, 32), (4, 32)], ids=str)
def test_a_nat_of_kl_weighs_as_an_advantage_of_the_coefficient_at_every_length(
    method: str, lengths: tuple[int, ...]
) -> None:
    recipe, data = planned(method, kl=0.05).recipe, answers(*lengths)
    stage = recipe.stages[0]
    penalties = tuple(part for part in stage.regularizers if isinstance(part, KlToReference))
    policy = replace(recipe, credit=(), stages=(replace(stage, regularizers=()),))
    penalty = replace(recipe, credit=(), stages=(replace(stage, objective=(), regularizers=penalties),))
    pushed = probes.slopes(policy, data, data.logp, logp_ref=data.logp - 0.3)
    pulled = probes.slopes(penalty, data, data.logp, logp_ref=data.logp - 0.3)
    # d k3 / d logp = 1 - ref / pi; the policy's slope is minus the advantage.
    expected = 0.05 * (1.0 - math.exp(-0.3)) / -0.7
    torch.testing.assert_close((pulled / pushed)[data.mask], torch.full_like(pushed[data.mask], expected))


def test_the_constant_of_dr_grpo_is_the_limit_of_an_answer() -> None:
    def divisors(**given: Any) -> list[Any]:
        plan = planned("dr-grpo", **given)
        loops = [Loop(recipe, plan.task, seed=0, num_steps=1) for recipe in (plan.recipe, recipes.dr_grpo())]
        return [vars(vars(loop.recipe.stages[0].objective[0])["aggregate"])["length"] for loop in loops]

    assert divisors(max_tokens=48) == [48, 48]
    assert divisors() == [planned("grpo").task.max_decisions] * 2  # type: ignore[attr-defined]
    assert divisors(max_tokens=48, settings={"length": 64})[0] == 64
    with pytest.raises(AssayError, match="no run filled it in"):
        FixedLength().weigh(answers(2))
    with pytest.raises(AssayError, match="length is -1"):
        FixedLength(-1)


def test_a_run_with_an_added_kl_logs_it_and_resumes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"kl": 0.5, "prompts": 2, "group_size": 2, "temperature": 0.8, "top_p": 0.9}
    plan = planned("grpo", steps=2, **given)
    run = execute(plan, tmp_path / "run")
    first = next(row["kl_to_reference"] for row in run.curves if "kl_to_reference" in row)
    assert first == pytest.approx(0.0, abs=1e-6)
    assert plan_of(tmp_path / "run").config()["fingerprint"] == plan.config()["fingerprint"]


def test_epochs_are_passes_over_the_training_rows(file: str, pairs: str) -> None:
    plan = planned("sft", file, epochs=3.0, prompts=4)
    number = plan.task.num_training  # type: ignore[attr-defined]
    assert 40 <= number < 50
    assert plan.steps == -(-3 * number // 4)
    assert planned("sft", file, epochs=3.0, prompts=4, steps=plan.steps).steps == plan.steps
    assert planned("dpo", pairs, epochs=1.0, prompts=number).steps in (1, 2)
    with pytest.raises(AssayError, match=r"--steps is 5, but --epochs 3 is \d+ steps"):
        planned("sft", file, epochs=3.0, prompts=4, steps=5)
    with pytest.raises(AssayError, match="draws fresh prompts"):
        planned("sft", epochs=1.0)


def test_the_limit_of_answers_is_kept(file: str) -> None:
    plan = planned("grpo", max_tokens=9)
    fresh = plan.task.play(Loop(plan.recipe, plan.task, seed=0, num_steps=1).actor, *starts(32), split=0, greedy=False)
    assert int(fresh.mask.sum(1).max()) == 9, "an untrained policy goes on to the limit, and not beyond"
    with pytest.raises(
        AssayError, match=r"--max-tokens is 2, but a completion to train on has 3 tokens \(.*line 1[0-9]"
    ):
        planned("sft", file, max_tokens=2)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("sft", {"temperature": 0.5}, r"--temperature does not fit 'sft': it samples no .*It has --prompts \(now 64\)"),
        ("sft", {"top_p": 0.5}, "--top-p does not fit 'sft'"),
        ("sft", {"kl": 0.5}, "--kl does not fit 'sft'"),
        ("dpo", {"kl": 0.5}, "PreferencePair holds it near the reference"),
        ("grpo", {"lora_rank": 4}, "--lora-rank needs a pretrained model"),
        ("grpo", {"system": "Be brief."}, "--system is put in by a model's chat template, but there is no --model"),
        ("grpo", {"in_order": True}, "--in-order is for files"),
        ("grpo", {"max_tokens": 0}, "--max-tokens is 0. Use at least 1"),
        ("grpo", {"top_p": 0.0}, "--top-p is 0.0"),
        ("grpo", {"kl": -1.0}, "--kl is -1.0"),
        ("grpo", {"temperature": 0.0}, "temperature is 0.0"),
        ("grpo", {"epochs": -1.0}, "--epochs is -1.0"),
        ("grpo", {"system": " "}, "--system is empty"),
        ("grpo", {"group_size": 1}, "rollout.group_size is 1"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        planned(method, **given)


def test_pairs_have_no_groups(pairs: str) -> None:
    with pytest.raises(AssayError, match=r"--group-size does not fit 'dpo': it samples no answers. It has --prompts"):
        planned("dpo", pairs, group_size=4)


def test_control_tasks_have_no_limit_of_answers() -> None:
    with pytest.raises(AssayError, match="--max-tokens is for language tasks; 'cartpole' has no prompts"):
        make_plan("ppo", "cartpole", options=RunOptions(language=LanguageOptions(max_tokens=5)))


def test_defaults_change_nothing() -> None:
    plan = planned("grpo")
    assert plan.config() == replace(plan, options=RunOptions()).config()
    assert make_plan("grpo", "sorting-3", settings=SMALL, warmup=0).config() == plan.config()
