"""Suggestions for names that do not exist: near in letters, or the field's word for a setting of another name.

near in letters    at most one edit for each four letters: insert, delete, replace, or swap two neighbours
near in meaning    MEANINGS: kl, clip, lr, gamma, ... lead to the settings of the recipe at hand, if it has them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

SHORTEST = 3
"""Shorter names get no suggestion by letters: too many names are one edit away."""
MOST = 3


@dataclass(frozen=True)
class Meaning:
    """What words of the field mean, and where settings of that meaning are: the last words of their paths."""

    name: str
    words: tuple[str, ...]
    endings: tuple[str, ...]
    option: str = ""
    """What sets it where a recipe has no such setting."""


MEANINGS = (
    Meaning(
        "the KL coefficient",
        ("kl", "beta", "kl_beta", "kl_coef", "kl_coefficient", "kl_penalty", "init_kl_coef", "kl_loss_coef"),
        ("KlToReference.coefficient", "KlInReward.coefficient", "beta"),
        "the option --kl adds one",
    ),
    Meaning(
        "the clip range",
        ("clip", "epsilon", "eps", "clip_range", "cliprange", "clip_ratio", "clip_eps", "eps_clip", "clip_epsilon"),
        ("trust.low", "trust.high", "trust.ceiling"),
    ),
    Meaning("the upper clip", ("epsilon_high", "clip_high", "clip_ratio_high"), ("trust.high", "trust.ceiling")),
    Meaning("the lower clip", ("epsilon_low", "clip_low", "clip_ratio_low"), ("trust.low", "trust.floor")),
    Meaning("the learning rate", ("lr", "learning_rate", "step_size", "alpha_lr"), ("optimizer.learning_rate",)),
    Meaning("the discount", ("gamma", "discount_factor", "discounting"), ("discount",)),
    Meaning("lambda of generalised advantages", ("lambda", "lam", "lmbda", "gae", "td_lambda"), ("gae_lambda",)),
    Meaning(
        "the entropy coefficient",
        ("entropy", "ent_coef", "entropy_coef", "entropy_coeff", "entropy_coefficient", "entropy_bonus"),
        ("EntropyBonus.coefficient", "entropy", "MatchEntropy.target"),
    ),
    Meaning(
        "the temperature",
        ("temperature", "alpha", "temp"),
        ("temperature.initial", "temperature", "inverse_temperature", "Conservative.weight"),
        "that of sampled tokens is the option --temperature",
    ),
    Meaning(
        "the batch size",
        ("batch_size", "batch", "train_batch_size", "rollout_batch_size", "per_device_train_batch_size"),
        ("source.batch", "replay.batch", "rollout.num_starts", "rollout.num_envs"),
    ),
    Meaning(
        "the group size",
        ("group_size", "group", "num_generations", "samples_per_prompt", "n_samples", "num_samples", "rollout_n"),
        ("rollout.group_size",),
    ),
    Meaning("the number of prompts", ("prompts", "prompts_per_batch", "n_prompts"), ("rollout.num_starts",)),
    Meaning("the replay capacity", ("buffer_size", "replay_size", "buffer"), ("source.capacity", "replay.capacity")),
    Meaning(
        "the rate of a target network",
        ("tau", "polyak", "ema", "target_update_rate", "soft_update"),
        ("target.rate", "q_target.rate", "value_target.rate", "actor_target.rate", "reference.rate"),
    ),
    Meaning("the epochs of an update", ("n_epochs", "num_epochs", "ppo_epochs", "update_epochs"), ("source.epochs",)),
    Meaning("the minibatches", ("num_minibatches", "n_minibatches", "minibatch"), ("source.minibatches",)),
    Meaning("the steps of a fragment", ("n_steps", "num_steps", "rollout_length", "unroll_length"), ("rollout.steps",)),
    Meaning("the number of environments", ("n_envs", "envs", "num_workers"), ("rollout.num_envs",)),
    Meaning(
        "the largest gradient norm",
        ("max_grad_norm", "grad_clip", "gradient_clip", "clip_grad", "grad_norm"),
        ("optimizer.clip_norm",),
    ),
    Meaning("the value coefficient", ("vf_coef", "value_coef", "value_loss_coef"), ("Td.coefficient",)),
    Meaning(
        "the size of the network", ("hidden_size", "hidden_dim", "net_arch", "width"), ("body.hidden", "body.width")
    ),
)

ELSEWHERE = {
    "--seed": ("seed", "random_seed"),
    "--seeds": ("seeds", "num_seeds"),
    "--steps": ("total_steps", "max_steps", "num_train_steps"),
    "--model": ("model", "model_name", "model_name_or_path"),
    "--device": ("device", "cuda"),
    "--micro-batch": ("micro_batch", "micro_batch_size", "gradient_accumulation_steps"),
    "--epochs": ("num_epochs", "num_train_epochs"),
    "--system": ("system", "system_prompt"),
    "--decisions": ("total_timesteps", "timesteps", "env_steps", "num_env_steps"),
    "--max-tokens": (
        "max_tokens", "max_new_tokens", "max_length", "max_completion_length", "max_response_length", "response_length",
    ),
}  # fmt: skip
"""What is no setting of a recipe, and where it is."""


OPTIONS = {
    "--kl": ("beta", "kl_beta", "kl_coef", "init_kl_coef", "kl_loss_coef"),
    "--group-size": ("num_generations", "samples_per_prompt", "n_samples", "rollout_n"),
    "--prompts": ("batch_size", "train_batch_size", "rollout_batch_size", "per_device_train_batch_size"),
    "--set learning_rate=X": ("lr", "learning_rate"),
    "--set discount=X": ("gamma", "discount_factor"),
    "--set gae_lambda=X": ("gae_lambda", "lam", "lmbda"),
    "--set EntropyBonus.coefficient=X": ("ent_coef", "entropy_coef", "entropy_coeff"),
    "--decisions": ("total_timesteps", "timesteps"),
    "--save-every": ("save_steps", "save_freq", "save_interval"),
    "--evaluations": ("eval_steps", "eval_freq", "eval_interval"),
    "--task": (
        "dataset", "dataset_name", "train_dataset", "train_file", "train_files", "env", "env_id", "env_name", "gym_id",
    ),
    "--num-envs": ("n_envs", "num_workers"),
    "--starts": ("episodes", "num_episodes", "n_eval_episodes", "eval_episodes"),
    "--eval-episodes": ("episodes", "num_episodes", "n_eval_episodes"),
    "--reward": ("reward_funcs", "reward_fn", "reward_function"),
    "--body": ("policy_kwargs", "features_extractor_class", "network"),
    "--out": ("output_dir", "exp_name", "run_name", "save_dir", "log_dir"),
    "--wandb": ("track", "wandb_project", "wandb_project_name", "report_to"),
    "--tensorboard": ("tensorboard_log",),
}  # fmt: skip
"""Words that other libraries have for options of ours."""
OTHERWISE = {
    "The method stands first, without an option: assay train METHOD.": ("algo", "algorithm", "method", "trainer"),
    "Several seeds are trained by assay train METHOD --seeds N, in Python by assay.compare([METHOD], TASK, seeds=N).": (
        "seeds", "num_seeds", "n_seeds",
    ),
    "What a run prints is chosen by assay train METHOD --json, in Python by mode=assay.runs.progress.Mode.SILENT.": (
        "verbose", "quiet", "silent", "progress_bar", "disable_tqdm",
    ),
    "A trained policy is filmed by: assay evaluate RUN --video 1.": ("capture_video", "render", "render_mode"),
}  # fmt: skip
"""Words of other libraries for what is no option here, each with the sentence that says what it is."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name with the fewest edits, of equals the one with most letters in common; else a name of which
    one word is near (starts for num_starts); None if all take too many edits.
    """
    plain, names = name.lower(), list(known)
    limit = max(1, len(name) // 4) if len(name) >= SHORTEST else 0
    words = [(word, one) for one in names for word in one.lower().split("_") if len(word) > SHORTEST]
    for candidates in ([(one.lower(), one) for one in names], words):
        alike = [each for each in candidates if abs(len(each[0]) - len(plain)) <= limit]  # others take more edits
        counted = [(edits(plain, text), text, one) for text, one in alike]
        near = [each for each in counted if each[0] <= limit]
        if near:
            return min(near, key=lambda each: (each[0], -SequenceMatcher(None, plain, each[1]).ratio()))[2]
    return None


def edits(one: str, other: str) -> int:
    """Returns how many letters must be inserted, deleted, replaced or swapped with a neighbour (optimal alignment)."""
    before, last = list[int](), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]


def meant(word: str, known: Mapping[tuple[str, ...], Any]) -> str:
    """Returns a sentence on what a word of the field is here: settings of the recipe that are not names, or where else
    it is set; '' if it is not a word of MEANINGS or ELSEWHERE.
    """
    plain = word.lower().replace("-", "_")
    for place, words in ELSEWHERE.items():
        if plain in words:
            return f"'{word}' is {'the option ' if place.startswith('--') else ''}{place}."
    for meaning in MEANINGS:
        if plain in meaning.words:
            values = [full for full, value in known.items() if not isinstance(value, str)]
            found = [".".join(full) for ending in meaning.endings for full in values if ends_with(full, ending)]
            here = [path for path in dict.fromkeys(found) if not path.startswith("before.")] or found
            more = f" and {len(here) - MOST} more" if len(here) > MOST else ""
            paths = " or ".join(f"'{path}'" for path in here[:MOST])
            lacks = f"It has no setting for {meaning.name}{meaning.option and f'; {meaning.option}'}."
            return f"For {meaning.name} set {paths}{more}." if here else lacks
    return ""


def option_hint(word: str, options: Iterable[str]) -> str:
    """Returns a sentence on an option that a command lacks: the options that begin so, the one that is near in letters
    or in meaning, or that it is a setting of recipes; else ''.
    """
    plain, known = word.lstrip("-").replace("-", "_"), {one.lstrip("-").replace("-", "_"): one for one in options}
    places = [*OPTIONS.items(), *ELSEWHERE.items()]
    near = next((place for place, words in places if plain in words and place.split()[0] in known.values()), None)
    begun = [one for name, one in known.items() if plain and name.startswith(plain)]
    near = near or (" or ".join(begun) if len(begun) <= MOST else "") or known.get(nearest(plain, known) or "")
    if near:
        return f" Did you mean {near}?"
    said = next((sentence for sentence, words in OTHERWISE.items() if plain in words), "")
    if said:
        return f" {said}"
    if "set" in known and any(plain in meaning.words for meaning in MEANINGS):
        return " It is a setting of recipes, --set PATH=VALUE: assay show METHOD --all lists the paths."
    return ""


def ends_with(full: tuple[str, ...], ending: str) -> bool:
    """Returns whether a path ends with these words."""
    words = tuple(ending.split("."))
    return full[-len(words) :] == words
