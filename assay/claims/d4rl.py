"""Claims of d4rl: its references, its reader's rows and ours, bootstrapping after a cut, datasets as episodes, mutants.

Axes: N rows, E episodes.
"""

from dataclasses import replace

import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, probes, same_gradient, same_weights, steps
from assay.datasets.altered import ReferenceRows
from assay.datasets.dataset import Dataset, from_experience
from assay.datasets.episodes import to_experience
from assay.datasets.made import Own
from assay.method import cloned, iql
from assay.methods.d4rl import METHOD, recipe
from assay.parts import Log
from assay.statistics.references import published, reference
from assay.tasks.control.one_goal import with_log
from assay.tasks.control.pendulum import pendulum

HALVES = {"hopper-medium-v2": 1607.0138475, "halfcheetah-expert-v2": 5927.4105235, "walker2d-random-v0": 2296.964504}
"""Returns half way between the references."""


def references_gap() -> float:
    """Returns how far the scores of these returns are from 50, and those of all 147 references from 0 and 100."""
    gaps = [abs(float(reference("d4rl", name).score(value)) - 50.0) for name, value in HALVES.items()]
    for name, (low, high) in published("d4rl")["reference"].items():
        one = reference("d4rl", name)
        gaps += [abs(float(one.score(low))), abs(float(one.score(high)) - 100.0), abs(float(one.returns(100.0)) - high)]
    return probes.worst(*gaps) if len(gaps) == 3 + 3 * 147 else float("inf")


def rows(*ends: str) -> Dataset:
    """Returns six rows in two episodes of three, which end as stated; observations are 0 to 5, and 10 after an end."""
    now = torch.arange(6.0)
    after = torch.where(now % 3 == 2, now + 10.0, now + 1.0)
    terminal, cut = (torch.tensor([place == 2 and end == kind for end in ends for place in range(3)])
                     for kind in ("terminal", "cut"))  # fmt: skip
    return Dataset(now[:, None], now[:, None] / 10, torch.ones(6), terminal, cut, after[:, None])


def wrong_rows() -> float:
    """Returns in how much the rows of D4RL's reader are not those by hand, of both orders of ends and with cut rows."""
    wrong = 0.0
    for ends, keep_cut, kept, done in (
        (("terminal", "cut"), 0, [0, 1, 2, 3, 4], [2]),
        (("cut", "terminal"), 0, [0, 1, 3, 4], []),
        (("cut", "terminal"), 1, [0, 1, 2, 3, 4], []),
    ):
        found = ReferenceRows(keep_cut)(rows(*ends), 0)
        wrong += float(found.observation[:, 0].tolist() != kept)
        wrong += float(found.next_observation[:, 0].tolist() != [one + 1.0 for one in kept])
        wrong += float(found.observation[found.terminal][:, 0].tolist() != done)
    return wrong


def value(of: str) -> float:
    """Returns the value of the first of three states that pay 1 each and follow each other, of rows that end so."""
    ends = torch.tensor([False, False, True])
    here = torch.tensor([0, 1, 2])
    data = Dataset(here, here, torch.ones(3), ends & (of == "terminal"), ends & (of == "cut"), (here + 1) % 3)
    columns, found = data.pairs(), torch.zeros(3, dtype=torch.float64)
    for _ in range(400):
        after = found[columns["context.state"][:, 1]] * ~columns["terminal"][:, 0]
        found = columns["reward"][:, 0].double() + 0.9 * after
    return float(found[0])


def laid_out_wrongly() -> float:
    """Returns how many datasets are others after they were laid out as episodes: of a maze, and of unequal episodes."""
    task, uneven = with_log("noisy"), rows("terminal", "cut")
    uneven = replace(uneven, truncated=uneven.truncated | (torch.arange(6) == 3))
    wrong = 0.0
    for one, spec in ((Own(0).make(task), task.spec), (uneven, pendulum().spec)):
        again = from_experience([to_experience(one)], spec, {})
        wrong += float(replace(again, logp=None).hash != one.hash)
    return wrong


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of iql's formulas", recipe, steps.iql_losses,
                      lambda: probes.transitions(num=64), probes.BOX_SPEC),
        Exact("a return half way between D4RL's references scores 50, and the ends of all 147 score 0 and 100",
              references_gap, at_most=1e-4),
        Exact("the rows of D4RL's own reader are those by hand, wrong successors included", wrong_rows, equals=0.0),
        Exact("a cut episode goes on being paid: its first state is worth 10", lambda: value("cut"), equals=10.0),
        Exact("read as terminal, the same rows are worth 2.71", lambda: value("terminal"), equals=2.71),
        Exact("a dataset laid out as episodes is the same dataset", laid_out_wrongly, equals=0.0),
        same_weights("its updates are iql's to the bit", recipe, iql, of="updates"),
        Exact("cloning draws rows of the dataset", lambda: probes.foreign_rows(cloned(log=Log(3)), pendulum()),
              equals=0.0, of="bc"),
        # What would refute it: that cloning is as good, so that nothing needs to be stitched.
        Measured("on walks from place to place it is above cloning by 10", "one-goal-play", recipe(),
                 recipe(learner=cloned), margin=10.0, seeds=8, minutes=6, steps=500, about=About.HEADLINE),
        Measured("on the replay of an agent's first half cloning is below it by 10", "mini-pendulum-medium-replay",
                 recipe(), recipe(learner=cloned), margin=10.0, seeds=8, minutes=8, steps=500, about=About.HEADLINE),
        Measured("on an expert's data td3-bc is not above cloning by 5", "mini-pendulum-expert",
                 METHOD.variants["td3-bc"](), recipe(learner=cloned), expect=Expect.BELOW, margin=-5.0, seeds=8,
                 minutes=8, steps=500, about=About.MECHANISM),
    ),
    mutants=(
        Edit("cut rows stay", ReferenceRows.__call__, "keep &= ~cut", "keep &= ~cut | True"),
        Edit("the last row stays", ReferenceRows.__call__, "keep[-1] = False", "keep[-1] = True"),
        Edit("the file's own successors", ReferenceRows.__call__,
             "torch.cat((data.observation[1:], data.observation[-1:]))", "data.next_observation"),
        Edit("ends are lost", to_experience, "laid_out(data.terminal)", "laid_out(data.truncated)"),
        Edit("the last observation is lost", to_experience, "= after[data.ends]", "= 0 * after[data.ends]"),
    ),
)
