"""docs/profiles.md is generated from the rules, and no code reads a profile's name."""

import re
from dataclasses import fields, replace

import pytest

from dovetail.decide.question import Question
from dovetail.decide.round import plan_round
from dovetail.model.rules import DOVETAIL_RULES, NEWEST, OLDEST, Rules, karpenter_rules
from dovetail.model.settings import KARPENTER_1_15, PROFILES, Profile
from tests.paths import ROOT
from tests.support.chart import script
from tests.support.golden_cases import golden_cases


def test_the_page_is_current() -> None:
    """The page is what tools/build_profiles.py writes."""
    builder = script("build_profiles")
    assert builder.PAGE.read_text() == builder.page(), "run: python tools/build_profiles.py"


def test_profiles_differ_in_every_rule() -> None:
    """In every rule Dovetail differs from some version of Karpenter."""
    versions = [karpenter_rules(minor) for minor in range(OLDEST, NEWEST + 1)]
    for entry in fields(Rules):
        assert any(getattr(DOVETAIL_RULES, entry.name) is not getattr(rules, entry.name) for rules in versions)


def test_every_rule_is_asked_somewhere() -> None:
    """The code reads every rule somewhere."""
    text = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "rules.py")
    for entry in fields(Rules):
        assert re.search(rf"rules\.{entry.name}\b", text), entry.name


def test_nothing_decides_by_the_name_of_a_profile() -> None:
    """Outside the table of profiles, code reads rules, not names."""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\bis_karpenter\b", text), path
        if path.name != "settings.py":
            assert not re.search(r"profile is(?: not)? Profile\.|profile [!=]= Profile\.", text), path


@pytest.mark.parametrize("case", golden_cases()[:8], ids=lambda case: str(case.name))
def test_the_name_alone_changes_nothing(case: object) -> None:
    """Karpenter's values under another name decide as Karpenter's profile does."""
    settings = replace(case.settings, profile=Profile.DOVETAIL)  # type: ignore[attr-defined]
    ask = {"cluster": case.cluster, "catalogue": case.catalogue, "now": case.now}  # type: ignore[attr-defined]
    one = plan_round(Question(settings=case.settings, **ask)).to_dict()  # type: ignore[attr-defined]
    other = plan_round(Question(settings=settings, **ask)).to_dict()
    assert {**one, "profile": ""} == {**other, "profile": ""}


def test_profiles_are_named_by_their_key() -> None:
    """Each profile's key in the table is its name."""
    assert all(settings.profile is name for name, settings in PROFILES.items())
    assert KARPENTER_1_15.rules == karpenter_rules(NEWEST)
