"""Temperature, top-k, top-p and min-p: against an enumeration, on every path, under the guard, and as a setting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import assay
from assay import recipes
from assay.claims.laws import check_wrapper
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, Progress
from assay.core.slots import Scene
from assay.decoding import kernels
from assay.decoding.sampling_parameters import NarrowedActor, Narrowing
from assay.engine.evaluation import scores
from assay.engine.guards.correctness import Moment, SampledEqualsTrained
from assay.engine.loop import Loop
from assay.methods.delethink import Chunks
from assay.methods.prefixrl import FromPrefixes
from assay.methods.rl_plus import WithDemonstrations
from assay.methods.spo import Chain, Tree
from assay.methods.t_ppo import Windows
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.ops import distributions
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.narrowed import Narrowed
from assay.runs import catalogue
from assay.runs.progress import Mode
from tests.scenes import gathering

WAYS = [
    Narrowing(temperature=0.5),
    Narrowing(top_k=1),
    Narrowing(top_k=3),
    Narrowing(top_p=0.4),
    Narrowing(top_p=0.9),
    Narrowing(min_p=0.3),
    Narrowing(temperature=1.7, top_k=6, top_p=0.8, min_p=0.05),
    Narrowing(temperature=3.0, top_k=4, top_p=0.99),
]
LOGITS = [
    [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 2.5, 0.25],
    [1.0, 1.0, 1.0, 0.0, 0.0, 2.0, 2.0, -1.0],  # ties
    [0.0] * 8,  # all tied
    [-math.inf, 1.0, -math.inf, 0.5, 0.0, -0.5, -math.inf, -math.inf],  # forbidden
    [-math.inf] * 7 + [0.3],  # one left
    [-1e9, -1e9, 4.0, 3.0, 2.0, 1.0, 0.0, -1e9],
]


def enumerated(logits: list[float], how: Narrowing) -> list[float]:
    """Probabilities by the definition, one token after the other, in Python's own floats."""
    top = max(logits)
    weight = [math.exp((value - top) / how.temperature) for value in logits]
    stays = [how.top_k == 0 or sum(other > value for other in logits) < how.top_k for value in logits]
    left = sum(one for one, stay in zip(weight, stays, strict=True) if stay)
    above = [
        sum(one for one, other, stay in zip(weight, logits, stays, strict=True) if stay and other > value)
        for value in logits
    ]
    kept = [
        one if stay and mass < how.top_p * left and one >= how.min_p else 0.0
        for one, stay, mass in zip(weight, stays, above, strict=True)
    ]
    return [one / sum(kept) for one in kept]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_the_distribution_is_the_enumerated_one(how: Narrowing, dtype: torch.dtype) -> None:
    found = kernels.narrowed(torch.tensor(LOGITS, dtype=dtype), how).softmax(-1)
    expected = torch.tensor([enumerated(row, how) for row in LOGITS], dtype=dtype)
    assert torch.equal(found > 0, expected > 0), "the same tokens stay"
    torch.testing.assert_close(found, expected, atol=1e-6 if dtype == torch.float32 else 1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_no_removed_token_is_drawn_and_shares_are_right(how: Narrowing, dtype: torch.dtype) -> None:
    num = 2001
    grid = (torch.arange(num, dtype=dtype) + 0.5) / num
    edges = torch.tensor([0.0, 1.0 - torch.finfo(dtype).eps / 2], dtype=dtype)
    for row in LOGITS:
        logits = torch.tensor([row], dtype=dtype)
        prob = torch.tensor(enumerated(row, how), dtype=dtype)
        token, logp, model = kernels.draw_tokens(logits.expand(num + 2, -1), torch.cat([grid, edges]), how)
        assert bool((prob[token] > 0).all())
        torch.testing.assert_close(torch.bincount(token[:num], minlength=8).to(dtype) / num, prob, atol=1e-3, rtol=0)
        torch.testing.assert_close(logp, prob.log()[token], atol=1e-5, rtol=0)
        torch.testing.assert_close(model, logits.log_softmax(-1)[0, token], atol=1e-5, rtol=0)
        plain = distributions.categorical_sample(
            kernels.narrowed(logits, how).expand(num + 2, -1), torch.cat([grid, edges])
        )
        assert bool((prob[plain] > 0).all())


@pytest.mark.parametrize(
    ("how", "stay"),
    [
        (Narrowing(top_k=8), 8),
        (Narrowing(top_k=99), 8),
        (Narrowing(top_p=1e-300), 1),
        (Narrowing(min_p=1.0), 1),
        (Narrowing(temperature=1e-6), 1),
        (Narrowing(top_p=1.0 - 1e-16), 8),
    ],
    ids=str,
)
def test_limits(how: Narrowing, stay: int) -> None:
    for dtype in (torch.float64, torch.float32):
        kept = kernels.narrowed(torch.tensor(LOGITS[:1], dtype=dtype), how)
        assert int((kept.softmax(-1) > 0).sum()) == stay
        assert kept[0, 3] == 0, "the likeliest stays"


def test_nothing_asked_is_nothing_done() -> None:
    actor, logits = object(), torch.tensor(LOGITS[:4])
    assert Narrowing().wrap(actor) is actor
    uniform = torch.tensor([0.1, 0.4, 0.6, 0.9])
    token, logp = kernels.choose(logits, uniform)
    again = kernels.draw_tokens(logits, uniform, None)
    assert torch.equal(token, again[0])
    assert torch.equal(logp, again[1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": 1e6}, "temperature is 1000000.0"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 2.0}, "min_p is 2.0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        Narrowing(**settings)


# ----------------------------------------------------------------------------------------------------- rollouts
HOW = Narrowing(temperature=0.7, top_k=6, top_p=0.9, min_p=0.01)
ROLLOUTS: list[tuple[str, Any]] = [
    ("addition-1", Episodes(3, 4)),
    ("addition-1", WithDemonstrations(Episodes(3, 4))),
    ("addition-1", FromPrefixes(3, 4)),
    ("addition-1", Tree(3, (2, 2), 1)),
    ("addition-1", Chain(3, 2, probes=2)),
    ("addition-1", Windows(6, 1)),
    ("addition-1", Chunks(3, 2, chunk=2, carry=1)),
    ("twenty-questions", Episodes(2, 2)),
    ("prisoners-dilemma-tokens", Episodes(2, 2)),
    ("red-teaming", Episodes(4, 2)),
]


def small_actor(task: Any) -> Any:
    torch.manual_seed(0)
    return Policy(Transformer(width=32, layers=2, heads=2)).build(task.spec)


def gathered(name: str, rollout: Any) -> tuple[Any, Experience]:
    task = catalogue.find_task(name)
    actor, starts = small_actor(task), np.arange(rollout.num_starts)
    return actor, rollout(gathering(task, actor, starts, Draw(1)), rollout.init(Scene(task)))


def alarms(actor: Any, fresh: Experience) -> list[Any]:
    moment = Moment(recipes.grpo(), Progress(), actor, fresh, {})
    return SampledEqualsTrained().gathered(moment, {})


@pytest.mark.parametrize(("name", "gather"), ROLLOUTS, ids=lambda value: str(value))
def test_every_rollout_draws_narrowed_and_the_guard_knows(name: str, gather: Any) -> None:
    actor, fresh = gathered(name, Narrowed(gather, HOW))
    own = fresh.own()
    with torch.no_grad():
        scored = actor.score(own, frozenset({Need.LOGP, Need.LOGITS}))
    assert isinstance(scored.logits, Tensor)
    expected = kernels.narrowed(scored.logits[own.mask], HOW).log_softmax(-1)
    expected = expected.gather(1, own.action[own.mask].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(own.logp[own.mask], expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(own.column("logp_model")[own.mask], scored.logp[own.mask], atol=1e-4, rtol=0)
    assert not alarms(actor, fresh)
    wrong = fresh.add({"logp_model": fresh.column("logp_model") - 0.1 * fresh.mask})
    assert alarms(actor, wrong), "another gap is still found"
    assert alarms(actor, replace(fresh, extra={})), "a narrowing that nobody declared is found"


def test_without_a_narrowing_nothing_is_added() -> None:
    plain, same = (gathered("addition-1", rollout)[1] for rollout in (Episodes(3, 4), Narrowed(Episodes(3, 4))))
    assert sorted(plain.extra) == sorted(same.extra)
    assert torch.equal(plain.action, same.action)
    assert torch.equal(plain.logp, same.logp)


def test_a_task_without_tokens_is_refused() -> None:
    with pytest.raises(AssayError, match="task of tokens"):
        Narrowed(narrowing=HOW).init(Scene(catalogue.find_task("cartpole")))


# ----------------------------------------------------------------------------------------------------- recipes
def test_a_recipe_samples_and_is_evaluated_so() -> None:
    task = catalogue.find_task("sorting-3")
    small = Policy(Transformer(width=32, layers=2, heads=2))
    recipe = replace(recipes.grpo(), actor=small, rollout=Narrowed(Episodes(4, 4), HOW), wrapper=HOW)
    loop = Loop(recipe, task, seed=0, num_steps=2)
    step = loop.step()
    assert not step.alarms
    assert step.fresh is not None
    assert "logp_model" in step.fresh.extra
    assert isinstance(loop.policy, NarrowedActor)
    assert len(scores(loop.policy, task, num=8)) == 8


def test_as_a_wrapper_it_obeys_the_laws_and_refuses_torques() -> None:
    findings = check_wrapper(HOW)
    assert findings
    assert all(finding.held for finding in findings), findings
    with pytest.raises(AssayError, match="need token actors"):
        HOW.around({"actor": torch.nn.Linear(1, 1)})


def test_a_setting_of_a_recipe_is_found_by_its_path() -> None:
    recipe = replace(recipes.grpo(), rollout=Narrowed(), wrapper=Narrowing())
    changed = recipe.set("rollout.narrowing.top_p", 0.95).set("wrapper.temperature", 0.7)
    assert changed.rollout == Narrowed(narrowing=Narrowing(top_p=0.95))
    assert changed.wrapper == Narrowing(temperature=0.7)
    with pytest.raises(AssayError, match=r"top_p is 2\.0"):
        recipe.set("rollout.narrowing.top_p", 2.0)


def test_a_cold_policy_scores_as_the_greedy_one() -> None:
    task = catalogue.find_task("sorting-3")
    actor = small_actor(task)
    cold = scores(Narrowing(temperature=1e-4).wrap(actor), task, num=32)
    assert cold.tolist() == scores(actor, task, num=32, greedy=True).tolist()


def test_a_run_takes_both(tmp_path: Any) -> None:
    small = Policy(Transformer(width=32, layers=2, heads=2))
    recipe = replace(recipes.grpo(), actor=small, rollout=Narrowed(Episodes(4, 4), HOW), wrapper=HOW)
    run = assay.train(recipe, "sorting-3", steps=1, warmup=5, out=tmp_path, mode=Mode.SILENT)
    assert run.after.count == len(set(run.task.prompts_of(np.arange(256), 1))), "a prompt counts once"
