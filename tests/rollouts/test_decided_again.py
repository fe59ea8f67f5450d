"""New decisions in recorded contexts."""

from __future__ import annotations

import torch

from assay.claims import probes
from assay.core.record import Draw
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Policy
from assay.rollouts.episodes import decided_again


def test_every_decision_is_taken_again_in_its_context_and_nothing_else_changes() -> None:
    batch = probes.transitions(num=16, dtype=torch.float32)
    actor = Policy(Perceptron((8,))).build(probes.BOX_SPEC)
    with torch.no_grad():
        new = decided_again(actor, batch, Draw(3))
        assert torch.allclose(actor.score(new, frozenset()).logp, new.logp, atol=1e-5)
    assert not (new.action == batch.action)[batch.mask].any()
    assert torch.equal(new.action[~batch.mask], batch.action[~batch.mask])
    assert not new.reward.any()
    assert torch.equal(new.context["observation"], batch.context["observation"])
