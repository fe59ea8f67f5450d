"""The commands on a trained policy: `assay evaluate` and `assay export`."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.settings import settings
from assay.core.slots import Task, TextTask
from assay.core.spaces import Vocabulary
from assay.core.verifier import COMPONENT
from assay.decoding.sampling_parameters import Decodes, Narrowing
from assay.engine import evaluation
from assay.engine.dcp import export_weights
from assay.models.exported import export_policy
from assay.rollouts import text
from assay.rollouts.judgements import scores_in
from assay.runs import catalogue, zero_shot
from assay.runs.checks import check_placement
from assay.runs.language import temperature_of
from assay.runs.options.cadence import MOST_STARTS
from assay.runs.plan import Plan, anchored, changed_task, plan_of, pretrained
from assay.runs.ranges import range_of
from assay.runs.run import load, loaded
from assay.runs.user_code.known_runs import trust
from assay.runs.user_code.reward_range import Ranged
from assay.runs.user_code.rewards import OwnRewards
from assay.statistics.intervals import Estimate, cluster_interval, formatted, is_binary, mean_interval
from assay.statistics.passk import majority_at_k, pass_at_k, pass_at_k_intervals
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import Rows, TextFile
from assay.tasks.language.votes import Vote, listed, reordered, sampled

MOST_VIDEOS = 100


@dataclass(frozen=True)
class Scored:
    """Scores [starts, samples], labels of independent starts, the answers as text if there are any, and the rewards
    [starts, samples] that the scores are made of, by name.
    """

    values: np.ndarray
    labels: np.ndarray
    more: dict[str, float]
    rows: list[list[dict[str, Any]]]
    rewards: dict[str, np.ndarray] = field(default_factory=dict)

    def of(self, name: str | None) -> Scored:
        """Returns the scores by one reward alone; all of them for None. A reward that does not apply counts 0."""
        return self if name is None else replace(self, values=np.nan_to_num(self.rewards[name]))


def evaluate(options: argparse.Namespace) -> int:
    """`assay evaluate`."""
    ks = checked_ks(options)
    if options.trust_code:
        trust(options.folder)
    if options.reward is not None:
        return evaluate_reward(options)
    if options.data is not None:
        raise AssayError("--data names the data to infer a reward's policy from. Add --reward FILE.py:FUNCTION.")
    plan = plan_of(options.folder, accept_changed_code=options.accept_changed_code)
    if options.device is not None:
        plan = on_device(plan, options.device)
    task = plan.task if options.task is None else other_task(plan, options.task)
    if options.votes:
        if not isinstance(task, PromptTask):
            raise AssayError(f"--votes needs prompts that show responses; '{task.name}' has none. Remove it.")
        reordered(task.items.item(0, 1), range(len(listed(task.items.item(0, 1)))))  # refuses what a vote cannot show
    if (ks or options.majority) and not isinstance(task, TextTask):
        raise AssayError(f"--passk and --majority need answers to prompts; '{task.name}' has none. Remove them.")
    check_rewards(options, task)
    loop = loaded(plan, options.folder, options.checkpoint)
    policy, step = tempered(options, plan, loop.policy), loop.step
    found = scored(options, task, policy, loop.reference)
    films = filmed(options, plan)
    estimate = cluster_interval(found.values, np.repeat(found.labels, found.values.shape[1]), bounds=range_of(task))
    chosen, of = found.of(options.of), f" of {options.of}" if options.of else ""
    extra = {f"pass@{k}{of}": one for k, one in zip(ks, passed(chosen, ks), strict=True)} if ks else {}
    if options.of is not None:
        bounds = (0.0, 1.0) if is_binary(chosen.values.ravel()) else None
        repeated = np.repeat(chosen.labels, chosen.values.shape[1])
        extra[options.of] = cluster_interval(chosen.values, repeated, bounds=bounds)
    if options.majority:
        extra[f"majority@{options.samples}{of}"] = voted(task, chosen)
    if options.votes and isinstance(task, PromptTask):
        extra[f"vote@{options.votes}"], found.more["readable"] = summed(options.votes, plan, task, policy, found.labels)
    if options.out is not None:
        write_rows(options.out, found)
    if options.json:
        facts: dict[str, Any] = {"folder": str(options.folder), "task": task.name, "step": step}
        facts |= {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "count": estimate.count}
        facts |= {"videos": films} if films else {}
        facts |= {"samples": found.values.shape[1], **found.more, **{name: vars(one) for name, one in extra.items()}}
        print(json.dumps(facts))
        return 0
    each = f", {options.samples} samples each" if options.samples > 1 else ""
    what = "pairs" if isinstance(task, PairsTask) else "prompts" if isinstance(task, TextTask) else "episodes"
    count = f"over {estimate.count} held-out {what}{each}"
    print(f"{plan.recipe.name} on {task.name} after {step} steps: {formatted(estimate)} {count}")
    for name, one in extra.items():
        print(f"{name}: {formatted(one)}")
    for name, value in found.more.items():
        print(f"{name}: {value:.4g}")
    for path, score in films.items():
        print(f"video of a held-out episode with return {score:g}: {path}")
    return 0


def on_device(plan: Plan, device: str) -> Plan:
    """Returns the plan of a run with its models on another device; layers are compiled on that of the run alone."""
    placement = plan.placement
    same = device.partition(":")[0] == placement.device.partition(":")[0]
    placement = replace(placement, device=device, compiled=placement.compiled and same)
    check_placement(placement, plan.task)
    return replace(plan, placement=placement)


def filmed(options: argparse.Namespace, plan: Plan) -> dict[str, float]:
    """Films the first held-out episodes into the run folder; returns their returns by file."""
    from assay.tasks.adapters.video import film, write_video

    found: dict[str, float] = {}
    policy = loaded(plan, options.folder, options.checkpoint).policy if options.video else None
    for start in range(options.video):
        pictures, score, rate = film(plan.task, policy, start)
        found[str(write_video(pictures, options.folder / "video" / f"episode-{start}", rate))] = score
    return found


def evaluate_reward(options: argparse.Namespace) -> int:
    """`assay evaluate --reward`: the policy of another reward, inferred from data."""
    if options.samples > 1:
        raise AssayError(f"--samples is {options.samples}, but a policy of --reward always acts with its mode")
    found = zero_shot.evaluate(options.folder, options.reward, options.data, options.starts)
    estimate = mean_interval(found.scores)
    if options.json:
        facts = {"folder": str(options.folder), "task": found.task, "step": found.step, "reward": options.reward}
        numbers = {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "count": estimate.count}
        print(json.dumps(facts | numbers | {"data_mean": found.in_data}))
    else:
        print(
            f"{found.method} on {found.task} after {found.step} steps, policy inferred for {options.reward}: "
            f"{formatted(estimate)} a decision over {estimate.count} held-out episodes; the data's states: "
            f"{found.in_data:.4g}"
        )
    return 0


def checked_ks(options: argparse.Namespace) -> list[int]:
    """Returns the k of --passk; refuses numbers out of range."""
    for name in ("starts", "samples", "votes"):
        if (number := vars(options)[name]) is not None and not 1 <= number <= MOST_STARTS:
            rule = "at least 1" if number < 1 else f"at most {MOST_STARTS:,}"
            raise AssayError(f"--{name} is {number}. Use {rule}.")
    if not 0 <= options.video <= MOST_VIDEOS:
        raise AssayError(f"--video is {options.video}. Use a number of episodes from 0 to {MOST_VIDEOS}.")
    if options.out is not None:
        store.check_target(options.out, "--out ")
    if options.greedy and (options.passk or options.majority or options.votes or options.temperature is not None):
        others = "--temperature, --passk, --majority and --votes"
        raise AssayError(f"--greedy always gives the same answer. Remove it, or {others}.")
    words = [] if options.passk is None else options.passk.split(",")
    if not all(word.strip().isdigit() and 1 <= int(word) <= options.samples for word in words):
        raise AssayError(
            f"--passk is '{options.passk}'. Use numbers from 1 to --samples ({options.samples}), e.g. --samples 16 "
            "--passk 1,8,16."
        )
    return [int(word) for word in words]


def other_task(plan: Plan, address: str) -> Task:
    """Returns another task as the run's options and model see it, with all rows of one file held out."""
    task = catalogue.find_task(anchored(address), needs_answers=not plan.options.own.scores)
    task = replace(task, prompts=all_held_out(task.prompts)) if isinstance(task, PairsTask) else all_held_out(task)
    task = changed_task(task, plan.options)
    task = task if plan.model is None else pretrained(plan.model, task)[1]
    if task.spec.action != plan.task.spec.action:
        what = f"'{task.name}' has other actions than '{plan.task.name}', on which the policy was trained"
        raise AssayError(f"{what}. Score it on a task of the same kind.")
    return task


def all_held_out(task: Any) -> Any:
    """Returns the task of one file with all rows held out; any other task as it is."""
    is_file = isinstance(task, PromptTask) and isinstance(task.items, TextFile)
    return replace(task, items=replace(task.items, held_out=1.0)) if is_file else task


def tempered(options: argparse.Namespace, plan: Plan, policy: Any) -> Any:
    """Returns the policy at the temperature of --temperature."""
    if options.temperature is None:
        return policy
    if not isinstance(policy, Decodes):
        raise AssayError(f"--temperature needs a policy over tokens; '{plan.recipe.name}' has none here. Remove it.")
    return Narrowing(options.temperature / temperature_of(plan.recipe.actor)).wrap(policy)


def scored(options: argparse.Namespace, task: Task, policy: Any, reference: Any) -> Scored:
    """Returns the policy's scores on a task."""
    greedy, samples = True if options.greedy else None, options.samples
    found = evaluation.evaluate(policy, task, num=options.starts, samples=samples, greedy=greedy, reference=reference)
    values = found.values.reshape(-1, 1 if isinstance(task, PairsTask) else samples)
    labels = evaluation.labels(task, len(values))
    texts = task.texts(found.played, 1) if found.played is not None and isinstance(task, TextTask) else []
    rows = [texts[k : k + samples] for k in range(0, len(texts), samples)]
    parts = {} if found.played is None else found.played.extra
    named = {name.removeprefix(COMPONENT): value for name, value in parts.items() if name.startswith(COMPONENT)}
    rewards = {name: value.double().cpu().numpy().reshape(values.shape) for name, value in named.items()}
    return Scored(values, labels, found.more, rows, rewards)


def check_rewards(options: argparse.Namespace, task: Task) -> None:
    """Refuses a reward that the task lacks, and shares of right answers by a sum of rewards, before sampling."""
    scorer = task.scorer if isinstance(task, PromptTask | DialogueTask) else None
    rewards = scorer.rewards if isinstance(scorer, Ranged) else scorer
    names = list(rewards.weights) if isinstance(rewards, OwnRewards) else []
    if options.of is not None and options.of not in names:
        has = f"its rewards are {', '.join(names)}" if names else "it has a verifier alone"
        raise AssayError(f"--of is '{options.of}', but of '{task.name}' {has}. Name one of its rewards, or remove it.")
    if (options.passk or options.majority) and len(names) > 1 and options.of is None:
        what = "--passk and --majority count right answers, and this run's scores are sums of"
        raise AssayError(f"{what} {', '.join(names)}. Add --of {names[0]}, or another one that is 0 or 1.")


def passed(found: Scored, ks: list[int]) -> tuple[Estimate, ...]:
    """Returns the mean pass@k over prompts, for each k; Wilson's interval if each prompt's is 0 or 1, since resampling
    sees no spread there.
    """
    if not is_binary(found.values.ravel()):
        raise AssayError("--passk needs scores that are 0 or 1; this task gives others. Remove it.")
    samples, correct = found.values.shape[1], found.values.sum(1).astype(int)
    each = pass_at_k(samples, correct, ks)
    resampled = pass_at_k_intervals(samples, correct, ks)
    plain = [cluster_interval(each[:, place], found.labels, bounds=(0.0, 1.0)) for place in range(len(ks))]
    is_plain = [is_binary(each[:, place]) for place in range(len(ks))]
    return tuple(one if here else other for one, other, here in zip(plain, resampled, is_plain, strict=True))


def voted(task: Task, found: Scored) -> Estimate:
    """Returns the mean score of the majority's answer: 1 if it is right, ties count by their share. An answer is what
    the verifier of a file compares, or the final answer of a text.
    """
    items = task.items if isinstance(task, PromptTask) else None
    shares = []
    for values, rows in zip(found.values, found.rows, strict=True):
        said = [row["completion"] for row in rows]
        answers = [items.stated(one) if isinstance(items, Rows) else final_answer(one) or None for one in said]
        right = [answer for answer, value in zip(answers, values, strict=True) if value >= 1 and answer is not None]
        shares.append(majority_at_k(answers, right[0]) if right else 0.0)
    return cluster_interval(shares, found.labels, bounds=(0.0, 1.0))


def summed(samples: int, plan: Plan, task: PromptTask, policy: Any, labels: np.ndarray) -> tuple[Estimate, float]:
    """Returns how often the sums of so many judgements put the best response first, and the share of judgements with
    a score for each response.
    """
    marks = [str(value) for path, value in settings(plan.recipe).items() if path[0] == "rewards" and path[-1] == "mark"]
    vote, judged = Vote(samples, mark=next(iter(marks), Vote.mark)), sampled(task, policy, Draw(0, (7,)))
    said = list[str]()

    def write(*asked: Any) -> list[str]:
        said.extend(judged(*asked))
        return said

    right = vote.right(task, write, range(len(labels)), Draw(0, (10,)))
    wanted = [len(listed(item)) for item in task.items_of(np.arange(len(labels)), 1) for _ in range(samples)]
    pairs = zip(said, wanted, strict=True)
    readable = float(np.mean([len(scores_in(one, vote.mark) or ()) == number for one, number in pairs]))
    if not readable:
        example = text.escaped(said[0], 60)
        raise AssayError(
            f"none of the {len(said):,} judgements has scores such as 7,3 (the first is '{example}'), so that there is "
            "nothing to sum. Train the judge first: assay train sft --task FILE"
        )
    return cluster_interval(right, labels, bounds=(0.0, 1.0)), readable


def write_rows(path: Path, found: Scored) -> None:
    """Writes one JSON line per start: the prompt, its answer and facts, the samples and their scores."""
    lines = []
    for place, values in enumerate(found.values):
        rows = found.rows[place] if found.rows else []
        shared = {name: value for name, value in (rows[0] if rows else {}).items() if name not in ("completion", "cut")}
        several = {"samples": [row["completion"] for row in rows], "cut": [row.get("cut", False) for row in rows]}
        record = {"start": place, **shared, **(several if rows else {}), "scores": values.tolist()}
        if found.rewards:
            each = {name: found.rewards[name][place].tolist() for name in found.rewards}
            record["rewards"] = {
                name: [None if value != value else value for value in one] for name, one in each.items()
            }
        lines.append(json.dumps(record, default=str))
    store.write_text(path, "\n".join(lines) + "\n")


def export(options: argparse.Namespace) -> int:
    """`assay export`."""
    from assay.models.pretrained.transformers import export as write

    allowed = {"accept_changed_code": options.accept_changed_code, "trust_code": options.trust_code}
    policy, plan, step = load(options.folder, options.checkpoint, **allowed)
    if options.dcp and options.merge:
        raise AssayError("--dcp writes the weights of a run as they are, and --merge changes them. Remove one of them.")
    if options.dcp:
        export_weights(policy, options.target)
    elif isinstance(plan.task.spec.action, Vocabulary):
        write(policy, plan.recipe.actor, options.target, merge=options.merge)
    elif options.merge:
        raise AssayError("--merge merges the LoRA adapter of a language model; a control policy has none. Remove it.")
    else:
        export_policy(policy, plan.task.spec, options.target)
    if options.json:
        print(json.dumps({"folder": str(options.folder), "step": step, "target": str(options.target)}))
    else:
        print(f"exported {plan.recipe.name} after {step} steps to {options.target}")
    return 0
