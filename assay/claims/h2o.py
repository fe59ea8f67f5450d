"""Claims of h2o: its losses by hand, the ratio on a table of dynamics, limits, a measured claim. Axes: B, N critics."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, StageView, built, follows_schedule, probes, same_gradient
from assay.claims import steps
from assay.method import Draw, Experience, Origin, Recipe, recipes
from assay.methods.h2o import DomainLogits, Domains, PushSimulated, TellApart, WeightedTd, is_real, recipe

SPEC = probes.BOX_SPEC
MEAN, DEVIATION = (0.1, -0.2, 0.3), (0.5, 1.5, 2.5)
CENTRE, UNIT = torch.tensor(MEAN, dtype=torch.float64), torch.tensor(DEVIATION, dtype=torch.float64) + 1e-3


def transitions(num: int = 64) -> Experience:
    """Returns transitions, every second of a dataset."""
    return probes.of_origins(probes.transitions(num=num), Origin.DATASET, Origin.POLICY)


def with_moments(weight: float = 5.0) -> Recipe:
    """Returns the recipe with moments of states and a penalty as large as the other loss."""
    made = recipe(weight=weight)
    return replace(made, critics={**made.critics, "domain": Domains((16,), MEAN, DEVIATION)})


def losses_by_hand(seen: probes.Seen, weight: float = 5.0) -> dict[str, Tensor]:
    """Returns the losses, the logarithms of ratios from probabilities and not from logits."""
    step, models, q = steps.step_of(seen), seen.models, steps.output
    domain: Any = models["domain"]
    real = (seen.experience.source == int(Origin.DATASET)) & step.here
    simulated = ~real & step.here
    state, action, after = (step.now - CENTRE) / UNIT, steps.in_half_ranges(step.action), (step.after - CENTRE) / UNIT

    def two(state: Tensor, action: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        here = 2.0 * domain.here(torch.cat((state, action), 1)).tanh()
        there = 2.0 * domain.there(torch.cat((state, action, after), 1)).tanh()
        return here.softmax(1), (there + here).softmax(1)

    def ratio(after: Tensor) -> Tensor:
        here, there = (pair.detach() for pair in two(state, action, after))
        return there[:, 0] / there[:, 1] / (here[:, 0] / here[:, 1])

    noisy = [
        one + 0.1 * steps.normal(seen.uniform(1, one.shape[1], tag=21 + place)[:, 0])
        for place, one in enumerate((state, action, after))
    ]
    label = (~real).long()
    told = -torch.stack([pair[torch.arange(len(label)), label].log() for pair in two(*noisy)]).sum(0)
    onward, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    values = q(models["q"], step.now, step.action)
    error = values - step.target(0.99, q(models["q_target"], step.after, onward).amin(0))
    counts = torch.where(real, 1.0, ratio(after).clamp(1e-5, 1.0))
    noise = steps.normal(seen.uniform(1, 10, 3, tag=25)[:, 0])
    gap = torch.stack([-ratio(after + noise[:, j]).log() for j in range(10)]).mean(0).clamp(min=1e-30, max=10.0)
    share = gap[simulated] / gap[simulated].sum()
    pushed = (share * values[:, simulated].exp()).sum(1).log() * simulated.sum() - values[:, real].sum(1)
    critic = step.mean(counts * error.square()) / 2 + weight / 2 * pushed.sum() / step.here.sum()
    return {"domain": step.mean(told), "critic": critic, "actor": steps.sac_actor(seen)}


def view_of(data: Experience) -> tuple[Any, Experience]:
    """Returns a view of random models, and the data with numbered rows."""
    rows = data.add({"row": torch.arange(len(data))})
    engine = built(with_moments(), SPEC)
    return StageView(engine.models, rows, frozenset(), Draw(0)), rows


def table_gap() -> float:
    """Returns the gap of the ratio to P_real / P_sim in four states with three moves, for classifiers that are right,
    whatever the share of real rows in each state.
    """
    draw = torch.Generator().manual_seed(5)
    real, simulated = (torch.randn(4, 3, generator=draw).softmax(1) for _ in range(2))
    share = 0.2 + 0.6 * torch.rand(4, 1, generator=draw)
    here = torch.stack((share, 1.0 - share), -1).log().expand(4, 3, 2)
    both = torch.stack((share * real, (1.0 - share) * simulated), -1).log()
    model: Any = built(with_moments(), SPEC).models["domain"]
    model.logits = lambda *inputs: (here, both - here)
    return probes.worst(float((model.log_ratio(here, here, here).exp() - real / simulated).abs().max()))


def distance_from_uniform() -> float:
    """Returns the gap of the penalty's gradient, where no gap of dynamics is seen, to softmax over simulated rows minus
    one for real ones.
    """
    view, rows = view_of(transitions())
    model: Any = view.model("domain")
    with torch.no_grad():
        for parameter in model.there[-1].parameters():
            parameter.zero_()
    values = torch.randn(2, 64, 1, generator=torch.Generator().manual_seed(1)).double().requires_grad_()

    class Given:
        def model(self, name: str) -> Any:
            return (lambda context, action: values) if name == "q" else view.model(name)

        uniform = staticmethod(view.uniform)

    (slope,) = torch.autograd.grad(PushSimulated(2.0)(rows, Given()).sum, values)  # type: ignore[arg-type]
    real, here = is_real(rows)[:, 0], rows.now.mask[:, 0]
    simulated = ~real & here
    right = torch.zeros_like(values[..., 0])
    right[:, simulated] = values[:, simulated, 0].detach().softmax(1) * simulated.sum()
    right[:, real & here] = -1.0
    return probes.worst(float((slope[..., 0] - right).abs().max()))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", with_moments, losses_by_hand, transitions, SPEC, 1e-6),
        Exact("right classifiers of four states give P_real / P_sim, however many rows of a state are real", table_gap,
              at_most=1e-5, illustrates=True),
        Exact("where no gap is seen simulated rows are lowered by the softmax of their values, real ones raised alike",
              distance_from_uniform, at_most=1e-9, illustrates=True),
        follows_schedule("target critics follow at rate 0.005", recipe,
                         dict.fromkeys(("actor", "q", "temperature", "domain"), 1), of="target networks",
                         data=lambda: probes.of_origins(probes.transitions(dtype=torch.float32), Origin.DATASET,
                                                        Origin.POLICY)),
        # What would refute it: that real rows in half of each batch do as well without weights.
        Measured("trained in a simulator of half the gravity it scores higher in the real system than sac",
                 "reality-gap", recipe(), recipes.sac(), seeds=5, minutes=60, steps=600, about=About.HEADLINE),
    ),
    mutants=(
        Edit("real rows are taken for simulated ones", is_real, "now.source != int", "now.source == int"),
        Edit("simulated rows may count more than real ones", WeightedTd.__call__, "clamp(1e-5, 1.0)",
             "clamp(1e-5, 50.0)"),
        Edit("real rows are weighted too", WeightedTd.__call__, "torch.where(is_real(batch), 1.0, ratio)", "ratio"),
        Edit("all simulated rows alike", PushSimulated.__call__, "gap.log_softmax(0)", "(0.0 * gap).log_softmax(0)"),
        Edit("less where the simulator lies", PushSimulated.gap, "-domain.log_ratio", "domain.log_ratio"),
        Edit("real rows are lowered", PushSimulated.__call__, "- (values * real)", "+ (values * real)"),
        Edit("the second classifier by itself", TellApart.__call__, "there + here", "there"),
        Edit("the ratio of both classifiers", DomainLogits.log_ratio, "[1].unbind(-1)", "[0].unbind(-1)"),
    ),
)
