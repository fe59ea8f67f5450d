"""The user's own rewards, tools, judge and reward model, by file or import path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from assay.core.errors import AssayError
from assay.core.tool_servers import is_server
from assay.runs.options.group import Group, flag, option
from assay.runs.user_code.addresses import MODELS, Address, needed_address

if TYPE_CHECKING:
    from assay.core.recipe import Recipe
    from assay.core.slots import Task
    from assay.runs.user_code.judge import Judge
    from assay.runs.user_code.workers.process import Limits

PARTS = {"loss": "", "advantage": "", "body": MODELS}
"""Options that put own code into the recipe, with the group of entry points that may name it."""
BUILT_IN = ("gru", "lstm")
"""Words of --body that name no own code: `user_code.body.RECURRENT`."""
LEAST_MEMORY = 0.05
"""Gigabytes that a worker's interpreter needs before it loads own code."""


@dataclass(frozen=True)
class OwnOptions(Group):
    """The user's own rewards, tools, judge and reward model, by file or import path."""

    title: ClassVar[str] = "your own code"
    reward: tuple[str, ...] = option(
        (),
        "reward function FILE.py:NAME or package.module:NAME, with =WEIGHT after it; 'verifier' is the task's own; "
        "repeatable",
        metavar="REWARD",
    )
    reward_timeout: float = option(
        60.0, "seconds that one call of a reward function may take (default: 60)", decisive=False
    )

    in_process: bool = option(
        False, "call own rewards, tools and judges in this process, where none can be stopped", decisive=False
    )
    worker_memory: float | None = option(
        None, "gigabytes of memory of a process of own code, with all it starts (default: half of the machine's)",
        decisive=False,
    )  # fmt: skip
    worker_file: float = option(
        0.5, "gigabytes of the largest file that own code may write (default: 0.5)", decisive=False
    )

    reward_range: tuple[float, float] | None = option(
        None, "lowest and highest reward, mapped to 0..1; right is above the middle (default: 0 1, or NAME.range)",
        metavar="LOW HIGH",
    )  # fmt: skip

    tool: tuple[str, ...] = option(
        (),
        "function FILE.py:NAME that the policy may call in its answers, a class whose methods are tools, or an MCP "
        "server mcp:COMMAND or mcp:URL; repeatable",
        metavar="TOOL",
    )
    tool_calls: int | None = option(
        None, "turns with tool calls before the answer (default: 4, fewer if the model reads too little)"
    )
    tool_bytes: int | None = option(
        None, "bytes of a tool's result that the policy reads (default: 512, fewer if the model reads too little)"
    )
    tool_timeout: float = option(30.0, "seconds that one tool call may take (default: 30)", decisive=False)

    agent: str | None = option(
        None,
        "agent program, a command such as 'python my_agent.py' (or an address that each prompt is posted to): run once "
        "for each prompt and sample, with the policy as an OpenAI-style server at OPENAI_BASE_URL",
        metavar="COMMAND|URL",
    )
    agent_calls: int = option(64, "calls of the policy in one episode of --agent (default: 64)")
    agent_tokens: int = option(4096, "tokens of one conversation of --agent (default: 4096, or what a model reads)")
    agent_timeout: float = option(300.0, "seconds of one episode of --agent (default: 300)", decisive=False)
    agent_workers: int = option(8, "episodes of --agent at the same time (default: 8)", decisive=False)

    loss: str | None = option(
        None, "loss function FILE.py:NAME in place of the method's objective (assay check FILE.py tries its laws)",
        metavar="LOSS",
    )  # fmt: skip
    advantage: str | None = option(
        None, "advantage function FILE.py:NAME in place of the method's credit (assay check FILE.py tries its laws)",
        metavar="ADVANTAGE",
    )  # fmt: skip
    body: str | None = option(
        None, "network FILE.py:NAME, an nn.Module of observations, in the actor and the critics of a control task; or "
        "gru, lstm: recurrent ones around their own",
        metavar="BODY",
    )  # fmt: skip

    judge: str | None = option(
        None,
        "judge: an OpenAI-compatible server, http://HOST:PORT/v1 (key in ASSAY_JUDGE_KEY), or a function FILE.py:NAME "
        "of prompts that returns answers",
        metavar="JUDGE",
    )
    judge_model: str = option("default", "model name that the judge's server is asked for", metavar="NAME")
    judge_prompt: str | None = option(
        None, "rubric of the judge: a text with {prompt} and {completion} (--judge-pairs: {first} and {second})",
        metavar="FILE",
    )  # fmt: skip
    judge_pairs: bool = option(False, "the judge compares with the row's answer, in both orders")
    judge_weight: float = option(1.0, "weight of the judge beside --reward (default: 1)")
    rubric: str | None = option(
        None, "rubric of a method that pays by one: a JSON list of name, pattern (in words with --judge), worth, limit",
        metavar="FILE",
    )  # fmt: skip

    reward_model: str | None = option(
        None, "run folder of a reward model (assay train reward-model) as a reward", metavar="RUN"
    )
    reward_model_weight: float = option(1.0, "weight of the reward model beside other rewards (default: 1)")

    def check(self) -> None:
        """Refuses limits that are not positive, and judge options without a judge."""
        if self.judge is not None:
            from assay.runs.user_code.judge import check_judge

            check_judge(self.judge)
        elif self.judge_prompt is not None or self.judge_pairs:
            raise AssayError("--judge-prompt and --judge-pairs need a judge. Add --judge http://HOST:PORT/v1.")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise AssayError(f"--reward-range is {low:g} {high:g}. Use two finite numbers, the lower one first.")
        timeouts = {"reward": self.reward_timeout, "tool": self.tool_timeout, "agent": self.agent_timeout}
        for name, seconds in timeouts.items():
            if not seconds > 0:
                raise AssayError(f"--{name}-timeout is {seconds:g}. Use a positive number of seconds.")
        for name, size in {"memory": self.worker_memory, "file": self.worker_file}.items():
            if size is not None and not (size > 0 and math.isfinite(size)):
                raise AssayError(f"--worker-{name} is {size:g}. Use a positive number of gigabytes.")
        if self.worker_memory is not None and self.worker_memory < LEAST_MEMORY:
            what = f"--worker-memory is {self.worker_memory:g}. A worker alone needs {LEAST_MEMORY} gigabytes"
            raise AssayError(f"{what}. Use more.")
        for name, weight in {"judge": self.judge_weight, "reward-model": self.reward_model_weight}.items():
            if not math.isfinite(weight):
                raise AssayError(f"--{name}-weight is {weight:g}. Use a finite number.")
        for name in ("tool_calls", "tool_bytes", "agent_calls", "agent_tokens", "agent_workers"):
            if (least := getattr(self, name)) is not None and least < 1:
                raise AssayError(f"{flag(name)} is {getattr(self, name)}. Use at least 1.")
        if self.agent is not None:
            from assay.runs.user_code.agents import check_agent_option

            check_agent_option(self.agent, bool(self.tool))

    @property
    def limits(self) -> Limits | None:
        """Returns the limits of worker processes; None where own code is to run in this one."""
        from assay.runs.user_code.workers.process import Limits

        if self.in_process:
            return None
        memory = {} if self.worker_memory is None else {"memory": self.worker_memory}
        return Limits(**memory, file=self.worker_file)

    @property
    def scores(self) -> bool:
        """Whether completions are scored by something of the user's instead of the task's verifier."""
        if self.reward or self.judge is not None or self.reward_model is not None:
            return True
        from assay.runs.user_code.tools import gives_reward

        return bool(self.tool) and gives_reward(self.tool)

    def sources(self) -> Iterator[str]:
        from assay.runs.user_code.judge import address_of
        from assay.runs.user_code.rewards import parsed_rewards

        for one in parsed_rewards(self.reward):
            if one.address is not None:
                yield one.address.source
        for word in self.tool:
            if not is_server(word):
                yield needed_address(word, "--tool").source
        for address in self.parts().values():
            yield address.source
        if self.judge is not None and (judge := address_of(self.judge)) is not None:
            yield judge.source

    def parts(self) -> dict[str, Address]:
        """Returns the addresses of the own parts that are given; a package may have declared a name for a network."""
        words = {name: word for name in PARTS if (word := getattr(self, name)) is not None and word not in BUILT_IN}
        return {name: needed_address(word, flag(name), PARTS[name]) for name, word in words.items()}

    def seals(self) -> dict[str, dict[str, str]]:
        """Returns digests of what the options trust beside code: the judge's server with its key, and its rubric."""
        from assay.runs.user_code import judge

        found = {}
        if self.judge is not None and judge.address_of(self.judge) is None:
            prompt = judge.rubric(self.judge_prompt, self.judge_pairs)
            found[judge.PREFIX + self.judge] = judge.seal(self.judge, prompt)
        if self.reward_model is not None:
            from assay.runs.user_code import reward_model

            found[reward_model.PREFIX + self.reward_model] = reward_model.seal(self.reward_model)
        if self.agent is not None:
            from assay.runs.user_code import agents

            found[agents.PREFIX + self.agent] = agents.seal(self.agent)
        return found

    def anchored(self) -> OwnOptions:
        """Returns the options with absolute paths, so that a run can be resumed from any folder."""
        from assay.runs.user_code.judge import address_of
        from assay.runs.user_code.rewards import anchored_reward

        tools = tuple(word if is_server(word) else str(needed_address(word, "--tool")) for word in self.tool)
        prompt = None if self.judge_prompt is None else str(Path(self.judge_prompt).resolve())
        model = None if self.reward_model is None else str(Path(self.reward_model).resolve())
        rewards = tuple(map(anchored_reward, self.reward))
        judge = self.judge if self.judge is None else str(address_of(self.judge) or self.judge)
        criteria = None if self.rubric is None else str(Path(self.rubric).resolve())
        parts: dict[str, Any] = {name: str(address) for name, address in self.parts().items()}
        agent = None
        if self.agent is not None:
            from assay.runs.user_code import agents

            agent = agents.anchored(self.agent)
        own = replace(self, reward=rewards, tool=tools, judge_prompt=prompt, reward_model=model, **parts)
        return replace(own, judge=judge, rubric=criteria, agent=agent)

    def task(self, task: Task) -> Task:
        """Returns the task with own rewards in place of its verifier, and with tools."""
        from assay.core.slots import JudgeReader
        from assay.runs.user_code.rewards import with_components, with_rewards
        from assay.runs.user_code.tools import tools_of
        from assay.runs.user_code.workers.process import LOADING
        from assay.tasks.language.tools import first_rows, with_tools

        if self.reward:
            task = with_rewards(task, self.reward, self.reward_timeout, self.limits)
        judge = self.asked()
        if judge is not None and isinstance(task, JudgeReader):
            task = task.with_judge(judge.answers)
        elif judge is not None:
            task = with_components(task, {"judge": judge}, {"judge": self.judge_weight})
        if self.agent is not None:
            from assay.tasks.adapters.agents.episodes import Agent
            from assay.tasks.adapters.agents.task import with_agent

            limits = self.agent_calls, self.agent_tokens, self.agent_timeout, self.agent_workers
            return with_agent(task, Agent(self.agent, *limits))
        if not self.tool:
            return task
        tools = tools_of(self.tool, first_rows(task), self.limits, self.tool_timeout)
        starting = 0.0 if self.in_process else LOADING  # a worker counts the time of the call alone
        return with_tools(task, tools, self.tool_calls, self.tool_timeout + starting, self.tool_bytes)

    def asked(self) -> Judge | None:
        """Returns the judge; None without one."""
        from assay.runs.user_code.judge import judge_of, rubric

        if self.judge is None:
            return None
        prompt = rubric(self.judge_prompt, self.judge_pairs)
        return judge_of(self.judge, self.judge_model, prompt, self.judge_pairs, self.limits)

    def recipe(self, recipe: Recipe, task: Task) -> Recipe:
        """Returns the recipe with own parts, whose parts ask the judge and pay by the rubric, where they can."""
        from assay.core.settings import replaced
        from assay.core.slots import JudgeReader, RubricReader
        from assay.runs.user_code.body import with_body
        from assay.runs.user_code.functions import with_advantage, with_loss
        from assay.runs.user_code.rubric import criteria_of

        changes = ((self.loss, with_loss), (self.advantage, with_advantage), (self.body, with_body))
        for word, change in changes:
            recipe = recipe if word is None else change(recipe, word)

        if self.rubric is not None:
            rows = criteria_of(self.rubric)
            paid: Recipe = replaced(recipe, RubricReader, lambda part: part.with_rubric(rows))
            if paid is recipe:
                raise AssayError(f"--rubric does not fit '{recipe.name}', which pays by no rubric. Remove it.")
            recipe = paid
        judge = self.asked()
        if judge is not None:
            recipe = replaced(recipe, JudgeReader, lambda part: part.with_judge(judge.answers))
        return recipe
