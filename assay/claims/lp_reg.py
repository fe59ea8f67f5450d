"""Claims of lp-reg: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS
from assay.methods.lp_reg import HoldUnlikely, pull, recipe


def loss_by_hand(seen: probes.Seen, floor: float = 0.3, share: float = 0.2) -> Tensor:
    data, logp, advantage = seen.experience, seen.logp(), by_hand.standardised(seen.experience)
    prob = seen.models["actor"].body.table.softmax(-1).detach()
    kept = prob * (prob >= floor * prob.amax(-1, keepdim=True))
    log_q = (kept / kept.sum(-1, keepdim=True)).log()[data.context["state"], data.action]
    blamed = data.mask & (advantage < 0).unsqueeze(1)
    lowest = data.logp[blamed].sort().values[: int(share * int(blamed.sum()))]
    chosen = blamed & torch.isin(data.logp, lowest) & (log_q > logp) & (len(lowest) > 1)
    ahead = torch.where(chosen, log_q - logp, 0.0)
    return by_hand.mean_of_decisions(ahead.exp() - 1 - ahead, data) + by_hand.token_loss(seen, advantage, 1.0, 9.0)


far = partial(same_gradient, data=partial(probes.sequences, seed=1, num=128, spread=8.0, tied=4))


CLAIMS = Claims(
    claims=(
        far("its gradient is the formula's", partial(recipe, floor=0.3, share=0.2), loss_by_hand),
        far("a share of less than two tokens does nothing", partial(recipe, floor=0.3, share=0.007),
            partial(loss_by_hand, share=0.007)),
        Exact("it pulls at a third of q and at a tenth, and not at a fifteenth or above q", lambda: probes.distance(
              probes.derivative(pull, torch.tensor((1 / 3, 1 / 10, 1 / 15, 3 / 2)).log()), (-2.0, -9.0, 0.0, 0.0)),
              at_most=1e-5),
        Measured("with four passes over a batch it finds more different right answers in 64 samples than without the "
                 "pull, at an equal pass rate", "many-ways", recipe(BIGRAMS).set("epochs", 4),
                 recipe(BIGRAMS, beta=0.0).set("epochs", 4),
                 AtEqual("distinct@64"), seeds=10, minutes=6.0, steps=60, about=About.MECHANISM),
        Measured("with four passes over a batch it is right more often than without the pull", "many-ways",
                 recipe(BIGRAMS).set("epochs", 4), recipe(BIGRAMS, beta=0.0).set("epochs", 4), Final("pass_rate"),
                 seeds=10, minutes=6.0, steps=60, about=About.HEADLINE),
    ),
    mutants=(
        Edit("dropped tokens too", HoldUnlikely.apply, "min_p=self.min_p", "min_p=0.0"),
        Edit("one token is enough", HoldUnlikely.apply, "num > 1", "num > 0"),
    ),
)
