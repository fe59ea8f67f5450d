"""Claims of iql: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import About, Claims, Edit, Exact, Measured, probes
from assay.claims.probes import steps
from assay.method import TABLE, iql, recipes
from assay.parts import AdvantageRegression, Log, RecordedAction
from assay.tasks.tabular.table import gridworld

SPEC = probes.CHOICE_SPEC


RANDOM = Log(50, noise=1.0)


TENTHS = Log(reward_scale=0.1)


STITCHED = "logged-tree:stitching=4,coverage=1"


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    step, models, out = steps.step_of(seen), seen.models, steps.output
    gain = out(models["q_target"], step.now, step.action).amin(0) - out(models["value"], step.now)
    logp = out(models["actor"], step.now).log_softmax(-1)[torch.arange(len(step.reward)), step.action]
    cloned = -step.mean((3.0 * gain).exp().clamp(max=100.0).detach() * logp)
    return {**steps.iql(seen, 0.99, 0.7), "actor": cloned}


def schedule_gap() -> float:
    trained, targets = {"actor": 1, "value": 1, "q": 1}, {"q_target": ("q", 0.005, 1)}
    return probes.schedule_gap(iql(), probes.transitions(SPEC, dtype=torch.float32), SPEC, trained, targets)


CLAIMS = Claims(
    mutants=(
        Edit("the trained critics in V's target", RecordedAction.__call__, "model(self.q)", 'model("q")'),
        Edit("one critic in V's target", RecordedAction.__call__, "values.amin(0)", "values[0]"),
        Edit("the trained critics in the weights", AdvantageRegression.__call__, "model(self.q)", 'model("q")'),
        Edit("another level", iql, "Expectile(level)", "Expectile(0.9)"),
        Edit("plain cloning", iql, "AdvantageRegression(inverse_temperature)", "AdvantageRegression(0.0)"),
        Edit("target critics are copies", iql, "rate=0.005", "rate=1.0"),
    ),
    claims=(
        Exact("its gradients are those of the formulas",
              lambda: probes.formula_gap(iql(), probes.transitions(SPEC, num=64), losses_by_hand, SPEC), at_most=1e-9),
        Exact("target critics follow at rate 0.005", schedule_gap, at_most=1e-7),
        Exact("a step's batches are rows of the dataset",
              lambda: probes.foreign_rows(iql(TABLE, RANDOM), gridworld()), equals=0.0, of="table"),
        Measured("from random walks it finds the way, cloning does not", "gridworld", iql(TABLE, RANDOM),
                 iql(TABLE, RANDOM, inverse_temperature=0.0), seeds=5, minutes=1.0, steps=120, about=About.HEADLINE),
        Measured("where no episode has all good pieces it scores 0.2 above cloning: it stitches", STITCHED,
                 iql(log=TENTHS), recipes.bc(), margin=0.2, seeds=5, looks=3, steps=40, about=About.HEADLINE),
    ),
)
