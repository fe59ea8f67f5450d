"""serl: RLPD, half of every batch demonstrations, on the reward of a learned classifier of success.

    reward(s') = [sigmoid(f(s')) >= 1/2], computed again whenever a transition is drawn
    classifier loss = mean over demonstrated successes of bce(f, 0.9) + mean over the policy's states of bce(f, 0.1)
    y = reward + discount * min over two critics of ten, drawn with replacement, of Q'(s', a');  no entropy in y

Luo et al. 2024. A camera cannot measure success, but a few demonstrations show it. A classifier that only ever saw
demonstrations fires where none of them went, and a policy finds such places; its own states as negatives close them.
"""

from dataclasses import replace

from assay.method import CONTINUOUS, DEMOS, Method, Preset, Recipe, classified, mixed, rlpd
from assay.parts import Retained


def batches() -> Retained:
    """Returns the source: half demonstrations, once 200 decisions are stored."""
    return mixed(DEMOS, warmup=200)


def paid(preset: Preset = CONTINUOUS) -> Recipe:
    """RLPD on the task's own reward: what the classifier stands for."""
    return rlpd(batches(), discount=0.96, averaged=True, temperature=0.01, entropy=-0.5)


def recipe(preset: Preset = CONTINUOUS, refresh: bool = True) -> Recipe:
    """Returns RLPD on demonstrations and own steps, paid by a classifier; `refresh` trains that during the run."""
    return replace(classified(paid(preset), batches(), refresh), name="serl")


METHOD = Method(
    paper="arXiv:2401.16013",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="peg",
    family="offline to online",
    base=paid,
    variants={"fixed": lambda preset: recipe(preset, refresh=False), "paid": paid},
    results=(
        "undecided after 20 seeds: 0.81 succeed in the last quarter, with the task's own reward 0.97; the loss is"
        " 0.00 to 0.36, margin 0.2",
    ),
    departures=(
        "successes are a column of the data (or the task's positive rewards), not frames that a person labels",
        "pairs of critics are drawn for each decision, not once for a batch; time limits bootstrap, success ends",
        "batches of 32 own and 32 demonstrated rows (128 each), one actor step for four critic steps on one of them",
        "the classifier reads the state, first learns from demonstrations alone, has no mixup, no gradient penalty",
        "entropy at s, not at s'; networks 64 x 64; targets follow by 0.02 (0.005); one process, no reset-free part",
        "a classified success ends the bootstrap, as in the authors' fixed wrapper; with stored ends no seed succeeded",
        "the rival keeps the classifier of demonstrations, which may fire on the table behind the hole",
        "not measured: decisions to 90 % against sac, and practice without resets, which is not built",
    ),
)
