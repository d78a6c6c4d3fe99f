"""docs/settings.md names every setting, and no other."""

import re

from dovetail.api.settings import SETTING_FIELDS
from tests.paths import ROOT


def test_every_setting_has_a_row() -> None:
    """The first cells of the table are the keys that a settings file may have, `base` included."""
    page = (ROOT / "docs" / "settings.md").read_text()
    firsts = re.findall(r"^\| (`[^|]+) \|", page, flags=re.MULTILINE)
    named = [name for cell in firsts for name in re.findall("`([^`]+)`", cell)]
    assert sorted(named) == sorted([*SETTING_FIELDS, "base"])
