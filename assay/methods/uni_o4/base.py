"""The recipe of uni-o4: PPO on states of an offline dataset, then PPO in the task."""

from dataclasses import replace

from assay.method import CONTINUOUS, Adam, Copy, Descent, Gate, Linear, Phase, Preset, Recipe, Stage, ppo
from assay.methods.uni_o4.losses import DiverseLikelihood, Ended, ModelScore, PredictNext
from assay.methods.uni_o4.models import ClampedQ, Committee, LearnedDynamics
from assay.methods.uni_o4.offline import CriticAdvantage, OnStates, Rising
from assay.models import Critic, Perceptron, Policy
from assay.parts import Clip, Expectile, FreshDecisions, Log, Logged, Logistic, NextValue, OfAction, OfState
from assay.parts import PolicyGradient, RecordedAction, Td, Whiten

MEMBERS, DISCOUNT, OPTIMIZER = 4, 0.95, Adam(learning_rate=1e-3, clip_norm=0.0)


WIDE = Perceptron((128, 128))


LOG = Log(episodes=50, noise=0.5)


def cloned(log: Log) -> Recipe:
    """Returns the supervised phase: behaviour policies, values of the data, a model of the dynamics and of ends."""
    return Recipe(
        name="uni-o4",
        actor=Policy(head=Committee(MEMBERS)),
        critics={
            "value": Critic(WIDE),
            "q": Critic(WIDE, ClampedQ()),
            "dynamics": Critic(head=LearnedDynamics()),
            "end": Critic(head=ClampedQ(1)),
        },
        copies={"q_target": Copy(of="q", rate=0.02)},
        source=Logged((log,), batch=128),
        stages=(
            Stage("clone", ("actor",), (DiverseLikelihood(0.1),), optimizer=OPTIMIZER),
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(0.7), OfState()),), optimizer=OPTIMIZER),
            Stage("q", trains=("q",), critic=(Td(NextValue(DISCOUNT)),), optimizer=OPTIMIZER),
            Stage("dynamics", trains=("dynamics",), critic=(PredictNext(),), optimizer=OPTIMIZER),
            Stage("end", trains=("end",), critic=(Td(Ended(), Logistic(), OfAction("end")),), optimizer=OPTIMIZER),
        ),
        steps=400,
    )


def improved(base: Recipe, log: Log, gate: Gate | None) -> Recipe:
    """Offline PPO: states of the dataset, actions of the gated old policy, advantages of the critics."""
    policy = PolicyGradient(trust=Clip(0.25, 0.25))
    rate = Linear(1e-4, 0.0)
    return replace(
        base,
        copies={"old": Copy(of="actor", rate=1.0, every=10, gate=gate)},
        rollout=OnStates(Logged((log,), batch=128, updates=1), MEMBERS),
        behaviour="old",
        credit=(CriticAdvantage(), Whiten()),
        source=FreshDecisions(epochs=1, minibatches=1),
        stages=(
            Stage("policy", ("actor",), (policy,), optimizer=Adam(learning_rate=rate, clip_norm=0.5)),
            Stage("score", trains=("actor",), critic=(ModelScore(10),), optimizer=Descent(), every=10),
        ),
        steps=100,
    )


def uni_o4(preset: Preset = CONTINUOUS, gate: Gate | None = Rising(), log: Log = LOG) -> Recipe:
    """Uni-O4 (arXiv:2311.03351): clone, improve by gated offline PPO, then PPO with the member of the best score."""
    first = cloned(log)
    second, online = improved(first, log, gate), ppo(preset)
    everything = {name: name for name in ("actor", "value", "q", "dynamics", "end")}
    stages = tuple(replace(stage, optimizer=replace(preset.optimizer, learning_rate=3e-4)) for stage in online.stages)
    return replace(
        online,
        name="uni-o4",
        actor=first.actor,
        critics={"value": first.critics["value"]},
        stages=stages,
        steps=20,
        before=(
            Phase("clone", first, first.steps, everything),
            Phase("improve", second, second.steps, {"actor": "actor"}),
        ),
    )
