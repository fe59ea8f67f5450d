"""Claims of d5rl: its report by hand, provenance through changes of a log, rewards of play, stitching, mutants."""

from dataclasses import replace

import numpy as np
import torch

from assay.claims import About, Claims, Edit, Exact, Gain, Measured, probes, same_gradient, same_weights, steps
from assay.datasets import altered
from assay.datasets.dataset import Dataset, join_datasets
from assay.datasets.made import Own
from assay.method import Draw, Phase, cloned, iql
from assay.methods.d5rl import METHOD, fine_tuned, recipe
from assay.parts import Retained
from assay.statistics.fine_tuning import FineTuning, fine_tuning
from assay.tasks.control import one_goal
from assay.tasks.control.one_goal import LOGS, paid, with_log
from assay.tasks.control.pointmaze import UMAZE

REPORTS = (
    ((0.4, 0.25, 0.3, 0.55, 0.7), None, FineTuning(0.4, 0.15, 0.7, 0.3, 0.45)),
    ((0.4, 0.5, 0.3), 1, FineTuning(0.4, 0.0, 0.3, -0.1, 0.4)),
    ((0.2, 0.3, 0.4), None, FineTuning(0.2, 0.0, 0.4, 0.2, 0.35)),
    ((0.5, 0.5, 0.5), None, FineTuning(0.5, 0.0, 0.5, 0.0, 0.5)),
)
"""Curves, windows of the dip, and their reports by hand."""
ROOMS, DISCOUNT = 7, 0.9
"""Places 0 to 6 of a corridor of three rooms: A is 0, B is 3, C is 6."""


def reports_gap() -> float:
    """Returns the largest difference of a report from that by hand."""
    pairs = ((vars(fine_tuning(curve, window)), vars(by_hand)) for curve, window, by_hand in REPORTS)
    return probes.worst(*(abs(ours[name] - theirs[name]) for ours, theirs in pairs for name in ours))


def provenance_lost() -> float:
    """Returns how many episodes have another provenance after logs are joined, filtered, mixed and taken apart."""
    logs = [altered.Marked(place)(Own(0).make(with_log(name)), 0) for place, name in enumerate(LOGS)]
    whole, sizes = join_datasets(logs, {}), [len(one.returns) for one in logs]
    wrong = sum(abs(whole.origins[place] - size) for place, size in enumerate(sizes))
    for place, one in enumerate(logs):
        wrong += altered.FromOrigin(place)(whole, 0).hash != one.hash
    some = altered.Filtered(0.5, "any")(whole, 3)
    apart = [altered.FromOrigin(place)(some, 0).origins for place in some.origins]
    return float(wrong + (sum(some.origins.values()) != len(some.returns)) + (sum(map(len, apart)) != len(apart)))


def rewards_gap() -> float:
    """Returns in how many decisions of the logs the rewards are not what the task pays in the states they lead to."""
    wrong = 0.0
    for name in ("scripted", "noisy"):
        found = one_goal.of_origin(name, Draw(0))
        wrong += float((paid(UMAZE, found.context["observation"][:, 1:]) - found.reward[:, :-1]).abs().sum())
    walked = one_goal.of_origin("play", Draw(0))
    seen = walked.context["observation"]
    wrong += float((paid(UMAZE, seen[:, 1:]) - walked.reward[:, :-1]).abs().sum()) + float(walked.terminal.sum())
    return wrong + float(walked.truncated.sum() != len(walked)) + float(walked.reward.sum() == 0)


def corridor() -> Dataset:
    """Returns walks A to B and back, twice, and from B to C, once: none from A to C; reaching C pays 1 and ends."""
    walks = [[0, 1, 2, 3, 2, 1, 0]] * 2 + [[3, 4, 5, 6]]
    now = torch.tensor([place for walk in walks for place in walk[:-1]])
    after = torch.tensor([place for walk in walks for place in walk[1:]])
    last = torch.tensor([place == len(walk) - 2 for walk in walks for place in range(len(walk) - 1)])
    solved = after == ROOMS - 1
    return Dataset(now, (after > now).long(), solved.float(), solved, last & ~solved, after)


def reached(policy: np.ndarray) -> float:
    """Returns the discounted reward of a policy (0 left, 1 right) from A, 0 if it does not reach C."""
    place = 0
    for time in range(50):
        place = max(0, place + (1 if policy[place] else -1))
        if place == ROOMS - 1:
            return float(DISCOUNT**time)
    return 0.0


def stitched(by_value: bool) -> float:
    """Returns what cloning of the corridor's log reaches from A, or the greedy policy of its values."""
    log, counts, values = corridor(), np.zeros((ROOMS, 2)), np.full((ROOMS, 2), -np.inf)
    rows = list(zip(log.observation.tolist(), log.action.tolist(), log.reward.tolist(), log.terminal.tolist(),
                    log.next_observation.tolist(), strict=True))  # fmt: skip
    for now, action, *_ in rows:
        counts[now, action] += 1
        values[now, action] = 0.0
    for _ in range(40):
        for now, action, reward, over, after in rows:
            values[now, action] = reward + (0.0 if over else DISCOUNT * max(0.0, values[after].max()))
    return reached((values if by_value else counts).argmax(1))


def hands_over() -> float:
    """Returns how many models do not begin online as the offline phase left them, and what else differs there."""
    wrong = 0.0
    for ours in (made() for made in METHOD.variants.values()):
        if not ours.before:
            continue
        (phase,), source = ours.before, ours.source
        assert isinstance(phase, Phase)
        assert isinstance(source, Retained)
        models = {"actor", *ours.critics, *ours.copies}
        wrong += len(models ^ set(phase.hands)) + (phase.recipe.stages != ours.stages) + (source.kept != 0.5)
        wrong += (phase.recipe.source != source.log) + (ours.rollout is None)
    return float(wrong)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of iql's formulas", recipe, steps.iql_losses,
                      lambda: probes.transitions(num=64), probes.BOX_SPEC),
        Exact("reports of four curves are those by hand, one with a dip of .15 and one with a window of 1", reports_gap,
              at_most=1e-9),
        Exact("provenance stays with each episode through joins, filters and parts", provenance_lost, equals=0.0),
        Exact("all three logs are paid as the task pays, play included", rewards_gap, equals=0.0),
        Exact("where no walk leads from A to C cloning reaches nothing", lambda: stitched(by_value=False), equals=0.0,
              of="theory"),
        Exact("values of the same walks lead from A to C, five decisions before the reward", lambda: stitched(
              by_value=True), equals=DISCOUNT**5, of="theory"),
        same_weights("its offline updates are iql's to the bit", recipe, iql, of="updates"),
        Exact("online all models begin as they were left, with the same losses on half old rows", hands_over,
              equals=0.0, of="phases"),
        # What would refute it: that cloning is as good on play, so that values add nothing to it.
        Measured("on play it is above cloning by 10", "one-goal-play", replace(recipe(), steps=500),
                 replace(recipe(learner=cloned), steps=500), margin=10.0, seeds=8, minutes=6, about=About.HEADLINE),
        Measured("on a narrow script's log cloning is not below it by 10", "one-goal-scripted",
                 replace(recipe(learner=cloned), steps=500), replace(recipe(), steps=500), margin=-10.0, seeds=8,
                 minutes=6, about=About.HEADLINE),
        Measured("online it gains more than 5 over its noisy log", "one-goal-noisy", fine_tuned(), 5.0, Gain(),
                 seeds=5, minutes=8, about=About.MECHANISM),
    ),
    mutants=(
        Edit("the dip is looked for everywhere", fine_tuning, "online[:window]", "online"),
        Edit("a rise is a dip", fine_tuning, "max(0.0, before", "abs(before"),
        Edit("the beginning counts", fine_tuning, "float(online.mean())", "float(curve.mean())"),
        Edit("unmarked", altered.Marked.__call__, "self.number", "0"),
        Edit("other episodes", altered.FromOrigin.__call__, "== self.number)", "!= self.number)"),
        Edit("play keeps its own rewards", one_goal.relabelled, "reward=reward", "reward=played.reward"),
        Edit("play ends at its goals", one_goal.relabelled, "torch.zeros_like(played.terminal)", "played.reward > 0"),
    ),
)
