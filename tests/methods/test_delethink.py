"""Thinking in chunks: what a chunk sees and records; the policy handed out decides as it learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.laws import check_wrapper
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Need, Score
from assay.core.slots import Scene, Wrapper
from assay.decoding.sampling_parameters import NarrowedActor, Narrowing
from assay.methods.delethink import ChunkedActor, Chunks, InChunks
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.ops import groups
from assay.parts.rollouts.episodes import Episodes, group_rows
from assay.parts.rollouts.narrowed import Narrowed
from assay.rollouts.text import with_outcomes
from assay.runs import catalogue
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.sorting import sorting
from tests.methods.rollouts import DRAW, STARTS, actor_of, decisions, gathered
from tests.scenes import gathering

NUM_STARTS, MEMBERS = 5, 3


def written(task: object, played: Experience) -> list[str]:
    """The completion of each (start, sample)."""
    texts = task.completions(played)  # type: ignore[attr-defined]
    who = zip(played.column("start").tolist(), played.column("sample").tolist(), texts, strict=True)
    return [text for _, text in sorted({(start, sample): text for start, sample, text in who}.items())]


@pytest.mark.parametrize(("chunk", "carry"), [(1, 0), (2, 1), (3, 0), (4, 3), (50, 2)])
def test_what_is_handed_out_decides_as_it_learned(chunk: int, carry: int) -> None:
    task = catalogue.find_task("sorting-5")
    torch.manual_seed(0)
    actor = Policy(Transformer(32, 2, 2)).build(task.spec)
    starts = np.arange(NUM_STARTS)
    rollout = Chunks(NUM_STARTS, MEMBERS, chunk, carry)
    learned = rollout(gathering(task, actor, starts, Draw(1)), rollout.init(Scene(task)))
    wrapped = InChunks(chunk, carry).around({"actor": actor})
    used = task.play(wrapped, *group_rows(starts, MEMBERS), Draw(1), split=0, greedy=False)
    assert written(task, used) == written(task, learned)
    logp = torch.zeros(NUM_STARTS * MEMBERS).index_add(0, learned.column("start") * MEMBERS + learned.column("sample"),
                                                   learned.logp.sum(1))  # fmt: skip
    torch.testing.assert_close(used.logp.sum(1), logp, atol=1e-4, rtol=0)


class OfCopy(Wrapper):
    """A wrapper of a copy that changes nothing."""

    actor = "average"
    reads = ("average",)

    def around(self, models: Mapping[str, Any]) -> Any:
        return models["average"]


def test_the_frame_follows_the_rollout() -> None:
    """Whatever is set, a policy is used in the chunks it learned in, also inside a narrowing and a wrapper."""
    recipe = catalogue.methods()["delethink"].recipe().set("rollout.chunk", 6)
    actor = Policy(Transformer(32, 2, 2)).build(catalogue.find_task("sorting-5").spec)
    plain = recipe.policy({"actor": actor})
    assert isinstance(plain, ChunkedActor)
    assert (plain.size.chunk, plain.size.carry) == (6, -1)
    assert recipe.rollout is not None
    colder = Narrowing(0.7)
    inner = replace(recipe, rollout=Narrowed(recipe.rollout, colder), wrapper=colder).policy({"actor": actor})
    assert isinstance(inner, NarrowedActor)
    assert isinstance(inner.actor, ChunkedActor)
    assert replace(recipe, rollout=Episodes()).policy({"actor": actor}) is actor
    lagging = Policy(Transformer(32, 2, 2)).build(catalogue.find_task("sorting-5").spec)
    around_a_copy = replace(recipe, wrapper=OfCopy()).policy({"actor": actor, "average": lagging})
    assert around_a_copy.actor is lagging, "the frame is around whom the wrapper has inside"


def test_it_obeys_the_laws_of_wrappers() -> None:
    assert all(finding.held for finding in check_wrapper(InChunks(3, 1)))


# ---------------------------------------------------------------------------------------------------- going on
def test_a_fault_in_one_chunk_takes_the_whole_episode_out() -> None:
    task = sorting(3)
    fresh = gathered(Chunks(chunk=2, carry=1, group_size=2), task)
    row = int(fresh.terminal.any(1).nonzero()[0])
    outcomes = [InfraFault("lost") if one == row else Score(0.0) for one in range(len(fresh))]
    masked = with_outcomes(fresh, outcomes).mask.any(1)
    assert torch.equal(masked, fresh.episode != fresh.episode[row])


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


def test_one_chunk_is_episodes_and_what_cannot_be_cut_is_refused() -> None:
    task = sorting(6)
    one = gathered(Chunks(group_size=2, chunk=50, carry=1), task)
    theirs = gathered(Episodes(group_size=2), task)
    assert torch.equal(one.action, theirs.action)
    assert torch.equal(one.logp, theirs.logp)
    with pytest.raises(AssayError, match="leaves no room"):
        Chunks(chunk=2, carry=2).init(Scene(task))
    with pytest.raises(AssayError, match="task of prompts"):
        Chunks().init(Scene(cartpole()))
    with pytest.raises(AssayError, match="has conversations of turns"):
        Chunks().init(Scene(catalogue.find_task("twenty-questions-2")))


def test_a_chunk_is_scored_under_its_own_context() -> None:
    task = sorting(6)
    actor, fresh = actor_of(task), gathered(Chunks(group_size=2, chunk=3, carry=1), task)
    with torch.no_grad():
        again = actor.score(fresh, frozenset({Need.LOGP})).logp
    assert torch.allclose(again, fresh.logp, atol=1e-4)
