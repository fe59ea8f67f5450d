"""What serl learns from, against formulas and numbers by hand. Axes: B rows, T = 2 columns."""

from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Exact, Measured, probes, same_gradient
from assay.claims.classified import classifier_claims
from assay.claims.probes import classified as hand, steps
from assay.method import Origin, classified
from assay.methods.serl import batches, paid, recipe
from assay.parts import FromModel, Label
from assay.recipes.classified import classifier
from assay.tasks.control.peg import peg

TASK, ROWS = peg(), probes.of_origins(probes.transitions(num=64), Origin.POLICY, Origin.DATASET, Origin.POLICY)
DATA = hand.with_successes(ROWS)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return {
        "success": hand.success_loss(seen, Origin.POLICY),
        "critic": steps.rlpd_critics(seen, 0.96, hand.success_of(seen)),
        "actor": actor_by_hand(seen),
    }


def actor_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the loss of an actor that climbs the mean of the critics."""
    return steps.sac_actor(seen, lambda s, a: steps.output(seen.models["q"], s, a).mean(0), least=1.0)


def paid_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses on the recorded rewards."""
    return {"critic": steps.rlpd_critics(seen, 0.96), "actor": actor_by_hand(seen)}


CLAIMS = Claims(
    mutants=(
        Edit("demonstrated states on the way are successes", classifier, "after=True, solved=True", "after=True"),
        Edit("every end of a demonstration is a success", Label.rows, 'now.column("success")', "now.terminal"),
        Edit("no warm-up", batches, "warmup=200", "warmup=0"),
        Edit("the classifier is pretrained for one step", classified, "first, 10,", "first, 1,"),
        Edit("one update of the classifier a step", classified, "updates=8", "updates=1"),
        Edit("its own successes are examples", classifier, "0.9, int(Origin.DATASET)", "0.9, int(Origin.POLICY)"),
        Edit("the state before is classified", FromModel.apply, "said.roll(-1, 1)", "said"),
        Edit("the actor climbs the minimum", paid, "averaged=True", "averaged=False"),
        Edit("the temperature starts at 1", paid, "temperature=0.01", "temperature=1.0"),
        Edit("stored rewards", classified, "source=replace(source, reward=replace(PAID, ends=True))", "source=source"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, lambda: DATA,
                      probes.BOX_SPEC, at_most=1e-6),
        same_gradient("paid by the task its gradients are those of the formulas", paid, paid_by_hand, lambda: ROWS,
                      probes.BOX_SPEC, at_most=1e-6, of="variant paid"),
        *classifier_claims(recipe, DATA, TASK, warmup=200),
        Exact("batches of critics have half demonstrations, rewards and ends as the classifier finds them now; its own "
              "have the stored ends", lambda: probes.classified.wrong_rows(recipe(), TASK), equals=0.0),
        Measured("with its own states as negatives it succeeds more often than with a fixed classifier", "peg",
                 recipe(), recipe(refresh=False), seeds=5, minutes=4.0, steps=100, about=About.COMPONENT),
        Measured("in the last quarter of 800 decisions it succeeds at most 0.2 less often than RLPD on the task's own "
                 "reward", "peg", recipe(), paid(), metric=Average("evaluation", 0.25), margin=-0.2, seeds=5,
                 minutes=15.0, steps=100, looks=4, about=About.HEADLINE),
    ),
)
