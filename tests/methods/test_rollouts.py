"""Rollouts that start inside, branch, stop early or forget: what they record, and the credit that belongs to them."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Need, Score
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.delethink.rollout import Chunks
from assay.methods.prefixrl.rollout import FromPrefixes
from assay.methods.spo.credit import SegmentCredit, Uncertain, WithCredit
from assay.methods.spo.rollout import Chain, Tree
from assay.methods.t_ppo.credit import ExtendedGae, WithoutTail
from assay.methods.t_ppo.rollout import Windows
from assay.methods.t_ppo.targets import Finished
from assay.ops import groups
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.credit.temporal import Gae
from assay.parts.rollouts.episodes import Episodes
from assay.playing.resumed import first_decisions
from assay.playing.text import with_outcomes
from assay.proof.laws.rollout import built, small_actor
from assay.proof.laws.state import saved_and_loaded, untouched
from assay.runs import catalogue
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.language.addition import addition
from assay.tasks.language.countdown import countdown
from assay.tasks.language.sorting import sorting
from assay.tasks.tabular.table import chain
from tests.scenes import gathering

DRAW = Draw(3, (0,))
TASKS = {"tokens": countdown(2), "choices": cartpole(), "torques": pendulum(), "numbered": chain(4, slip=0.2)}
STARTS = np.array([5, 1, 8])


def actor_of(task):
    return built(small_actor(task.spec), task.spec)


def gathered(part, task, starts=STARTS, state=None):
    state = part.init(Scene(task)) if state is None else state
    return part(gathering(task, actor_of(task), starts if part.num_starts else np.empty(0, np.int64), DRAW), state)


def decisions(experience: Experience, row: int) -> list:
    return experience.action[row][experience.mask[row]].tolist()


# ---------------------------------------------------------------------------------------------------- going on
@pytest.mark.parametrize("name", TASKS)
def test_going_on_from_nothing_is_playing(name: str) -> None:
    task, samples = TASKS[name], np.array([0, 2, 1])
    actor = actor_of(task)
    played = task.play(actor, STARTS, samples, DRAW, split=0, greedy=False)
    resumed = task.resume(actor, task.begin(STARTS, 0), samples, DRAW, split=0)
    for column in ("action", "mask", "logp", "reward", "terminal", "truncated", "group"):
        assert torch.equal(getattr(resumed, column), getattr(played, column)), column
    assert torch.equal(resumed.column("answer"), played.mask)


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_in_pieces_is_the_episode(name: str) -> None:
    task, samples = TASKS[name], np.array([0, 2, 1])
    actor = actor_of(task)
    whole = task.play(actor, STARTS, samples, DRAW, split=0, greedy=False)
    begun, pieces = task.begin(STARTS, 0), [[], [], []]
    for _ in range(task.spec.horizon):
        begun = task.resume(actor, begun, samples, DRAW, split=0, limit=3)
        for row in range(3):
            assert len(decisions(begun, row)) <= 3
            pieces[row] += decisions(begun, row)
        if (begun.column("answer").sum(1) == whole.mask.sum(1)).all():
            break
        if name != "tokens":
            begun = begun.rows(slice(0, 3))
    assert pieces == [decisions(whole, row) for row in range(3)]


def test_unfinished_rows_are_not_judged() -> None:
    task = addition(2)
    open_rows = task.resume(actor_of(task), task.begin(STARTS, 0), np.zeros(3, np.int64), DRAW, split=0, limit=1)
    judged = task.judge(open_rows, 0)
    ended = (open_rows.action == task.tokenizer.vocabulary.eos).any(1)
    assert judged.terminal.any(1).tolist() == ended.tolist()
    assert not judged.reward[~ended].any()
    assert not judged.column("policy_fault")[~ended].any()


def test_a_fault_in_one_chunk_takes_the_whole_episode_out() -> None:
    task = sorting(3)
    fresh = gathered(Chunks(chunk=2, carry=1, group_size=2), task)
    row = int(fresh.terminal.any(1).nonzero()[0])
    outcomes = [InfraFault("lost") if one == row else Score(0.0) for one in range(len(fresh))]
    masked = with_outcomes(fresh, outcomes).mask.any(1)
    assert torch.equal(masked, fresh.episode != fresh.episode[row])


# ---------------------------------------------------------------------------------------------------- prefixes
@pytest.mark.parametrize("name", TASKS)
def test_the_prefix_is_the_demonstrations_and_is_no_decision(name: str) -> None:
    task = TASKS[name]
    fresh = gathered(FromPrefixes(group_size=2, plain=0.0), task)
    shown = task.demonstrate(STARTS, 0)
    for row in range(len(fresh)):
        start, given = row // 2, int(fresh.column("prefix")[row])
        whole = fresh.column("answer")[row]
        told = fresh.action[row][whole]
        first = shown.action[start][shown.mask[start]][:given]
        assert torch.equal(told[:given], first)
        assert int(whole.sum()) - given == int(fresh.mask[row].sum())
        assert 0.4 * int(shown.mask[start].sum()) - 1 <= given <= 0.8 * int(shown.mask[start].sum())
    assert torch.equal(fresh.column("prefix")[0::2], fresh.column("prefix")[1::2])
    assert not fresh.logp[~fresh.mask].any()


def test_without_prefixes_it_is_episodes() -> None:
    task = TASKS["tokens"]
    ours, theirs = gathered(FromPrefixes(group_size=3, plain=1.0), task), gathered(Episodes(group_size=3), task)
    assert torch.equal(ours.action, theirs.action)
    assert torch.equal(ours.mask, theirs.mask)
    assert torch.equal(ours.logp, theirs.logp)


def test_prefix_and_completion_are_verified_together() -> None:
    task = sorting(3)
    shown = task.demonstrate(STARTS, 0)
    begun = first_decisions(shown, shown.mask.sum(1) - 1)
    fresh = task.judge(task.resume(actor_of(task), begun, np.zeros(3, np.int64), DRAW, split=0), 0)
    right = [decisions(fresh, row) == [task.tokenizer.vocabulary.eos] for row in range(3)]
    assert fresh.column("score").tolist() == [float(one) for one in right]
    assert task.completions(shown)[0][:3] == task.completions(fresh)[0][:3]
    assert fresh.mask.sum(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["tokens", "torques", "numbered"])
def test_nothing_to_decide_is_no_decision_and_no_step(name: str) -> None:
    task = TASKS[name]
    shown = task.demonstrate(STARTS, 0)
    fresh = task.resume(actor_of(task), first_decisions(shown, shown.mask.sum(1)), np.zeros(3, np.int64), DRAW, split=0)
    assert not fresh.mask.any()
    assert probes.loss(recipes.grpo(), fresh, fresh.logp.clone().requires_grad_()).loss.item() == 0.0


# ---------------------------------------------------------------------------------------------------- trees
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
    fresh = task.judge(gathered(Chain(group_size=2, segment=2, probes=3, most=4), task), 0)
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


# ---------------------------------------------------------------------------------------------------- windows
def test_windows_under_fixed_weights_are_the_episodes_and_nothing_is_lost() -> None:
    task, part = countdown(2), Windows(slots=5, window=3)
    actor, state = actor_of(task), part.init(Scene(task))
    found: dict[int, list[int]] = {}
    ended: set[int] = set()
    for _ in range(12):
        fresh = part(gathering(task, actor, np.empty(0, np.int64), DRAW), state)
        assert len(fresh) == 5
        for row in range(5):
            start = int(fresh.column("start")[row])
            assert start not in ended
            found.setdefault(start, []).extend(decisions(fresh, row))
            ended |= {start} if fresh.terminal[row].any() else set()
            assert fresh.action[row][fresh.column("answer")[row]].tolist() == found[start]
    starts = np.array(sorted(ended))
    assert len(starts) > 5
    whole = task.play(actor, starts, np.zeros(len(starts), np.int64), DRAW, split=0, greedy=False)
    assert [found[start] for start in starts.tolist()] == [decisions(whole, row) for row in range(len(starts))]
    assert set(found) == set(range(state["next"]))


def test_a_long_window_is_episodes() -> None:
    task = countdown(2)
    fresh = gathered(Windows(slots=4, window=50), task)
    theirs = gathered(Episodes(group_size=1), task, np.arange(4))
    assert torch.equal(fresh.action, theirs.action)
    assert torch.equal(fresh.terminal, theirs.terminal)


def test_every_decision_of_a_finished_answer_teaches_the_critic_once() -> None:
    task, part, loss = countdown(2), Windows(slots=5, window=3), Finished()
    actor, state = actor_of(task), part.init(Scene(task))
    learned = decided = waiting = 0
    for _ in range(10):
        fresh = task.judge(part(gathering(task, actor, np.empty(0, np.int64), DRAW), state), 0)
        weight = loss.weigh(fresh)
        assert set(weight.flatten().tolist()) <= {0.0, 1.0}
        learned, decided = learned + int(weight.sum()), decided + int(fresh.mask.sum())
        waiting = 0 if state["open"] is None else int(state["open"]["answer"].sum())
    assert learned + waiting == decided


def test_a_killed_run_of_windows_goes_on_bitwise() -> None:
    task = catalogue.find_task("addition-2")
    recipe = catalogue.recipe_for("t-ppo", task, {"slots": 6, "window": 2, "actor.width": 16, "actor.heads": 2})
    through, killed = (Loop(recipe, task, seed=4, num_steps=6) for _ in range(2))
    for _ in range(3):
        through.step()
        killed.step()
    assert killed.states["rollout"]["open"] is not None
    saved = copy.deepcopy(killed.snapshot())
    resumed = Loop(recipe, task, seed=4, num_steps=6)
    resumed.restore(saved_and_loaded(untouched(saved), resumed.snapshot()))
    for _ in range(3):
        through.step()
        resumed.step()
    for name, flat in through.engine.flats.items():
        assert torch.equal(flat.values, resumed.engine.flats[name].values), name
    assert through.states["rollout"]["next"] == resumed.states["rollout"]["next"]


def windows_of(tokens: int, horizon: int, window: int):
    """All episodes cut into windows, with their probabilities and the exact value before every decision."""
    episodes = probes.token_episodes(lambda told: float(sum(told) % 3 == 1) + 0.2 * told[0], tokens, horizon)
    logits = torch.linspace(-1.0, 1.0, episodes.num_states * tokens, dtype=torch.float64).view(-1, tokens).sin()
    record = episodes.record(torch.arange(episodes.num_episodes).unsqueeze(0), logits)
    chance, outcome = episodes.logp(logits)[0].exp(), episodes.outcome[0]
    same = (record.context["state"].unsqueeze(0) == record.context["state"].unsqueeze(1)).double()
    value = torch.einsum("ybt,b->yt", same, chance * outcome) / torch.einsum("ybt,b->yt", same, chance)
    parts = []
    for first in range(0, horizon, window):
        here = record.mask & (torch.arange(horizon) >= first) & (torch.arange(horizon) < first + window)
        shown = min(first + window, horizon)
        part = replace(record, mask=here, reward=record.reward * here, terminal=record.terminal & here)
        parts.append(part.add({"value": value}).columns(0, shown))
    return episodes, logits, chance, parts


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_windows_have_the_exact_gradient_but_for_the_last_decision_before_a_cut(decay: float) -> None:
    episodes, logits, chance, parts = windows_of(2, 6, 3)
    table = logits.clone().requires_grad_()
    logp = episodes.decision_logp(table)[0]
    total = torch.zeros((), dtype=torch.float64)
    for part in parts:
        advantage = ExtendedGae(1.0, decay)(part).column("advantage")
        total = total + (chance.unsqueeze(1) * advantage * logp[:, : part.num_columns]).sum()
    (slope,) = torch.autograd.grad(total, table)
    exact = probes.exact_table_gradient(episodes, logits)
    depth = torch.zeros(episodes.num_states, dtype=torch.long)
    depth[episodes.state.flatten()] = torch.arange(6).repeat(episodes.num_episodes)
    assert torch.allclose(slope[depth != 2], exact[depth != 2], atol=1e-12)
    assert slope[depth == 2].abs().max() < 1e-12
    assert exact[depth == 2].abs().max() > 1e-3


def test_extended_gae_of_a_discounted_cut_by_hand() -> None:
    value = torch.tensor([[0.5, -1.0, 2.0]]).double()
    ones = torch.ones(1, 3, dtype=torch.bool)
    zero = torch.zeros(1, 3).double()
    row = Experience({}, ones.long(), ones, zero, zero, ~ones, ~ones, extra={"value": value})
    last = 0.9 * 2.0 - 2.0
    middle = 0.9 * 2.0 + 1.0 + 0.9 * 0.5 * last
    first = 0.9 * -1.0 - 0.5 + 0.9 * 0.5 * middle
    found = ExtendedGae(0.9, 0.5)(row).column("advantage")
    assert torch.allclose(found, torch.tensor([[first, middle, last]]).double())
    ended = replace(row, terminal=torch.tensor([[False, False, True]]))
    assert torch.equal(ExtendedGae(0.9, 0.5)(ended).column("advantage"), Gae(0.9, 0.5)(ended).column("advantage"))
    assert WithoutTail(2)(row).mask.tolist() == [[True, False, False]]
    assert WithoutTail(2)(ended).mask.all()
    assert torch.equal(WithoutTail(0)(row).mask, row.mask)
    empty = replace(row, mask=~ones)
    assert not ExtendedGae()(empty).column("advantage").any()
    assert not WithoutTail()(empty).mask.any()


def test_the_last_place_of_a_window_is_dropped_whatever_was_decided_and_the_critic_still_learns_it() -> None:
    task = countdown(2)
    fresh = task.judge(gathered(Windows(slots=40, window=3), task), 0)
    kept = WithoutTail(1)(fresh)
    assert int(kept.mask.sum(1).max()) == 2
    assert torch.equal(kept.mask, fresh.mask & (fresh.mask.long().cumsum(1) < 3))
    assert torch.equal(Finished().weigh(kept), Finished().weigh(fresh))
    lost = with_outcomes(fresh, [InfraFault("lost")] * 40)
    assert not Finished().weigh(lost).any()


# ---------------------------------------------------------------------------------------------------- chunks
class LastTokens(torch.nn.Module):
    """A policy over tokens that sees only the first token and the last `seen` ones."""

    def __init__(self, vocabulary, seen: int) -> None:
        super().__init__()
        self.vocabulary, self.seen = vocabulary, seen

    def decoder(self, prompts, repeats, num_new):
        self.rows = [list(prompts[i]) for i, times in enumerate(repeats) for _ in range(times)]
        return self

    def logits(self):
        size = self.vocabulary.size
        keys = [sum((i + 2) * token for i, token in enumerate([len(row) * 0, *row[-self.seen :]])) for row in self.rows]
        logits = torch.sin(torch.tensor(keys).unsqueeze(1) * (1.0 + torch.arange(size)))
        logits[:, [self.vocabulary.pad, self.vocabulary.bos]] = -1e9
        logits[:, self.vocabulary.eos] -= 2.0
        return logits

    def push(self, tokens):
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            row.append(token)

    def keep(self, rows):
        self.rows = [self.rows[i] for i in rows.tolist()]


def joined(fresh: Experience) -> dict[int, list[int]]:
    """The decisions of each episode, chunk after chunk."""
    found: dict[int, list[int]] = {}
    for row in fresh.segment.amax(1).argsort(stable=True).tolist():
        found.setdefault(int(fresh.episode[row]), []).extend(decisions(fresh, row))
    return found


@pytest.mark.parametrize(("carry", "same"), [(2, True), (3, True), (1, False)])
def test_a_policy_that_needs_only_the_carry_loses_nothing(carry: int, same: bool) -> None:
    task = sorting(9)
    actor, part = LastTokens(task.tokenizer.vocabulary, seen=2), Chunks(group_size=4, chunk=5, carry=carry)
    starts = np.arange(6)
    fresh = part(gathering(task, actor, starts, DRAW), part.init(Scene(task)))
    whole = Episodes(group_size=4)(gathering(task, actor, starts, DRAW), {})
    undivided = {row: decisions(whole, row) for row in range(len(whole))}
    assert (joined(fresh) == undivided) is same
    assert fresh.segment.max() >= 1


def test_chunks_see_the_prompt_and_the_tail() -> None:
    task = sorting(6)
    fresh = gathered(Chunks(group_size=2, chunk=3, carry=1), task)
    per_chunk = [(3, 2)[int(place > 0)] for place in fresh.segment.amax(1)]
    assert all(int(mask.sum()) <= most for mask, most in zip(fresh.mask, per_chunk, strict=True))
    prompts = {start: task.begin(np.array([start]), 0).context["tokens"][0].tolist() for start in STARTS.tolist()}
    for row in (fresh.segment.amax(1) > 0).nonzero().squeeze(1).tolist():
        place = int(fresh.segment[row].max())
        before = (fresh.episode == fresh.episode[row]) & (fresh.segment.amax(1) == place - 1)
        tail = decisions(fresh, int(before.nonzero()))[-1:]
        seen = fresh.context["tokens"][row][fresh.context["valid"][row] & ~fresh.mask[row]].tolist()
        assert seen == prompts[int(fresh.group[row])] + tail
    ends = groups.over_episode(fresh.terminal.sum(1), fresh)
    assert (ends == 1).all()
    judged = task.judge(fresh, 0)
    texts = task.completions(fresh)
    whole = joined(fresh)
    assert texts == [task.tokenizer.decode(whole[int(episode)]) for episode in fresh.episode]
    assert judged.column("score")[~fresh.terminal.any(1)].abs().max() == 0.0


def test_too_few_chunks_end_an_episode_and_one_chunk_is_episodes() -> None:
    task = sorting(6)
    cut = gathered(Chunks(group_size=2, chunk=3, carry=1, chunks=1), task)
    assert cut.terminal.any(1).all()
    assert (cut.truncated.any(1) == (cut.action[cut.mask].view(len(cut), -1) != 2).all(1)).all()
    one = gathered(Chunks(group_size=2, chunk=50, carry=1), task)
    theirs = gathered(Episodes(group_size=2), task)
    assert torch.equal(one.action, theirs.action)
    assert torch.equal(one.logp, theirs.logp)
    with pytest.raises(AssayError, match="leaves no room"):
        Chunks(chunk=2, carry=2).init(Scene(task))
    with pytest.raises(AssayError, match="task of prompts"):
        Chunks().init(Scene(cartpole()))


def test_a_chunk_is_scored_under_its_own_context() -> None:
    task = sorting(6)
    actor, fresh = actor_of(task), gathered(Chunks(group_size=2, chunk=3, carry=1), task)
    with torch.no_grad():
        again = actor.score(fresh, frozenset({Need.LOGP})).logp
    assert torch.allclose(again, fresh.logp, atol=1e-4)
