"""The runs of this user: a record outside of run folders of those that were started here, or that the user trusts.

A run folder may come from anywhere, and digests of installed packages are public: what its config.json says cannot
show that the user chose the code that it names. The record is one small file for each config.json, named by the sha256
of its content, in $XDG_STATE_HOME/assay/runs (~/.local/state/assay/runs).
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.runs.config import read_config

NOT_SEALED = ("more_steps",)
"""Fields that a run changes later and that choose no code."""


def state_folder() -> Path:
    """Returns the folder of what is remembered between runs: `assay` in the user's directory of states."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").expanduser() / "assay"


def record_file(config: Mapping[str, Any]) -> Path:
    """Returns the file that exists if a run with this config.json, as plain JSON, is known."""
    sealed = {name: value for name, value in config.items() if name not in NOT_SEALED}
    content = json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode()
    return state_folder() / "runs" / hashlib.sha256(content).hexdigest()


def is_known(config: Mapping[str, Any]) -> bool:
    """Returns whether the user has started a run with this config.json here, or trusts it; False without a home."""
    try:
        return record_file(config).is_file()
    except (OSError, RuntimeError):  # the latter: there is no home directory
        return False


def remember(folder: Path, config: Mapping[str, Any]) -> None:
    """Records that the user has chosen the code that a config.json names, `config` as in the file; nothing to do if it
    names none.

    A place that cannot be written is a warning: the run works, and needs --trust-code when it is resumed.
    """
    if not config.get("code"):
        return
    try:
        file = record_file(config)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(f"{folder.resolve()}\n")
    except (OSError, RuntimeError) as error:
        what = f"that this run's code is yours cannot be recorded ({error}), so 'assay resume' will need --trust-code"
        warnings.warn(f"{what}. Set XDG_STATE_HOME to a folder that can be written", stacklevel=2)


def trust(folder: str | Path) -> None:
    """Records that the user trusts the code that a run folder names, whoever made the folder."""
    path = Path(folder) / "config.json"
    if path.is_file():  # else the command that uses the folder says what it is not
        remember(Path(folder), read_config(path))


def check_known(folder: Path, config: Mapping[str, Any], names: list[str]) -> None:
    """Refuses a run folder that names code and that the user neither started here nor trusts."""
    if names and not is_known(config):
        raise AssayError(
            f"{folder} was not started by you on this machine, and using it runs or asks {', '.join(names[:3])}. Read "
            "that code and config.json; if you trust them, add --trust-code (in Python: trust_code=True)"
        )
