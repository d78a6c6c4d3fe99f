"""The published schema is that of the code."""

import json

from dovetail.recordings.lines import schema
from tests.paths import ROOT


def test_the_schema_is_published() -> None:
    """`docs/recording.schema.json` is that of the code; `python -m tests.recordings.test_schema` renews it."""
    assert json.loads((ROOT / "docs" / "recording.schema.json").read_text()) == json.loads(json.dumps(schema()))


if __name__ == "__main__":
    (ROOT / "docs" / "recording.schema.json").write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n")
