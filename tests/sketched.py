"""Runs of the process that imports this leave an empty picture: drawing takes a tenth of a second for each of them."""

from __future__ import annotations

from assay.runs import result
from assay.runs.folder import PICTURE

draw_curve = result.draw_curve
result.draw_curve = lambda finished: (finished.folder / PICTURE).touch()
