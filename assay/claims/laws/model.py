"""Laws of bodies and heads: each obeys, with a plain partner, the laws of the actor or critic that they make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.claims.laws.actor import ACTOR
from assay.claims.laws.critic import CRITIC, critic_cases
from assay.claims.laws.laws import Unsuited
from assay.core.slots import Body
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic, Policy

WIDE = Perceptron((256, 256))
"""Wide enough that a squashed density can be integrated on a grid."""


def as_critic(head: Any) -> Critic:
    """Returns the head on a perceptron, or on a transformer where it refuses that."""
    bodies: tuple[Body, ...] = (Perceptron(), Transformer(16, 1, 2))
    found = [critic for body in bodies if not isinstance(critic_cases(critic := Critic(body, head))[0], Unsuited)]
    return (found or [Critic(head=head)])[0]


BODY = replace(CRITIC, slot="body", holder=lambda part: Critic(part))
ACTOR_HEAD = replace(ACTOR, slot="actor_head", holder=lambda part: Policy(WIDE, part))
CRITIC_HEAD = replace(CRITIC, slot="critic_head", holder=as_critic)
