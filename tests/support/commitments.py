"""Settings with commitments, as a settings file has them."""

from dataclasses import replace
from typing import Any

from dovetail.api.commitments import read_commitments, read_discount, read_surcharge
from dovetail.model.settings import DOVETAIL, Settings


def paying(settings: Settings = DOVETAIL, **keys: Any) -> Settings:
    """Return settings with commitments, a discount or a surcharge, as in a file."""
    readers: dict[str, Any] = {"commitments": read_commitments, "discount": read_discount, "surcharge": read_surcharge}
    return replace(settings, **{key: readers[key](value, key) for key, value in keys.items()})


def reserved(count: int, *types: str, name: str = "ri") -> dict[str, Any]:
    """Return reserved instances as a settings file has them."""
    return {"name": name, "kind": "ReservedInstances", "instanceTypes": list(types), "count": count}


def plan(hourly: str, rates: Any, name: str = "sp", **more: Any) -> dict[str, Any]:
    """Return a savings plan as a settings file has it."""
    return {"name": name, "kind": "SavingsPlan", "hourly": hourly, "rates": rates, **more}
