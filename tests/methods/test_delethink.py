"""A policy that learned in chunks is handed out so that it thinks in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.record import Draw, Experience
from assay.core.slots import Scene, Wrapper
from assay.methods.delethink.in_chunks import ChunkedActor, InChunks
from assay.methods.delethink.rollout import Chunks
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Episodes, group_rows
from assay.parts.rollouts.narrowed import Narrowed
from assay.playing.narrowing import NarrowedActor, Narrowing
from assay.proof.laws import check_wrapper
from assay.runs import catalogue
from tests.scenes import gathering

STARTS, MEMBERS = 5, 3


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
    starts = np.arange(STARTS)
    rollout = Chunks(STARTS, MEMBERS, chunk, carry, chunks=50)
    learned = rollout(gathering(task, actor, starts, Draw(1)), rollout.init(Scene(task)))
    wrapped = InChunks(chunk, carry).around({"actor": actor})
    used = task.play(wrapped, *group_rows(starts, MEMBERS), Draw(1), split=0, greedy=False)
    assert written(task, used) == written(task, learned)
    logp = torch.zeros(STARTS * MEMBERS).index_add(0, learned.column("start") * MEMBERS + learned.column("sample"),
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
    assert (plain.size.chunk, plain.size.carry) == (6, 2)
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
