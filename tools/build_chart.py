"""Writes what follows from the chart's values: python tools/build_chart.py.

The chart's README from the comments of values.yaml, and the names of all settings in values.schema.json, so that Helm
refuses a setting that the controller would refuse.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from dovetail.api.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "chart" / "dovetail"
HEAD = """\
# Dovetail

Node disruption for Kubernetes beside Karpenter: Dovetail decides which nodes go, when, and whether it is worth it;
Karpenter launches and drains them. With its defaults the chart only observes.

```sh
helm install dovetail oci://$REGISTRY/{OWNER}/charts/dovetail --namespace dovetail --create-namespace --set recommended=true
```

`helm uninstall dovetail` gives every node back to Karpenter first. [How to run it](../../../docs/run-it.md) says more.

## Values

Made from values.yaml by tools/build_chart.py. The chart refuses values and settings that it doesn't know.

| value | default | what it does |
|---|---|---|
"""


def rows(text: str) -> list[tuple[str, str, str]]:
    """Return each value with its default and the comment above it or beside it."""
    values, found = yaml.safe_load(text), []
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped:
            above = []
            continue
        if stripped.startswith("#"):
            above.append(stripped.lstrip("# "))
            continue
        match = re.match(r"( *)([\w-]+):(.*)$", line)
        if match is None:
            continue
        depth = len(match[1])
        path = [entry for entry in path if entry[0] < depth]
        path.append((depth, match[2]))
        names = [name for _, name in path]
        value: Any = values
        for name in names:
            value = value[name]
        beside = match[3].partition(" # ")[2].strip()
        what = " ".join([*above, beside]).strip()
        above = []
        if match[3].partition(" #")[0].strip() == "":  # a group: its comment stands at its first value
            found.append((".".join(names), "", what))
            continue
        found.append((".".join(names), json.dumps(value), what))
    return [row for row in found if row[1] or row[2]]


def readme(text: str) -> str:
    """Return the README."""
    owner = re.search(r"(?m)^OWNER=(\S+)", (ROOT / "deploy" / "release.env").read_text())
    head = HEAD.replace("{OWNER}", owner[1] if owner else "OWNER")
    lines = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {what.replace('|', chr(92) + '|')} |"
        for name, default, what in rows(text)
    ]
    return head + "\n".join(lines) + "\n"


def schema(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the settings' names."""
    known = {name: {} for name in sorted(("base", *SETTINGS))}
    settings = {"type": "object", "additionalProperties": False, "properties": known}
    return {**tree, "properties": {**tree["properties"], "settings": settings}}


if __name__ == "__main__":
    (CHART / "README.md").write_text(readme((CHART / "values.yaml").read_text()))
    target = CHART / "values.schema.json"
    target.write_text(json.dumps(schema(json.loads(target.read_text())), indent=2) + "\n")
