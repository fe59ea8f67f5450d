"""`assay check FILE.py`: what is recognised, what is found, and that hostile code cannot hide."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from assay.claims.laws.file import Report, check_file, check_file_apart, read_reports, write_reports
from assay.claims.laws.function import check_advantage, check_loss
from assay.core.errors import AssayError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return path


def reports(folder: Path, text: str) -> dict[str, Report]:
    return {report.name: report for report in check_file(written(folder, text))}


def broken(report: Report) -> set[str]:
    return {finding.law for finding in report.broken}


# ---------------------------------------------------------------------------------------------------------- functions
LOSSES = """
    import torch

    def clipped_loss(logp, logp_old, advantage, mask, clip=0.2):
        ratio = (logp - logp_old).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        return (loss * mask).sum(), mask.sum()

    def plain_loss(log_probs, advantages, response_mask):
        return -log_probs * advantages * response_mask

    def mean_loss(logp, advantage, mask):
        return -(logp * advantage * mask).sum() / mask.sum().clamp(min=1)

    def careless_loss(logp, advantage):
        return -(logp * advantage).mean()

    def unmasked_loss(logp, advantage, mask):
        return -(logp * advantage).sum()

    def backwards_loss(logp, advantage, mask):
        return (logp * advantage * mask).sum()

    def configured_loss(logp, advantage, config, mask=None):
        return -(logp * advantage).sum()
"""


def test_losses(tmp_path: Path) -> None:
    found = reports(tmp_path, LOSSES)
    assert {report.kind for report in found.values()} == {"loss function"}
    assert found["clipped_loss"].held
    assert found["plain_loss"].held
    assert broken(found["mean_loss"]) == {"sums", "micro_batches"}
    assert "returns a mean" in str(found["mean_loss"].broken)
    assert {"sums", "micro_batches", "padding", "masked"} <= broken(found["careless_loss"])
    assert broken(found["unmasked_loss"]) == {"masked", "empty"}
    assert broken(found["backwards_loss"]) == {"sign"}
    assert broken(found["configured_loss"]) == {"arguments"}
    assert "config" in found["configured_loss"].findings[0].detail


@pytest.mark.parametrize("value", [None, 1.0, torch.zeros(3), torch.zeros((), dtype=torch.long), "x"], ids=repr)
def test_a_loss_that_returns_no_loss(value: object) -> None:
    (found,) = check_loss(lambda logp, advantage, mask: value)
    assert not found.held
    assert "returned" in found.detail


def test_a_loss_that_ignores_its_log_probabilities() -> None:
    found = {one.law: one for one in check_loss(lambda logp, advantage, mask: (advantage * mask).sum())}
    assert "no decision gets a gradient" in found["sign"].detail


ADVANTAGES = """
    import torch

    def advantage(reward, group):
        means = {label: reward[group == label].mean() for label in group.unique().tolist()}
        return reward - torch.stack([means[label] for label in group.tolist()])

    def scaled_advantage(rewards, groups):
        result = torch.zeros_like(rewards)
        for label in groups.unique():
            mine = rewards[groups == label]
            result[groups == label] = (mine - mine.mean()) / mine.std(correction=0)
        return result

    def spread_advantage(reward, group, mask):
        return reward.sum(1, keepdim=True).expand_as(reward)

    def short_advantage(reward, group):
        return reward[:1]
"""


def test_advantages(tmp_path: Path) -> None:
    found = reports(tmp_path, ADVANTAGES)
    assert {report.kind for report in found.values()} == {"advantage function"}
    assert found["advantage"].held
    assert {"finite"} <= broken(found["scaled_advantage"]) <= {"finite", "masked", "dtype"}
    assert "masked" in broken(found["spread_advantage"])
    assert "give one number for each" in found["short_advantage"].broken[0].detail


NETWORKS = """
    from torch import nn

    class Wide(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), nn.Tanh())

        def forward(self, observation):
            return self.net(observation)

    class Mixing(Wide):
        def forward(self, observation):
            found = self.net(observation)
            return found - found.mean(0)

    class Helper(nn.Module):
        def __init__(self, width):
            super().__init__()

    class Tokens(nn.Module):
        def __init__(self, vocab_size):
            super().__init__()
            self.embedding, self.cell = nn.Embedding(vocab_size, 8), nn.GRU(8, 8, batch_first=True)

        def forward(self, tokens):
            return self.cell(self.embedding(tokens))[0]

    class Peeking(Tokens):
        def forward(self, tokens):
            return self.embedding(tokens).flip(1)
"""


def test_networks(tmp_path: Path) -> None:
    found = reports(tmp_path, NETWORKS)
    assert {report.kind for report in found.values()} == {"network"}
    assert {name: report.held for name, report in found.items()} == {
        "Wide": True, "Mixing": False, "Tokens": True, "Peeking": False
    }  # fmt: skip
    assert "rows_alone" in broken(found["Mixing"])


def test_an_advantage_may_declare_that_it_is_centred() -> None:
    def raw(reward: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        return reward

    assert all(one.held for one in check_advantage(raw))
    raw.centred = True  # type: ignore[attr-defined]
    assert [one.law for one in check_advantage(raw) if not one.held] == ["centred", "tied"]


def test_rewards(tmp_path: Path) -> None:
    found = reports(
        tmp_path,
        """
        def reward(rows):
            return [float(row["completion"] == row["answer"]) for row in rows]

        def length(completions):
            return [float(len(completion)) for completion in completions]

        def number_reward(rows):
            return [float(row["completion"]) for row in rows]

        def one_reward(rows):
            return [1.0]

        def helper(x):
            return x
        """,
    )
    assert set(found) == {"reward", "length", "number_reward", "one_reward"}
    assert found["reward"].held
    assert found["length"].held
    assert "could not convert" in found["number_reward"].broken[0].detail
    assert "unexpected completions" in found["number_reward"].broken[0].input
    assert "1 values for 4 rows" in found["one_reward"].broken[0].detail


# -------------------------------------------------------------------------------------------------------------- parts
PARTS = """
    from dataclasses import dataclass
    from typing import ClassVar

    import torch
    from assay.parts.credit.temporal import Gae
    from assay.parts.aggregations import TokenMean
    from assay.core.record import Experience, Loss, Need, State
    from assay.core.slots import Credit, Explore, Objective, Scene

    mine = Gae(discount=0.5)

    @dataclass(frozen=True)
    class Outcome(Credit):
        centred: ClassVar[bool] = True
        needs: ClassVar[frozenset] = frozenset()

        def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
            total = experience.reward.sum(1, keepdim=True)
            return experience.add({"advantage": total.expand_as(experience.reward)})

    @dataclass(frozen=True)
    class Reinforce(Objective):
        scale: float
        needs: ClassVar[frozenset] = frozenset({Need.LOGP})
        together: ClassVar[None] = None
        first_order: ClassVar[bool] = False
        examples: ClassVar[tuple] = ({"scale": 1.0},)

        def count(self, batch):
            return batch.mask.sum()

        def __call__(self, batch, view):
            loss = -view.scored.logp * batch.column("advantage").detach() * batch.mask * self.scale
            return Loss(loss.sum(), self.count(batch))

    class Needy(Explore):
        def __init__(self, size):
            self.size = size

        def wrap(self, actor, scene, state):
            return actor
"""


def test_parts(tmp_path: Path) -> None:
    found = reports(tmp_path, PARTS)
    assert {name: report.kind for name, report in found.items()} == {
        "mine": "credit", "Outcome": "credit", "Reinforce": "objective", "Needy": "explore",
    }  # fmt: skip
    assert found["mine"].held
    assert {"centred", "masked"} <= broken(found["Outcome"])
    assert found["Reinforce"].held
    assert broken(found["Needy"]) == {"runs"}


def test_a_recipe_and_a_method_give_their_parts(tmp_path: Path) -> None:
    found = reports(
        tmp_path,
        """
        from dataclasses import replace
        from assay import recipes

        def recipe():
            return replace(recipes.ppo(), name="mine")
        """,
    )
    kinds = {report.kind for report in found.values()}
    assert {"actor", "critic", "rollout", "credit", "curriculum", "source", "objective", "critic_loss"} <= kinds
    assert found["recipe(): Gae"].held


def test_a_part_with_a_schedule_is_checked_at_its_start(tmp_path: Path) -> None:
    found = reports(
        tmp_path,
        """
        from assay.parts.regularizers.divergence import EntropyBonus
        from assay.core.schedules import Linear

        bonus = EntropyBonus(Linear(0.1, 0.0))
        """,
    )
    assert found["bonus"].held


def test_an_environment(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    found = reports(
        tmp_path,
        """
        import gymnasium
        import numpy as np

        class Walk(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.steps = 0
                return np.zeros(2, np.float32), {}

            def step(self, action):
                self.steps += 1
                return np.zeros(3, np.float32), 0.0, self.steps == 5, False, {}
        """,
    )
    assert found["Walk"].kind == "environment"
    assert "observation" in broken(found["Walk"])


# ------------------------------------------------------------------------------------------------------- hostile code
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "nothing in .* is recognised"),
        ("def (:", "line 1"),
        ("raise RuntimeError('not today')", "raises RuntimeError: not today"),
        ("import sys; sys.exit(2)", "raises SystemExit"),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AssayError, match=words):
        check_file(written(tmp_path, text))


def test_nothing_recognised_lists_what_is_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"(?s)a reward: .*a loss: .*an advantage: .*Gymnasium.*def reward\(rows\):"):
        check_file(written(tmp_path, "import torch"))


@pytest.mark.parametrize("name", ["missing.py", "notes.txt"])
def test_no_file_or_no_python(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(AssayError, match=name):
        check_file(tmp_path / name)


def test_exceptions_and_exits_become_findings_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = reports(
        tmp_path,
        """
        import sys
        import torch

        def raising_reward(rows):
            raise ValueError("no reward today")

        def leaving_reward(rows):
            sys.exit("goodbye")

        def meddling_reward(rows):
            torch.set_default_dtype(torch.float64)
            return [0.0] * len(rows)

        def sound_reward(rows):
            return [0.0] * len(rows)
        """,
    )
    assert "no reward today" in found["raising_reward"].broken[0].detail
    assert "SystemExit" in found["leaving_reward"].broken[0].detail
    assert found["sound_reward"].held
    assert torch.get_default_dtype() == torch.float32


def test_a_file_may_import_its_neighbour_and_leaves_no_trace(tmp_path: Path) -> None:
    written(tmp_path, "def value(row):\n    return 1.0\n", "neighbour_of_mine.py")
    path = written(
        tmp_path, "from neighbour_of_mine import value\ndef reward(rows):\n    return [value(r) for r in rows]\n"
    )
    before = list(sys.path)
    assert check_file(path)[0].held
    assert sys.path == before


def test_lines_say_what_broke_on_what_input(tmp_path: Path) -> None:
    (report,) = check_file(written(tmp_path, "def reward(rows):\n    return [1.0]\n"))
    lines = report.lines()
    assert lines[0] == "reward (reward function): 0 of 1 laws held"
    assert lines[1].startswith("  broke numbers: ")
    assert lines[2] == "    on four completions, two of them the same"


def test_a_reward_outside_of_its_declared_range_breaks_a_law(tmp_path: Path) -> None:
    text = "def sign(rows):\n    return [1.0 if r['completion'] == r['answer'] else -1.0 for r in rows]\n"
    (report,) = check_file(written(tmp_path, f"{text}sign.range = (-1, 1)\n"))
    assert report.held
    (report,) = check_file(written(tmp_path, f"{text}sign.range = (0, 1)\n", "narrow.py"))
    assert "outside of its range 0 to 1" in " ".join(report.lines())


# -------------------------------------------------------------------------------------------------------------- apart
def test_apart_gives_the_same_reports_and_a_process_that_ends_is_a_finding(tmp_path: Path) -> None:
    sound = 'print("hello")\ndef reward(rows):\n    print(rows)\n    return [1.0]\n'
    ends = "import os\ndef the_ending_reward(rows):\n    os._exit(7)\n"
    *found, ended = check_file_apart(written(tmp_path, sound + ends))
    assert found == check_file(written(tmp_path, sound))
    assert ended.name == "the_ending_reward"
    assert "SystemExit(7)" in ended.broken[0].detail


def test_an_endless_loop_is_a_finding_after_the_time_limit(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def reward(rows):
            return [0.0] * len(rows)

        def endless_reward(rows):
            while True:
                pass
        """,
    )
    sound, endless = check_file_apart(path, seconds=2.0)
    assert sound.held
    assert endless.name == "endless_reward"
    assert "still running after 2 s" in endless.broken[0].detail


def test_apart_errors_are_the_same_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = written(tmp_path, "x = 1"), tmp_path / "reports.jsonl"
    monkeypatch.setattr(sys, "argv", ["-c", str(path), str(out)])
    write_reports()  # what the process does
    with pytest.raises(AssayError, match="is recognised"):
        read_reports(path, [json.loads(line) for line in out.read_text().splitlines()], "ended")
    with pytest.raises(AssayError, match=r"cannot be loaded: it raises SystemExit.*line 1"):
        check_file_apart(written(tmp_path, "import os; os._exit(3)"))
