"""Three policies in a ratio: weights by hand, limits, and what is recorded of truncated and older samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import ALONE, Scene, logp_of
from assay.decoding.sampling_parameters import LOGP_SAMPLER, Narrowing
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.parts.credit.off_policy import OldPolicy, SamplerWeight
from assay.parts.objectives.ratio import ProductRatio
from assay.parts.rollouts.narrowed import Narrowed
from assay.runs.options import GatherOptions, LanguageOptions, RunOptions
from assay.runs.plan import make_plan
from tests.resume.cases import spoken


def sampled(log_weight: list[list[float]]) -> Experience:
    """Two rows whose old policy is `log_weight` above the one that sampled, with advantages of 1."""
    data = probes.sequences(num=2, group_size=2)
    mask = torch.zeros_like(data.mask)
    mask[:, 1:4] = True
    above = torch.zeros_like(data.logp)
    above[:, 1:4] = torch.tensor(log_weight, dtype=above.dtype)
    return replace(data, mask=mask).add({LOGP_SAMPLER: data.logp - above, "advantage": mask.to(data.logp.dtype)})


CASES = [
    (SamplerWeight(), [[1.0, 1.8, 0.6], [2.0, 1.0, 0.125]]),
    (SamplerWeight(low=0.5, masks=True), [[1.0, 1.8, 0.6], [0.0, 1.0, 0.0]]),
    (SamplerWeight(low=0.5), [[1.0, 1.8, 0.6], [2.0, 1.0, 0.5]]),
    (SamplerWeight(high=float("inf")), [[1.0, 1.8, 0.6], [4.0, 1.0, 0.125]]),
    (SamplerWeight(ProductRatio()), [[1.08, 1.08, 1.08], [0.5, 0.5, 0.5]]),
]


@pytest.mark.parametrize(("part", "expected"), CASES)
def test_weights_by_hand(part: SamplerWeight, expected: list[list[float]]) -> None:
    data = sampled(np.log([[1.0, 1.8, 0.6], [4.0, 1.0, 0.125]]).tolist())
    found = part(data, ALONE).column("advantage")
    torch.testing.assert_close(found[:, 1:4], torch.tensor(expected, dtype=found.dtype))
    assert not found[:, 0].any()
    assert not found[:, 4:].any()


def test_a_range_without_one_is_refused() -> None:
    with pytest.raises(AssayError, match="Use one that contains 1"):
        SamplerWeight(low=1.5)


def test_where_the_policy_itself_sampled_nothing_changes() -> None:
    plan = spoken("grpo")
    plain, task = plan.recipe, plan.task
    corrected = replace(plain, credit=(OldPolicy(), *plain.credit, SamplerWeight()))
    engine = Engine(plain, task.spec, 0, Placement())
    rows = Scene(task, engine, actor=engine.model("actor"), starts=np.arange(8), draw=Draw(0))
    with torch.no_grad():
        gathered = rows.reward(task.play(rows.actor, np.repeat(rows.starts, 4), np.tile(np.arange(4), 8), rows.draw,
                                         split=0, greedy=False))  # fmt: skip
    gathered = replace(gathered, logp=logp_of(engine.model("actor"), gathered) * gathered.mask)
    batches = []
    for recipe in (plain, corrected):
        batch = gathered
        for part in recipe.credit:
            batch = part(batch, rows)
        batches.append(batch)
    assert torch.equal(batches[0].column("advantage"), batches[1].column("advantage"))
    assert torch.equal(batches[0].logp, batches[1].logp)


def test_truncated_sampling_is_recorded_as_it_was_and_weighed() -> None:
    words = LanguageOptions(top_p=0.5, correct_sampling="token")
    plan = make_plan("grpo", "addition-1", steps=1, options=RunOptions(language=words))
    rollout = plan.recipe.rollout
    assert isinstance(rollout, Narrowed)
    assert rollout.narrowing == Narrowing(top_p=0.5)
    engine = Engine(plan.recipe, plan.task.spec, 0, Placement())
    actor = engine.model("actor")
    scene = Scene(plan.task, engine, actor=actor, starts=np.arange(4), draw=Draw(0))
    with torch.no_grad():
        rows = scene.reward(rollout(scene, rollout.init(scene)))
        batch = rows
        for part in plan.recipe.credit:
            batch = part(batch, scene)
    own = logp_of(actor, rows).detach()
    torch.testing.assert_close(batch.logp[rows.mask], own[rows.mask], rtol=0, atol=1e-5)
    gap = (batch.logp - batch.column(LOGP_SAMPLER))[rows.mask]
    assert float(gap.max()) <= 1e-5, "a truncated policy gives what it keeps more probability, never less"
    assert float(gap.min()) >= np.log(0.5) - 1e-5, "at most by the share that it keeps"
    assert float(gap.min()) < -0.1


def test_a_method_without_a_ratio_may_lag_if_its_samples_are_weighed() -> None:
    options = RunOptions(gathering=GatherOptions(gatherers=1, lag=1))
    with pytest.raises(AssayError, match="--correct-sampling token"):
        make_plan("rloo", "addition-1", steps=2, options=options)
    words = LanguageOptions(correct_sampling="answer-mask")
    plan = make_plan("rloo", "addition-1", steps=2, options=replace(options, language=words))
    assert plan.recipe.credit[-1] == SamplerWeight(ProductRatio(), low=0.5, masks=True)


@pytest.mark.parametrize("method", ["dqn", "sft"])
def test_methods_without_advantages_are_refused(method: str) -> None:
    task = "cartpole" if method == "dqn" else "addition-1"
    with pytest.raises(AssayError, match="--correct-sampling does not fit"):
        make_plan(method, task, steps=1, options=RunOptions(language=LanguageOptions(correct_sampling="token")))


def test_the_recipe_of_three_policies_has_the_loss_of_decoupled_ppo() -> None:
    """-w min(r A, clip(r) A) with w = pi_old / sampler and r = pi / pi_old, by hand."""
    data = probes.sequences(spread=0.5)
    plain = recipes.grpo()
    noise = torch.randn(data.logp.shape, generator=torch.Generator().manual_seed(2), dtype=data.logp.dtype)
    old = (data.logp + 0.3 * noise) * data.mask
    recipe = replace(plain, credit=(OldPolicy(), *plain.credit, SamplerWeight(high=float("inf"))))

    def loss(seen: probes.Seen) -> torch.Tensor:
        rows = seen.experience
        advantage = probes.by_hand.standardised(rows).unsqueeze(1) * (rows.logp - rows.column(LOGP_SAMPLER)).exp()
        ratio = (seen.logp() - rows.logp).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return -probes.by_hand.mean_of_sequences(gain, rows)

    told = replace(data, logp=old).add({LOGP_SAMPLER: data.logp})
    assert probes.formula_gap(recipe, told, loss) <= 1e-9
