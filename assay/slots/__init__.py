"""The slots of a recipe: one protocol each. The docstring of a slot is its list of laws, and `checks/` enforces them.

A part is a frozen dataclass of its few settings. A part that remembers something has `init`, which gives its state: a
tree of plain values that the run saves; the part may change that tree, inside its own call only.

Laws of every part: equal inputs and state give equal outputs; inputs are not modified; float32 and float64 agree;
extra padding changes nothing; permuting sequences permutes the result.
"""

from assay.slots.models import Actor, Grown, ModelSpec, PathActor, View
from assay.slots.parts import (
    Aggregation,
    Annotation,
    Certificate,
    Constraint,
    Credit,
    CriticLoss,
    Curriculum,
    Explore,
    Grower,
    Objective,
    Optimizer,
    Over,
    Prepare,
    Regularizer,
    Reward,
    Rollout,
    Schedule,
    Select,
    Source,
    TaskChange,
    Term,
    Wrapper,
    number,
)
from assay.slots.tasks import (
    DemonstratedTask,
    GameTask,
    PairedTask,
    ResumableTask,
    RoamingTask,
    ScriptedTask,
    Simulation,
    SteppingTask,
    Task,
    VerifiedTask,
)

__all__ = [
    "Actor",
    "Aggregation",
    "Annotation",
    "Certificate",
    "Constraint",
    "Credit",
    "CriticLoss",
    "Curriculum",
    "DemonstratedTask",
    "Explore",
    "GameTask",
    "Grower",
    "Grown",
    "ModelSpec",
    "Objective",
    "Optimizer",
    "Over",
    "PairedTask",
    "PathActor",
    "Prepare",
    "Regularizer",
    "ResumableTask",
    "Reward",
    "RoamingTask",
    "Rollout",
    "Schedule",
    "ScriptedTask",
    "Select",
    "Simulation",
    "Source",
    "SteppingTask",
    "Task",
    "TaskChange",
    "Term",
    "VerifiedTask",
    "View",
    "Wrapper",
    "number",
]
