"""Count each controller's requests to the API server from its audit log: requests, bytes, writes without a change."""

import json
from bisect import bisect_left
from datetime import datetime
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
AUDITED = ("dovetail", "karpenter")
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


def audit_flags(folder: Path) -> tuple[str, ...]:
    """Write an audit policy for the two controllers, with bodies for writes, and return the API server's flags."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "RequestResponse", "users": list(AUDITED), "verbs": list(_WRITES), "omitManagedFields": True},
            {"level": "Metadata", "users": list(AUDITED)},
            {"level": "None"},
        ],
    }
    path = folder / "audit-policy.json"
    path.write_text(json.dumps(policy))
    log = folder / "audit.log"
    return (f"--audit-policy-file={path}", f"--audit-log-path={log}", "--audit-log-maxsize=20000")  # MB: one file


def audited(folder: Path, begin: datetime, end: datetime) -> dict[str, Tree]:
    """Return what each of the two asked of the API server between two moments.

    A write that changes nothing is answered with the version that the object had before: with one that is no newer
    than another that was handed out before the write began.
    """
    found = {user: _Count() for user in AUDITED}
    times: list[str] = []
    newest: list[int] = []
    with (folder / "audit.log").open() as log:
        for line in log:
            entry = json.loads(line)
            began, version = entry["requestReceivedTimestamp"], _version(entry)
            place = bisect_left(times, began)
            if begin <= datetime.fromisoformat(began) <= end:
                is_old = 0 < version <= (newest[place - 1] if place else 0)
                found[entry["user"]["username"]].take(entry, changed_nothing=is_old)
            if version and entry["verb"] in _WRITES:
                times.append(max(entry["stageTimestamp"], times[-1] if times else ""))
                newest.append(max(version, newest[-1] if newest else 0))
    minutes = (end - begin).total_seconds() / 60
    return {user: count.row(minutes) for user, count in found.items()}


class _Count:
    def __init__(self) -> None:
        self._reads = self._writes = self._idle = self._bytes = self._refused = 0
        self._kinds: dict[str, int] = {}

    def take(self, entry: Tree, *, changed_nothing: bool) -> None:
        """Count one request."""
        verb, status = entry["verb"], entry.get("responseStatus", {}).get("code", 0)
        if verb not in _WRITES:
            self._reads += 1
            return
        self._writes += 1
        self._refused += status >= 400
        self._idle += changed_nothing and verb in ("update", "patch") and status == 200
        self._bytes += len(json.dumps(entry.get("requestObject") or {}, separators=(",", ":")))
        about = entry.get("objectRef", {})
        kind = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
        self._kinds[f"{verb} {kind}"] = self._kinds.get(f"{verb} {kind}", 0) + 1

    def row(self, minutes: float) -> Tree:
        """Return the figures."""
        return {
            "reads a minute": round(self._reads / minutes, 1),
            "writes a minute": round(self._writes / minutes, 1),
            "kB written": round(self._bytes / 1e3, 1),
            "writes that changed nothing": self._idle,
            "writes refused": self._refused,
            "writes by kind": dict(sorted(self._kinds.items(), key=lambda pair: -pair[1])[:12]),
        }


def _version(entry: Tree) -> int:
    answer = entry.get("responseObject") or {}
    text = str((answer.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
