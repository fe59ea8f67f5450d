"""Reads Minari datasets by id with the package `minari`, which knows their paths and storage formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require

Episodes = tuple[Iterator[Mapping[str, Any]], Mapping[str, Any]]


def minari_episodes(id: str) -> Episodes:
    """Returns the episodes and metadata of a dataset on this machine; nothing is downloaded."""
    minari = require("minari", "data", f"data minari:{id}")
    try:
        dataset = minari.load_dataset(id, download=False)
    except (FileNotFoundError, ValueError) as error:
        raise AssayError(
            f"Minari has no such dataset on this machine ({error}). Download it: minari download {id}"
        ) from None
    storage = dataset.storage
    metadata = json.loads((storage.data_path / "metadata.json").read_text())
    return (episode_of(one) for one in storage.get_episodes(range(storage.total_episodes))), metadata


def episode_of(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an episode as arrays; observations of several components stay a mapping."""
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    plain = {
        name: np.asarray(stored[name]) if not isinstance(stored[name], dict | tuple) else stored[name] for name in names
    }
    return plain | {"infos": stored.get("infos") or {}}
