"""The recipe of archer: a critic of whole utterances from replay, a policy gradient within each utterance."""

from dataclasses import replace

from assay.method import LANGUAGE, Adam, Copy, Preset, Delayed, Recipe, Stage, reinforce
from assay.methods.archer.objectives import TurnGradient
from assay.methods.archer.source import NewTurns, ReplaySequences
from assay.methods.archer.targets import TURN_VALUE, turn_td
from assay.models import ActionValue, Critic, Transformer


def turn_critic(preset: Preset = LANGUAGE) -> Recipe:
    """Q from replayed turns, then V and the policy at replayed states with new turns; at first without the policy."""
    base, memory = reinforce(preset), ReplaySequences(1024, batch=128, updates=16)
    again = NewTurns(memory)
    body = Transformer(64, layers=1) if preset.tokens else preset.value.body
    critic_rate, actor_rate = (0.1, 0.1) if preset.tabular else (3e-3, 3e-4)
    step, policy = Adam(critic_rate), replace(preset.optimizer, learning_rate=Delayed(actor_rate))
    return replace(
        base,
        name="turn_critic",
        critics={"q": Critic(body, ActionValue()), "value": Critic(body)},
        copies={"q_target": Copy(of="q", rate=0.1), "value_target": Copy(of="value", rate=0.1)},
        credit=(),
        stages=(
            Stage("q", ("q",), critic=(turn_td(preset.gae.discount),), optimizer=step, source=memory),
            Stage("value", ("value",), critic=(TURN_VALUE,), optimizer=step, source=again),
            Stage("policy", ("actor",), (TurnGradient(),), optimizer=policy, every=4, source=again),
        ),
    )
