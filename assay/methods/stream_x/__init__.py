"""stream-x: one update per decision, nothing stored; traces with step sizes bounded against overshooting.

    z <- discount * lambda * z + grad output;   delta = r + discount * V(s') - V(s)
    w <- w + min(1, 1 / (kappa * max(|delta|, 1) * |z|_1)) * delta * z
    outputs: V(s), and log pi(a|s) + 0.01 * sign(delta) * H(pi(.|s))

Elsayed, Vasan & Mahmood 2024. With sparse weights, layer norm, and running scales of observations and rewards one
untuned setting learns without replay, batches or a target network. Stream Q is `stream_x.base.stream_q`.
"""

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method
from assay.core.optimizers import ObGD, Traced
from assay.methods.stream_x import claims
from assay.methods.stream_x.base import plain_ac, stream_ac, stream_q
from assay.methods.stream_x.losses import FitMoments, TracePolicy, TraceQ, TraceValue
from assay.methods.stream_x.stream import Stream
from assay.recipes.defaults import CONTINUOUS, CONTROL

METHOD = Method(
    paper="arXiv:2410.14606",
    recipe=stream_ac,
    worlds=(CONTROL, CONTINUOUS),
    default_task="cartpole",
    family="value-based",
    base=recipes.a2c,
    aliases=("stream-ac",),
    variants={"stream-q": stream_q},
    mutants=(
        Edit("the first sample counts as spread", FitMoments.__call__, "(1.0 - 1.0 / new) * ", ""),
        Edit("steps without a bound", ObGD.step, "min(number(self.learning_rate), 1.0 / bound)", "1.0"),
        Edit("no traces", Traced.step, "else self.decay", "else 0.0"),
        Edit("traces run over ends of episodes", Traced.step, '"episode_over")[0]', '"episode_over")[0] < 0'),
        Edit("entropy falls where delta is negative", TracePolicy.__call__, "* delta.sign() ", ""),
        Edit("rewards as they are", Stream.__call__, "self.scaled(float(reward[0, t]), bool(over[0, t]), state)",
             "float(reward[0, t])"),
        Edit("the cut is left out", TraceQ.__call__, ", explored)", ")"),
        Edit("truncated decisions do not bootstrap", TraceValue.__call__, "td_error(now,",
             "td_error(now.with_columns(terminal=now.terminal | now.truncated),"),
    ),
    departures=(
        "truncated episodes bootstrap (the authors' code ends them), so no time is added to the observations",
        "each unit keeps at least one input: on few inputs the authors' initial first layer is all zero",
        "both contexts of a decision use the current moments; first contexts are not counted",
        "the reward's trace restarts after an episode; a Gaussian's deviation does not depend on the state",
        "stream Q cuts its trace before an exploring decision, as the pseudo-code says, not after it as the code does",
    ),
    claims=(
        Exact("nine decisions of stream AC change the weights as the formulas do", claims.stream_ac_gap, at_most=1e-9),
        Exact("nine decisions of stream Q change the weights as the formulas do", claims.stream_q_gap, at_most=1e-9),
        Exact("moments around 1,000 are right in float32", claims.moments_gap, at_most=1e-3),
        Exact("rewards are in units of the deviation of the discounted return", claims.reward_gap, equals=0.0),
        Exact("a tenth of the inputs is connected, biases are zero", claims.dense_weights, equals=0.0),
        Measured("untuned, it earns more from a stream than AC(lambda) with Adam", "cartpole", stream_ac(), plain_ac(),
                 metric=Average("reward", share=0.2), seeds=5, minutes=7.0, steps=10_000),
    ),
)  # fmt: skip
