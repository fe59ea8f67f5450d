"""Distances to a teacher by hand, over whole distributions and over candidates; whose answers it corrects.

Axes: B sequences, T decisions, K candidates, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Engine, Exact, Measured, Placement, by_hand, probes, sorting
from assay.claims.probes.schedules import handed_on
from assay.method import Origin, Recipe
from assay.methods.gkd import PartlyShown, forward, recipe, reverse, sampled, supervised
from assay.parts import TeacherCandidates, TeacherReward


def with_candidates(ours: Recipe, num: int) -> Recipe:
    credit = tuple(replace(one, num=num) if isinstance(one, TeacherCandidates) else one for one in ours.credit)
    return replace(ours, credit=credit)


def distance(p: Tensor, q: Tensor, beta: float) -> Tensor:
    m = beta * q + (1 - beta) * p
    return (beta * q * (q / m).log() + (1 - beta) * p * (p / m).log()).sum(-1)


def loss_by_hand(seen: probes.Seen, apart: Callable[[Tensor, Tensor], Tensor], num: int, by_student: bool) -> Tensor:
    """Returns the mean over decisions of the distance, candidates apart and all other actions as one."""
    p, q = (seen.models[who].body.table[seen.experience.context["state"]].softmax(-1) for who in ("actor", "teacher"))
    order = (p if by_student else q).argsort(-1, descending=True)
    p, q = (one.gather(-1, order) for one in (p, q.detach()))
    p, q = (torch.cat((one[..., :num], one[..., num:].sum(-1, keepdim=True)), -1) for one in (p, q))
    far = apart(p[..., : num + (num < 4)], q[..., : num + (num < 4)])
    ratio = (seen.logp() - seen.experience.logp).detach().exp().clamp(max=2.0)
    return by_hand.mean_of_decisions(ratio * far, seen.experience)


def gap(ours: Recipe, apart: Callable[[Tensor, Tensor], Tensor], by_student: bool = False) -> float:
    """Returns the largest distance of its gradient from the formula's, over two candidates and over all actions."""
    formulas = ((num, partial(loss_by_hand, apart=apart, num=num, by_student=by_student)) for num in (2, 4))
    data = probes.sequences(spread=2.0)
    return probes.worst(*(probes.formula_gap(with_candidates(ours, num), data, formula) for num, formula in formulas))


def sampled_loss(seen: probes.Seen) -> Tensor:
    advantage = (seen.logp("teacher") - seen.experience.logp).detach()
    return -by_hand.mean_of_decisions(advantage * seen.logp(), seen.experience)


def wrong_rows(own: float, shown: tuple[int, int], starts: int = 40) -> float:
    """Returns how many rows of a step lack the log-probabilities of the acting policy, or are marked as demonstrations
    and are none; plus 1 if the number of demonstrations is not in this range.
    """
    task = sorting(3)
    (found,), actor, _ = probes.gathered(recipe(own=own), task, starts=starts)
    with torch.no_grad():
        scored = actor.score(found, frozenset()).logp * found.mask
    wrong = (~((scored - found.logp * found.mask).abs().amax(1) <= 1e-4)).tolist()
    assert found.source is not None
    is_shown = (found.source != int(Origin.POLICY)).tolist()
    rows = zip(wrong, is_shown, task.texts(found, 0), strict=True)
    bad = sum(is_wrong or (told and row["completion"] != row["answer"]) for is_wrong, told, row in rows)
    return bad + (len(found) != starts) + (not shown[0] <= sum(is_shown) <= shown[1])


def share_of(ours: Recipe) -> float:
    assert isinstance(ours.rollout, PartlyShown)
    return ours.rollout.own


def teacher_gap(ours: Recipe) -> float:
    """Returns how far the teacher's first weights are from those that its phase ends with; plus 1 if the policy has
    them too.
    """
    (phase,), spec = ours.before, sorting(3).spec
    before, after = (Engine(one, spec, seed, Placement()) for one, seed in ((phase.recipe, 1), (ours, 0)))
    after.load(handed_on(phase, before), ours)
    ends, teacher, actor = before.flats["actor"].values, after.flats["teacher"].values, after.flats["actor"].values
    return probes.distance(ends, teacher) + float(torch.equal(ends, actor))


def jensen(beta: float) -> Callable[[Tensor, Tensor], Tensor]:
    return partial(distance, beta=beta)


def against_teacher(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, with candidates of the teacher and all others together",
              lambda: gap(recipe(), jensen(0.5)), at_most=1e-6),
        Exact("a quarter of beta weighs the teacher's divergence by a quarter", lambda: gap(
              recipe(beta=0.25), jensen(0.25)), at_most=1e-6, illustrates=True),
        Exact("at beta 1 its gradient is that of KL(pi || q) over the policy's likeliest actions", lambda: gap(
              reverse(), against_teacher, by_student=True), at_most=1e-6, of="reverse"),
        Exact("at beta 0 its gradient is that of KL(q || pi)", lambda: gap(
              forward(), lambda p, q: against_teacher(q, p)), at_most=1e-6, of="forward"),
        Exact("on sampled tokens its gradient is the policy gradient with log q - log pi of each token alone",
              lambda: probes.formula_gap(sampled(), probes.sequences(spread=2.0), sampled_loss),
              at_most=1e-9, of="sampled"),
        Exact("a row is the policy's own answer or a demonstration, with the acting policy's log-probabilities",
              lambda: wrong_rows(1.0, (0, 0)) + wrong_rows(0.5, (10, 30)), equals=0.0),
        Exact("supervised distillation sees demonstrations alone", lambda: wrong_rows(
              share_of(supervised()), (40, 40)), equals=0.0, of="supervised"),
        Exact("the teacher is what its phase ends with, and the policy is not", lambda: teacher_gap(
              recipe().set("actor.width", 16)), equals=0.0, of="phases"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        Measured("after as many updates it is right more often than the same loss on demonstrations alone", "sorting-5",
                 recipe(), supervised(), seeds=5, minutes=12.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("demonstrations are recorded as certain", PartlyShown.__call__,
             "logp=logp_of(scene.actor, shown)", "logp=shown.logp"),
        Edit("every start is played", PartlyShown.__call__, "< self.own", "< 1.0"),
        Edit("the policy is its own teacher", TeacherCandidates.apply, "over(self.teacher, exp", "over('actor', exp"),
        Edit("the policy scores its candidates", TeacherCandidates.apply, "over(self.teacher, told",
             "over('actor', told"),
        Edit("rewards are kept", TeacherReward.apply, "self.own * experience.reward", "experience.reward"),
    ),
)
