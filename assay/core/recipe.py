"""A recipe: a frozen record of parts. It is a value: replace a part and you have another method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from assay.core.columns import is_given, writers_of
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.record import Need, Progress
from assay.core.settings import changed, coerced, find_setting, followed, has_schedule, models_read, read, resolved
from assay.core.slots import (
    Annotation,
    Certificate,
    Constraint,
    Credit,
    CriticLoss,
    Curriculum,
    Gate,
    ModelSpec,
    Objective,
    Optimizer,
    Prepare,
    Regularizer,
    Reward,
    Rollout,
    Select,
    Source,
    TaskChange,
    Term,
    Transform,
    Wrapper,
    frame_of,
)
from assay.core.verifier import Verifier

WITH_STATE = ("sources", "rollout", "curriculum", "rewards", "select", "credit", "constraints")
"""Slots of a recipe whose parts have a saved state; paths of `Phase.data` begin with one."""


@dataclass(frozen=True)
class Stage:
    """One optimizer step: which models it trains, on the sum of which terms, how often (every `every`-th update).

    A stage with a `source` of its own learns from that one, apart from the others: a critic from replay, say, beside
    an actor that learns from what is fresh. Stages with equal sources share its batches.
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
        """What its terms declare."""
        return frozenset().union(*(term.needs for term in self.terms))


@dataclass(frozen=True)
class Copy:
    """A second set of a model's parameters that follows it: copy <- copy + rate * (model - copy), every `every`
    updates.

    rate 0 never moves (a reference), rate 1 copies (DQN), 0.005 follows slowly (Polyak averaging). With a `gate` it
    follows only when, and only those of its members for which, the gate says so.
    """

    of: str
    rate: float = 0.0
    every: int = 1
    gate: Gate | None = None


@dataclass(frozen=True)
class Phase:
    """What happens before a recipe: another recipe for some steps, in the same task or in a changed one.

    `hands` says which weights go on to later phases and under which name or names: a model, or part of one ("actor" ->
    "actor.members.0"). What is handed to a model twice is there as it was handed last. `data` says which states of its
    parts go on, and under which name ("sources.0" -> "replay"): offline data, memories, tables. Parts of later phases
    find them in `scene.handed` when they are initialised; a hash of each is in the run folder.
    """

    name: str
    recipe: Recipe
    steps: int
    hands: Mapping[str, str | tuple[str, ...]] = field(default_factory=lambda: {"actor": "actor"})
    task: TaskChange | None = None
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def handed(self) -> list[tuple[str, str]]:
        """(own, theirs) of all that it hands on."""
        pairs = ((own, (names,) if isinstance(names, str) else names) for own, names in self.hands.items())
        return [(own, name) for own, names in pairs for name in names]


@dataclass(frozen=True)
class Feed:
    """A source and the stages that learn from its batches."""

    source: Source
    stages: tuple[Stage, ...]

    def needs(self, recipe: Recipe) -> frozenset[Need | Annotation]:
        """What a batch must carry: for the recipe's own source also what credit and constraints read."""
        own = frozenset().union(*(stage.needs for stage in self.stages))
        return recipe.needs if self.source == recipe.source else own

    def copies(self, recipe: Recipe) -> dict[str, Copy]:
        """The copies of models that its stages train; they follow after each of its batches."""
        trained = {name for stage in self.stages for name in stage.trains}
        return {name: copy for name, copy in recipe.copies.items() if copy.of in trained}


@dataclass(frozen=True)
class Recipe:
    """What a method is made of. `steps` is the budget that its defaults were chosen for; `before` are the phases of a
    program, each with its own budget, whose last phase is the recipe itself. `behaviour` is the model that gathers: the
    actor, or a copy of it that lags behind.
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
        """Who acts once training is over: the actor in the frame in which it learned, or what the wrapper puts around
        it and the other trained models.
        """
        who, frame = "actor" if self.wrapper is None else self.wrapper.actor, frame_of(self.rollout)
        framed = models if frame is None else {**models, who: frame.around({**models, "actor": models[who]})}
        return framed[who] if self.wrapper is None else self.wrapper.around(framed)

    @property
    def models(self) -> set[str]:
        """Names of its models, copies included."""
        return {"actor", *self.critics, *self.copies}

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Sources with the stages that learn from them, in the order of the stages.

        The recipe's own source is always among them, even where no stage is left to it.
        """
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
        """What any of its parts declares."""
        parts: tuple[Transform | Stage, ...] = (*self.credit, *self.constraints, *self.stages)
        return frozenset().union(*(part.needs for part in parts))

    def set(self, path: str, value: Any) -> Recipe:
        """The recipe with one setting changed; `path` is any unambiguous end of the setting's full path."""
        full = find_setting(self, path)
        result = cast(Recipe, changed(self, full, coerced(".".join(full), read(self, full), value)))
        if full[0] == "actor":  # critics on the actor's network are built as it is
            critics = {name: followed(model, self.actor, result.actor) for name, model in self.critics.items()}
            result = replace(result, critics=critics)
        return result.share_models(self) if full[0] in ("actor", "critics") else result

    def share_models(self, old: Recipe) -> Recipe:
        """The recipe, with models that its phases had in common with `old` changed as they were changed here: what is
        handed from phase to phase keeps one shape.
        """

        def shared(phase: Phase) -> Phase:
            recipe = phase.recipe
            actor = self.actor if recipe.actor == old.actor else recipe.actor
            same = {name for name, model in recipe.critics.items() if model == old.critics.get(name)}
            critics = {name: self.critics[name] if name in same else model for name, model in recipe.critics.items()}
            return replace(phase, recipe=replace(recipe, actor=actor, critics=critics).share_models(recipe))

        return replace(self, before=tuple(shared(phase) for phase in self.before)) if self.before else self

    def at(self, progress: Progress) -> Recipe:
        """The recipe with every schedule replaced by its value now; its phases are left out."""
        alone = replace(self, before=()) if self.before else self
        return cast(Recipe, resolved(alone, progress)) if has_schedule(alone) else alone

    def check(self) -> None:
        """Refuses combinations that cannot work, before compute is spent."""
        models = self.models
        self.check_phases()
        self.check_slots()
        self.check_columns()
        for name, copy in self.copies.items():
            if copy.of not in models - set(self.copies):
                raise AssayError(
                    f"copies.{name} copies '{copy.of}', which is no model of this recipe ({', '.join(sorted(models))})"
                )
        if self.behaviour not in models:
            raise AssayError(f"behaviour is '{self.behaviour}', no model of this recipe ({', '.join(sorted(models))})")
        for stage in self.stages:
            for name in stage.trains:
                if name not in models - set(self.copies):
                    raise AssayError(
                        f"stage '{stage.name}' trains '{name}', which is no model of this recipe "
                        f"({', '.join(sorted(models))})"
                    )
        self.check_models()
        if Need.VALUE in self.needs and "value" not in self.critics:
            raise AssayError(
                "a part needs state values, but the recipe has no critic 'value'; add critics={'value': ...}"
            )
        for need in self.needs:
            if not isinstance(need, Need) and need.model not in models:
                raise AssayError(
                    f"the column '{need.column}' is computed by the model '{need.model}', which is no model of this "
                    f"recipe ({', '.join(sorted(models))})"
                )
        if Need.REFERENCE in self.needs and "reference" not in self.copies:
            raise AssayError("a part needs a reference policy; add copies={'reference': Copy(of='actor')}")

    def check_models(self) -> None:
        """Refuses a term or a wrapper that reads a model which the recipe lacks."""
        parts = [(f"{type(term).__name__} in stage '{one.name}'", term) for one in self.stages for term in one.terms]
        reads = [(where, name) for where, term in parts for name in models_read(term)]
        for where, name in (*reads, *(("wrapper", name) for name in (self.wrapper.reads if self.wrapper else ()))):
            if name not in self.models:
                raise AssayError(
                    f"{where} reads '{name}', which is no model of this recipe ({', '.join(sorted(self.models))}). "
                    "Add it to critics or copies, or give the part the name of another model"
                )

    def check_slots(self) -> None:
        """Refuses a part in a slot that it was not declared for."""
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
        """Refuses a part that reads a column which no earlier part of the recipe writes."""
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
        """Refuses phases of one name, and hands that no model gives or takes."""
        names = [phase.name for phase in self.before]
        for place, phase in enumerate(self.before):
            if names.count(phase.name) > 1 or not phase.name.replace("-", "").isalnum():
                raise AssayError(
                    f"before: the phase name '{phase.name}' must be letters, digits and '-', different for each phase"
                )
            if phase.steps < 1:
                raise AssayError(f"before.{phase.name}.steps is {phase.steps}; give at least 1")
            phase.recipe.check()
            for path in phase.data:
                if path.split(".")[0] not in WITH_STATE:
                    raise AssayError(
                        f"before.{phase.name}.data gives the state '{path}'; a path begins with {', '.join(WITH_STATE)}"
                    )
            later = self.models.union(*(after.recipe.models for after in self.before[place + 1 :]))
            for own, theirs in phase.handed:
                if own.split(".")[0] not in phase.recipe.models:
                    raise AssayError(f"before.{phase.name}.hands gives '{own}', which is no model of that phase")
                if theirs.split(".")[0] not in later:
                    raise AssayError(f"before.{phase.name}.hands gives '{theirs}', which no later phase has")


def check_reads(part: Any, reads: tuple[str, ...], known: set[str]) -> None:
    """Raises AssayError for a column that is neither given by the task nor in `known`."""
    for name in reads:
        if not is_given(name) and name not in known:
            raise AssayError(
                f"{type(part).__name__} reads the column '{name}', which no earlier part of this recipe writes; "
                f"{writers_of(name)}"
            )
