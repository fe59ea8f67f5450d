"""serl: RLPD, half of every batch demonstrations, on the reward of a learned classifier of success.

    reward(s') = [sigmoid(f(s')) >= 1/2], computed again whenever a transition is drawn
    classifier loss = mean over demonstrated successes of bce(f, 0.9) + mean over the policy's states of bce(f, 0.1)
    y = reward + discount * min over two critics of ten, drawn with replacement, of Q'(s', a');  no entropy in y

Luo et al. 2024. A camera cannot measure success, but a few demonstrations show it. A classifier that only ever saw
demonstrations fires where none of them went, and a policy finds such places; its own states as negatives close them.
"""

from dataclasses import replace

import torch

from assay.claims import Edit, Exact, Measured, Method, probes
from assay.core.recipe import Phase, Recipe, Stage
from assay.core.record import Origin
from assay.core.verifier import Verifier
from assay.methods.serl import claims
from assay.methods.serl.parts import LearnedSuccess, Rewarded, Successes
from assay.models.heads.value import Value
from assay.models.model import Critic, Temperature
from assay.parts.critics.td import Td
from assay.parts.fits.logistic import Logistic
from assay.parts.objectives.pathwise import MatchEntropy
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.targets.labels import Label
from assay.recipes.defaults import CONTINUOUS, Defaults
from assay.recipes.rlpd import BODY, STEP, rlpd

DEMOS, OF = Successes(), OfState("success")
SOURCE = Retained(Replay(capacity=100_000, batch=64, updates=32, warmup=200), Logged((DEMOS,)), kept=0.5)


def told_apart(negatives: Origin) -> Stage:
    """The classifier's stage: demonstrated successes against the states of these rows."""
    positive = Td(Label(0.9, int(Origin.DATASET), after=True, ends=True), Logistic(), OF)
    negative = Td(Label(0.1, int(negatives), after=True), Logistic(), OF)
    return Stage("success", ("success",), critic=(positive, negative), optimizer=STEP)


def recipe(world: Defaults = CONTINUOUS, retain: float = 0.5, refresh: bool = True) -> Recipe:
    source = replace(SOURCE, kept=retain)
    base = rlpd(source, discount=0.96, averaged=True)
    success, (climb, _) = Critic(BODY, Value()), base.stages[1].objective
    first = replace(
        base, name="classifier", critics={"success": success}, copies={}, rollout=None, source=Logged((DEMOS,)),
        stages=(told_apart(Origin.DATASET),),
    )  # fmt: skip
    actor = replace(base.stages[1], objective=(climb, MatchEntropy(-0.5)))
    online = replace(
        base, name="serl", rewards=(Verifier(), LearnedSuccess()), stages=(base.stages[0], actor),
        source=Rewarded(source, LearnedSuccess(ends=True)),
        critics={**base.critics, "temperature": Temperature(0.01), "success": success},
        before=(Phase("classifier", first, 10, {"success": "success"}),),
    )  # fmt: skip
    if not refresh:
        return online
    stored = replace(source, replay=replace(source.replay, updates=8))  # ends as they were, not as they are classified
    return replace(online, stages=(replace(told_apart(Origin.POLICY), source=stored), *online.stages))


METHOD = Method(
    "arXiv:2401.16013", recipe, worlds=(CONTINUOUS,), default_task="peg", family="offline to online",
    base=lambda world=CONTINUOUS: rlpd(SOURCE, discount=0.96, averaged=True),
    mutants=(
        Edit("demonstrated states on the way are successes", told_apart, "after=True, ends=True", "after=True"),
        Edit("its own successes are examples", told_apart, "0.9, int(Origin.DATASET)", "0.9, int(Origin.POLICY)"),
        Edit("the state before is classified", LearnedSuccess.apply, "logit[:, 1:] >= 0.0", "logit[:, :-1] >= 0.0"),
        Edit("the actor climbs the minimum", recipe, "averaged=True", "averaged=False"),
        Edit("the temperature starts at 1", recipe, "Temperature(0.01)", "Temperature(1.0)"),
        Edit("stored rewards", recipe, "source=Rewarded(source, LearnedSuccess(ends=True))", "source=source"),
    ),
    variants={"fixed": lambda world: recipe(world, refresh=False)},
    departures=(
        "pairs of critics are drawn for each decision, not once for a batch; time limits bootstrap, success ends",
        "batches of 32 own and 32 demonstrated rows (128 each), one actor step for four critic steps on one of them",
        "the classifier reads the state, first learns from demonstrations alone, has no mixup, no gradient penalty",
        "entropy at s, not at s'; networks 64 x 64; targets follow by 0.02 (0.005); one process, no reset-free part",
        "a classified success ends the bootstrap, as in the authors' wrapper of a fixed one; with the stored ends "
        "of VICE, measured first, no seed of either arm succeeded after 100 steps: staying near is paid every decision",
        "the rival keeps the classifier of demonstrations: its negatives are demonstrated states, the table behind the "
        "hole is the planted region where it may fire",
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              recipe(), claims.gathered(), claims.losses_by_hand, probes.BOX_SPEC), at_most=1e-6),
        Exact("a logit of 0 is a success, one below is not; the task's reward is not used",
              lambda: claims.paid(recipe(), [0.0, -1e-9, 5.0], reward=1.0) @ torch.tensor([1.0, 10.0, 100.0]).double(),
              equals=101.0),
        Exact("half of every batch is demonstrations, few as they are",
              lambda: claims.rows_of_demonstrations(recipe()), equals=1.0),
        Exact("rewards follow the classifier from batch to batch, also of what is stored", lambda: sum(
              float(batch.reward.sum()) for batch in claims.drawn(recipe(), classifier_moves=-0.75)), equals=128.0),
        Exact("a classified success ends the episode, in what critics learn from alone",
              lambda: claims.wrong_ends(recipe()), equals=0.0),
        Exact("the classifier first learns from demonstrations alone", lambda: claims.first_gap(recipe()), equals=0.0),
        Measured("with its own states as negatives it succeeds more often than with a fixed classifier", "peg",
                 recipe(), recipe(refresh=False), seeds=5, minutes=4.0, steps=100),
    ),
)  # fmt: skip
