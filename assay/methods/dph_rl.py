"""dph-rl: grpo on what the start cannot do, and a mass-covering divergence on what it could.

    loss = grpo's on prompts that the start does not solve + eta mean_t f(u_t),   u_t = pi(y_t) / pi_start(y_t)
    on right answers y that the start gave to prompts it solves;   f(u) = u - 1 - log u (forward KL), or another

2025 (arXiv:2509.07430). Reverse KL on the policy's own samples does not see what the policy no longer does; a
divergence on the start's samples does. On samples that were filtered to right answers, f is not the likelihood: it is
0 at the start, and lowers an answer that has become likelier. Log-probabilities are stored: no reference model runs.

Axes: B rows, T columns.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import COLUMNS, LANGUAGE, Aggregation, AssayError, Copy, Curriculum, Experience, Loss, Method, Metric
from assay.method import Need, Origin, Phase, Preset, PromptedTask, Recipe, Regularizer, Scene, Source, State, View
from assay.method import concatenate, groups, k2, random, recipes
from assay.parts import PLAIN, Clip, FreshSequences, InOrder, KlToReference, PolicyGradient, TokenMean, Weighed
from assay.parts import from_columns, need_fresh, next_starts

LARGEST_LOG_RATIO, LARGEST = 20.0, 10.0
"""Bounds of log u and of f(u), as in the released code: beyond them a decision has no gradient."""


def forward_kl(log_u: Tensor) -> Tensor:
    """Returns u - 1 - log u: its mean over samples of the start is KL(start || policy), and it is 0 only at u = 1."""
    return torch.expm1(log_u) - log_u


def jensen_shannon(log_u: Tensor) -> Tensor:
    """Returns u log u - (u + 1) log((u + 1) / 2): its mean over samples of the start is twice the JS divergence."""
    u = log_u.exp()
    return u * log_u - (u + 1.0) * ((u + 1.0) / 2.0).log()


@dataclass(frozen=True)
class Alpha:
    """(u^(1 - a) - (1 - a) u - a) / (a (a - 1)): close to the forward KL for a near 1, the reverse KL for a near 0."""

    alpha: float = 0.2
    not_a_part: ClassVar[str] = "a setting of CoveringDivergence"

    def __call__(self, log_u: Tensor) -> Tensor:
        """Returns the divergence of each decision."""
        a = self.alpha
        return (((1.0 - a) * log_u).exp() - (1.0 - a) * log_u.exp() - a) / (a * (a - 1.0))


@dataclass(frozen=True)
class OfOrigin(Aggregation):
    """Applies `aggregate` to the rows whose column `source` has the number `origin`: the policy's own by default.

    Rows of other origin have weight 0 and are not counted. Without the column all rows are the policy's own.
    """

    aggregate: Aggregation = TokenMean()
    origin: int = int(Origin.POLICY)

    @property
    def together(self) -> str | None:
        """Returns what the inner aggregation needs."""
        return self.aggregate.together

    def rows(self, batch: Experience) -> Experience:
        """Returns the batch with the rows of other origin masked."""
        if batch.source is None:
            return batch if self.origin == int(Origin.POLICY) else replace(batch, mask=torch.zeros_like(batch.mask))
        return replace(batch, mask=batch.mask & (batch.source == self.origin).unsqueeze(1))

    def weigh(self, batch: Experience) -> Tensor:
        """Returns the weights of the inner aggregation, 0 in rows of other origin."""
        return self.aggregate.weigh(self.rows(batch))

    def count(self, batch: Experience) -> Tensor:
        return self.aggregate.count(self.rows(batch))


@dataclass(frozen=True)
class CoveringDivergence(Weighed, Regularizer):
    """coefficient * f(u) of the decisions of stored rows, u = pi / pi_start with the recorded log-probability.

    Only rows of the aggregation's origin count: samples of the start policy (OLDER_SELF). Mass-covering: what the
    start did and the policy no longer does costs without bound. Degenerate: without such rows sum and count are 0.
    """

    coefficient: float = 0.02
    f: Callable[[Tensor], Tensor] = forward_kl
    aggregate: Aggregation = OfOrigin(TokenMean(), int(Origin.OLDER_SELF))
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over stored decisions."""
        weight = self.aggregate.weigh(batch)
        log_u = torch.where(weight != 0, view.scored.logp - batch.logp.detach(), 0.0)
        value = self.f(log_u.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)).clamp(-LARGEST, LARGEST) * weight
        count = self.count(batch)
        return Loss(self.coefficient * value.sum(), count, {"divergence_from_start": (value.detach().sum(), count)})


NOTHING_STORED = (
    "the start solves none of the prompts that were tried, so that there is nothing to keep and this is grpo; use "
    "easier prompts or a better start, or call a prompt solved earlier: --set least=0.25"
)


HANDED = "start"
"""The name under which the phase passes on what it remembers."""


LABELS = ("group", "episode")


MOST_SOLVED = 100_000
"""Solved starts in a row after which none is expected to be left."""


def need_prompts(scene: Scene) -> PromptedTask:
    """Returns the task; raises AssayError if it has no prompts to tell solved ones by."""
    if not isinstance(scene.task, PromptedTask):
        what = f"task '{scene.task.name}' has no prompts, so the start's right answers cannot be kept"
        raise AssayError(f"{what}. Use a language task")
    return scene.task


@dataclass(frozen=True)
class Remembered(Source):
    """Splits prompts by the start policy, and stores its right answers to those that it solves; yields nothing.

    A prompt is solved if at least the share `least` of the first `tries` rows of its first group is right. Later
    rows of a solved prompt are stored if they are right, with the log-probabilities recorded.
    """

    tries: int = 4
    least: float = 1.0
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"yields": "it stores rows for a later phase"}

    def init(self, scene: Scene) -> State:
        """Returns no prompts and no rows."""
        need_prompts(scene)
        return {"prompts": [], "solved": [], "columns": {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh = need_fresh(scene.fresh)
        right, first = groups.is_right(fresh), fresh.column("sample") < self.tries
        starts = torch.unique(fresh.column("start"))
        known = dict(zip(state["prompts"], state["solved"], strict=True))
        kept = torch.zeros_like(right)
        for start, prompt in zip(starts.tolist(), need_prompts(scene).prompts(starts.numpy(), 0), strict=True):
            own = fresh.column("start") == start
            if known.setdefault(prompt, int(right[own & first].sum() >= self.least * self.tries)):
                kept |= own & ~first & right
        state["prompts"], state["solved"] = list(map(str, known)), list(known.values())
        if bool(kept.any()):
            rows = fresh.rows(kept)
            rows = concatenate([from_columns(state["columns"]), rows]) if state["columns"] else rows
            context = {f"context.{name}": value for name, value in rows.context.items()}
            state["columns"] = {name: getattr(rows, name) for name in PLAIN} | context
        yield from ()


@dataclass(frozen=True)
class Unsolved(Curriculum):
    """Proposes the task's starts in order, without those whose prompt the start policy solved: the split is made once.

    Degenerate: without a phase before it, every start.
    """

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0 and the solved prompts."""
        need_prompts(scene)
        known = scene.handed.get(HANDED, {"prompts": [], "solved": []})
        solved = [prompt for prompt, is_solved in zip(known["prompts"], known["solved"], strict=True) if is_solved]
        return InOrder().init(scene) | {"solved": solved}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the next starts that are left."""
        task, solved, found = need_prompts(scene), set(state["solved"]), np.empty(0, dtype=np.int64)
        last = state["next"] + MOST_SOLVED
        while len(found) < scene.num_starts:
            if state["next"] > last:
                raise AssayError("the start policy solves every prompt: none is left to train on. Use harder prompts")
            starts = next_starts(scene, state, scene.num_starts - len(found))
            is_left = [prompt not in solved for prompt in task.prompts(starts, 0)]
            found = np.concatenate([found, starts[is_left]])
        return found

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Rehearsed(Source):
    """Adds `num_rows` stored rows, drawn uniformly, to every batch of another source.

    They come last, with `source` OLDER_SELF, their recorded log-probabilities, groups of their own, and 0 in every
    column that parts wrote. Degenerate: with nothing stored the batches have no other rows, and an alarm says so.
    """

    watches: ClassVar[tuple[Metric, ...]] = (Metric("nothing_stored", 0.5, "answers to keep", NOTHING_STORED),)

    source: Source = FreshSequences()
    num_rows: int = 32

    @property
    def writes(self) -> Collection[str]:
        """Returns the columns of the inner source."""
        return self.source.writes

    def init(self, scene: Scene) -> State:
        """Returns the inner state and the stored rows."""
        return {"source": self.source.init(scene), "columns": scene.handed.get(HANDED, {}).get("columns", {})}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the inner batches with stored rows."""
        stored = from_columns(state["columns"]) if state["columns"] else None
        scene.log("nothing_stored", float(stored is None))
        for place, batch in enumerate(self.source(scene, state["source"])):
            own = batch.with_columns(source=torch.full((len(batch),), int(Origin.POLICY)))
            if stored is None:
                yield own
                continue
            index = random.integers(scene.draw.at(6, place), len(stored), self.num_rows)
            yield concatenate([own, beside(own, stored.rows(torch.from_numpy(index)))])


def beside(own: Experience, rows: Experience) -> Experience:
    """Returns the rows with the columns that `own` has, filled with 0, and labels that no own row has."""
    label = -1 - torch.arange(len(rows))
    missing = [name for name in COLUMNS if getattr(rows, name) is None and getattr(own, name) is not None]
    columns: dict[str, Any] = {name: zeros(getattr(own, name), len(rows)) for name in missing}
    columns |= {name: label for name in LABELS if name in missing}
    columns |= {"source": torch.full_like(label, int(Origin.OLDER_SELF))}
    return rows.with_columns(**columns, extra={name: zeros(value, len(rows)) for name, value in own.extra.items()})


def zeros(column: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Returns zeros with the shape of a column, for another number of rows."""
    return column.new_zeros(num_rows, *column.shape[1:])


def start(preset: Preset, tries: int = 4, least: float = 1.0) -> Phase:
    """Returns the phase that samples the start: `tries` answers for the split, one to store."""
    sampled = replace(recipes.grpo(preset), name="dph-rl-start", stages=(), credit=(), source=Remembered(tries, least))
    return Phase("start", sampled.set("group_size", tries + 1), steps=8, data={"sources.0": HANDED})


def recipe(preset: Preset = LANGUAGE, f: Callable[[Tensor], Tensor] = forward_kl, eta: float = 0.02) -> Recipe:
    """Returns grpo on prompts that the start could not solve, and a divergence on stored answers to the others."""
    base = recipes.grpo(preset)
    own = PolicyGradient(trust=Clip(0.2, 0.28), aggregate=OfOrigin())
    stage = replace(base.stages[0], objective=(own,), regularizers=(CoveringDivergence(eta, f),))
    rehearsed = replace(base, name="dph-rl", source=Rehearsed(base.source), stages=(stage,), curriculum=Unsolved())
    return replace(rehearsed, before=(start(preset),))


def js(preset: Preset = LANGUAGE) -> Recipe:
    """Jensen-Shannon divergence."""
    return recipe(preset, jensen_shannon, 0.1)


def reverse(preset: Preset = LANGUAGE, eta: float = 0.02) -> Recipe:
    """The rival: grpo on all prompts with the reverse KL on the policy's own samples."""
    base = recipes.grpo(preset)
    stage = replace(base.stages[0], regularizers=(KlToReference(eta, k2),))
    return replace(base, name="reverse-kl", stages=(stage,), copies={"reference": Copy(of="actor")})


METHOD = Method(
    paper="arXiv:2509.07430",
    recipe=recipe,
    presets=(LANGUAGE,),
    family="policy gradient",
    base=recipes.grpo,
    variants={"js": js, "reverse-kl": reverse},
    departures=(
        "the first 256 prompts are split, four samples each; prompts after them count as unsolved",
        "stored rows are drawn uniformly, 32 beside each batch; the released code repeats a shuffled file",
        "grpo's loss plus eta times the mean over stored decisions; in the released code the weight also depends on "
        "their share of a micro-batch",
        "groups of 8 instead of 16; the two-sided `js` of the released code, which needs a live reference, is left out",
        "not measured: grpo without a divergence as a rival, for its cost",
    ),
    pilots=(
        "three designs were tried (eta 0.02, 0.1, 0.5; 2 and 3 pilot seeds); the smaller two kept less than reverse KL",
    ),
)
