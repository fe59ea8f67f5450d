"""Language models given as Python objects, (model, tokenizer) of transformers, kept as a folder that a run names; and
those that an installed package declares.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.core.digests import digest_of
from assay.core.errors import AssayError
from assay.core.exits import kept_alive
from assay.core.hints import nearest
from assay.runs.given_rows import FOLDER
from assay.runs.user_code.addresses import MODELS, installed_address
from assay.runs.user_code.loading import failed, value_of


def given_model(model: Any) -> str | None:
    """Returns a model as a folder or hub id; (model, tokenizer) as the folder that they are saved to, named by content.

    The object is not trained: a run loads the saved weights. AssayError for anything else.
    """
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, Path):
        return str(model)
    both = model if isinstance(model, tuple) else ()
    if len(both) != 2 or not all(callable(getattr(one, "save_pretrained", None)) for one in both):
        what = "Give a folder, a hub id, or (model, tokenizer) of transformers"
        raise AssayError(f"model is a {type(model).__name__}. {what}.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=FOLDER))
    try:
        for one in both:
            one.save_pretrained(made)
        content = "".join(f"{path.name} {digest_of(path)}\n" for path in sorted(made.iterdir()))
        folder = FOLDER / f"model-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        if not folder.is_dir():
            made.rename(folder)  # at once: a folder that is there is whole
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return str(folder)


def installed_model(name: str) -> str:
    """Returns the folder or hub id of the model that an installed package declares under a name in
    `[project.entry-points."assay.models"]`: a function without arguments that returns what `given_model` takes. A
    folder keeps its meaning, and so does any other word.
    """
    address = None if Path(name).expanduser().exists() else installed_address(MODELS, name)
    if address is None:
        near = None if "/" in name else nearest(name, metadata.entry_points(group=MODELS).names)
        if near is not None and not Path(name).expanduser().exists():
            raise AssayError(f"there is no model '{name}'. Did you mean '{near}'? A folder or a hub id works too.")
        return name
    make = value_of(address)
    if not callable(make) or isinstance(make, type):
        hint = "Declare a function that returns a folder or a hub id; --body takes networks on observations"
        raise AssayError(f"--model {name}: {address} is {make!r:.60}, no function. {hint}.")
    try:
        with kept_alive():
            made = make()
    except (Exception, SystemExit) as error:
        raise failed(f"--model {name}: {address}", error) from error
    found = given_model(made)
    if found is None:
        raise AssayError(f"--model {name}: {address} returns None. Return a folder, a hub id, or (model, tokenizer).")
    return found
