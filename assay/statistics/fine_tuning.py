"""What online training makes of an offline policy: where it begins, how far it falls, where it ends.

    before = the first score    dip = max(0, before - lowest of the first `window`)    after = the last
    gain = after - before       area = mean of the scores after the first one

Scores are those of evaluations in order, the first one before any online update. Degenerate: a curve that never falls
below its beginning has dip 0, a constant one gain 0, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError


@dataclass(frozen=True)
class FineTuning:
    """One run's online phase in five numbers."""

    before: float
    dip: float
    after: float
    gain: float
    area: float

    def __str__(self) -> str:
        ends = f"{self.before:.4g} -> {self.after:.4g} ({self.gain:+.4g})"
        return f"{ends}, dip {self.dip:.4g}, mean online {self.area:.4g}"


def fine_tuning(scores: ArrayLike, window: int | None = None) -> FineTuning:
    """Returns the summary of a curve of scores; the dip is looked for in the first `window` online evaluations, in all
    of them by default.
    """
    curve = np.asarray(scores, dtype=np.float64)
    if curve.ndim != 1 or len(curve) < 2 or not np.isfinite(curve).all():
        raise AssayError(f"a curve of scores has shape {curve.shape}. Give two finite numbers or more, in one row")
    if window is not None and window < 1:
        raise AssayError(f"window is {window}. Use 1 or more evaluations, or None for all")
    before, online = float(curve[0]), curve[1:]
    dip = max(0.0, before - float(online[:window].min()))
    return FineTuning(before, dip, float(online[-1]), float(online[-1]) - before, float(online.mean()))
