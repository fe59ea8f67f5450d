"""Losses of steps and of the critic by hand. Axes: B sequences, T decisions."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Final, Loop, Measured, by_hand, probes
from assay.claims.testbeds.language.places import key_decisions, true_advantage
from assay.method import PLACES, Experience, Recipe, Scene, recipes
from assay.methods.direct_advantage_po import AsProbability, RegressSteps, StepStarts, critic, in_segments
from assay.methods.direct_advantage_po import of_answers, recipe
from assay.models import Critic, TokenTable
from assay.parts import TextSteps
from assay.parts.credit.steps import step_begins

SEEN = replace(PLACES, value=Critic(TokenTable(2)))
"""A critic that sees the last two tokens."""


def spans(length: int) -> TextSteps:
    """Returns steps of so many tokens, on a task without text."""
    return TextSteps(length=length)


def steps_of(data: Experience, row: int, length: int) -> list[list[int]]:
    """Returns the columns of each step of a row."""
    columns = data.mask[row].nonzero().flatten().tolist()
    return [columns[first : first + length] for first in range(0, len(columns), length)]


def gap(ours: Recipe, length: int) -> float:
    def loss_by_hand(seen: probes.Seen) -> Tensor:
        data, chance = seen.experience, 1.0 / (1.0 + (-seen.value()).exp())
        moved, losses = seen.logp() - seen.logp("reference").detach(), []
        for row in range(len(data)):
            for step in steps_of(data, row, length):
                after = chance[row, step[-1] + 1] if data.mask[row, step[-1] + 1] else 0.0
                gain = data.reward[row, step].sum() + after - chance[row, step[0]]
                losses.append((gain.detach() - 0.5 * moved[row, step].sum()).square())
        return torch.stack(losses).mean()

    return probes.formula_gap(ours, probes.UNIT_OUTCOME, loss_by_hand)


def critic_gap(ours: Recipe, length: int) -> float:
    def loss_by_hand(seen: probes.Seen) -> Tensor:
        data, chance, losses = seen.experience, 1.0 / (1.0 + (-seen.value()).exp()), []
        for row, right in enumerate(by_hand.outcome(data)):
            before = chance[row, [step[0] for step in steps_of(data, row, length)]]
            losses.append(-right * before.log() - (1.0 - right) * (1.0 - before).log())
        return torch.cat(losses).mean()

    return probes.formula_gap(ours, probes.UNIT_OUTCOME, lambda seen: {"value": loss_by_hand(seen)})


SHORT = replace(recipe(SEEN, 0.1, spans(1)), steps=60)
"""Steps of one token: the keys are tokens. With beta 0.5 both sides stay at 0.07, from 0.04."""


LINES = {
    "3+4=7\n7": ("3+4=7\n", "7$"), "7": ("7$",), "\n\na\n\n \nb c\n": ("\n\na\n\n \n", "b c\n$"), "\n": ("\n$",),
}  # fmt: skip
"""Answers and their steps; $ is the end token."""


def wrong_steps(ours: Recipe) -> float:
    """Returns how many answers of `LINES` are cut into other steps, or have other states at which the critic learns;
    and one more if a separator of two characters does not cut.
    """
    task, rows = probes.answered([*LINES, "a; b;c; "])
    found = next(part for part in ours.credit if isinstance(part, TextSteps))
    cut, wrong = found(rows, Scene(task), {}), 0
    for row, steps in enumerate([*LINES.values(), ("a; b;c; $",)]):
        expected = [number for number, step in enumerate(steps, 1) for _ in step]
        wrong += segments_of(cut, row) != expected
        wrong += int(StepStarts()(cut).mask[row].sum()) != len(steps)
    return float(wrong + (segments_of(replace(found, separator="; ")(rows, Scene(task), {}), -1)[-1] != 2))


def segments_of(cut: Experience, row: int) -> list[int]:
    """Returns the number of each decision's step."""
    assert cut.segment is not None
    numbers: list[int] = cut.segment[row][cut.mask[row]].tolist()
    return numbers


def pushes(ours: Recipe, data: Experience, logp: Tensor, value: Tensor) -> Tensor:
    """Returns how strongly the decisions are raised, with the recorded policy as reference."""
    return probes.decision_weights(ours, data, logp, logp_ref=data.logp, value=value)


def gap_to_answers(ours: Recipe, answers: Recipe) -> float:
    """Returns the distance from the regression of whole answers, where the critic knows the group's mean 3/4."""
    data = probes.bandit_experience([0, 1, 2, 0], [1.0, 0.0, 1.0, 1.0], torch.zeros(3))
    logp = data.logp + torch.tensor([[0.3], [-0.2], [0.0], [0.1]]).double()
    mine = pushes(ours, data, logp, torch.full_like(data.reward, 3.0).log())
    return float((mine - probes.decision_weights(answers, data, logp, logp_ref=data.logp)).abs().max())


def wrong_phases(ours: Recipe) -> int:
    """Returns how many of three facts do not hold: the reference acts, never changes, and the critic is handed on."""
    kept = ours.before[0].hands == {"actor": "actor", "value": "value"}
    return (ours.behaviour != "reference") + (ours.copies["reference"].rate != 0.0) + (not kept)


def credit_of(ours: Recipe, seed: int, steps: int | None = None) -> float:
    """Returns the correlation of its advantages with the true ones at the start, after its earlier phases, where 2 of 3
    tokens decide and the critic sees all of them; `steps` of each phase, by default its own.
    """
    task = key_decisions(length=3)
    loop = Loop(replace(ours, before=()), task, seed=seed, num_steps=1)
    for phase in ours.before:
        first = probes.trained(phase.recipe, task, seed, steps or phase.steps)
        loop.engine.models["value"].load_state_dict(first.engine.models["value"].state_dict())
    start = deepcopy(loop.actor)
    fresh = loop.step().fresh
    assert fresh is not None
    mine, truth = fresh.column("advantage")[fresh.mask].double(), true_advantage(task, fresh, start)[fresh.mask]
    return float(torch.corrcoef(torch.stack((mine, truth)))[0, 1])


def credits(ours: Recipe) -> Computed:
    """Returns the side of `credit_of`."""
    return Computed(partial(credit_of, ours), small=partial(credit_of, ours, steps=2))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe(), 5), at_most=1e-9),
        Exact("with steps of two tokens its gradient is the formula's", lambda: gap(recipe(steps=spans(2)), 2),
              at_most=1e-9),
        Exact("the critic's gradient is that of the cross-entropy on outcomes before each step",
              lambda: critic_gap(critic(), 5), at_most=1e-9),
        Exact("before each step of two tokens the critic's gradient is that of the cross-entropy",
              lambda: critic_gap(recipe(steps=spans(2)).before[0].recipe, 2), at_most=1e-9, of="phases"),
        Exact("steps are lines with the blank ones after them, and the critic learns where they begin",
              lambda: wrong_steps(recipe()), equals=0.0),
        Exact("with one step an answer and the group's mean as value it is kimi-k1.5's regression",
              lambda: gap_to_answers(recipe(steps=spans(99)), of_answers()), at_most=1e-6),
        Exact("the frozen start answers; both models are handed on", lambda: wrong_phases(recipe()), equals=0.0),
        Measured("where 2 of 3 tokens decide, its advantages are nearer the true ones than centred outcomes are: "
                 "correlation at the start", "", credits(recipe(SEEN, steps=spans(1))),
                 credits(recipes.group_reinforce(SEEN)), minutes=3.0, looks=2,
                 about=About.MECHANISM),
        Measured("where 2 of 3 tokens decide, it is right more often than the regression of whole answers to centred "
                 "outcomes from as many samples", "key-decisions:length=3", SHORT,
                 replace(of_answers(SEEN, 0.1), steps=160), Final("pass_rate"), minutes=6.0, about=About.HEADLINE),
    ),
    mutants=(
        Edit("logits as values", AsProbability.apply, 'column("value").sigmoid()', 'column("value")'),
        Edit("a mean within steps", RegressSteps.__call__, "self.beta * moved",
             "self.beta * moved / size.clamp(min=1)"),
        Edit("blank lines are steps", step_begins, "and bool(piece.strip())", ""),
        Edit("the first line may be empty", step_begins, "step.lstrip()", "step"),
        Edit("critics learn at every token", StepStarts.apply, "numbered > pad(numbered[:, :-1], (1, 0))", "mask"),
        Edit("one step a row", in_segments, "batch.segment is None", "True"),
        Edit("the policy answers", recipe, 'behaviour="reference", ', ""),
    ),
)
