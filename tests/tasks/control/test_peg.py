"""peg and walled-peg: where walls stop the peg, by hand, and that the scripts reach the hole."""

from __future__ import annotations

import numpy as np
import pytest

from assay.tasks.control.peg import EDGE, Peg, WalledPeg, peg, walled_peg


@pytest.mark.parametrize(
    ("place", "action", "ends"),
    [
        ((-0.35, 0.0), (1.0, 0.0), (-0.3 - EDGE, 0.0)),  # the first wall stops x
        ((-0.35, 0.0), (1.0, 0.5), (-0.3 - EDGE, 0.05)),  # and lets y go on
        ((-0.35, 0.4), (1.0, 0.0), (-0.25, 0.4)),  # through its gap
        ((-0.35, 0.19), (1.0, 1.0), (-0.25, 0.29)),  # met at 0.24, which is inside
        ((-0.35, 0.14), (1.0, 1.0), (-0.3 - EDGE, 0.24)),  # met at 0.19, which is not
        ((-0.25, 0.0), (-1.0, 0.0), (-0.3, 0.0)),  # from the right it stops on the right
        ((0.05, 0.4), (1.0, 0.0), (0.1 - EDGE, 0.4)),  # the second wall has its gap below
        ((0.05, -0.5), (1.0, 0.0), (0.15, -0.5)),
        ((-0.8, 0.0), (1.0, 0.0), (-0.7, 0.0)),  # no wall is near
        ((-0.3 - EDGE, 0.0), (0.0, 1.0), (-0.3 - EDGE, 0.1)),  # along a wall
    ],
)
def test_a_wall_stops_what_does_not_meet_its_gap(
    place: tuple[float, float], action: tuple[float, float], ends: tuple[float, float]
) -> None:
    state = np.array([place, (-0.9, 0.9)]).T  # the second instance is far from every wall
    moved, reward, terminal = WalledPeg().step(state, np.array([action, (0.0, 0.0)]), None)
    assert moved[:, 0] == pytest.approx(ends, abs=1e-7)
    assert moved[:, 1] == pytest.approx((-0.9, 0.9))
    assert not reward.any()
    assert not terminal.any()


def test_behind_the_walls_it_is_peg() -> None:
    state, action = np.array([[0.25, 0.3, 0.9], [0.0, 0.3, -0.9]]), np.array([[1.0, 0.0], [0.5, -1.0], [1.0, 1.0]])
    for ours, theirs in zip(WalledPeg().step(state, action, None), Peg().step(state, action, None), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("task", [peg(), walled_peg()], ids=lambda task: task.name)
def test_the_script_reaches_the_hole_from_everywhere(task: object) -> None:
    shown = task.demonstrate(np.arange(200), 0)  # type: ignore[attr-defined]
    assert bool((shown.reward.sum(1) == 1.0).all())
    assert int(shown.mask.sum(1).max()) <= 27
