"""serl: RLPD, half of every batch demonstrations, on the reward of a learned classifier of success.

    reward(s') = [sigmoid(f(s')) >= 1/2], computed again whenever a transition is drawn
    classifier loss = mean over demonstrated successes of bce(f, 0.9) + mean over the policy's states of bce(f, 0.1)
    y = reward + discount * min over two critics of ten, drawn with replacement, of Q'(s', a');  no entropy in y

Luo et al. 2024. A camera cannot measure success, but a few demonstrations show it. A classifier that only ever saw
demonstrations fires where none of them went, and a policy finds such places; its own states as negatives close them.
"""

from dataclasses import replace

from assay.claims import Edit, Exact, Measured, Method, probes, same_gradient
from assay.claims.classified import classifier_claims
from assay.core.recipe import Recipe
from assay.methods.serl import claims
from assay.parts.rewards.learned import FromModel
from assay.recipes.classified import DEMOS, classified, classifier
from assay.recipes.defaults import CONTINUOUS, Defaults
from assay.recipes.rlpd import mixed, rlpd

SOURCE = mixed(DEMOS, warmup=200)


def recipe(world: Defaults = CONTINUOUS, refresh: bool = True) -> Recipe:
    base = rlpd(SOURCE, discount=0.96, averaged=True, temperature=0.01, entropy=-0.5)
    return replace(classified(base, SOURCE, refresh), name="serl")


METHOD = Method(
    "arXiv:2401.16013", recipe, worlds=(CONTINUOUS,), default_task="peg", family="offline to online",
    base=lambda world=CONTINUOUS: rlpd(SOURCE, discount=0.96, averaged=True),
    mutants=(
        Edit("demonstrated states on the way are successes", classifier, "after=True, ends=True", "after=True"),
        Edit("its own successes are examples", classifier, "0.9, int(Origin.DATASET)", "0.9, int(Origin.POLICY)"),
        Edit("the state before is classified", FromModel.apply, "said.roll(-1, 1)", "said"),
        Edit("the actor climbs the minimum", recipe, "averaged=True", "averaged=False"),
        Edit("the temperature starts at 1", recipe, "temperature=0.01", "temperature=1.0"),
        Edit("stored rewards", classified, "source=replace(source, reward=replace(PAID, ends=True))", "source=source"),
    ),
    variants={"fixed": lambda world: recipe(world, refresh=False)},
    departures=(
        "pairs of critics are drawn for each decision, not once for a batch; time limits bootstrap, success ends",
        "batches of 32 own and 32 demonstrated rows (128 each), one actor step for four critic steps on one of them",
        "the classifier reads the state, first learns from demonstrations alone, has no mixup, no gradient penalty",
        "entropy at s, not at s'; networks 64 x 64; targets follow by 0.02 (0.005); one process, no reset-free part",
        "a classified success ends the bootstrap, as in the authors' fixed wrapper; with stored ends no seed succeeded",
        "the rival keeps the classifier of demonstrations, which may fire on the table behind the hole",
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, claims.losses_by_hand, lambda: claims.DATA,
                      probes.BOX_SPEC, at_most=1e-6),
        *classifier_claims(recipe, claims.DATA, claims.TASK),
        Exact("a logit of 0 is a success, one below is not; the task's reward is not used",
              lambda: probes.classified.success_gap(recipe()), equals=0.0),
        Exact("batches of critics have half demonstrations, rewards and ends as the classifier finds them now; its own "
              "have the stored ends", lambda: probes.classified.wrong_rows(recipe(), claims.TASK), equals=0.0),
        Measured("with its own states as negatives it succeeds more often than with a fixed classifier", "peg",
                 recipe(), recipe(refresh=False), seeds=5, minutes=4.0, steps=100),
    ),
)  # fmt: skip
