"""Names of claims are sentences that stand alone; every exact claim is needed."""

from __future__ import annotations

import pytest

from assay.claims.find import all_claims
from assay.claims.records import MUTANTS, read_record, record_path

CLAIMS = all_claims()

CONTINUES = ("and", "nor", "also", "so", "that", "those", "as", "the same", "which", "but", "else", "of", "from there")
CONTINUES += ("there", "then", "too", "on these")
"""A name that begins with one of these needs the claim before it."""

VERBS = {"is", "keeps", "learns", "ranks", "finds", "acts", "pays", "has", "does", "wins", "ends", "follows", "knows"}
"""A name that begins with one of these verbs has no subject."""


def complaint(name: str) -> str:
    """Returns what is wrong with a name; empty if nothing is."""
    words = name.split()
    if any(name == start or name.startswith((f"{start} ", f"{start},")) for start in CONTINUES):
        return "continues another claim"
    if len(words) < 4:
        return "has fewer than 4 words"
    if words[0].rstrip(":,") in VERBS:
        return "has no subject"
    if words[0] == "with" and (len(words) < 6 or words[-1] == "too"):
        return "has no verb"
    return ""


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("nor are long episodes of control", "continues another claim"),
        ("so does kl_cov", "continues another claim"),
        ("of three: two thirds", "continues another claim"),
        ("after it, not", "has fewer than 4 words"),
        ("learns: held-out score rises", "has no subject"),
        ("with continuous actions too", "has no verb"),
        ("with gradient ascent on the dual, too", "has no verb"),
        ("its gradient is the formula's", ""),
        ("with continuous actions its gradients are ppo's", ""),
    ],
)
def test_fragments_are_told_from_sentences(name: str, wrong: str) -> None:
    assert complaint(name) == wrong


@pytest.mark.parametrize("key", sorted(CLAIMS))
def test_a_claims_name_is_a_sentence_of_its_own(key: str) -> None:
    names = [claim.name for claim in CLAIMS[key].claims]
    assert {name: complaint(name) for name in names if complaint(name)} == {}
    assert len(set(names)) == len(names), "names are unique within a method"


@pytest.mark.parametrize("key", sorted(CLAIMS))
def test_records_name_the_claims_that_there_are(key: str) -> None:
    """A renamed exact claim is renamed in its record; those younger than the record are not in it yet. Measured claims
    that a record lacks are new, others that it has are former: states that `assay list` shows.
    """
    record = read_record(record_path(key))
    assert {one["name"] for one in record.get("claims", ()) if one["kind"] == "exact"} <= {
        claim.name for claim in CLAIMS[key].exact
    }
    assert set(record.get(MUTANTS, {}).get("cover", {})) <= {claim.name for claim in CLAIMS[key].exact}


@pytest.mark.parametrize("key", sorted(CLAIMS))
def test_every_exact_claim_is_needed(key: str) -> None:
    """It is the first to reject a mutant, or says why it is stated though it is not."""
    cover = read_record(record_path(key)).get(MUTANTS, {}).get("cover")
    if cover is None:
        pytest.skip(f"the record of {key} does not say which claim rejects which mutant: assay claim {key} --mutants")
    exact = CLAIMS[key].exact
    assert [one.name for one in exact if not (cover.get(one.name, 0) or one.illustrates or one.of)] == []
    assert sum(one.illustrates for one in exact) <= 2
