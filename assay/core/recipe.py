"""A recipe: a frozen record of parts. Replacing a part gives another method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from assay.core.columns import is_given, writers_of
from assay.core.errors import AssayError
from assay.core.metrics import Metric, watched_in
from assay.core.optimizers import Adam
from assay.core.record import Need, Progress
from assay.core.settings import (
    changed,
    children,
    coerced,
    find_setting,
    followed,
    has_schedule,
    models_read,
    read,
    replaced,
    resolved,
)
from assay.core.slots import (
    Annotation,
    Certificate,
    Constraint,
    Credit,
    CriticLoss,
    Curriculum,
    Gate,
    LimitReader,
    ModelSpec,
    Objective,
    Optimizer,
    Prepare,
    Regularizer,
    Reward,
    Rollout,
    Select,
    SharedBody,
    Source,
    Target,
    TaskChange,
    TaskReader,
    Term,
    Transform,
    Wrapper,
    frame_of,
)
from assay.core.verifier import Verifier

WITH_STATE = ("sources", "rollout", "curriculum", "rewards", "select", "credit", "constraints")
"""Slots of a recipe whose parts have a saved state; every path of `Phase.data` begins with one of them."""


@dataclass(frozen=True)
class Stage:
    """One optimizer step: trains the models `trains` on the sum of its terms, every `every`-th update.

    A stage with its own `source` trains on that source only: for example a critic on replay beside an actor on fresh
    experience. Stages with equal sources share their batches.
    """

    name: str
    trains: tuple[str, ...]
    objective: tuple[Objective, ...] = ()
    regularizers: tuple[Regularizer, ...] = ()
    critic: tuple[CriticLoss, ...] = ()
    optimizer: Optimizer = Adam()
    every: int = 1
    source: Source | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """All losses of the stage."""
        return (*self.objective, *self.regularizers, *self.critic)

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Columns and scores that its terms declare."""
        return frozenset().union(*(term.needs for term in self.terms))


def united(stages: Sequence[Stage]) -> Stage:
    """Returns one stage with the models and terms of several, under the name and optimizer of the first."""
    if len(stages) == 1:
        return stages[0]
    return replace(
        stages[0],
        trains=tuple(name for stage in stages for name in stage.trains),
        objective=tuple(term for stage in stages for term in stage.objective),
        regularizers=tuple(term for stage in stages for term in stage.regularizers),
        critic=tuple(term for stage in stages for term in stage.critic),
    )


@dataclass(frozen=True)
class Copy:
    """A target network or frozen reference of a model: copy <- copy + rate * (model - copy), every `every` updates.

    rate 0 never changes it (a reference policy), rate 1 is a hard update (DQN), 0.005 is Polyak averaging. With a
    `gate` the copy is updated only if the gate allows it, member by member for an ensemble.
    """

    of: str
    rate: float = 0.0
    every: int = 1
    gate: Gate | None = None


@dataclass(frozen=True)
class Phase:
    """A phase before a recipe: another recipe for some steps, in the same task or in a changed one.

    `hands` maps the weights that later phases receive to their name or names there: a model, or part of one ("actor"
    -> "actor.members.0"); of two phases with the same name the later one wins. `data` maps states of its parts to names
    ("sources.0" -> "replay": offline datasets, replay memories, tables), which parts of later phases read from
    `scene.handed` when they are initialised; a hash of each is in the run folder. A phase with `from_scratch` teaches
    what a pretrained model can do already, and is left out for one.
    """

    name: str
    recipe: Recipe
    steps: int
    hands: Mapping[str, str | tuple[str, ...]] = field(default_factory=lambda: {"actor": "actor"})
    task: TaskChange | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    from_scratch: bool = field(default=False, repr=False)

    @property
    def handed(self) -> list[tuple[str, str]]:
        """(own name, name in later phases) of all weights that it passes on."""
        pairs = ((own, (names,) if isinstance(names, str) else names) for own, names in self.hands.items())
        return [(own, name) for own, names in pairs for name in names]


@dataclass(frozen=True)
class Feed:
    """A source and the stages that train on its batches."""

    source: Source
    stages: tuple[Stage, ...]

    def needs(self, recipe: Recipe) -> frozenset[Need | Annotation]:
        """Returns what a batch must contain; for the recipe's own source also what credit and constraints read."""
        own = frozenset().union(*(stage.needs for stage in self.stages))
        return recipe.needs if self.source == recipe.source else own

    def copies(self, recipe: Recipe) -> dict[str, Copy]:
        """Returns the target networks of the models its stages train; they are updated after each of its batches."""
        trained = {name for stage in self.stages for name in stage.trains}
        return {name: copy for name, copy in recipe.copies.items() if copy.of in trained}


@dataclass(frozen=True)
class Recipe:
    """The parts of a method. `steps` is the budget of its defaults, `before` are earlier phases with their own, and
    `behaviour` is the acting policy: the actor, or a lagging copy of it.
    """

    name: str
    actor: ModelSpec
    stages: tuple[Stage, ...]
    source: Source
    rollout: Rollout | None = None
    rewards: tuple[Reward, ...] = (Verifier(),)
    select: Select | None = None
    credit: tuple[Prepare | Credit, ...] = ()
    critics: Mapping[str, ModelSpec] = field(default_factory=dict)
    copies: Mapping[str, Copy] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    curriculum: Curriculum | None = None
    steps: int = 200
    behaviour: str = "actor"
    before: tuple[Phase, ...] = ()
    certificate: Certificate | None = None
    wrapper: Wrapper | None = None

    def policy(self, models: Mapping[str, Any]) -> Any:
        """Returns the policy to deploy: the actor with the observation change it was trained with (`frame`), then the
        recipe's `wrapper`, if any, around it and the other trained models.
        """
        who, frame = "actor" if self.wrapper is None else self.wrapper.actor, frame_of(self.rollout)
        framed = models if frame is None else {**models, who: frame.around({**models, "actor": models[who]})}
        return framed[who] if self.wrapper is None else self.wrapper.around(framed)

    @property
    def models(self) -> set[str]:
        """Names of its models, target networks included."""
        return {"actor", *self.critics, *self.copies}

    @property
    def shared(self) -> dict[str, SharedBody]:
        """Bodies of the critics that read the actor's hidden states, by the critic's name."""
        bodies = {name: getattr(critic, "body", None) for name, critic in self.critics.items()}
        return {name: body for name, body in bodies.items() if isinstance(body, SharedBody) and body.shared}

    def together(self, stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
        """Returns the stages in their order, each by itself, but those of critics on the actor's hidden states with the
        first that trains the actor: they share its forward and backward pass.
        """
        shared = self.shared
        lender = next((stage for stage in stages if "actor" in stage.trains), None) if shared else None
        taken = [] if lender is None else [stage for stage in stages if shared.keys() >= set(stage.trains)]
        return [(stage, *taken) if stage is lender else (stage,) for stage in stages if stage not in taken]

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Sources with the stages that train on them, in the order of the stages; always with the recipe's own."""
        sources: list[Source] = []
        stages: list[list[Stage]] = []
        for stage in self.stages:
            source = self.source if stage.source is None else stage.source
            if source not in sources:
                sources.append(source)
                stages.append([])
            stages[sources.index(source)].append(stage)
        if self.source not in sources:
            sources, stages = [*sources, self.source], [*stages, []]
        return tuple(Feed(source, tuple(some)) for source, some in zip(sources, stages, strict=True))

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Everything that its parts declare as needed."""
        parts: tuple[Transform | Stage, ...] = (*self.credit, *self.constraints, *self.stages)
        return frozenset().union(*(part.needs for part in parts))

    @cached_property
    def watched(self) -> dict[str, Metric]:
        """Metrics that its parts watch, by name, without those of its phases (cached: a guard asks at every step)."""
        return watched_in(replace(self, before=()))

    def set(self, path: str, value: Any) -> Recipe:
        """Returns the recipe with one setting changed. `path` is any unambiguous end of the setting's full path."""
        full = find_setting(self, path)
        result = cast(Recipe, changed(self, full, coerced(".".join(full), read(self, full), value)))
        if full[0] == "actor":  # critics that share the actor's network are built like it
            critics = {name: followed(model, self.actor, result.actor) for name, model in self.critics.items()}
            result = replace(result, critics=critics)
        return result.share_models(self) if full[0] in ("actor", "critics") else result

    def share_models(self, old: Recipe) -> Recipe:
        """Returns the recipe with the models that its phases shared with `old` changed as they were changed here, so
        that weights passed between phases keep one shape.
        """

        def shared(phase: Phase) -> Phase:
            recipe = phase.recipe
            actor = self.actor if recipe.actor == old.actor else recipe.actor
            same = {name for name, model in recipe.critics.items() if model == old.critics.get(name)}
            critics = {name: self.critics[name] if name in same else model for name, model in recipe.critics.items()}
            return replace(phase, recipe=replace(recipe, actor=actor, critics=critics).share_models(recipe))

        return replace(self, before=tuple(shared(phase) for phase in self.before)) if self.before else self

    def at_limit(self, limit: int) -> Recipe:
        """Returns the recipe for episodes of at most `limit` decisions (`LimitReader`); its phases have their own."""
        alone = replaced(replace(self, before=()), LimitReader, lambda part: part.with_limit(limit))
        return cast(Recipe, replace(alone, before=self.before))

    def at_task(self, task: Any) -> Recipe:
        """Returns the recipe with the settings that the task decides (`TaskReader`); its phases have their own."""
        alone = replaced(replace(self, before=()), TaskReader, lambda part: part.with_task(task))
        return cast(Recipe, replace(alone, before=self.before))

    def at(self, progress: Progress) -> Recipe:
        """Returns the recipe with every schedule replaced by its current value and without its phases."""
        alone = replace(self, before=()) if self.before else self
        return cast(Recipe, resolved(alone, progress)) if has_schedule(alone) else alone

    def check(self) -> None:
        """Raises AssayError for combinations that cannot work, before compute is spent."""
        self.check_phases()
        self.check_slots()
        self.check_columns()
        self.check_models()
        self.check_shared()
        if Need.VALUE in self.needs and "value" not in self.critics:
            raise AssayError(
                "a part needs state values, but the recipe has no critic 'value'. Add critics={'value': ...}"
            )
        if Need.LOGP in self.needs and self.rollout is not None and not self.rollout.has_logp:
            raise AssayError(
                f"a part of {self.name} needs log-probabilities, but {type(self.rollout).__name__} records decisions "
                "that have none. Use a method that learns values from replay (sac, td3), or another rollout"
            )
        if Need.REFERENCE in self.needs and "reference" not in self.copies:
            raise AssayError("a part needs a reference policy. Add copies={'reference': Copy(of='actor')}")

    def check_models(self) -> None:
        """Raises AssayError if a part reads or trains a model that the recipe lacks."""
        own = self.models - set(self.copies)
        trained = [(f"stage '{stage.name}' trains", name) for stage in self.stages for name in stage.trains]
        trained += [(f"copies.{name} copies", copy.of) for name, copy in self.copies.items()]
        parts = [(f"{type(term).__name__} in stage '{one.name}'", term) for one in self.stages for term in one.terms]
        reads = [(f"{where} reads", name) for where, term in parts for name in models_read(term)]
        select = (self.select,) if self.select else ()
        gathers = [part for part in (self.rollout, self.curriculum) if part] + [feed.source for feed in self.feeds]
        transforms = (*self.rewards, *select, *self.credit, *self.constraints, *gathers)
        reads += [(f"{type(part).__name__} reads", name) for part in transforms for name in part.models]
        reads += [("wrapper reads", name) for name in (self.wrapper.reads if self.wrapper else ())]
        reads += [(f"the column '{n.column}' is computed by", n.model) for n in self.needs if not isinstance(n, Need)]
        lost = [pair for pair in (*trained, ("behaviour is", self.behaviour), *reads) if pair[1] not in self.models]
        for where, name in (*(pair for pair in trained if pair[1] not in own), *lost):
            raise AssayError(
                f"{where} '{name}', which is not a model of this recipe ({', '.join(sorted(self.models))}). Add it to "
                "critics or copies, or use another model's name"
            )

    def check_shared(self) -> None:
        """Raises AssayError if a critic cannot share the actor's network."""
        groups = [group for feed in self.feeds for group in self.together(feed.stages)]
        for name, body in self.shared.items():
            body.check_shared(self.actor, cast(Any, self.critics[name]).head)
            where, remedy = f"critics.{name} shares the actor's network", f"Set critics.{name}.body.shared=false"
            copies = [own for own, copy in self.copies.items() if copy.of == name]
            if copies:
                raise AssayError(f"{where}, but the target network '{copies[0]}' needs a network of its own. {remedy}")
            inner = [part for stage in self.stages for term in stage.critic for _, part in children(term)]
            targets = [part for part in inner if Target in type(part).__mro__ and name in models_read(part)]
            if targets:
                what = f"{type(targets[0]).__name__} bootstraps from its values, which exist at decisions only"
                raise AssayError(f"{where}, but {what}. {remedy}")
            trained = [{one for stage in group for one in stage.trains} for group in groups]
            if body.body_gradient and not any({"actor", name} <= names for names in trained):
                what = "no stage trains the actor on the same batches, so that its gradient cannot reach the network"
                raise AssayError(f"{where}, but {what}. Set critics.{name}.body.body_gradient=0")

    def check_slots(self) -> None:
        """Raises AssayError if a part is in a slot that it does not inherit."""
        listed: list[tuple[str, Any, type | tuple[type, ...]]] = [
            *(("rewards", part, Reward) for part in self.rewards),
            *(("credit", part, (Prepare, Credit)) for part in self.credit),
            *(("constraints", part, Constraint) for part in self.constraints),
        ]
        for stage in self.stages:
            listed += [(f"stages.{stage.name}.objective", term, Objective) for term in stage.objective]
            listed += [(f"stages.{stage.name}.regularizers", term, Regularizer) for term in stage.regularizers]
            listed += [(f"stages.{stage.name}.critic", term, CriticLoss) for term in stage.critic]
        single = (("rollout", self.rollout, Rollout), ("select", self.select, Select), ("source", self.source, Source))
        listed += [entry for entry in single if entry[1] is not None]
        for place, part, slots in listed:
            allowed = slots if isinstance(slots, tuple) else (slots,)
            if not any(slot in type(part).__mro__ for slot in allowed):
                names = " or ".join(slot.__name__ for slot in allowed)
                own = getattr(type(part), "slot", None)
                is_a = f"a part of the slot '{own}'" if own else "not a part: its class inherits no slot"
                raise AssayError(f"{place} holds {type(part).__name__}, {is_a}. Put a {names} there")

    def check_columns(self) -> None:
        """Raises AssayError if a part reads a column that no earlier part of the recipe writes."""
        known = {name for feed in self.feeds for name in feed.source.writes}
        known |= {need.column for need in self.needs if not isinstance(need, Need)}
        known |= set(self.rollout.writes) if self.rollout else set()
        select = (self.select,) if self.select else ()
        for part in (*self.rewards, *select, *self.credit, *self.constraints):
            check_reads(part, part.reads, known)
            known |= set(part.writes)
        for stage in self.stages:
            for term in stage.terms:
                check_reads(term, term.reads, known)

    def check_phases(self) -> None:
        """Raises AssayError for repeated phase names and for weights that no model gives or receives."""
        names = [phase.name for phase in self.before]
        for place, phase in enumerate(self.before):
            if names.count(phase.name) > 1 or not phase.name.replace("-", "").isalnum():
                raise AssayError(
                    f"before: the phase name '{phase.name}' is invalid or taken. Use letters, digits and '-'"
                )
            if phase.steps < 1:
                raise AssayError(f"before.{phase.name}.steps is {phase.steps}. Use at least 1")
            phase.recipe.check()
            for path in phase.data:
                if path.split(".")[0] not in WITH_STATE:
                    raise AssayError(
                        f"before.{phase.name}.data gives the state '{path}'. "
                        f"Begin it with one of {', '.join(WITH_STATE)}"
                    )
            later = self.models.union(*(after.recipe.models for after in self.before[place + 1 :]))
            for own, theirs in phase.handed:
                if own.split(".")[0] not in phase.recipe.models:
                    raise AssayError(f"before.{phase.name}.hands gives '{own}', which is not a model of that phase")
                if theirs.split(".")[0] not in later:
                    raise AssayError(f"before.{phase.name}.hands gives '{theirs}', which no later phase has")


def check_reads(part: Any, reads: Collection[str], known: set[str]) -> None:
    """Raises AssayError for a column that is neither given by the task nor in `known`."""
    for name in reads:
        if not is_given(name) and name not in known:
            raise AssayError(
                f"{type(part).__name__} reads the column '{name}', which no earlier part of this recipe writes. "
                f"{writers_of(name, type(part))}"
            )
