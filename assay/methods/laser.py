"""laser: grpo plus a squared loss that makes the log-probability of one spare token after the answer its reward.

    r_s = beta (log pi(z | x, y) - c), c its mean at the start;   loss = grpo + 0.1 mean_i w_i (r_s,i - r_i)^2
    w balances right and wrong;   in the second half A <- 0.9 A + 0.1 A_s,  A_s of clamp(r_s, 0, 1), where that differs

Yang et al. 2025. The reward that a policy would have to be optimal for is, up to a constant, the log-ratio of a fixed
token to a reference; so the policy can learn to say by one more token how good its answer is. The token is in no text
and is never sampled. The paper has c = -23 and beta = 0.1; c is measured in the first step, and beta is 2.3 / |c|.

Axes: B rows, T decisions; in the decoder N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from assay.method import LANGUAGE, LOGP_MODEL, AssayError, Choice, Credit, Decodes, Delayed, Experience, Loss, Method
from assay.method import NarrowedDecoder, Narrowing, Need, Prepare, Preset, Recipe, Regularizer, Rollout, Scene
from assay.method import Schedule, Scored, State, View, Vocabulary, Wrapper, groups, model_name, number, one_later
from assay.method import Task, recipes
from assay.parts import Around, Episodes
from assay.tasks.language.spare import spare_token


def finished(experience: Experience) -> Tensor:
    """Returns whether a decision is the last one of an answer that ended by itself, [B, T]."""
    return experience.terminal & ~experience.truncated & experience.mask


@dataclass(frozen=True)
class SpareToken(Choice):
    """r_s = beta (log pi(token | prompt, answer) - c): 0 at c, 1 where c has fallen by SHARE, beta = 1 / (SHARE |c|).

    `token` is an id of the vocabulary that no text has; -1 is found by the run, and the last id outside of one. c is
    `constant`, or without one the column `spare_constant`. Answers that were cut have no score: 0.
    """

    token: int = -1
    constant: float | None = None

    def with_task(self, task: Task) -> Any:
        """Returns the same with the spare token of the task."""
        return replace(self, token=spare_token(task)) if self.token < 0 else self

    def logp(self, actor: Any, rows: Experience) -> Tensor:
        """Returns log pi(token) after each answer that ended, 0 for others, [B]; that column is scored by a pass of its
        own.
        """
        later = one_later(rows, finished(rows))
        token = self.token if self.token >= 0 else actor.vocabulary.size + self.token
        asked = later.with_columns(action=torch.where(later.mask, token, later.action))
        logp: Tensor = actor.score(asked, frozenset({Need.LOGP})).logp
        return torch.where(later.mask, logp, 0.0).sum(1)

    def of(self, actor: Any, rows: Experience) -> Tensor:
        """Returns r_s of each row with gradient, [B]."""
        c = rows.column("spare_constant") if self.constant is None else torch.tensor(self.constant)
        c = c.to(rows.reward).detach()
        return torch.where(finished(rows).any(1), (self.logp(actor, rows) - c) / (SHARE * c.abs()), 0.0)


SHARE = 10.0 / 23.0
"""The share of log pi(token) that a reward of 1 takes away: beta is the paper's 0.1 at its c of -23."""


@dataclass(frozen=True)
class SpareConstant(Prepare):
    """Writes `spare_constant` [B]: the mean log pi(token) after the answers of the first batch that has one that ended,
    under the policy that wrote them: the start. It is measured once and then kept.

    Degenerate: -1 in batches before any answer has ended, which have no scores.
    """

    spare: SpareToken = SpareToken()
    actor: str = model_name("actor")
    writes: ClassVar[Mapping[str, str]] = {"spare_constant": "B: mean log-probability of the spare token at the start"}
    not_a_part: ClassVar[str] = "the laws have no models: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns the constant if it is given, else that it is still to be measured."""
        return {"constant": self.spare.constant}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        ended = finished(experience).any(1)
        if state["constant"] is None and bool(ended.any()):
            logp = scene.models.over(self.actor, experience, self.spare.logp)
            state["constant"] = float(logp[ended].mean())
        constant = -1.0 if state["constant"] is None else state["constant"]
        scene.log("spare_constant", constant)
        return experience.add({"spare_constant": experience.reward.new_full((len(experience),), constant)})


def paper_constant(experience: Experience) -> Tensor:
    """Returns -23 for each row, the log-probability of a spare token in a large vocabulary, [B]."""
    return experience.reward.new_full((len(experience),), -23.0)


def balance(experience: Experience) -> Tensor:
    """Returns n / (2 n_right) for right finished answers and n / (2 n_wrong) for wrong ones, 0 for cut ones, [B]."""
    ended, right = finished(experience).any(1), groups.is_right(experience)
    many = torch.where(right, (ended & right).sum(), (ended & ~right).sum()).clamp(min=1)
    return torch.where(ended, ended.sum() / (2.0 * many.double()), 0.0).to(experience.reward.dtype)


@dataclass(frozen=True)
class Balanced(Prepare):
    """Writes `balance` [B] of the whole batch, so that right and wrong answers count equally."""

    writes: ClassVar[Mapping[str, str]] = {"balance": "B: weight of an answer by its class, right or wrong"}
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "classes are balanced over the batch"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience.add({"balance": balance(experience)})


@dataclass(frozen=True)
class SelfReward(Regularizer):
    """coefficient * balance * (r_s - outcome)^2, as a mean over all rows with a decision (arXiv:2510.14943)."""

    spare: SpareToken = SpareToken()
    coefficient: float | Schedule = 0.1
    actor: str = model_name("actor")
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[Mapping[str, str]] = {"balance": "B", "spare_constant": "B"}
    together: ClassVar[str | None] = "episode"
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "balance": balance,
        "spare_constant": paper_constant,
    }

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of rows with a decision."""
        return batch.mask.any(1).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over rows."""
        error = self.spare.of(view.model(self.actor), batch) - groups.outcome(batch).detach()
        squared = batch.column("balance").detach() * error.square()
        return Loss(number(self.coefficient) * squared.sum(), self.count(batch), {"self_reward_error": (
            squared.detach().sum(), self.count(batch))})  # fmt: skip


def blended(advantage_B: Tensor, score_B: Tensor, by_group: groups.Groups, share: float) -> Tensor:
    """Returns (1 - share) A + share A_s, A_s the score standardised in its group, or A where its deviation is at most
    0.1, [B].
    """
    deviation = groups.deviation(score_B, by_group)
    own = (score_B - groups.mean(score_B, by_group)) / deviation.clamp(min=1e-8)
    return (1.0 - share) * advantage_B + share * torch.where(deviation > 0.1, own, advantage_B)


@dataclass(frozen=True)
class Blend(Credit):
    """Mixes a `share` of the acting policy's own scores, clamped to [0, 1], into the advantage of every decision."""

    spare: SpareToken = SpareToken()
    share: float | Schedule = Delayed(0.1, 0.5)
    actor: str = model_name("actor")
    reads: ClassVar[Mapping[str, str]] = {"advantage": "BT", "spare_constant": "B"}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"spare_constant": paper_constant}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`; at share 0 no model is asked."""
        share, mask = number(self.share), experience.mask
        if not share:
            return experience
        score = scene.models.over(self.actor, experience, self.spare.of).clamp(0.0, 1.0).to(experience.reward.dtype)
        advantage = experience.column("advantage")
        row = advantage.sum(1) / mask.sum(1).clamp(min=1)
        mixed = blended(row, score, groups.row_groups(experience), share)
        return experience.add({"advantage": mixed.unsqueeze(1) * mask})


@dataclass(frozen=True)
class Without(Wrapper):
    """The actor that never writes `token`; -1 is the last one of the vocabulary."""

    token: int = -1
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor",)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the actor that is evaluated and exported."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"Without needs an actor of tokens; this is {type(models['actor']).__name__}. Drop it")
        return SilentActor(models["actor"], self.token)


class SilentActor:
    """Decodes without the token; everything else is the inner actor's."""

    def __init__(self, actor: Any, token: int) -> None:
        self.actor, self.token = actor, token

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> SilentDecoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        return SilentDecoder(self.actor.decoder(prompts, repeats, num_new), self.token)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns what the actor's own probabilities are; Python 3.12 finds protocols in classes alone."""
        scored: Scored = self.actor.score(batch, needs)
        return scored

    def parameters(self) -> Iterable[Parameter]:
        """Returns the actor's weights."""
        found: Iterable[Parameter] = self.actor.parameters()
        return found

    def __getattr__(self, name: str) -> Any:
        """Returns everything else from the actor."""
        return getattr(self.actor, name)


class SilentDecoder(NarrowedDecoder):
    """A decoder whose logit of the token is minus infinity; `model_logp` is that of the whole vocabulary."""

    def __init__(self, decoder: Any, token: int) -> None:
        super().__init__(decoder, Narrowing())
        self.token = token

    def logits(self) -> Tensor:
        """Returns the changed logits [N, V] for the next token."""
        self.raw = self.decoder.logits().float()
        changed = self.raw.clone()
        changed[:, self.token] = -torch.inf
        return changed


@dataclass(frozen=True)
class WithoutToken(Around):
    """Runs `gather` with an actor that never writes the spare token. Recorded log-probabilities are its own, over
    the whole vocabulary: the difference is log(1 - pi(token)).
    """

    gather: Rollout = Episodes()
    token: int = -1
    breaks: ClassVar[dict[str, str]] = {"framed": "recorded log-probabilities are over the whole vocabulary"}

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no tokens."""
        if not isinstance(scene.task.spec.action, Vocabulary):
            raise AssayError(f"WithoutToken needs a task of tokens; '{scene.task.name}' has none. Use a language task")
        return super().init(scene)

    def with_task(self, task: Task) -> Any:
        """Returns the same with the spare token of the task."""
        return replace(self, token=spare_token(task)) if self.token < 0 else self

    @property
    def frame(self) -> Wrapper:
        """Returns the wrapper with which the trained policy is evaluated."""
        return Without(self.token)

    def __call__(self, scene: Scene, state: State) -> Experience:
        gathered = self.gather(scene.given(actor=SilentActor(scene.actor, self.token)), state)
        more = {name: value for name, value in gathered.extra.items() if name != LOGP_MODEL}
        return replace(gathered, logp=gathered.column(LOGP_MODEL), extra=more)


def recipe(
    preset: Preset = LANGUAGE, spare: SpareToken = SpareToken(), share: float | Schedule = Delayed(0.1, 0.5)
) -> Recipe:
    """Returns grpo that trains the score of a spare token and, from half of a run on, blends it into advantages."""
    base = recipes.grpo(preset)
    stage = replace(base.stages[0], regularizers=(SelfReward(spare),))
    assert base.rollout is not None
    return replace(
        base,
        name="laser",
        rollout=WithoutToken(base.rollout, spare.token),
        credit=(SpareConstant(spare), *base.credit, Blend(spare, share), Balanced()),
        stages=(stage,),
    )


METHOD = Method(
    paper="arXiv:2510.14943",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the advantage is blended after half of the run instead of after 200 steps",
        "weights of the classes are those of the whole batch, and so is the mean",
        "on a GPU answers are decoded token by token, since the sampler cannot leave out a token",
        "beta is 2.3 / |constant|, 0.1 at the paper's -23, so that a small vocabulary can reach a score of 1",
        "the spare token is the last id that no text has; a vocabulary without one is refused",
        "not measured: votes weighed by its score, and scores against grpo, for their cost",
    ),
    results=(
        "one design was tried: AUC 0.65 after 30 steps on one pilot seed, 0.98 of the mean log-probability; "
        "whether r_s needs more than the claim's 60 steps was not tried",
    ),
)
