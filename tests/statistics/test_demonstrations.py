"""How well a dataset can be cloned: what is refused, the rows that are compared, and the radius that is found."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.statistics import imitability
from assay.statistics.demonstrations import MOST, SHARE

DRAW = np.random.default_rng(0)
STATES, ACTIONS = DRAW.normal(size=(400, 2)), DRAW.normal(size=(400, 1))
ENDS = np.arange(400) % 40 == 39


def test_the_radius_is_that_of_a_hundredth_of_all_pairs() -> None:
    found = imitability(STATES, ACTIONS, STATES, ENDS)
    assert found.state_similarity == pytest.approx(SHARE, abs=1e-5)
    assert found.neighbours == pytest.approx(SHARE * 400, abs=0.01)
    assert found.horizon == 40.0
    again = imitability(STATES, ACTIONS, STATES, ENDS, found.radius)
    assert again.action_variance == pytest.approx(found.action_variance)


def test_units_of_the_states_change_entropies_alone() -> None:
    one, two = (imitability(scale * STATES, ACTIONS, scale * STATES, ENDS) for scale in (1.0, 10.0))
    assert one.action_variance == pytest.approx(two.action_variance)
    assert two.state_entropy - one.state_entropy == pytest.approx(2 * np.log(10.0), abs=1e-4)


def test_of_many_rows_some_are_compared() -> None:
    many = np.tile(STATES, (20, 1))
    found = imitability(many, np.tile(ACTIONS, (20, 1)), many, np.tile(ENDS, 20))
    assert found.neighbours < MOST * 0.02
    assert found.horizon == 40.0


def test_few_rows_need_a_radius_and_columns_are_equally_long() -> None:
    seen, done, ends = STATES[:10], ACTIONS[:10], ENDS[:10]
    with pytest.raises(AssayError, match="10 rows are too few to find a radius"):
        imitability(seen, done, seen, ends)
    assert imitability(seen, done, seen, ends, radius=0.0).action_variance == 0.0
    with pytest.raises(AssayError, match="Give as many of each"):
        imitability(STATES, ACTIONS[:9], STATES, ENDS)
