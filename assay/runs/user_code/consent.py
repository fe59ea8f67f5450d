"""Which own code a plan runs, and whether it is the code that a run folder was started with.

A run folder may come from anywhere, so its config.json alone never makes Python run a file: what it names is loaded
only if the user has started the run here or trusts the folder (`assay.runs.user_code.known_runs`), and the digests that
it records are those of the files on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.settings import children
from assay.runs.user_code.files import digests, file_of
from assay.runs.user_code.known_runs import check_known
from assay.runs.user_code.loading import stamped_sources
from assay.runs.user_code.objects import is_given

Code = Mapping[str, Mapping[str, str]]
"""Digests of files by source, then by the file's path relative to the source's folder."""


@dataclass(frozen=True)
class Consent:
    """The code that a run folder records: that of its start, and that of its latest resume. Code that differs from the
    latter is refused; with `accepts_changes` only code that the folder does not name is. `config` is its config.json.
    """

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    started: Code = field(default_factory=dict)
    recorded: Code = field(default_factory=dict)
    accepts_changes: bool = False


def consent_of(folder: Path, config: Mapping[str, Any], accepts_changes: bool) -> Consent:
    """Returns the consent of a run folder with this config.json."""
    started, accepted = config.get("code", {}), config.get("accepted_code", [])
    try:
        latest = accepted[-1]["code"] if accepted else started
        both = [{str(source): dict(files) for source, files in code.items()} for code in (started, latest)]
        return Consent(folder, config, both[0], both[1], accepts_changes)
    except (TypeError, KeyError, AttributeError, ValueError):
        raise AssayError(f"{folder}/config.json: 'code' is damaged. Restore it, or start a new run.") from None


def checked_code(
    sources: Iterable[str], seals: Mapping[str, dict[str, str]], consent: Consent | None
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Returns the digests of the files of these sources and the `seals` of what is trusted beside files, and what of
    both has changed since it was recorded.

    Without `consent` the user has named the sources in this command. AssayError if a source is not recorded, is inside
    the run folder, is of a folder that is neither the user's own nor trusted, or has changed and changes are not
    accepted. Nothing is imported.
    """
    found, changed = {}, list[str]()
    for source in sorted({*sources, *seals}):
        if consent is not None:
            allow(source, consent, is_file=source not in seals)
        found[source] = seals[source] if source in seals else digests(source)
        if consent is not None:
            recorded = consent.recorded[source]
            names = sorted({*recorded, *found[source]})
            changed += [f"{name} of {source}" for name in names if recorded.get(name) != found[source].get(name)]
    if changed and consent is not None and not consent.accepts_changes:
        raise AssayError(
            f"own code has changed since {consent.folder} was started: {', '.join(changed[:3])}. Restore it, or add "
            "--accept-changed-code"
        )
    if consent is not None:
        check_known(consent.folder, consent.config, list(found))
    return found, changed


def allow(source: str, consent: Consent, *, is_file: bool) -> None:
    """Refuses code that the run folder brings along or does not record with digests."""
    recorded = consent.recorded.get(source)
    if not isinstance(recorded, Mapping) or not recorded:
        raise AssayError(
            f"{consent.folder} names own code '{source}' without recording its digests, so it is not loaded. Only a "
            "run that 'assay train' wrote can be resumed."
        )
    if is_file and not is_given(source) and file_of(source).is_relative_to(consent.folder.resolve()):
        raise AssayError(f"own code '{source}' is inside the run folder, from which no code is loaded. Move it.")


def own_sources(value: Any) -> dict[str, dict[str, str]]:
    """Returns source and digests of the own code that a tree of parts was made from."""
    return stamped_sources(defining_modules(value))


def defining_modules(value: Any) -> set[str]:
    """Returns the modules that define the parts and functions of a tree."""
    own = {type(value).__module__} if is_dataclass(value) else set()
    if callable(value) and not is_dataclass(value):
        own.add(getattr(value, "__module__", "") or "")
    return own.union(*(defining_modules(item) for _, item in children(value)))
