"""What a measured claim is about, and the verdict that the list shows."""

import pytest

from assay import recipes
from assay.claims import About, Claims, Exact, Expect, Measured, headline, headline_texts
from assay.claims.claim import Measured as Claim
from assay.core.errors import AssayError
from assay.recipes.presets import TABLE
from assay.report.method_tables import counted, verdict_word
from assay.report.methods import method_rows
from assay.runs import catalogue


def stated(about: About, name: str = "m") -> Claim:
    return Measured(name, "", lambda seed: 1.0 + seed, 0.0, seeds=2, about=about)


def verdict(**words: str) -> dict[str, object]:
    return {"claims": [{"name": name, "kind": "measured", "verdict": word} for name, word in words.items()]}


def with_claims(monkeypatch: pytest.MonkeyPatch, *claims: Claim) -> None:
    exact = Exact("one is one", lambda: 1.0, equals=1.0)
    monkeypatch.setattr(headline, "find_claims", lambda method: Claims((exact, *claims)))


def test_the_headline_is_the_worst_of_its_claims_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, stated(About.HEADLINE, "a"), stated(About.HEADLINE, "b"), stated(About.MECHANISM, "c"))
    assert headline.headline_word("grpo", verdict(a="holds", b="inconclusive", c="fails")) == "inconclusive"
    assert headline.headline_word("grpo", verdict(a="holds", b="holds", c="fails")) == "holds"


def test_a_method_whose_headline_is_not_measured_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, stated(About.HEADLINE, "a"), stated(About.COMPONENT, "c"))
    assert headline.headline_word("grpo", verdict(c="holds")) == headline.NO_HEADLINE
    assert headline.headline_word("grpo", None) == headline.NO_HEADLINE
    assert headline.headline_state("grpo", verdict(c="holds")) is None


def test_the_list_shows_the_headline_where_the_record_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = [row for row in method_rows() if row["name"] == "sft"]
    assert verdict_word(row).plain.startswith("holds")
    with_claims(monkeypatch, stated(About.COMPONENT, row["verdict"]["claims"][0]["name"]))
    (row,) = [row for row in method_rows() if row["name"] == "sft"]
    assert row["verdict"]["verdict"] == "holds"
    assert verdict_word(row).plain == headline.NO_HEADLINE, "its measured claim is about a component"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"about": "headline"}, "about='headline'; give one of About.HEADLINE"),
        ({"expect": "above"}, "expect='above'; give one of Expect.ABOVE"),
        ({"ours": 1.0}, "ours=1.0; give a recipe"),
        ({"theirs": "grpo"}, "theirs='grpo'; give a recipe"),
        ({"ours": lambda: 1.0}, "give a recipe, or a function from seed"),
        ({"metric": "pass_rate"}, "metric='pass_rate'; give one such as Final"),
        ({"theirs": recipes.rloo(TABLE)}, "trains a recipe without a task"),
        ({"steps": 0}, "steps=0; give 1 or more"),
        ({"seeds": 1}, "1 seeds; an interval needs at least 2"),
        ({"minutes": 0.0}, "minutes=0.0"),
        ({"margin": float("nan")}, "margin nan"),
    ],
)
def test_arguments_are_checked_when_the_claim_is_made(wrong: dict[str, object], words: str) -> None:
    right = {"name": "m", "task": "", "ours": lambda seed: 1.0, "theirs": 0.0}
    with pytest.raises(AssayError, match=f"measured claim 'm' .*{words}"):
        Measured(**(right | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"function": 3.0}, "function=3.0; give a function without arguments"),
        ({"function": lambda seed: 0.0}, "give a function without arguments"),
        ({"equals": "0"}, "'0' as the bound; give a number"),
        ({"tolerance": float("nan")}, "nan as tolerance"),
        ({"at_most": 1.0}, "exactly one of equals"),
    ],
)
def test_arguments_of_an_exact_claim_are_checked_when_it_is_made(wrong: dict[str, object], words: str) -> None:
    right = {"name": "m", "function": lambda: 0.0, "equals": 0.0}
    with pytest.raises(AssayError, match=f"exact claim 'm' .*{words}"):
        Exact(**(right | wrong))  # type: ignore[arg-type]


def test_a_claim_expects_above_and_is_about_a_mechanism_unless_it_says_otherwise() -> None:
    claim = Measured("m", "", lambda seed: 1.0, 0.0)
    assert (claim.expect, claim.about) == (Expect.ABOVE, About.MECHANISM)


UNSTATED = {"reward-model"}
"""Methods without a measured claim: a base that others compose."""


def test_every_method_that_is_counted_states_a_headline() -> None:
    silent = {
        key for key, method in catalogue.methods().items()
        if not method.studied and About.HEADLINE.value not in headline.abouts(key).values()
    }  # fmt: skip
    assert silent == UNSTATED


def test_the_text_of_a_claims_file_tells_shared_headlines_too() -> None:
    for key in ("grpo", "rloo", "dpo", "gspo"):
        told, right = headline_texts.stated(headline_texts.FOLDER.with_name(f"{key}.py")), headline.abouts(key)
        assert told.items() <= right.items(), "others, of shared functions that state no headline, are not told"
        assert {name for name, about in right.items() if about == About.HEADLINE.value} <= told.keys()


def test_a_studied_method_has_no_verdict_and_is_not_counted() -> None:
    studied = {row["name"]: row for row in method_rows() if row["studied"]}
    assert set(studied) == {"hybridflow", "realhf", "rollart"}
    for name, row in studied.items():
        assert verdict_word(row).plain == headline_texts.headline_verdict(name) == "studied"
        assert row["state"] is None
    grpo = next(row for row in method_rows() if row["name"] == "grpo")
    assert counted([grpo, *studied.values()]) == "1 methods, 3 more studied"
