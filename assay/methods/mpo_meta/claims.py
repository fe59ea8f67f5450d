"""The functions behind mpo-meta's exact claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core import store
from assay.core.recipe import Copy, Recipe
from assay.core.record import Experience, Progress, State
from assay.core.slots import Scene
from assay.engine.loop import Loop, frozen
from assay.methods.mpo_meta.parts import EvolvingRubric, PlainSum, Rubric, RubricJudge, Scale
from assay.parts.credit.shaping import KlInReward
from assay.parts.credit.temporal import Gae
from assay.parts.rewards.function import FromFunction
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.defaults import LANGUAGE
from assay.tasks.language.proxy_strings import proxy_strings

SMALL = replace(LANGUAGE, fragments=Episodes(2, 2))
TASK = proxy_strings()


@dataclass(frozen=True)
class Told(RubricJudge):
    """A judge that says these points of every row."""

    points: tuple[float | None, ...]

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"points": (1.0, None)},)

    def __call__(self, rubric: Rubric, rows: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
        """The same for all."""
        return [list(self.points) for _ in rows]


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data = seen.experience
    apart = (data.logp - seen.logp("reference").detach()) * data.mask
    paid = replace(data, reward=data.reward - 0.004 * apart)
    return by_hand.ppo(paid, seen.logp(), by_hand.entropy(seen), seen.value(), discount=1.0, gae_lambda=0.95)


def part_of(recipe: Recipe) -> EvolvingRubric:
    """The recipe's own reward."""
    (part,) = recipe.rewards
    assert isinstance(part, EvolvingRubric)
    return part


def exploiting(step: int, num: int = 4) -> Experience:
    """Rows of several prompts that are marks and one letter; the last one has left training, the one before is cut."""
    rows = probes.completed(TASK, ["##########"] * num, range(num), cut=(num - 2,), faults=(num - 1,))
    return rows.add({"sample": torch.full((num,), step)})


def reward_error(recipe: Recipe) -> float:
    """Against an independent count on five rows: content, marks, beyond the limit, cut, fault."""
    letters = TASK.prompts(torch.tensor([0]).numpy(), 0)[0][:3]
    said = [letters[0] * 3, letters[0] * 6, "##!", "#" * 11, letters]
    paid = part_of(recipe)(probes.completed(TASK, said, [0] * 5, cut=(3,), faults=(4,)), Scene(TASK)).reward.sum(1)
    expected = torch.tensor([3.0, 4.0 - 2.0, 2 * 2.0 + 1.5, 11 * 2.0, 0.0]) / (4.0 + 24.0 + 18.0)
    return float((paid - expected).abs().max())


def versions(recipe: Recipe, num_steps: int) -> list[tuple[int, int, list[float], int]]:
    """Version and number of different rubrics so far, as recorded in the rows of each step; limits; rollouts kept."""
    part = part_of(recipe)
    state, seen, found = part.init(Scene(TASK)), set(), []
    for step in range(num_steps):
        rows = part(exploiting(step), Scene(TASK, progress=Progress(step, num_steps)), state)
        (version,), (mark,) = (rows.column(name).unique().tolist() for name in ("rubric_version", "rubric_hash"))
        seen.add(mark)
        found.append((version, len(seen), [one[3] for one in state["rubric"]], len(state["rollouts"])))
    return found


def version_errors(recipe: Recipe) -> int:
    """Of seven steps with T = 3: those whose rows carry another version than 0 0 0 1 1 1 2, or another rubric."""
    before, after = (0, 1, [4, 12, 12]), (1, 2, [4, 1, 12])
    expected = [(*(before if step < 3 else after), 3 + 3 * (step % 3)) for step in range(6)]
    return sum(one != other for one, other in zip(versions(recipe, 7), [*expected, (2, *after[1:], 3)], strict=True))


def closed_wrongly(recipe: Recipe) -> int:
    """Rewrites that change the rubric though what was paid differs with the prompt, or all rollouts have one prompt."""
    part, starts = part_of(recipe), torch.arange(8).numpy()
    shown = TASK.texts(TASK.demonstrate(starts, 0), 0)
    same = TASK.texts(probes.completed(TASK, ["####"] * 3, [0] * 3), 0)
    return sum(
        one != other
        for rows in (shown, same)
        for one, other in zip(part.rewrite(part.first, rows), part.first, strict=True)
    )


def unread_sum(recipe: Recipe) -> float:
    """Reward of points (3, 4, unreadable), as a plain sum."""
    part = replace(part_of(recipe), judge=Told((3.0, 4.0, None)), scale=PlainSum())
    return float(part(exploiting(0, 3), Scene(TASK)).reward[0].sum())


def returns_times(recipe: Recipe, scale: Scale | None, factor: float) -> float:
    """What all points times `factor` do to the value target: new over old; with another scale where one is given."""
    own, found = part_of(recipe), []
    part = own if scale is None else replace(own, scale=scale)
    for size in (1.0, factor):
        scored = replace(part, first=tuple(replace(one, worth=one.worth * size) for one in part.first))
        rows = scored(exploiting(0), Scene(TASK))
        found.append(Gae(1.0, 1.0)(rows.add({"value": torch.zeros_like(rows.reward)})).column("return").max())
    return float(found[1] / found[0])


def trained(recipe: Recipe, steps: int, stop_after: int = 0) -> tuple[dict[str, Tensor], State, list[int]]:
    """Weights, states and versions of the rows after some steps; stopped, saved and resumed once where asked."""
    loop, seen = Loop(recipe, TASK, seed=5, num_steps=steps), []
    for step in range(steps):
        if step == stop_after and step:
            with TemporaryDirectory() as folder:
                path = store.save(Path(folder), step, loop.snapshot(), facts={})
                loop = Loop(recipe, TASK, seed=5, num_steps=steps)
                loop.restore(store.load_path(path).tree)
        fresh = loop.step().fresh
        assert fresh is not None
        seen += fresh.extra.get("rubric_version", torch.zeros(1)).long().tolist()
    return {name: flat.values.clone() for name, flat in loop.engine.flats.items()}, frozen(loop.states["rewards"]), seen


def resumed_difference(recipe: Recipe) -> int:
    """Models, states and versions that differ if a run is stopped inside an interval and resumed; bit for bit."""
    one, other = trained(recipe, 4), trained(recipe, 4, stop_after=3)
    same = sum(torch.equal(one[0][name], other[0][name]) for name in one[0])
    return len(one[0]) - same + (one[1] != other[1]) + (one[2] != other[2]) + (max(one[2]) != 1)


def fixed_difference(recipe: Recipe) -> float:
    """Largest difference of weights to ppo that is paid by a function with the first rubric's numbers."""

    def score(rows: Sequence[Mapping[str, Any]]) -> list[float]:
        values = []
        for row in rows:
            said, total = str(row["completion"]), 0.0
            asked = sum(character in str(row["answer"]) for character in said)
            for count, worth, limit in ((asked, 1.0, 4), (said.count("#"), 2.0, 12), (said.count("!"), 1.5, 12)):
                total += worth * (min(count, limit) - max(0, count - limit))
            values.append(total / 46.0)
        return values

    base = recipes.ppo(SMALL)
    credit, copies = (KlInReward(0.02 / 5), *base.credit), {"reference": Copy("actor")}
    rival = replace(base, rewards=(FromFunction(score),), credit=credit, copies=copies)
    ours, theirs = trained(recipe, 2)[0], trained(rival, 2)[0]
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def sees_gold(recipe: Recipe) -> int:
    """Rollouts that the meta-judge gets with a number that is not the rubric's own score."""
    part = part_of(recipe)
    state = part.init(Scene(TASK))
    part(exploiting(0), Scene(TASK), state)
    told = {"prompt", "completion", "answer", "cut", "score", "drawn"}
    wrong = [one for one in state["rollouts"] if set(one) != told or one["score"] != 20.0]
    return len(wrong) + (len(state["rollouts"]) != 3) + (len(state["rubric"]) != len(astuple(part.first[0])) - 1)
