"""Laws of bodies and heads: each obeys, with a plain partner, the laws of the actor or critic that they make."""

from __future__ import annotations

from dataclasses import replace

from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Critic, Policy
from assay.proof.laws.actor import ACTOR
from assay.proof.laws.critic import CRITIC

FEW = Perceptron((8,))
BODY = replace(CRITIC, slot="body", holder=lambda part: Critic(part))
ACTOR_HEAD = replace(ACTOR, slot="actor_head", holder=lambda part: Policy(FEW, part))
CRITIC_HEAD = replace(CRITIC, slot="critic_head", holder=lambda part: Critic(FEW, part))
