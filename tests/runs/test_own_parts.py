"""`--loss`, `--advantage` and `--body`: plain functions, parts and modules in the place of a method's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay import recipes
from assay.cli.main import main
from assay.core.errors import AssayError
from assay.models.bodies.module import ModuleBody
from assay.parts.credit.temporal import Gae
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, TABLE
from assay.runs.plan import make_plan, plan_of
from assay.runs.user_code.body import with_body
from assay.runs.user_code.functions import AdvantageFunction, LossFunction, with_advantage, with_loss

MINE = """
import torch
from torch import nn

def clipped(logp, logp_old, advantage, mask):
    ratio = (logp - logp_old).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return -(gain * mask).sum(), mask.sum()

def in_group(reward, group):
    found = torch.zeros_like(reward)
    for label in group.unique():
        mine = reward[group == label]
        found[group == label] = (mine - mine.mean()) / (mine.std() + 1e-4)
    return found

def raw(reward, group):
    return reward

class Wide(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh())

    def forward(self, observation):
        return self.net(observation)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def last(run: assay.Run, name: str) -> float:
    return float(run.curves[-1][name])


def test_a_loss_and_an_advantage_of_ones_own_train_as_the_formulas_do(mine: Path, tmp_path: Path) -> None:
    plain = assay.train("grpo", "bandit", steps=3, out=tmp_path / "plain")
    own = assay.train(
        "grpo", "bandit", steps=3, loss=f"{mine}:clipped", advantage=f"{mine}:in_group", out=tmp_path / "own"
    )
    assert last(own, "gradient_norm/policy") == pytest.approx(last(plain, "gradient_norm/policy"), rel=1e-4)
    assert own.after == plain.after
    assert isinstance(own.recipe.stages[0].objective[0], LossFunction)
    assert own.recipe.stages[0].regularizers == plain.recipe.stages[0].regularizers
    assert last(assay.train("grpo", "bandit", steps=3, advantage=f"{mine}:raw", out=tmp_path / "raw"), "reward") > 0


def test_changed_code_of_a_loss_is_refused(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "grpo", "--task", "bandit", "--steps", "1", "--loss", f"{mine}:clipped", "--json"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert str(mine) in plan_of(tmp_path / "run").code
    mine.write_text(MINE.replace("0.8, 1.2", "0.9, 1.1"))
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "own code has changed" in capsys.readouterr().err


def test_losses_and_advantages_are_compared_as_functions(tmp_path: Path) -> None:
    def plain(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return -(logp * advantage * mask).sum()

    found = assay.compare(["grpo", "rloo"], "bandit", loss=plain, seeds=1, steps=1, out=tmp_path / "out")
    assert not found.failures
    shared = assay.train("reinforce", "bandit", loss=plain, steps=1, out=tmp_path / "run")
    assert plan_of(shared.folder).options.own.loss == "python:plain"


def test_credits_that_a_critic_reads_stay_before_an_own_advantage(mine: Path) -> None:
    ppo = with_advantage(recipes.ppo(CONTROL), f"{mine}:raw")
    assert [type(part) for part in ppo.credit] == [Gae, AdvantageFunction]
    assert [type(part) for part in with_advantage(recipes.grpo(LANGUAGE), f"{mine}:raw").credit] == [AdvantageFunction]
    ppo.check()


def test_a_function_counts_what_it_returns() -> None:
    from assay.claims.laws.cases import experiences

    batch = next(iter(experiences())).batch.add({})
    batch = batch.add({"advantage": torch.ones_like(batch.logp)})
    halved = LossFunction(lambda logp, advantage, mask: ((logp * mask).sum(), mask.sum() / 2))
    assert float(halved.count(batch)) == float(batch.mask.sum()) / 2
    assert float(LossFunction(lambda logp, mask: logp * mask).count(batch)) == float(batch.mask.sum())


@pytest.mark.parametrize(
    ("change", "base", "name", "match"),
    [
        (with_loss, recipes.dqn(CONTROL), "clipped", "--loss takes the place of the objective.*'dqn' has none"),
        (with_advantage, recipes.dqn(CONTROL), "raw", "--advantage takes the place of the credit.*'dqn' has none"),
        (with_loss, recipes.grpo(LANGUAGE), "", "is a file. Name the function"),
        (with_loss, recipes.grpo(LANGUAGE), "torch", "neither a function nor a part of the slot 'objective'"),
        (with_body, recipes.grpo(TABLE), "Wide", "--body takes the place of a network on vectors"),
        (with_body, recipes.ppo(CONTROL), "nothing", "has no 'nothing'"),
    ],
)
def test_what_does_not_fit_is_refused(mine: Path, change: Any, base: assay.Recipe, name: str, match: str) -> None:
    with pytest.raises(AssayError, match=match):
        change(base, f"{mine}:{name}" if name else str(mine))


def test_a_loss_that_is_a_mean_is_refused_at_the_first_update(tmp_path: Path) -> None:
    """Divided by the decisions once more it would train with a rate that is smaller by their number."""

    def average(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return -(logp * (1 + advantage) * mask).mean()

    with pytest.raises(AssayError, match="average returned a mean: twice the rows give the same"):
        assay.train("grpo", "bandit", loss=average, steps=1, eval_episodes=2, out=tmp_path / "run")
    whole = assay.train("grpo", "bandit", loss=lambda logp, advantage, mask: -(logp * advantage * mask).sum(), steps=1,
                        eval_episodes=2, out=tmp_path / "whole")  # fmt: skip
    assert whole.curves[-1]["step"] == 1


def test_unknown_arguments_of_a_loss_are_named_before_compute(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loss(logp, config):\n    return logp\n")
    with pytest.raises(AssayError, match="it takes config without a default"):
        make_plan("grpo", "bandit", options=assay.runs.options.run_options({"loss": f"{tmp_path / 'mine.py'}:loss"}))


def test_a_part_and_a_class_of_parts_are_losses(tmp_path: Path) -> None:
    part = replace(recipes.grpo(LANGUAGE).stages[0].objective[0])
    run = assay.train("grpo", "bandit", loss=part, steps=1, out=tmp_path / "run")
    assert run.recipe.stages[0].objective == (part,)
    made = assay.train("grpo", "bandit", loss=type(part), steps=1, out=tmp_path / "made")
    assert made.recipe.stages[0].objective == (type(part)(),)


# ---------------------------------------------------------------------------------------------------- bodies
class Features(nn.Module):
    """A network of one's own."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh())

    def forward(self, observation: Tensor) -> Tensor:
        """Returns 8 features."""
        found: Tensor = self.net(observation)
        return found


def test_a_module_is_the_body_of_actor_and_critic(tmp_path: Path) -> None:
    run = assay.train("ppo", "cartpole", body=Features, steps=1, eval_episodes=2, out=tmp_path / "run")
    assert all(any(isinstance(one, Features) for one in run.models[name].modules()) for name in ("actor", "value"))
    assert isinstance(run.recipe.critics["value"].body, ModuleBody)
    assert plan_of(run.folder).options.own.body.endswith("test_own_parts:Features")
    assert run.policy.predict(torch.zeros(4).numpy()) in (0, 1)
    assert assay.load(run.folder)[2] == 1


def test_a_module_of_a_file_reads_actions_too(mine: Path) -> None:
    sac = with_body(recipes.sac(CONTINUOUS), f"{mine}:Wide")
    assert not [name for name in ("actor", *sac.critics) if "Perceptron" in repr(sac.critics.get(name, sac.actor))]
    plan = make_plan("sac", "pendulum", options=assay.runs.options.run_options({"body": f"{mine}:Wide"}))
    critic = plan.recipe.critics["q"].build(plan.task.spec)
    assert any(256 in one.shape for one in critic.parameters())


@dataclass(frozen=True)
class Wrong:
    """A function that makes a wrong module."""

    result: Any

    def __call__(self, shape: tuple[int, ...]) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (Wrong(3), "made a int. It must be an nn.Module"),
        (Wrong(nn.Linear(9, 2)), r"cannot read observations \[rows, 4\]"),
        (Wrong(nn.Flatten(0)), "Return features"),
        (Features((4,)), "is a module that is made already"),
    ],
)
def test_a_wrong_module_is_refused_before_compute(make: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=match):
        assay.train("ppo", "cartpole", body=make, steps=1, out=tmp_path / "run")
