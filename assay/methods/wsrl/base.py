"""The recipe of wsrl: a first phase on an offline dataset, and a second one online."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Phase, Recipe
from assay.core.slots import ModelSpec
from assay.methods.wsrl.calibrated import Calibrated, LoggedWithReturns
from assay.models.heads.bounded import SquashedGaussian
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy, Temperature
from assay.parts.critics.conservative import Conservative
from assay.parts.critics.td import Td
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.one_step import OwnAction
from assay.recipes.conservative import cql
from assay.recipes.defaults import CONTINUOUS, Defaults
from assay.recipes.rlpd import BODY, FOLLOWS, STEP, mixed, rlpd

SLOW = Adam(learning_rate=3e-4, clip_norm=0.0)
HANDED = {name: name for name in ("actor", "q", "q_target", "temperature")}
LOG, DISCOUNT = Log(episodes=50, noise=0.5), 0.95


def offline(log: Log, weight: float = 5.0, calibrated: bool = False) -> Recipe:
    """Returns CQL with the models of the online phase, or Cal-QL."""
    base = cql(CONTINUOUS, log)
    plain = Conservative(weight, num=2)
    penalty = Calibrated(plain) if calibrated else plain
    source = LoggedWithReturns((log,), batch=64, discount=DISCOUNT) if calibrated else Logged((log,), batch=64)
    terms = (Td(OwnAction(DISCOUNT)), penalty)
    critic = replace(base.stages[0], critic=terms, optimizer=STEP)
    models: dict[str, ModelSpec] = {"q": Critic(BODY, ActionValue(10)), "temperature": Temperature(1.0)}
    base = replace(base, actor=Policy(BODY, SquashedGaussian()), critics=models, source=source)
    return replace(base, copies=FOLLOWS, stages=(critic, replace(base.stages[1], optimizer=SLOW)))


def wsrl(
    world: Defaults = CONTINUOUS, warmup: int = 800, retain: float = 0.0, log: Log = LOG, calibrated: bool = False
) -> Recipe:
    """WSRL (arXiv:2412.07762): CQL on an offline dataset, `warmup` steps of the frozen policy, then SAC without the
    data.

    Ten critics with layer norm, targets of two of them, four critic steps for each decision and for each step of the
    actor. `retain` is the share of offline data in every batch; `calibrated` puts Cal-QL in CQL's place.
    """
    first = offline(log, calibrated=calibrated)
    online = rlpd(mixed(Logged((log,)), warmup, retain))
    return replace(online, name="wsrl", critics=first.critics, before=(Phase("offline", first, 100, HANDED),))


def from_scratch(world: Defaults = CONTINUOUS, log: Log = LOG) -> Recipe:
    """RLPD (arXiv:2302.02948), wsrl's rival: the same online phase without a first one; half of every batch are offline
    rows, and updates start after 64 decisions.
    """
    return rlpd(mixed(Logged((log,)), warmup=64))
