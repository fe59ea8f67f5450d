"""RLPD on the reward of a learned classifier of success, which demonstrations and the policy's own states train."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Phase, Recipe, Stage
from assay.core.record import Origin
from assay.models.model import Critic
from assay.parts.predictions import OfState
from assay.parts.rewards.learned import FromModel
from assay.parts.sources.conditions import Successes
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.retained import Retained
from assay.parts.targets.labels import Label, told_apart
from assay.recipes.rlpd import CRITIC_BODY, OPTIMIZER

NEEDED = Successes()
DEMOS = Logged((Log(episodes=20, noise=0.0),), condition=NEEDED)
OF = OfState("success")
PAID = FromModel(OF, after=True)


def classifier(negatives: Origin) -> Stage:
    """The classifier's stage: demonstrated successes against the states of these rows."""
    shown, others = Label(0.9, int(Origin.DATASET), after=True, solved=True), Label(0.1, int(negatives), after=True)
    return Stage("success", ("success",), critic=told_apart(OF, shown, others), optimizer=OPTIMIZER)


def classified(base: Recipe, source: Retained, refresh: bool = True) -> Recipe:
    """Returns `base` on the rewards and ends that a classifier finds in the batches of `source` as they are drawn.

    The classifier is pretrained on demonstrations alone. With `refresh` it is trained further, with the policy's states
    as negatives: a classifier of demonstrations alone has false positives in states that none of them visits.
    """
    success, shown = {"success": Critic(CRITIC_BODY)}, (classifier(Origin.DATASET),)
    first = replace(base, name="classifier", critics=success, copies={}, rollout=None, source=DEMOS, stages=shown)
    online = replace(
        base, rewards=(*base.rewards, PAID), source=replace(source, reward=replace(PAID, ends=True)),
        critics={**base.critics, **success}, before=(Phase("classifier", first, 10, {"success": "success"}),),
    )  # fmt: skip
    if not refresh:
        return online
    stored = replace(source, replay=replace(source.replay, updates=8))  # ends as they were, not as they are classified
    return replace(online, stages=(replace(classifier(Origin.POLICY), source=stored), *online.stages))
