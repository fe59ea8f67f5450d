"""Claims of neorl2: published scores, equations of its tasks, limits of the transforms, loss by hand, mutants."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Measured, probes, same_gradient, steps
from assay.datasets.recorded import with_statistics
from assay.engine import evaluation
from assay.method import CONTINUOUS, Draw, Recipe, recipes
from assay.methods.neorl2 import METHOD, recipe
from assay.models import WithHistory
from assay.statistics.references import Reference, beats, published, reference
from assay.tasks.control import dmsd, pipeline, transforms
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.near_real import near_real
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import Dynamics, SteppedTask
from assay.tasks.control.transforms import budgeted, delayed, disturbed

TORQUES = 1.9 * torch.sin(torch.arange(230.0 * 4)).view(230, 4, 1)
"""Of four pendulums in more than an episode."""
TIE = {"data": 50.0, "same": 55.0}
"""Scores of one task, exactly 5 apart."""
STACKED = WithHistory(CONTINUOUS.off_policy.body, steps=5)
"""The last five observations and the actions between them."""
CONTINUOUS_TASKS = ("near-pipeline", "near-dmsd", "near-delayed-pendulum", "near-budgeted-pendulum")


def cells_gap() -> float:
    """Returns the largest difference of the 70 published scores from those of the published returns."""
    found = published("neorl2")
    gaps = [abs(float(reference("neorl2", task).score(value)) - found["scores"][task][name])
            for task, row in found["returns"].items() for name, value in row.items()]  # fmt: skip
    return max(gaps) if len(gaps) == 70 else math.inf


def counts_wrong() -> float:
    """Returns how many of the published counts of tasks on which the data are beaten are others here; not of ties."""
    found = published("neorl2")
    ours = {name: [beats(found["scores"], name, by) for by in (0, 3, 5, 10)] for name in found["beats"]}
    return float(sum(ours[name] != row for name, row in found["beats"].items()) + beats({"tie": TIE}, "same", 5.0))


def inverse_gap() -> float:
    """Returns how far returns are from those of their scores, and the ends from 0 and 100."""
    ends, many = Reference(-20.0, 300.0), np.array([-50.0, -20.0, 300.0])
    scores = ends.score(many)
    return float(np.abs(ends.returns(scores) - many).max() + np.abs(scores[1:] - [0.0, 100.0]).max())


def moved(dynamics: Dynamics[np.ndarray], state: np.ndarray, *action: float) -> tuple[np.ndarray, float]:
    """Returns the next state and the reward of one instance."""
    after, reward, _ = dynamics.step(state, np.array([action]), np.array([0.5]))
    return after, float(reward[0])


def arrives() -> float:
    """Returns how far, over 40 decisions, the flow downstream is from what the first action makes of it."""
    state, gap = pipeline.Pipeline().start(np.full((2, 1), 0.5)), 0.0
    before = state[pipeline.SEEN][0, 0]
    for decision in range(1, 41):
        state, _ = moved(pipeline.Pipeline(), state, 1.0 * (decision == 1))
        gap += abs(state[pipeline.SEEN][0, 0] - before - (decision >= 20))
    return float(gap)


def paid(error: float) -> float:
    """Returns the pipeline's reward at a distance of the flow from the target."""
    state = pipeline.Pipeline().start(np.full((2, 1), 0.5))
    state[pipeline.TARGET] = state[pipeline.SEEN][0] + error
    return moved(pipeline.Pipeline(), state, 0.0)[1]


def masses_gap() -> float:
    """Returns how far masses at (.1, -.1) are from where forces of 15 and -30 move them, from rest and in motion."""
    gaps = []
    for speed, expected in (((0.0, 0.0), (0.1, -0.1, 0.144, -0.294)), ((0.2, -0.3), (0.14, -0.16, 0.316, -0.562))):
        state = np.array([0.1, -0.1, *speed, 0.5, 0.5, -0.5, -0.5, 0.0])[:, None]
        gaps.append(np.abs(moved(dmsd.MassSpringDamper(), state, 0.5, -1.0)[0][:4, 0] - expected).max())
    return float(max(gaps))


def near(error: float, time: float) -> float:
    """Returns the reward of masses that rest at this distance from the targets of a time; the other ones are far."""
    first, later = (error, 9.0) if time < 49 else (9.0, error)
    state = np.array([0.0, 0.0, 0.0, 0.0, first, first, later, later, time])[:, None]
    return moved(dmsd.MassSpringDamper(), state, 0.0, 0.0)[1]


def differs(one: SteppedTask, other: SteppedTask, actions: Tensor, theirs: Tensor) -> float:
    """Returns 1 if a task answers to these actions otherwise than another to its own, 0 if they agree to the bit."""
    answers = []
    for task, sent in ((one, actions), (other, theirs)):
        simulation = task.simulate(actions.shape[1])
        simulation.reset(np.arange(actions.shape[1]))
        rows = [simulation.step(action) for action in sent]
        answers.append([part for row in rows for part in (row[0]["observation"], *row[1:4])])
    return float(not all(map(torch.equal, *answers)))


def limits() -> float:
    """Returns how many transforms without an effect are not the task to the bit, over the ends of episodes."""
    found = 0.0
    for task, sent in ((pendulum(), TORQUES), (cartpole(), (TORQUES[:128, :, 0] > 0).long())):
        found += sum(differs(one, task, sent, sent) for one in (delayed(task, 0), disturbed(task, 0.0), budgeted(task)))
    return found


def late() -> float:
    """Returns 1 if actions are not executed two decisions late in each of two episodes, idle ones first."""
    shifted = torch.cat((torch.zeros(2, 4, 1), TORQUES[:-2]))
    shifted[201:203] = 0.0  # 200 decisions are an episode, the one after it begins the next
    return differs(delayed(pendulum(), 2), pendulum(), TORQUES, shifted)


def spent() -> float:
    """Returns 0 if a budget of 2 idles an actuator at full torque from the third decision on, and holds a switch."""
    full, flips = torch.full((6, 4, 1), 2.0), (torch.arange(24).view(6, 4) // 4) % 2
    idle, held = full.clone(), flips.clone()
    idle[2:], held[3:] = 0.0, 0
    switch = differs(budgeted(cartpole(), 2.0), cartpole(), flips, held)
    return switch + differs(budgeted(pendulum(), 2.0), pendulum(), full, idle)


def shaken() -> float:
    """Returns how far forces are from mean 0, deviation 1 and a correlation of 0.9 from one decision to the next;
    infinite if equal seeds have other forces, or two of 2,000 the same.
    """
    change, space, seeds = transforms.Disturbed(1.0), pendulum().spec.action, torch.arange(2001) % 2000
    state, forces = change.start(space, seeds, torch.zeros_like(seeds)), []
    for _ in range(60):
        _, state = change.execute(space, torch.zeros(2001, 1), state)
        forces.append(state["force"][:, 0])
    last, before = forces[-1][:-1], forces[-2][:-1]
    gaps = abs(last.mean()), abs(last.std() - 1.0), abs((last * before).mean() / last.square().mean() - 0.9)
    return float(max(gaps)) if forces[-1][0] == forces[-1][-1] and len(last.unique()) == 2000 else math.inf


def exchanged() -> float:
    """Returns how far the shares of the other choices are from equal parts of the disturbance."""
    change, space, seeds = transforms.Disturbed(0.4), probes.CHOICE_SPEC.action, torch.arange(4000)
    done, _ = change.execute(space, torch.zeros_like(seeds), change.start(space, seeds, 0 * seeds))
    shares = torch.bincount(done, minlength=space.n)[1:] / 4000  # type: ignore[union-attr]
    return float((shares - 0.4 / len(shares)).abs().max())


def goes_on(change: Callable[[SteppedTask], SteppedTask]) -> float:
    """Returns 1 if a restored simulation does not go on as the one that was saved, into the next episode."""
    first, second = (change(pendulum()).simulate(4) for _ in range(2))
    first.reset(np.arange(4))
    for action in TORQUES[:190]:
        first.step(action)
    second.reset(np.arange(4) + 9)
    second.restore(first.snapshot())
    mine, theirs = ([one.step(action)[0]["observation"] for action in TORQUES[:30]] for one in (first, second))
    return float(not all(map(torch.equal, mine, theirs)))


def leads(seed: int, steps: int = 300, names: tuple[str, ...] = CONTINUOUS_TASKS) -> list[float]:
    """Returns by how much each learner's score is above the controller's in its log, for each task."""
    found = []
    for name in names:
        task = near_real(name)
        assert task.logged is not None
        theirs = float(task.judge(task.logged(Draw(seed)), 0).column("score").mean())
        for make in (METHOD.recipe, *METHOD.variants.values()):
            loop = probes.trained(with_statistics(make(), task, seed), task, seed, steps)
            found.append(float(evaluation.scores(loop.policy, task, greedy=True).mean()) - theirs)
    return found


def share_ahead(seed: int) -> float:
    """Returns the share of pairs of a task and a learner in which the controller is beaten by 5."""
    return float(np.mean([lead > 5.0 for lead in leads(seed)]))


def short_leads(seed: int) -> float:
    """Returns the mean lead on one task after two steps."""
    return float(np.mean(leads(seed, 2, CONTINUOUS_TASKS[3:])))


def stacking() -> Recipe:
    """Returns sac on the last five observations and the actions between them."""
    return recipes.sac(replace(CONTINUOUS, off_policy=replace(CONTINUOUS.off_policy, body=STACKED)))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of td3-bc's formulas", recipe,
                      steps.td3_bc, probes.transitions, probes.BOX_SPEC, at_most=1e-6),
        Exact("all 70 published scores are those of the published returns", cells_gap, at_most=0.007),
        Exact("the published counts of tasks on which the data are beaten come out again", counts_wrong, equals=0.0),
        Exact("a score of 0 is the lower reference, 100 the upper one, and scores have one return", inverse_gap,
              at_most=1e-9),
        Exact("the pipeline's first action changes the flow downstream from decision 20 on, by its size", arrives,
              at_most=1e-9),
        Exact("a pipeline pays 1, .61 and -2 at errors of 0, 10 and 100", lambda: probes.worst(
              abs(paid(0) - 1), abs(paid(10) - 0.61), abs(paid(100) + 2)), at_most=1e-6),
        Exact("two masses pushed by 15 and -30 move by the equations", masses_gap, at_most=1e-9),
        Exact("masses at the targets of now are paid 9.21034, at a distance of .1 4.41455", lambda: probes.worst(
              abs(near(0.0, 48) - 9.21034), abs(near(0.1, 49) - 4.41455)), at_most=1e-5),
        Exact("no delay, no disturbance and no limit are the task to the bit", limits, equals=0.0),
        Exact("a delay of two executes what was decided two decisions ago, idle actions first", late, equals=0.0),
        Exact("a spent budget idles an actuator and holds a switch", spent, equals=0.0),
        Exact("a disturbance has mean 0, deviation 1 and a memory of .9, by its seed", shaken, at_most=0.06),
        Exact("a disturbance of choices takes each other one equally often", exchanged, at_most=0.02),
        Exact("delays, disturbances and budgets go on where they stopped", lambda: sum(map(goes_on, (
              lambda task: delayed(task, 3), lambda task: disturbed(task, 0.4), lambda task: budgeted(task, 50.0)))),
              equals=0.0),
        # What would refute it: that most pairs beat the controller of their log.
        Measured("fewer than half of 16 pairs of task and learner beat the log's controller by 5", "",
                 Computed(share_ahead, small=short_leads), 0.5, expect=Expect.BELOW, seeds=5, looks=1, minutes=25,
                 about=About.HEADLINE),
        Measured("where actions come four decisions late sac that sees past ones is above sac by 100",
                 "delayed=4:pendulum", stacking(), recipes.sac(), margin=100.0, seeds=5, minutes=12, steps=1000,
                 about=About.MECHANISM),
    ),
    mutants=(
        Edit("a fraction", Reference.score, "100.0 * ", ""),
        Edit("ties count", beats, "> row[than]", ">= row[than]"),
        Edit("one cell more", pipeline.Pipeline.step, "moved[PIPE][-1:]", "state[PIPE][-1:]"),
        Edit("the old target is paid", pipeline.Pipeline.step, "- moved[TARGET])", "- state[TARGET] - 1.0)"),
        Edit("springs alone", dmsd.MassSpringDamper.step, " + DAMPING * speed", ""),
        Edit("the new velocity moves", dmsd.MassSpringDamper.step, "place + SECONDS * speed", "place + SECONDS * push"),
        Edit("targets change late", dmsd.targets, "<", "<="),
        Edit("one decision later", transforms.Delayed.execute, "sent[:, 0]", "sent[:, -1]"),
        Edit("a disturbance without memory", transforms.Disturbed.execute, "MEMORY * state", "0.0 * state"),
        Edit("a choice may stay", transforms.Disturbed.execute, "1 + torch", "0 + torch"),
        Edit("efforts are forgotten", transforms.Budgeted.execute, 'state["spent"] + effort', "effort"),
        Edit("delays cross episodes", transforms.ChangedSimulation.step, "begins.any()", "begins.all() & False"),
        Edit("the past is not restored", transforms.ChangedSimulation.restore, 'dict(state["state"])', "self._state"),
    ),
)
