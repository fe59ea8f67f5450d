"""Settings that were renamed: parts have the new name, and the old one is refused with it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from assay.claims import discover
from assay.core.errors import AssayError
from assay.core.settings import RENAMED
from assay.runs import catalogue
from tests.claims.examples import EXAMPLES


def test_every_new_name_is_a_setting_of_a_part() -> None:
    known = {field.name for part in discover.parts(EXAMPLES) for field in fields(part.cls)}
    assert set(RENAMED.values()) - known == set()


@pytest.mark.parametrize("name", ["iql", "fisor"])
def test_the_temperature_of_weighted_cloning_has_its_new_name_alone(name: str) -> None:
    method = catalogue.methods()[name]
    recipe = method.recipe(method.presets[0])
    assert recipe.set("inverse_temperature", 2.0) != recipe
    with pytest.raises(AssayError, match="'sharpness' is called 'inverse_temperature'"):
        recipe.set("sharpness", 2.0)
