"""Claims of iql: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace

import torch

from assay.claims import ALONE, About, Claims, Edit, Exact, Measured, follows_schedule, gridworld, pendulum, probes
from assay.claims import reads_dataset, steps
from assay.method import CONTINUOUS, TABLE, iql, recipes
from assay.parts import AdvantageRegression, Log, Logged, RecordedAction, ReturnRange

SPEC = probes.CHOICE_SPEC


RANDOM = Log(50, noise=1.0)


STITCHED = "logged-tree:stitching=4,coverage=1"


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    return {**steps.iql(seen, 0.99, 0.7), "actor": steps.cloned_by_gain(seen)}


def scale_gap() -> float:
    """Returns how far rewards of its batches are from reward * longest episode / range of returns, and from those of
    the same data with rewards times 10,000; relative to their size.
    """
    task, scene = pendulum(), ALONE.given(task=pendulum())
    rows, large = (
        torch.cat([batch.reward[:, 0] for batch in probes.drawn(iql(CONTINUOUS, log).source, scene)])
        for log in (Log(5, noise=0.5), Log(5, noise=0.5, reward_scale=1e4))
    )
    source = iql(CONTINUOUS, Log(5, noise=0.5)).source
    assert isinstance(source, Logged)
    plain = replace(source, scale=None)
    raw = torch.cat([batch.reward[:, 0] for batch in probes.drawn(plain, scene)])
    returns = Log(5, noise=0.5).columns(task)["reward"][:, 0].view(5, 200).double().sum(1)
    factor = 200.0 / (max(returns.tolist()) - min(returns.tolist()))
    return float(((rows - factor * raw).abs().max() + (large - rows).abs().max()) / rows.abs().max())


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
        follows_schedule("target critics follow at rate 0.005", iql, {"actor": 1, "value": 1, "q": 1}, spec=SPEC),
        reads_dataset(lambda: iql(TABLE, RANDOM), gridworld, ReturnRange()),
        Exact("rewards are in units of the range of returns over the longest episode, whatever they were",
              scale_gap, at_most=1e-5, of="units"),
        Measured("from random walks it finds the way, cloning does not", "gridworld", iql(TABLE, RANDOM),
                 iql(TABLE, RANDOM, inverse_temperature=0.0), seeds=5, minutes=1.0, steps=120, about=About.HEADLINE),
        Measured("where no episode has all good pieces it scores 0.2 above cloning: it stitches", STITCHED,
                 iql(log=Log()), recipes.bc(), margin=0.2, seeds=5, looks=3, steps=40, about=About.HEADLINE),
    ),
)
