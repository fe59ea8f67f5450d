"""Who acts, what is recorded and where it goes in hil-serl, by hand. Axes: N = 2 instances, T columns, B rows."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Exact, Expect, Measured, probes, same_gradient
from assay.claims.classified import classifier_claims
from assay.claims.probes import classified as hand, steps
from assay.method import DEMOS, Context, Draw, Experience, Origin, Recipe, Scene, concatenate
from assay.methods.hil_serl import Growing, Overseen, Straying, Watched, cloning, recipe
from assay.parts import Retained
from assay.tasks.control.peg import HORIZON, peg, straight

TASK = peg()


ROWS = probes.of_origins(probes.transitions(num=64), Origin.POLICY, Origin.DATASET, Origin.POLICY, Origin.HUMAN)
DATA = hand.with_successes(ROWS)


def learned() -> Recipe:
    """Returns the variant whose reward is a classifier's."""
    return recipe(learned=True)


ASTRAY, ALONG = torch.tensor([0.02, -0.01]), torch.tensor([-1.0, 0.25])
"""Proposals that lose and gain height, where the overseer moves up; each has a sum of the other sign."""


ACTS = ((7, 11), (18, 22), (29, 33), (48, 52)), ((15, 19), (26, 30), (37, 40), (48, 52))
"""Times, from 0, in which the overseer acts (from, up to) if every proposal strays, the eighth of instance 1 excepted:
from the eighth in a row on, for four decisions; the episode's last decision is at time 39, the next one's first at 41.
"""


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses: targets of the lower of two critics without entropy, an actor that climbs their mean."""
    step, q = steps.step_of(seen), seen.models["q"]
    if "success" in seen.models:
        step = replace(step, reward=hand.success_of(seen))
    action, _ = steps.squashed(seen.models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    first, second = steps.output(seen.models["q_target"], step.after, action)
    error = steps.output(q, step.now, step.action) - step.target(0.97, torch.minimum(first, second))
    of_success = {"success": hand.success_loss(seen, Origin.POLICY)} if "success" in seen.models else {}
    return of_success | {
        "critic": step.mean(error.square()) / 2,
        "actor": steps.sac_actor(seen, lambda s, a: steps.output(q, s, a).mean(0), least=1.0),
    }


def cloned_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the mean of -log pi(a|s) of the recorded decisions, the density of tanh of a normal in half-ranges."""
    step = steps.step_of(seen)
    found = steps.output(seen.models["actor"], step.now)
    mean, log_std = found[..., :2], found[..., 2:].clamp(-20.0, 2.0)
    inside = ((step.action - steps.CENTRE) / steps.HALF).clamp(-1.0 + 1e-6, 1.0 - 1e-6)
    latent = inside.atanh()
    density = torch.distributions.Normal(mean, log_std.exp()).log_prob(latent) - (1.0 - inside.square()).log()
    return step.mean(-density.sum(-1))


@dataclass
class Down:
    """Proposes to move down the table in both instances, up at time 7 of instance 1."""

    time: int = 0
    num_draws: int = 0

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the proposals; log-probability -1."""
        self.time += 1
        return torch.stack([ASTRAY, ALONG if self.time == 8 else ASTRAY]), -torch.ones(2)


def up(context: Context) -> Tensor:
    """Returns moves up the table, twice as far as is possible."""
    return torch.tensor([0.0, 2.0]).expand(len(context["observation"]), 2)


@dataclass(frozen=True)
class Always(Straying):
    """Every proposal strays."""

    def __call__(self, proposed_NA: Tensor, shown_NA: Tensor) -> Tensor:
        """Returns true."""
        return torch.ones(len(proposed_NA), dtype=torch.bool)


def overseen(recipe: Recipe) -> Any:
    """Returns the recipe's rollout with two instances."""
    rollout: Any = recipe.rollout
    return replace(rollout, gather=replace(rollout.gather, num_envs=2))


def gathered(rollout: Any, actor: Any) -> tuple[list[Experience], Scene]:
    """Returns what a rollout gives in seven calls, and their scene."""
    scene = Scene(TASK, actor=actor, draw=Draw(3))
    state = rollout.init(scene)
    return [rollout(scene.given(draw=Draw(3, (call,))), state) for call in range(7)], scene


def wrongly_taken(recipe: Recipe) -> float:
    """Returns the decisions whose taker, action, log-probability, proposal or effect is not that of the table, and the
    gap of the logged share, in 56 steps of seven calls.
    """
    found, scene = gathered(replace(overseen(recipe), expert=up), Down())
    flags = torch.zeros(2, 56, dtype=torch.bool)
    for row, spans in enumerate(ACTS):
        for first, end in spans:
            flags[row, first:end] = True
    proposed = ASTRAY.repeat(2, 56, 1)
    proposed[1, 7] = ALONG
    executed = torch.where(flags.unsqueeze(2), torch.tensor([0.0, 1.0]), proposed)
    done, here = (torch.cat([getattr(one, name)[:, :8] for one in found], 1) for name in ("action", "mask"))
    place = torch.cat([one.context["observation"][:, :8] for one in found], 1)
    moved = (place[:, :-1] + 0.1 * executed[:, :-1]).clamp(-1.0, 1.0) - place[:, 1:]
    there = here[:, :-1] & here[:, 1:]
    wrong = (torch.cat([one.extra["intervened"][:, :8] for one in found], 1) != flags).sum()
    wrong = wrong + (done != executed).sum() + (~(moved[there].abs() <= 1e-6)).sum() + (here[:, HORIZON]).sum()
    wrong = wrong + (torch.cat([one.extra["proposed"][:, :8] for one in found], 1) != proposed).sum()
    wrong = wrong + (torch.cat([one.logp[:, :8] for one in found], 1) != -1.0 * (here & ~flags)).sum()
    logged = sum(value for value, _ in scene.metrics["intervened"]) / sum(of for _, of in scene.metrics["intervened"])
    return float(wrong) + abs(logged - 31 / 110)


def differs(ours: Experience, theirs: Experience) -> int:
    """Returns the number of columns of a plain record that differ, bit for bit."""
    names = ("action", "mask", "logp", "reward", "terminal", "truncated")
    pairs = [(getattr(ours, name), getattr(theirs, name)) for name in names]
    pairs += [(ours.context[name], theirs.context[name]) for name in theirs.context]
    return sum(not torch.equal(*pair) for pair in pairs)


def of(rows: Experience, origin: Origin) -> Experience:
    """Returns the rows of this origin."""
    assert rows.source is not None
    return rows.rows(rows.source == int(origin))


def never_gap(recipe: Recipe) -> int:
    """Returns how many columns that the recipe gathers, and draws from 800 decisions without a takeover, differ
    from those of the fragments alone and of a source whose demonstrations do not grow.
    """
    source, rollout, actor = recipe.source, overseen(recipe), probes.small_policy(TASK)
    assert isinstance(source, Retained)
    (ours, _), (plain, _) = gathered(rollout, actor), gathered(rollout.gather, actor)
    wrong = sum(map(differs, ours, plain)) + sum(int(one.extra["intervened"].sum()) for one in ours)
    scene = Scene(TASK, probes.Only(failure), fresh=marked(800, every=1000))
    pairs = zip(probes.drawn(source, scene), probes.drawn(replace(source, log=DEMOS), scene), strict=True)
    return wrong + sum(differs(*pair) + len(of(pair[0], Origin.HUMAN)) for pair in pairs)


def failure(context: Context) -> Tensor:
    """Returns the logits of a classifier that finds no success."""
    return -1.0 - context["observation"][..., 0].abs()


def marked(num: int, every: int) -> Experience:
    """Returns fresh transitions of which every so many-th was taken over; some are no decisions."""
    fresh = probes.transitions(TASK.spec, num=num, dtype=torch.float32)
    flags = (torch.arange(1, num + 1) % every == 0).unsqueeze(1) & torch.tensor([True, False])
    return fresh.add({"intervened": flags})


def keys(rows: Experience) -> Counter[tuple[float, ...]]:
    """Returns action, both observations and end of each row's decision, with how often they occur."""
    seen = rows.context["observation"].flatten(1)
    return Counter(map(tuple, torch.cat([rows.action[:, 0], seen, rows.terminal[:, :1].float()], 1).tolist()))


def wrongly_routed(recipe: Recipe) -> float:
    """Returns the transitions that are missing in a half of the batches or strange to it, if a first step has 60 of
    which no batch is drawn yet, and how far the share of those taken over is from I / 2 (D + I) + I / 2 N.
    """
    source = recipe.source
    assert isinstance(source, Retained)
    source = replace(source, replay=replace(source.replay, updates=100))
    whole = marked(200, every=3)
    decided = whole.rows(whole.mask[:, 0])
    taken = decided.rows(decided.extra["intervened"][:, 0])
    scene = Scene(TASK, probes.Only(failure))
    state = source.init(scene)
    early = sum(1 for _ in source(scene.given(fresh=whole.rows(slice(0, 60))), state))
    drawn = concatenate(list(source(scene.given(fresh=whole.rows(slice(60, None)), draw=Draw(0, (1,))), state)))
    own, human, every = keys(of(drawn, Origin.POLICY)), keys(of(drawn, Origin.HUMAN)), keys(drawn)
    wrong = len(own.keys() ^ keys(decided).keys()) + len(human.keys() ^ keys(taken).keys()) + early
    num_demos, num = len(state["log"]["contents"].columns[0]["mask"]), len(taken)
    share = sum(every[one] for one in keys(taken)) / len(drawn)
    return wrong + abs(share - num / (2 * (num_demos + num)) - num / (2 * len(decided)))


def always_gap(recipe: Recipe) -> float:
    """Returns how far all decisions are from the scripted expert's, if every proposal strays and none is let pass, and
    how many are not paid by the task, which pays where an episode is solved.
    """
    rollout = replace(overseen(recipe), strays=Always(), patience=1, stretch=1)
    found, _ = gathered(rollout, probes.small_policy(TASK))
    rows = [(one.action - straight(one.context))[one.mask].abs().max() for one in found]
    unpaid = sum(int((one.reward[one.mask] != one.terminal[one.mask].float()).sum()) for one in found)
    alone = sum(int((one.mask & ~one.extra["intervened"]).sum()) for one in found)
    return float(torch.stack(rows).max()) + unpaid + alone


@dataclass
class Sometimes:
    """Offers a move up in instance 0 at every third step, and never in instance 1."""

    time: int = 0

    def __call__(self, context: Context) -> Tensor:
        """Returns NaN where it offers nothing."""
        self.time += 1
        offer = torch.full((2, 2), torch.nan)
        if self.time % 3 == 0:
            offer[0] = torch.tensor([0.0, 1.0])
        return offer


def wrongly_offered(recipe: Recipe) -> int:
    """Returns the decisions, of all that stray, that the overseer takes without an offer, or leaves with one."""
    rollout = replace(overseen(recipe), strays=Always(), patience=1, expert=Sometimes())
    found, _ = gathered(rollout, Down())
    acts = torch.cat([one.extra["intervened"][:, :8] for one in found], 1)
    there = torch.cat([one.mask[:, :8] for one in found], 1)
    offers = torch.stack([torch.arange(1, 57) % 3 == 0, torch.zeros(56, dtype=torch.bool)])
    other = torch.cat([(one.action != one.extra["proposed"]).any(2)[:, :8] for one in found], 1)
    return int((acts != (offers & there)).sum() + (other & there & ~acts).sum())


CLAIMS = Claims(
    mutants=(
        Edit("interventions are no demonstrations", Growing.__call__, "fresh is not None", "fresh is None"),
        Edit("all decisions are demonstrations", Growing.__call__, 'fresh.mask & fresh.extra["intervened"]',
             "fresh.mask"),
        Edit("the proposal is stored", Overseen.__call__, "action=executed", "action=record.action"),
        Edit("the proposal is executed", Watched.step, "self.inner.step(executed)", "self.inner.step(action)"),
        Edit("decisions of a takeover are not paid", Overseen.__call__, "action=executed",
             "action=executed, reward=record.reward * ~acts"),
        Edit("a takeover goes on where no action is offered", Watched.step, "self.left * offered", "self.left"),
        Edit("one decision at a time", Watched.step, "rules.stretch", "1"),
        Edit("at once", Watched.step, "self.strayed >= rules.patience", "self.strayed >= 1"),
        Edit("a takeover outlives its episode", Watched.step, "(self.left - acts.long()) * ~self.over",
             "self.left - acts.long()"),
        Edit("ten critics", recipe, "critics=2", "critics=10"),
        Edit("the actor climbs the minimum", recipe, "averaged=True", "averaged=False"),
        Edit("the temperature starts at 1", recipe, "temperature=0.01", "temperature=1.0"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, lambda: DATA,
                      probes.BOX_SPEC, at_most=1e-6),
        same_gradient("its gradients with a classifier are those of the formulas", learned, losses_by_hand,
                      lambda: DATA, probes.BOX_SPEC, at_most=1e-6, of="variant classified"),
        same_gradient("interactive cloning maximises the likelihood of demonstrations and takeovers", cloning,
                      cloned_by_hand, lambda: DATA, probes.BOX_SPEC, at_most=1e-6, of="variant cloning"),
        *classifier_claims(learned, DATA, TASK, warmup=100),
        Exact("batches are half demonstrations, rewarded and ended by the classifier as it is now",
              lambda: probes.classified.wrong_rows(learned(), TASK), equals=0.0),
        Exact("takeovers happen, and are recorded, when the table says", lambda: wrongly_taken(recipe()),
              equals=0.0),
        Exact("an overseer who never acts leaves fragments and batches as they are",
              lambda: never_gap(recipe(rate=0.0)), equals=0.0),
        Exact("an overseer who always acts plays the expert's episodes", lambda: always_gap(recipe()), equals=0.0),
        Exact("where the overseer offers no action the policy acts", lambda: wrongly_offered(recipe()), equals=0.0),
        Exact("the overseer's decisions are in both halves, all others in one, in the stated share",
              lambda: wrongly_routed(recipe()), at_most=0.01),
        Exact("an evaluation has no overseer", lambda: recipe().policy({"actor": 1.0}), equals=1.0, of="evaluation"),
        Measured("with two walls before the hole, paid by the task, it succeeds more often in the last quarter of "
                 "1,280 decisions than with the demonstrations alone", "walled-peg", recipe(), recipe(rate=0.0),
                 metric=Average("evaluation", 0.25), seeds=5, minutes=20.0, steps=160, looks=4, about=About.HEADLINE),
        Measured("with two walls before the hole it succeeds more often in the last quarter of 1,280 decisions than "
                 "interactive cloning with the same overseer", "walled-peg", recipe(), cloning(),
                 metric=Average("evaluation", 0.25), seeds=5, minutes=20.0, steps=160, looks=4, about=About.HEADLINE),
        Measured("with two walls before the hole the overseer takes less than 5 % of the last fifth of the decisions",
                 "walled-peg", recipe(), 0.05, metric=Average("intervened", 0.2), expect=Expect.BELOW, seeds=5,
                 minutes=3.0, steps=160, about=About.MECHANISM),
    ),
)
