"""The golden cases: clusters with the placements and decisions of Karpenter v1.15.0's own packages."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.decode import load_cluster
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.settings import KARPENTER_1_15, Settings
from tests.paths import ROOT

DATA = ROOT / "tests" / "golden" / "data"


@dataclass(frozen=True)
class GoldenCase:
    """One case; files are read when asked for."""

    name: str
    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """Return the description, the time and the settings."""
        return json.loads((self.folder / "about.json").read_text())  # type: ignore[no-any-return]

    @property
    def description(self) -> str:
        """Return what the case is about."""
        return str(self.about["description"])

    @cached_property
    def now(self) -> datetime:
        """Return the time of the decisions."""
        return datetime.fromisoformat(self.about["now"])

    @cached_property
    def settings(self) -> Settings:
        """Karpenter's profile with the settings of the case."""
        given = self.about["settings"]
        return replace(
            KARPENTER_1_15,
            spot_to_spot_consolidation=given.get("spotToSpotConsolidation", False),
            nominated_nodes=tuple(given.get("nominatedNodes", ())),
            marked_for_deletion_nodes=tuple(given.get("markedForDeletionNodes", ())),
        )

    @cached_property
    def cluster(self) -> Cluster:
        """Return the objects."""
        return load_cluster([self.folder / "cluster.json.gz"])

    @cached_property
    def catalogue(self) -> Catalogue:
        """Return the instance types."""
        return load_catalogue(self.folder / "catalog.json.gz")

    @cached_property
    def provision(self) -> dict[str, Any]:
        """Return where Karpenter places the pending pods."""
        return self._json("provision.json.gz")

    @cached_property
    def expected(self) -> dict[str, Any]:
        """Return what Karpenter's methods decide."""
        return self._json("expected.json.gz")

    def method(self, name: str) -> dict[str, Any]:
        """Return what one of Karpenter's methods decides."""
        return next(item for item in self.expected["methods"] if item["method"] == name)

    def _json(self, name: str) -> dict[str, Any]:
        return json.loads(gzip.decompress((self.folder / name).read_bytes()))  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def golden_cases() -> tuple[GoldenCase, ...]:
    """Return all cases, by name."""
    folders = sorted(path.parent for path in DATA.glob("*/about.json"))
    return tuple(GoldenCase(folder.name, folder) for folder in folders)


def on_one_worker(name: str) -> pytest.MarkDecorator:
    """Return the mark that keeps the tests of a case on one worker, so that the case is decoded and decided once."""
    return pytest.mark.xdist_group(f"golden-{name}")


def golden_case(name: str) -> GoldenCase:
    """Return the case of that name."""
    return next(case for case in golden_cases() if case.name == name)
