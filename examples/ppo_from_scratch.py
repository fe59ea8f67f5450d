"""PPO from scratch: a network learns to balance a pole on a cart, in one file of torch and numpy.

    delta_t = r_t + gamma V(s_t+1) - V(s_t)          V(s_t+1) is 0 if the pole fell at t, but not if time was up
    A_t     = delta_t + gamma lambda A_t+1           until the end of the episode or of the fragment
    policy loss = -mean_t min(rho_t A_t, clip(rho_t, 0.8, 1.2) A_t) - 0.003 entropy      rho_t = pi(a_t) / pi_old(a_t)
    value loss  = mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Schulman et al. 2017 (arXiv:1707.06347), with generalised advantages (arXiv:1506.02438) that are whitened for the policy
loss. Read it from top to bottom: settings, random numbers, environment, networks, playing, credit, losses, loop. It
uses nothing of Assay and computes what

    assay.train("ppo", task="cartpole", steps=STEPS)

computes, operation by operation: the same decisions and the same weights (tests/test_from_scratch.py).
Axes: N environments, T columns; column LENGTH holds the state after the last decision.

python examples/ppo_from_scratch.py [STEPS]
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

# ---------------------------------------------------------------------------------------------------- settings
SEED = 0
STEPS = 100
ENVS, LENGTH = 128, 16  # every step plays a fragment of 16 decisions in each of 128 environments
EPOCHS, MINIBATCHES = 3, 4
GAMMA, LAMBDA = 0.98, 0.9
LEARNING_RATE, ADAM_EPSILON, CLIP_NORM = 4e-3, 1e-5, 0.5  # the rate falls linearly, to 0 at the end
CLIP, ENTROPY = 0.2, 0.003
HIDDEN = 64

# ---------------------------------------------------------------------------------------------------- random numbers
# There is no generator with a state. A number is a hash of its coordinates, for a decision (seed, environment, time):
# what other environments do does not change it, and a run that is killed and resumed draws the same again.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(word: Any) -> Any:
    """Returns 64 bits that look unrelated to `word`: the finaliser of SplitMix64."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def hashed(seed: int | np.ndarray, *coordinates: int | np.ndarray) -> Any:
    """Returns 64-bit hashes of (seed, *coordinates), which broadcast against each other."""
    with np.errstate(over="ignore"):  # sums and products are modulo 2^64
        word = mix(np.asarray(seed).astype(np.uint64) + GOLDEN)
        for coordinate in coordinates:
            word = mix(word ^ mix(np.asarray(coordinate).astype(np.uint64) + GOLDEN))
    return word


def uniform(seed: int | np.ndarray, *coordinates: int | np.ndarray) -> np.ndarray:
    """Returns uniform numbers between 0 and 1, both excluded."""
    return ((hashed(seed, *coordinates) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


# ---------------------------------------------------------------------------------------------------- environment
class CartPole:
    """ENVS carts with a pole, with the dynamics of Gymnasium's CartPole-v1. A state is position, velocity, angle and
    angular velocity; every decision has reward 1; after 500 of them time is up.
    """

    def __init__(self) -> None:
        self.seed = hashed(SEED, 1, np.arange(ENVS))
        self.episode, self.time = np.zeros(ENVS, np.int64), np.zeros(ENVS, np.int64)
        self.is_over = np.zeros(ENVS, bool)
        self.state = self.start()

    def start(self) -> np.ndarray:
        """Returns the first state of each present episode: four numbers between -0.05 and 0.05."""
        return 0.1 * uniform(self.seed, self.episode, np.arange(4)[:, None]) - 0.05

    def observation(self) -> Tensor:
        """Returns the states, [N, 4]."""
        return torch.from_numpy(self.state.T.astype(np.float32, order="C"))

    def step(self, action: np.ndarray) -> tuple[Tensor, Tensor]:
        """Moves all carts by 0.02 s; returns which poles fell, and for which time was up. Where the episode is over,
        the next one begins instead and the action is not used.
        """
        _, velocity, angle, spin = self.state
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (np.where(action == 1, 10.0, -10.0) + 0.05 * np.square(spin) * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cosine) / 1.1))
        speeding = push - 0.05 * turning * cosine / 1.1
        moved = self.state + 0.02 * np.stack((velocity, speeding, spin, turning))

        begins = self.is_over
        self.episode, self.time = self.episode + begins, np.where(begins, 0, self.time + 1)
        self.state = np.where(begins, self.start(), moved)
        fell = ~begins & ((np.abs(moved[0]) > 2.4) | (np.abs(moved[2]) > 12 * 2 * np.pi / 360))
        is_late = self.time >= 500
        self.is_over = fell | is_late
        return torch.from_numpy(fell), torch.from_numpy(is_late)


# ---------------------------------------------------------------------------------------------------- networks
def network(index: int, outputs: int, gain: float) -> nn.Sequential:
    """Returns a perceptron with two layers of tanh and orthogonal weights, of which the last are scaled by `gain`."""
    torch.manual_seed(int(hashed(SEED, 6, index) >> np.uint64(1)))
    layers: list[nn.Module] = []
    for inputs, width, scale in ((4, HIDDEN, 2.0**0.5), (HIDDEN, HIDDEN, 2.0**0.5), (HIDDEN, outputs, gain)):
        layer = nn.Linear(inputs, width)
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


# ---------------------------------------------------------------------------------------------------- playing
class Batch(NamedTuple):
    """A fragment of each environment, [N, T, ...]. A column is a decision, unless an episode began there or it is the
    last one; `fell` and `is_late` say how its episode ended with it, if it did.
    """

    observation: Tensor
    action: Tensor
    logp: Tensor
    is_decision: Tensor
    fell: Tensor
    is_late: Tensor


@torch.no_grad()
def play(env: CartPole, policy: nn.Module, step: int) -> Batch:
    """Plays the next LENGTH columns of every environment and adds the one after them."""
    columns: list[tuple[Tensor, ...]] = []
    for time in range(step * LENGTH, (step + 1) * LENGTH):
        observation, is_decision = env.observation(), torch.from_numpy(~env.is_over)
        logits = policy(observation)
        cumulative = logits.softmax(-1).cumsum(-1)  # the action in whose interval the number falls
        number = torch.from_numpy(uniform(SEED, 2, np.arange(ENVS)[:, None], time, 0).astype(np.float32))
        point = number.clamp(2.0**-25, 1.0 - 2.0**-24) * cumulative[:, -1:]
        action = torch.searchsorted(cumulative, point, right=True)
        logp = logits.gather(-1, action).squeeze(-1) - logits.logsumexp(-1)
        ends = env.step(action[:, 0].numpy())
        columns.append((observation, action[:, 0], logp, is_decision, *ends))
    columns.append((env.observation(), *(torch.zeros_like(column) for column in columns[-1][1:])))
    return Batch(*(torch.stack(column, 1) for column in zip(*columns, strict=True)))


# ---------------------------------------------------------------------------------------------------- credit
def advantages(batch: Batch, value: Tensor) -> Tensor:
    """Returns A_t of every decision, 0 in other columns, [N, T]."""
    advantage = torch.zeros_like(value)
    goes_on = batch.is_decision & ~batch.fell & ~batch.is_late
    for t in reversed(range(LENGTH)):
        value_next = torch.where(batch.fell[:, t], 0.0, value[:, t + 1])
        delta = 1.0 + GAMMA * value_next - value[:, t]
        advantage[:, t] = delta + GAMMA * LAMBDA * goes_on[:, t] * advantage[:, t + 1]
        advantage[:, t] *= batch.is_decision[:, t]
    return advantage


def whitened(advantage: Tensor, is_decision: Tensor) -> Tensor:
    """Returns (A - mean) / (std + 1e-8) over all decisions."""
    count = is_decision.sum()
    centred = (advantage - advantage.sum() / count) * is_decision
    return centred / ((centred.square().sum() / (count - 1)).sqrt() + 1e-8)


# ---------------------------------------------------------------------------------------------------- losses
def policy_loss(policy: nn.Module, observation: Tensor, action: Tensor, logp_old: Tensor, credit: Tensor) -> Tensor:
    """Returns the clipped loss and the entropy bonus, averaged over decisions."""
    log_probs = policy(observation).log_softmax(-1)
    logp = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    ratio = (logp - logp_old).exp()
    gain = torch.minimum(ratio * credit, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * credit)
    return -gain.sum() / len(action) - ENTROPY * entropy.sum() / len(action)


def value_loss(critic: nn.Module, observation: Tensor, target: Tensor) -> Tensor:
    """Returns half of the squared error, averaged over decisions."""
    return (0.5 * (critic(observation).squeeze(-1) - target).square()).sum() / len(target)


# ---------------------------------------------------------------------------------------------------- loop
def update(loss: Tensor, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Takes one step of Adam by the gradient, scaled down to the norm CLIP_NORM if it is longer."""
    optimizer.zero_grad()
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
    for gradient in gradients:
        gradient.mul_(min(1.0, CLIP_NORM / norm))
    optimizer.step()


def train(policy: nn.Module, critic: nn.Module, steps: int = STEPS) -> Iterator[Batch]:
    """Trains policy and critic, which share nothing, on one fragment after another; yields the fragments."""
    env = CartPole()
    adams = [torch.optim.Adam(each.parameters(), eps=ADAM_EPSILON, fused=True) for each in (policy, critic)]
    for step in range(steps):
        for adam in adams:
            adam.param_groups[0]["lr"] = LEARNING_RATE - LEARNING_RATE * (step / steps)
        batch = play(env, policy, step)
        with torch.no_grad():
            value = critic(batch.observation).squeeze(-1)
        advantage = advantages(batch, value)
        credit, target, here = whitened(advantage, batch.is_decision), advantage + value, batch.is_decision
        decisions = [column[here] for column in (batch.observation, batch.action, batch.logp, credit, target)]
        for epoch in range(EPOCHS):
            order = np.argsort(hashed(SEED, step, 3, epoch, np.arange(len(decisions[0]))))
            for rows in torch.from_numpy(order).tensor_split(MINIBATCHES):
                observation, action, logp_old, own_credit, own_target = (column[rows] for column in decisions)
                update(policy_loss(policy, observation, action, logp_old, own_credit), policy, adams[0])
                update(value_loss(critic, observation, own_target), critic, adams[1])
        yield batch


def finished(batch: Batch, running: np.ndarray) -> list[float]:
    """Returns the returns of the episodes that ended in a fragment; `running` [N] carries those that did not."""
    found: list[float] = []
    for t in range(LENGTH):
        running += batch.is_decision[:, t].numpy()
        is_over = (batch.fell | batch.is_late)[:, t].numpy()
        found += running[is_over].tolist()
        running[is_over] = 0.0
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)  # the layers are too small to be split among threads,
    torch.backends.mkldnn.enabled = False  # and too small for oneDNN
    policy, critic, running = network(0, 2, gain=0.01), network(1, 1, gain=1.0), np.zeros(ENVS)
    for step, batch in enumerate(train(policy, critic, int(sys.argv[1]) if len(sys.argv) > 1 else STEPS), 1):
        ended = finished(batch, running)
        mean = sum(ended) / len(ended) if ended else float("nan")  # late in training, none may end in a step
        print(f"step {step:3d}  {len(ended):3d} episodes ended, mean return {mean:5.1f}")
