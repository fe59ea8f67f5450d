"""Exact claims that methods share, on what an update moves and where batches come from: each holds of the recipe that
it is about, and of none with one setting changed.
"""

from functools import partial

import torch

from assay.claims import (
    COPIED,
    DELAYED,
    follows_schedule,
    pendulum,
    probes,
    reads_dataset,
    refuses,
    same_report,
    same_weights,
    steps,
)
from assay.method import dqn, sac, td3, td3_bc
from assay.methods.fisor import recipe as fisor
from assay.parts import Log, ReturnRange
from assay.tasks.control.steered import steered_hazards


def test_a_schedule_is_that_of_the_recipe_and_of_no_other() -> None:
    assert follows_schedule("soft", sac).run().holds
    assert not follows_schedule("faster", lambda: sac().set("copies.q_target.rate", 0.006)).run().holds
    assert not follows_schedule("without temperature", sac, {"actor": 1, "q": 1}).run().holds
    assert follows_schedule("delayed", td3, {"actor": 2, "q": 1}, DELAYED).run().holds
    assert not follows_schedule("each time", td3, {"actor": 1, "q": 1}, DELAYED).run().holds


def test_a_copy_is_made_at_its_updates_alone() -> None:
    rare = partial(follows_schedule, "copied", lambda: dqn().set("copies.target.every", 3), {"actor": 1})
    assert rare({"target": ("actor", 1.0, 3)}, spec=probes.CHOICE_SPEC).run().holds
    assert not rare({"target": ("actor", 1.0, 2)}, spec=probes.CHOICE_SPEC).run().holds
    assert not rare(COPIED, spec=probes.CHOICE_SPEC).run().holds


def test_equal_weights_are_those_of_every_update() -> None:
    assert same_weights("itself", sac, sac, num=2).run().value == 0.0
    later = same_weights("other", sac, lambda: sac().set("copies.q_target.rate", 0.006), num=2).run()
    assert not later.holds
    assert 0.0 < later.value < 1e-3


def test_rows_of_a_dataset_have_its_rewards() -> None:
    assert reads_dataset(lambda: td3_bc(log=Log(3))).run().holds
    assert not reads_dataset(lambda: td3_bc(log=Log(3)), scale=ReturnRange()).run().holds
    assert not reads_dataset(sac).run().holds


def test_a_report_is_a_mean_of_both_critics() -> None:
    def report(seen: probes.Seen, factor: float = 1.0) -> dict[str, torch.Tensor]:
        step, q = steps.step_of(seen), partial(steps.output, seen.models["q"])
        recorded = factor * q(step.now, step.action)
        return steps.sac_report(seen, recorded, recorded - steps.soft_target(seen), lambda *pair: q(*pair).amin(0))

    given = partial(same_report, sac, data=partial(probes.transitions, num=16), spec=probes.BOX_SPEC)
    assert given(formula=report).run().holds
    assert not given(formula=partial(report, factor=1.001)).run().holds


def test_a_refusal_is_of_one_task_and_not_of_another() -> None:
    assert refuses("pendulum", fisor, pendulum).run().holds
    assert not refuses("hazards", fisor, steered_hazards).run().holds
    assert refuses("pendulum alone", fisor, pendulum, steered_hazards).run().holds
    assert not refuses("both", fisor, pendulum, pendulum).run().holds
