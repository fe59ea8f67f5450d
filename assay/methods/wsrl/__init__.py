"""wsrl: offline values, a warm-up with the frozen policy, then fast online learning without the offline data.

    offline: CQL on a dataset -> `warmup` decisions of the frozen policy into an empty replay, no update -> online:
    critic loss = sum_i (Q_i(s, a) - r - discount * min over a random pair k of Q'_k(s', a'))^2 / 2, ten critics,
    four such steps for each decision and each step of the actor, whose loss = temperature * log pi - min_i Q_i

Zhou et al. 2025. The warm-up shows the critics the online distribution before any update; afterwards there is no
pessimism and no offline data. `retain` is the share of offline data in every batch: 0 here, a half in RLPD.
"""

from functools import partial

from assay import recipes
from assay.claims import Area, Dip, Edit, Exact, Measured, Method, probes
from assay.methods.wsrl.base import LOG, from_scratch, offline, wsrl
from assay.methods.wsrl.calibrated import Calibrated, recorded_returns
from assay.methods.wsrl.claims import (
    batches,
    calibrated_gap,
    hand_off_gap,
    offline_by_hand,
    online_by_hand,
    returns_gap,
    schedule_gap,
)
from assay.parts.sources.logged import Log
from assay.parts.sources.replay import Replay
from assay.parts.targets.one_step import OwnAction, chosen
from assay.recipes.defaults import CONTINUOUS
from assay.recipes.rlpd import rlpd
from assay.tasks.control.pendulum import pendulum

METHOD = Method(
    paper="arXiv:2412.07762",
    recipe=wsrl,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.sac,
    variants={"retained-data": partial(wsrl, retain=0.5), "cal-ql": partial(wsrl, calibrated=True),
              "rlpd": from_scratch},
    mutants=(
        Edit("one critic instead of a pair", rlpd, "subset=2", "subset=1"),
        Edit("all critics in the target", rlpd, "subset=2", "subset=0"),
        Edit("the first critic instead of a pair", chosen, "(uniform_BTM * num).long()", "(uniform_BTM * 0).long()"),
        Edit("the trained critics in the target", OwnAction.__call__, "model(self.q)", 'model("q")'),
        Edit("the actor moves at every update", rlpd, "optimizer=STEP, every=4", "optimizer=STEP"),
        Edit("updates during the warm-up", Replay.__call__, "max(self.warmup, 1)", "1"),
        Edit("offline data in every batch", wsrl, "Logged((log,)), retain)", "Logged((log,)), 0.5)"),
        Edit("the offline phase without penalty", offline, "Conservative(weight", "Conservative(0.0"),
        Edit("Cal-QL bounds no proposals", Calibrated.__call__, "batch.now.column(RETURN)", "None"),
        Edit("returns go on after an end", recorded_returns, "0.0 if bool(end[row]) else discount * onward",
             "discount * onward"),
        Edit("a new actor online", wsrl, "HANDED)", '{"q": "q", "q_target": "q_target"})'),
    ),
    departures=(
        "pairs of critics are drawn for each decision, not once for a minibatch: the same target in expectation",
        "the actor's step sees 64 rows, one of the four critic steps' batches, not all four; entropy at s, not at s'",
        "parameters, targets and temperature are transferred, Adam's moments are not",
        "no phantom steps: the authors' optimizers also step on zero gradients",
        "CQL (wsrl:cal-ql: Cal-QL) for 1,000 updates (250,000); 800 decisions of warm-up (5,000)",
        "discount 0.95, target networks at rate 0.02 (0.005), small networks and batches",
    ),
    claims=(
        Exact("online: its gradients are those of the formulas",
              lambda: probes.formula_gap(wsrl(), probes.transitions(num=64), online_by_hand, probes.BOX_SPEC),
              at_most=1e-6),
        Exact("offline: its gradients are those of the formulas",
              lambda: probes.formula_gap(offline(LOG), probes.transitions(num=64), offline_by_hand, probes.BOX_SPEC),
              at_most=1e-6),
        Exact("Cal-QL: its gradients are those of the formulas", calibrated_gap, at_most=1e-6),
        Exact("Cal-QL: the returns are those of the recorded episodes", returns_gap, at_most=1e-3),
        Exact("four critic steps for each step of the actor, targets at rate 0.02", schedule_gap, at_most=1e-6),
        Exact("the online phase starts with the offline phase's models", hand_off_gap, equals=0.0),
        Exact("the offline phase's batches are rows of the dataset",
              lambda: probes.foreign_rows(wsrl(log=Log(3)).before[0].recipe, pendulum()), equals=0.0),
        Exact("the first update sees 800 decisions of the policy and nothing else", lambda: batches(wsrl())[0],
              equals=800.0),
        Exact("another log changes no batch",
              lambda: (batches(wsrl())[1] - batches(wsrl(log=Log(9, 0.3)))[1]).abs().max(), equals=0.0),
        Measured("less is lost at the onset than without a warm-up", "pendulum", wsrl(), wsrl(warmup=64), metric=Dip(),
                 seeds=5, minutes=15.0, steps=140, looks=4),
        Measured("it scores more over the run than RLPD, which keeps the data and has no first phase", "pendulum",
                 wsrl(), from_scratch(), metric=Area(), seeds=5, minutes=15.0, steps=140, looks=4),
    ),
)  # fmt: skip
