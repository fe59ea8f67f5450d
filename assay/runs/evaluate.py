"""`assay.evaluate`: scores of a trained policy on held-out starts, from Python as from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import History, Task, TextTask
from assay.decoding.sampling_parameters import Decodes, Narrowing
from assay.engine.placement import history_of, task_on
from assay.runs import catalogue, zero_shot
from assay.runs.agents import run_folder
from assay.runs.argument_kinds import kinds_checked
from assay.runs.checks import check_placement, checked_path
from assay.runs.given import given_task
from assay.runs.given_model import given_model
from assay.runs.hardware import device_here
from assay.runs.language import in_tokens_of, temperature_of
from assay.runs.notebook import html_table
from assay.runs.options.group import parsed_group
from assay.runs.options.scoring import RebuiltOptions, ScoringOptions
from assay.runs.plan import Plan, changed_task, plan_of
from assay.runs.ranges import range_of
from assay.runs.rebuilt import rebuilt_plan
from assay.runs.resolved import anchored
from assay.runs.result import Run
from assay.runs.run import loaded
from assay.runs.scored import Scored, check_asked, passed, scored, summed, voted, write_rows
from assay.runs.user_code.known_runs import trust
from assay.runs.user_code.objects import remember
from assay.runs.user_code.running import kept_traceback
from assay.statistics.intervals import Estimate, cluster_interval, formatted, is_binary, mean_interval
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import TextFile


@dataclass(frozen=True)
class Evaluation:
    """Scores of a policy on held-out starts: their mean with its 95 % interval, and what else was asked for by name."""

    folder: Path
    method: str
    task: str
    step: int
    mean: Estimate
    what: str
    """What a start is: prompts, pairs or episodes."""
    scores: np.ndarray = field(repr=False)
    """[starts, samples]."""
    rewards: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    """Rewards that the scores are made of, by name, [starts, samples]."""
    extra: Mapping[str, Estimate] = field(default_factory=dict)
    """pass@k, majority@n, the mean of one reward, by name."""
    more: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the task."""
    videos: Mapping[str, float] = field(default_factory=dict)
    """Returns of filmed episodes, by file."""

    def lines(self) -> list[str]:
        """Returns the sentences that the command prints."""
        samples = self.scores.shape[1]
        each = f", {samples} samples each" if samples > 1 else ""
        count = f"over {self.mean.count} held-out {self.what}{each}"
        head = f"{self.method} on {self.task} after {self.step} steps: {formatted(self.mean)} {count}"
        lines = [head, *(f"{name}: {formatted(one)}" for name, one in self.extra.items())]
        lines += [f"{name}: {value:.4g}" for name, value in self.more.items()]
        return [*lines, *(f"video of a held-out episode with return {r:g}: {p}" for p, r in self.videos.items())]

    def facts(self) -> dict[str, Any]:
        """Returns the evaluation as JSON."""
        mean = {"mean": self.mean.value, "low": self.mean.low, "high": self.mean.high, "count": self.mean.count}
        facts = {"folder": str(self.folder), "task": self.task, "step": self.step, **mean}
        facts |= {"videos": dict(self.videos)} if self.videos else {}
        extra = {name: vars(one) for name, one in self.extra.items()}
        return facts | {"samples": self.scores.shape[1], **self.more, **extra}

    def __repr__(self) -> str:
        """Returns the sentences that the command prints."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Returns the table of scores with their intervals, for a notebook."""
        rows = [["held-out score", formatted(self.mean), f"{self.mean.count} {self.what}"]]
        rows += [[name, formatted(one), f"{one.count}"] for name, one in self.extra.items()]
        rows += [[name, f"{value:.4g}", ""] for name, value in self.more.items()]
        return html_table([f"{self.method} on {self.task}, step {self.step}", "95 % interval", "over"], rows)


@dataclass(frozen=True, repr=False)
class Inferred(Evaluation):
    """Scores of the policy of another reward, inferred from data without training (`zero_shot`)."""

    reward: str = ""
    in_data: float = 0.0
    """The mean reward of the data's states."""

    def lines(self) -> list[str]:
        """Returns the sentence that the command prints."""
        return [
            f"{self.method} on {self.task} after {self.step} steps, policy inferred for {self.reward}: "
            f"{formatted(self.mean)} a decision over {self.mean.count} held-out episodes; the data's states: "
            f"{self.in_data:.4g}"
        ]

    def facts(self) -> dict[str, Any]:
        """Returns the evaluation as JSON."""
        mean = {"mean": self.mean.value, "low": self.mean.low, "high": self.mean.high, "count": self.mean.count}
        facts = {"folder": str(self.folder), "task": self.task, "step": self.step, "reward": self.reward}
        return facts | mean | {"data_mean": self.in_data}


@dataclass(frozen=True, repr=False)
class Estimated(Evaluation):
    """The discounted return of a policy, estimated from data without playing it (`assay.datasets.ope`)."""

    data: str = ""
    discount: float = 1.0
    effective: float = 0.0

    def lines(self) -> list[str]:
        """Returns the sentence that the command prints."""
        return [
            f"{self.method} on {self.task} after {self.step} steps, {self.what} from {self.data}: return "
            f"{formatted(self.mean)} of sampled actions, discount {self.discount:g}, from {self.mean.count} episodes, "
            f"of which {self.effective:.1f} carry it"
        ]

    def facts(self) -> dict[str, Any]:
        """Returns the estimate as JSON."""
        told = {"estimator": self.what, "data": self.data, "discount": self.discount, "effective": self.effective}
        return super().facts() | told


def inferred(folder: Path, asked: ScoringOptions) -> Inferred:
    """Returns the scores of the policy of another reward (`assay.runs.zero_shot`)."""
    assert asked.reward is not None
    one = zero_shot.evaluate(folder, asked.reward, asked.data, asked.starts)
    told = (folder, one.method, one.task, one.step, mean_interval(one.scores), "episodes", one.scores[:, None])
    return Inferred(*told, reward=asked.reward, in_data=one.in_data)


def estimated(subject: Subject, task: Task, asked: ScoringOptions) -> Estimated:
    """Returns the discounted return of a policy from a file alone."""
    from assay.datasets import ope  # here: scoring by playing does not need it
    from assay.datasets.recorded import Recorded, checked

    assert asked.ope is not None
    assert asked.data is not None
    plan, recipe = subject.plan, subject.plan.recipe
    if isinstance(task, TextTask):
        raise AssayError(f"--ope estimates returns of control tasks, and '{task.name}' has prompts. Remove it.")
    if history_of(recipe) != History():
        raise AssayError(f"--ope shows a policy single decisions, and '{recipe.name}' reads past ones. Remove it.")
    data, discount = checked(Recorded(asked.data), task), discount_of(recipe)
    one = ope.evaluated(asked.ope, subject.policy, data, task.spec, discount, seed=plan.seed)
    mean = Estimate(one.value, one.low, one.high, one.episodes)
    told = (subject.folder, recipe.name, task.name, subject.step, mean, asked.ope, np.empty((0, 1)))
    return Estimated(*told, data=asked.data, discount=discount, effective=one.effective)


def discount_of(recipe: Recipe) -> float:
    """Returns the discount of the recipe's critics, 0.99 if they have none."""
    targets = [vars(term).get("target") for stage in recipe.stages for term in stage.critic]
    found = [vars(one)["discount"] for one in targets if one is not None and "discount" in vars(one)]
    return float(found[0]) if found else 0.99


@dataclass(frozen=True)
class Subject:
    """What is scored: a policy, the reference that it was trained beside, and the plan of its run."""

    plan: Plan
    folder: Path
    policy: Any
    reference: Any
    step: int


@kinds_checked
def evaluate(
    run: Run | str | Path,
    task: Any = None,
    *,
    starts: int | None = None,
    samples: int = 1,
    greedy: bool = False,
    temperature: float | None = None,
    passk: str | int | Sequence[int] | None = None,
    majority: bool = False,
    of: str | None = None,
    votes: int | None = None,
    out: str | Path | None = None,
    reward: str | None = None,
    data: str | None = None,
    ope: str | None = None,
    video: int = 0,
    checkpoint: str | int | None = None,
    device: str | None = None,
    compiled: bool | None = None,
    dtype: str | None = None,
    micro_batch: int | None = None,
    model: Any = None,
    settings: Mapping[str, Any] | None = None,
    accept_changed_code: bool = False,
    trust_code: bool = False,
    functions: Sequence[Any] | Mapping[str, Any] = (),
) -> Evaluation:
    """Scores a run's policy on held-out starts; the words are those of `assay evaluate --help`.

    `run` is what `assay.train` returned, or a run folder. `task` is another task, as `assay.train` takes it. Device,
    compiled layers, dtype and model are those of the run unless given, and all starts are sampled at once unless
    `micro_batch` says how many; `settings` may change what the saved weights allow. `trust_code` and `functions` are
    those of `assay.resume`. In a notebook the result is a table.
    """
    remember(functions)
    if trust_code:
        trust(run.folder if isinstance(run, Run) else checked_path(run, "run"))
    told = {
        "starts": starts, "samples": samples, "greedy": greedy, "temperature": temperature, "majority": majority,
        "of": of, "votes": votes, "reward": reward, "data": data, "ope": ope, "video": video,
        "passk": ks_in_words(passk),
        "out": None if out is None else Path(out), "checkpoint": None if checkpoint is None else str(checkpoint),
    }  # fmt: skip
    asked = parsed_group(ScoringOptions, told)
    where = {"device": device, "compiled": compiled, "dtype": dtype, "micro_batch": micro_batch}
    rebuilt = parsed_group(RebuiltOptions, where | {"model": given_model(model)})
    return evaluated(run, asked, rebuilt, dict(settings or {}), task=task, accept_changed_code=accept_changed_code)


def ks_in_words(passk: str | int | Sequence[int] | None) -> str | None:
    """Returns the numbers of samples of pass@k as the command line has them: `1,8`."""
    if passk is None or isinstance(passk, str):
        return passk
    return str(passk) if isinstance(passk, int) else ",".join(map(str, passk))


def evaluated(
    run: Run | str | Path,
    asked: ScoringOptions,
    rebuilt: RebuiltOptions,
    settings: Mapping[str, Any],
    *,
    task: Any = None,
    accept_changed_code: bool = False,
) -> Evaluation:
    """Returns what is asked of a run's policy; refuses what it cannot answer before anything is sampled."""
    asked.check()
    rebuilt.check()
    if asked.out is not None:
        store.check_target(asked.out, "--out ")
    folder = run.folder if isinstance(run, Run) else run_folder(checked_path(run, "run"))
    if asked.reward is not None:
        return inferred(folder, asked)
    if asked.ope is not None:
        if rebuilt.device not in (None, "cpu"):
            raise AssayError(f"--device is {rebuilt.device}, and --ope computes on the CPU. Remove it.")
        rebuilt = replace(rebuilt, device="cpu")
    is_here = isinstance(run, Run) and asked.checkpoint is None and rebuilt == RebuiltOptions() and not settings
    plan = run.plan if isinstance(run, Run) and run.plan is not None and is_here else None
    if plan is None:
        where = {"model": rebuilt.model, "device": device_here(folder, rebuilt.device)}
        found_plan = plan_of(folder, accept_changed_code=accept_changed_code, **where)
        plan = rebuilt_plan(found_plan, rebuilt, settings)
    place = plan.task if task is None else other_task(plan, task)
    check_asked(asked, place)
    check_placement(plan.placement, place)
    if isinstance(run, Run) and is_here:
        step = int(run.curves[-1]["step"]) if run.curves else 0
        subject = Subject(plan, folder, run.recipe.policy(run.models), run.models.get("reference"), step)
    else:
        found = loaded(plan, folder, asked.checkpoint)
        subject = Subject(plan, folder, found.policy, found.reference, found.step)
    if asked.ope is not None:
        return estimated(subject, place, asked)
    rows = plan.placement.micro_batch if rebuilt.micro_batch is None else rebuilt.micro_batch
    with kept_traceback(folder):
        return score_policy(subject, task_on(place, plan.placement), asked, rows)


def score_policy(subject: Subject, task: Task, asked: ScoringOptions, rows: int) -> Evaluation:
    """Samples the policy and returns its scores, by name where they are asked for."""
    recipe = subject.plan.recipe
    policy = tempered(asked.temperature, recipe, subject.policy)
    found = scored(asked, task, policy, subject.reference, rows)
    films = filmed(asked.video, subject)
    mean = cluster_interval(found.values, np.repeat(found.labels, found.values.shape[1]), bounds=range_of(task))
    extra = named_scores(asked, task, found)
    more = dict(found.more)
    if asked.votes and isinstance(task, PromptTask):
        extra[f"vote@{asked.votes}"], more["readable"] = summed(asked.votes, recipe, task, policy, found.labels)
    if asked.out is not None:
        write_rows(asked.out, found)
    what = "pairs" if isinstance(task, PairsTask) else "prompts" if isinstance(task, TextTask) else "episodes"
    told = (subject.folder, recipe.name, task.name, subject.step, mean, what, found.values)
    return Evaluation(*told, rewards=found.rewards, extra=extra, more=more, videos=films)


def named_scores(asked: ScoringOptions, task: Task, found: Scored) -> dict[str, Estimate]:
    """Returns pass@k, the mean of one reward and the majority's score, where they are asked for."""
    chosen, of, ks = found.of(asked.of), f" of {asked.of}" if asked.of else "", asked.ks()
    extra = {f"pass@{k}{of}": one for k, one in zip(ks, passed(chosen, ks), strict=True)} if ks else {}
    if asked.of is not None:
        bounds = (0.0, 1.0) if is_binary(chosen.values.ravel()) else None
        repeated = np.repeat(chosen.labels, chosen.values.shape[1])
        extra[asked.of] = cluster_interval(chosen.values, repeated, bounds=bounds)
    if asked.majority:
        extra[f"majority@{asked.samples}{of}"] = voted(task, chosen)
    return extra


def other_task(plan: Plan, task: Any) -> Task:
    """Returns another task as the run's options and model see it, with all rows of one file held out."""
    given = given_task(task)
    if isinstance(given, str):
        task = catalogue.find_task(anchored(given), needs_answers=not plan.options.own.scores)
        is_pairs = isinstance(task, PairsTask)
        given = replace(task, prompts=all_held_out(task.prompts)) if is_pairs else all_held_out(task)
    found = changed_task(given, plan.options)
    found = found if plan.model is None else in_tokens_of(plan.model, found, plan.options.language.task)[1]
    if found.spec.action != plan.task.spec.action:
        what = f"'{found.name}' has other actions than '{plan.task.name}', on which the policy was trained"
        raise AssayError(f"{what}. Score it on a task of the same kind.")
    return found


def all_held_out(task: Any) -> Any:
    """Returns the task of one file with all rows held out; any other task as it is."""
    is_file = isinstance(task, PromptTask) and isinstance(task.items, TextFile)
    return replace(task, items=replace(task.items, held_out=1.0)) if is_file else task


def tempered(temperature: float | None, recipe: Recipe, policy: Any) -> Any:
    """Returns the policy at a temperature; its own for None."""
    if temperature is None:
        return policy
    if not isinstance(policy, Decodes):
        raise AssayError(f"--temperature needs a policy over tokens; '{recipe.name}' has none here. Remove it.")
    return Narrowing(temperature / temperature_of(recipe.actor)).wrap(policy)


def filmed(number: int, subject: Subject) -> dict[str, float]:
    """Films the first held-out episodes into the run folder; returns their returns by file."""
    from assay.tasks.adapters.video import film, write_video

    found: dict[str, float] = {}
    for start in range(number):
        pictures, score, rate = film(subject.plan.task, subject.policy, start)
        found[str(write_video(pictures, subject.folder / "video" / f"episode-{start}", rate))] = score
    return found
