"""stream-x: one update per decision, nothing stored; traces with step sizes bounded against overshooting.

    z <- discount * lambda * z + grad output;   delta = r + discount * V(s') - V(s)
    w <- w + min(1, 1 / (kappa * max(|delta|, 1) * |z|_1)) * delta * z
    outputs: V(s), and log pi(a|s) + 0.01 * sign(delta) * H(pi(.|s))

Elsayed, Vasan & Mahmood 2024. With sparse weights, layer norm, and running scales of observations and rewards one
untuned setting learns without replay, batches or a target network. Stream Q is `stream_x.base.stream_q`.
"""

from assay.method import CONTINUOUS, CONTROL, Method, recipes
from assay.methods.stream_x.base import stream_ac, stream_q

METHOD = Method(
    paper="arXiv:2410.14606",
    recipe=stream_ac,
    presets=(CONTROL, CONTINUOUS),
    default_task="cartpole",
    family="value-based",
    base=recipes.a2c,
    aliases=("stream-ac",),
    variants={"stream-q": stream_q},
    departures=(
        "perceptrons of 32 and 128 units; no convolutions, so no MinAtar or Atari; continuous actions are not measured",
        "truncated episodes bootstrap (the authors' code ends them), so no time is added to the observations",
        "each unit keeps at least one input: on few inputs the authors' initial first layer is all zero",
        "both contexts of a decision use the current moments; first contexts are not counted",
        "the reward's trace restarts after an episode; a Gaussian's deviation does not depend on the state",
        "stream Q cuts its trace before an exploring decision, as the pseudo-code says, not after it as the code does",
    ),
)
