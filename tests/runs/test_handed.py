"""What phases hand on besides weights, folders of version 0.1, and settings under their old names."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import assay
from assay import recipes
from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Phase
from assay.core.record import Experience, State
from assay.core.slots import Curriculum, Scene
from assay.recipes.presets import TABLE
from assay.runs.config import read_config
from assay.runs.progress import Mode


@dataclass(frozen=True)
class Continued(Curriculum):
    """Starts where the curriculum of an earlier phase stopped."""

    def init(self, scene: Scene) -> State:
        return {"next": scene.handed.get("order", {"next": 0})["next"]}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        first, state["next"] = state["next"], state["next"] + scene.num_starts
        return np.arange(first, state["next"])

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Nothing to learn."""


def small() -> assay.Recipe:
    return recipes.rloo(TABLE).set("rollout.num_starts", 3).set("rollout.group_size", 2)


def test_a_later_phase_begins_with_the_state_that_an_earlier_one_handed_on(tmp_path: Path) -> None:
    first = Phase("first", small(), 4, data={"curriculum": "order"})
    recipe = replace(small(), curriculum=Continued(), before=(first,))
    assay.train(recipe, "bandit", steps=2, out=tmp_path / "run", mode=Mode.SILENT)
    checkpoint = store.load(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.tree["loop"]["states"]["curriculum"] == {"next": 3 * (4 + 2)}
    assert list(json.loads((tmp_path / "run" / "handed.json").read_text())) == ["order"]


@pytest.mark.parametrize("path", ["curriculum.nothing", "optimizer"])
def test_a_state_that_is_not_there_cannot_be_handed_on(path: str, tmp_path: Path) -> None:
    recipe = replace(small(), before=(Phase("first", small(), 1, data={path: "it"}),))
    with pytest.raises(AssayError, match=path.rsplit(".", 1)[-1]):
        assay.train(recipe, "bandit", steps=1, out=tmp_path / "run", mode=Mode.SILENT)


def test_a_folder_of_version_0_1_says_which_version_resumes_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"assay": "0.1.0"}))
    with pytest.raises(AssayError, match=r"assay 0\.1\.0.*pip install assay==0\.1\.0"):
        read_config(tmp_path / "config.json")


def test_old_names_of_settings_are_refused_with_the_new_one() -> None:
    with pytest.raises(AssayError, match="'members' is called 'group_size'"):
        recipes.grpo().set("rollout.members", 4)
    assert recipes.grpo().set("num_prompts", 5).rollout.num_starts == 5  # type: ignore[union-attr]
