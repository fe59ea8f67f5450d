"""The vocabulary of a claims file: names and their homes."""

# ruff: noqa: I001
# fmt: off
from assay.claims import probes as probes
from assay.claims.claim import (
    About as About, Average as Average, Claims as Claims, Computed as Computed,
    DecisionsTo as DecisionsTo, Dip as Dip, Edit as Edit,
    Exact as Exact, Expect as Expect, Final as Final, Gain as Gain, Measured as Measured,
)
from assay.claims.comparisons import (
    UNMASKED as UNMASKED, best_of_group as best_of_group, has_two_modes as has_two_modes,
    ignores_constants as ignores_constants, learns_faster as learns_faster, not_worse as not_worse,
    reused as reused, without_baseline as without_baseline,
)
from assay.claims.deprecated import Method as Method
from assay.claims.gradient import same_gradient as same_gradient, same_report as same_report
from assay.claims.metrics import (
    AnswerProbability as AnswerProbability, Area as Area, AtEqual as AtEqual, DistinctAt as DistinctAt,
    Largest as Largest, PassAt as PassAt, sampled as sampled,
)
from assay.claims.probes import by_hand as by_hand, steps as steps, trajectories as trajectories
from assay.claims.probes.formulas import built as built, prepared as prepared
from assay.claims.updates import (
    COPIED as COPIED, DELAYED as DELAYED, SAC as SAC, SOFT as SOFT, follows_schedule as follows_schedule,
    reads_dataset as reads_dataset, refuses as refuses, same_weights as same_weights,
)
from assay.core.slots import ALONE as ALONE
from assay.datasets.recorded import with_statistics as with_statistics
from assay.engine.engine import Engine as Engine, StageView as StageView
from assay.engine.loop import Loop as Loop
from assay.engine.placement import Placement as Placement
from assay.runs import catalogue as catalogue
from assay.tasks.control.cartpole import cartpole as cartpole
from assay.tasks.control.pendulum import pendulum as pendulum
from assay.tasks.language.addition import addition as addition
from assay.tasks.language.items import Item as Item
from assay.tasks.language.prompts import PromptTask as PromptTask
from assay.tasks.language.sorting import sorting as sorting
from assay.tasks.tabular.bandit import bandit as bandit
from assay.tasks.tabular.table import chain as chain, gridworld as gridworld
