"""Claims of td3-bc: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace
from typing import Any, cast


from assay.claims import DELAYED, About, Claims, Edit, Engine, Exact, Measured, Placement, follows_schedule, pendulum
from assay.claims import probes, reads_dataset, steps, with_statistics
from assay.method import D4RL, MUJOCO, td3_bc
from assay.parts import Log, Logged, ValueSize

EXPERT = Log(20, noise=0.1, reward_scale=0.1)


def standardised_gap() -> float:
    """Compares a plan's models with plain ones of the same weights, on states standardised by hand."""
    log, task = Log(3), pendulum()
    recipe = with_statistics(replace(td3_bc(D4RL), source=Logged((log,))), task, seed=0)
    ours, plain = (cast(Any, Engine(one, task.spec, 0, Placement()).models) for one in (recipe, td3_bc(MUJOCO)))
    seen = log.columns(task)["context.observation"][:, 0]
    scaled = (seen - seen.mean(0)) / ((seen - seen.mean(0)).square().mean(0).sqrt() + 1e-3)
    action = ours["actor"].act({"observation": seen}, None)[0]
    gap = action - plain["actor"].act({"observation": scaled}, None)[0]
    values = ours["q"]({"observation": seen}, action) - plain["q"]({"observation": scaled}, action)
    return float(gap.abs().max().detach() + values.abs().max().detach())


CLAIMS = Claims(
    mutants=(
        Edit("|mean Q| instead of mean |Q|", ValueSize.__call__, "part.action).abs())", "part.action))"),
        Edit("the sum of |Q|", ValueSize.__call__, " / experience.num_decisions.clamp(min=1)", ""),
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              td3_bc(), probes.transitions(num=2048), steps.td3_bc, probes.BOX_SPEC), at_most=1e-6),
        follows_schedule("actor and target networks move every second update", td3_bc, {"actor": 2, "q": 1}, DELAYED,
                         of="target networks"),
        Exact("on files its networks see (s - mean) / (deviation + 1e-3) of the data, also when acting",
              standardised_gap, at_most=1e-4, of="d4rl"),
        reads_dataset(lambda: td3_bc(log=Log(3)), of=""),
        Measured("on an expert's log it works where TD3 does not", "pendulum", td3_bc(log=EXPERT),
                 td3_bc(log=EXPERT).set("NearRecorded.coefficient", 0.0), seeds=5, minutes=4, steps=150,
                 about=About.HEADLINE),
    ),
)
