"""Trees of segments: how they hang together, and credit against the recursion."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from assay.core.record import Experience
from assay.methods.spo import Chain, SegmentCredit, Tree, Uncertain, WithCredit
from assay.ops import groups
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.rollouts.episodes import Episodes
from tests.methods.rollouts import STARTS, TASKS, decisions, gathered


def random_tree(seed: int, widths: tuple[int, ...]) -> Experience:
    """A tree whose rows are edges with random rewards on leaves, in shuffled order."""
    generator = torch.Generator().manual_seed(seed)
    parent, branch, reward, level, first, next_id = [], [], [], [0], 0, 1
    for depth, width in enumerate(widths):
        below = []
        for node in level:
            for _ in range(width):
                leaf = depth + 1 == len(widths) or float(torch.rand((), generator=generator)) < 0.2
                parent.append(node)
                branch.append(next_id)
                reward.append(float(torch.randn((), generator=generator)) if leaf else 0.0)
                below += [] if leaf else [next_id]
                next_id += 1
        level = below
    order = torch.randperm(len(parent), generator=generator)
    num = len(parent)
    ones = torch.ones(num, 2, dtype=torch.bool)
    worth = torch.stack([torch.zeros(num), torch.tensor(reward)], 1).double()
    record = Experience(
        {"state": torch.zeros(num, 2, dtype=torch.long)}, torch.zeros(num, 2, dtype=torch.long), ones,
        torch.full((num, 2), -0.7).double(), worth, ~ones, ~ones, group=torch.zeros(num, dtype=torch.long),
        parent=torch.tensor(parent), branch=torch.tensor(branch),
    )  # fmt: skip
    assert first == 0
    return record.rows(order)


def slow_value(tree: Experience, node: int) -> float:
    """The mean over the rows that hang from a node, by recursion."""
    rows = (tree.parent == node).nonzero().squeeze(1).tolist()
    return sum(slow_worth(tree, row) for row in rows) / len(rows) if rows else 0.0


def slow_worth(tree: Experience, row: int) -> float:
    return float(tree.reward[row].sum()) + slow_value(tree, int(tree.branch[row]))


@pytest.mark.parametrize("widths", [(3,), (2, 3), (3, 2, 2)])
def test_segment_credit_is_the_recursion_and_telescopes(widths: tuple[int, ...]) -> None:
    for seed in range(5):
        tree = random_tree(seed, widths)
        advantage = SegmentCredit()(tree).column("advantage")
        for row in range(len(tree)):
            expected = slow_worth(tree, row) - slow_value(tree, int(tree.parent[row]))
            assert float(advantage[row, 0]) == pytest.approx(expected, abs=1e-12)
        siblings = groups.total(advantage[:, 0], groups.groups_of(tree.parent, len(tree), tree.mask.device))
        assert float(siblings.abs().max()) < 1e-12
        above = {int(b): (int(p), float(a)) for b, p, a in zip(tree.branch, tree.parent, advantage[:, 0], strict=True)}
        for row in range(len(tree)):
            if int(tree.branch[row]) not in tree.parent.tolist():
                node, total = int(tree.branch[row]), 0.0
                while node:
                    node, step = above[node]
                    total += step
                assert total == pytest.approx(float(tree.reward[row].sum()) - slow_value(tree, 0), abs=1e-12)


def test_a_tree_of_depth_one_has_outcome_minus_group_mean() -> None:
    tree = random_tree(1, (5,))
    theirs = OutcomeCredit(GroupMean())(replace(tree, parent=None, branch=None)).column("advantage")
    assert torch.allclose(SegmentCredit()(tree).column("advantage"), theirs, atol=1e-15)


def test_lost_branches_enter_no_mean() -> None:
    tree = random_tree(2, (2, 2))
    inner = [row for row in range(len(tree)) if int(tree.branch[row]) in tree.parent.tolist()]
    below = tree.parent == tree.branch[inner[0]]
    lost = replace(tree, mask=tree.mask & ~below.unsqueeze(1))
    advantage = SegmentCredit()(lost).column("advantage")
    assert advantage[below].abs().max() == 0.0
    assert advantage[inner[0]].abs().max() == 0.0
    sibling = (tree.parent == tree.parent[inner[0]]) & (tree.branch != tree.branch[inner[0]])
    assert advantage[sibling].abs().max() == 0.0  # it is alone now
    empty = SegmentCredit()(replace(tree, mask=torch.zeros_like(tree.mask))).column("advantage")
    assert not empty.any()


@pytest.mark.parametrize("name", ["tokens", "choices", "numbered"])
def test_a_tree_hangs_together(name: str) -> None:
    task = TASKS[name]
    fresh = gathered(Tree(branching=(3, 2), segment=2), task)
    roots = fresh.parent == fresh.column("start") * 10
    assert int(roots.sum()) == 9
    assert len(fresh.branch.unique()) == len(fresh)
    for row in (~roots).nonzero().squeeze(1).tolist():
        above = int((fresh.branch == fresh.parent[row]).nonzero())
        assert decisions(fresh, above) == fresh.action[row][fresh.column("answer")[row]].tolist()[:2]
        assert not fresh.terminal[above].any()
        assert not fresh.truncated[above].any()
    assert (fresh.mask[roots].sum(1) <= 2).all()


def test_one_level_is_a_group() -> None:
    task = TASKS["tokens"]
    fresh = task.judge(gathered(Tree(branching=(4,)), task), 0)
    assert fresh.mask.any(1).all()
    assert fresh.terminal.any(1).all()
    assert torch.bincount(fresh.group).max() == 4


@pytest.mark.parametrize("name", ["tokens", "choices", "numbered"])
def test_chain_credit_adds_up_to_outcome_minus_value_of_the_start(name: str) -> None:
    task = TASKS[name]
    fresh = task.judge(gathered(Chain(group_size=2, probes=3, most=4), task), 0)
    fresh = replace(fresh, reward=(fresh.reward + 0.01 * fresh.action * fresh.mask) * fresh.mask)
    advantage = SegmentCredit()(fresh).column("advantage")
    probe = fresh.column("probe")
    assert not advantage[probe].any()
    whole = gathered(Episodes(group_size=2), task)
    for start, sample in itertools.product(STARTS.tolist(), range(2)):
        rows = ~probe & (fresh.group == start) & (fresh.column("sample") == sample)
        at_start = probe & (fresh.parent == fresh.parent[rows].min())
        assert int(at_start.sum()) == 3
        total = sum(float(advantage[row][fresh.mask[row]][0]) for row in rows.nonzero().squeeze(1))
        gain = float(fresh.reward[rows].sum()) - float(fresh.reward[at_start].sum(1).mean())
        assert total == pytest.approx(gain, abs=1e-4)
        one = int(((whole.group == start) & (whole.column("sample") == sample)).nonzero())
        pieces = [decisions(fresh, row) for row in rows.nonzero().squeeze(1).tolist()]
        assert list(itertools.chain.from_iterable(pieces)) == decisions(whole, one)


def test_masks_after_credit() -> None:
    tree = SegmentCredit()(random_tree(3, (3, 2)))
    tree = replace(tree, logp=torch.where(torch.arange(len(tree)).unsqueeze(1) % 2 == 0, -0.05, -0.5) * tree.mask)
    kept = Uncertain(0.9)(tree).mask
    assert torch.equal(kept, tree.mask & (tree.logp.exp() < 0.9))
    assert torch.equal(Uncertain(2.0)(tree).mask, tree.mask)
    assert torch.equal(WithCredit()(tree).mask, tree.column("advantage") != 0)
