"""Trained agents to share: a folder with the weights of a run's models, its config and a model card.

    README.md       the model card
    config.json     every part and every setting, as in the folder of the run
    checkpoints/    the weights alone; verified when read

An agent is read wherever a run is: `assay.load`, `assay evaluate`, `assay train --from`; the first two take the id of a
folder on the hub too. Optimizers, replay and simulations stay with the run, so that only the run can be resumed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from assay.core import store
from assay.core.errors import AssayError
from assay.runs.folder import CONTENTS, PICTURE
from assay.runs.warm_start import chosen

CONFIG, CHECKPOINTS = "config.json", "checkpoints"
HUB_ID = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?")


def write_agent(folder: Path, target: Path, which: str | int | None = None) -> store.Checkpoint:
    """Copies config, picture and the weights of a checkpoint of a run to a new folder; returns the checkpoint."""
    if target.exists():
        raise AssayError(f"{target} exists already. Use a new folder")
    found = chosen(folder, which)
    models = found.tree["loop"]["engine"]["models"]
    target.mkdir(parents=True)
    for name in (CONFIG, PICTURE):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    tree = {"loop": {"engine": {"models": models}}, "scores": found.tree["scores"]}
    store.save(target / CHECKPOINTS, found.step, tree, facts=found.manifest["facts"])
    return found


def is_agent(checkpoint: store.Checkpoint) -> bool:
    """Returns whether a checkpoint has weights alone."""
    return "states" not in checkpoint.tree["loop"]


def run_folder(address: Path) -> Path:
    """Returns the folder of a run or an agent: a path, or OWNER/NAME[@REVISION] on the hub, which is downloaded."""
    is_id = HUB_ID.fullmatch(address.as_posix())
    if is_id is None or address.parent.exists():
        return address
    from assay.models.pretrained.hub import downloaded  # here: a folder on the disk does not need it

    try:
        return downloaded(is_id[1], is_id[2], [f"{name}{'/*/*' * (name == CHECKPOINTS)}" for name in CONTENTS])
    except AssayError:
        raise
    except Exception as error:  # the hub's errors have no common base
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AssayError(f"there is no folder '{address}', and the hub does not have this id: {reason}") from error
