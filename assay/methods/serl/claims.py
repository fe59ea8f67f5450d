"""What serl learns from, against formulas and numbers by hand. Axes: B rows, T = 2 columns."""

from __future__ import annotations

from torch import Tensor

from assay.claims import probes
from assay.claims.probes import classified, steps
from assay.core.record import Origin
from assay.tasks.control.peg import peg

TASK, DATA = peg(), probes.of_origins(probes.transitions(num=64), Origin.POLICY, Origin.DATASET, Origin.POLICY)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return {
        "success": classified.success_loss(seen, Origin.POLICY),
        "critic": steps.rlpd_critics(seen, 0.96, classified.success_of(seen)),
        "actor": steps.sac_actor(seen, lambda s, a: steps.output(seen.models["q"], s, a).mean(0), least=1.0),
    }
