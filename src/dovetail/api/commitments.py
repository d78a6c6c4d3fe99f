"""Reads the settings `commitments`, `discount` and `surcharge`, and says what the catalogue doesn't know of them.

Structural mistakes are refused with a sentence that names the key. Whether a family, a type or a region exists depends
on the catalogue, and a commitment may be for other clusters too; such things are warnings. Knows no bill
(`model.commitments`). Sits in api.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from dovetail.api.findings import InputError, shown
from dovetail.model.catalogue import Catalogue
from dovetail.model.commitments import Commitment, CommitmentKind, family_of
from dovetail.model.money import Money, MoneyError, parse_money
from dovetail.model.names import REGION
from dovetail.model.settings import Surcharge

_KEYS: Final = ("name", "kind", "region", "instanceTypes", "families", "count", "hourly", "rates")
_EXAMPLE: Final = "{name: plan-2026, kind: SavingsPlan, hourly: 12.40, rates: '28%'}"
CLOUDS: Final = ("aws", "azure", "gcp")
_PERCENT: Final = re.compile(r"\s*([0-9]{1,3}(\.[0-9]{1,6})?)\s*%\s*")
_COUNT_MAX: Final = 10**9
_NAMED_MAX: Final = 5
"""How many unknown types are spelled out in a warning."""


def read_commitments(value: Any, key: str) -> tuple[Commitment, ...]:
    """Read a list of commitments; raise an InputError that names the entry and the field."""
    if not isinstance(value, list):
        raise InputError(f"{key} is {shown(value)}; write a list such as [{_EXAMPLE}]")
    found = tuple(_commitment(entry, f"{key}[{number}]") for number, entry in enumerate(value))
    names = [entry.name for entry in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"{key}[{number}].name is {shown(name)}, which an entry before it has; give each its own")
    return found


def _commitment(tree: Any, where: str) -> Commitment:
    if not isinstance(tree, dict):
        raise InputError(f"{where} is {shown(tree)}; write a map such as {_EXAMPLE}")
    for name in tree:
        if name not in _KEYS:
            raise InputError(f"{where} has the field {shown(name)}; valid fields: {', '.join(_KEYS)}")
    kind = _kind(tree.get("kind"), f"{where}.kind")
    name = _text(tree.get("name"), f"{where}.name", required=True)
    types = _names(tree.get("instanceTypes"), f"{where}.instanceTypes")
    families = _names(tree.get("families"), f"{where}.families")
    if types and families:
        raise InputError(f"{where} has both instanceTypes and families; write one entry for each")
    percent, rates = _rates(tree.get("rates"), f"{where}.rates")
    if kind is CommitmentKind.SAVINGS_PLAN:
        _only(tree, "count", "hourly", where)
        hourly, count = _dollars(tree["hourly"], f"{where}.hourly"), Fraction(0)
        if percent is None and not rates:
            raise InputError(
                f"{where}.rates is missing; write a map from type to dollars an hour, or text such as '28%'"
            )
    else:
        _only(tree, "", "count", where)
        if "hourly" in tree and "rates" in tree:
            raise InputError(f"{where} has both hourly and rates; write what the reservation costs once")
        if not types and not families:
            raise InputError(f"{where} names neither instanceTypes nor families; write what was reserved")
        count = _count(tree["count"], f"{where}.count", whole=bool(types))
        hourly = _dollars(tree.get("hourly", 0), f"{where}.hourly")
    return Commitment(
        name=name,
        kind=kind,
        region=_text(tree.get("region"), f"{where}.region"),
        instance_types=types,
        families=families,
        count=count,
        hourly=hourly,
        percent_off=percent,
        rates=rates,
    )


def _kind(value: Any, where: str) -> CommitmentKind:
    try:
        return CommitmentKind(value)
    except ValueError:
        words = " or ".join(kind.value for kind in CommitmentKind)
        raise InputError(f"{where} is {shown(value)}; write {words}") from None


def _only(tree: dict[str, Any], wrong: str, right: str, where: str) -> None:
    if wrong in tree:
        raise InputError(f"{where}.{wrong} does not go with kind {tree['kind']}; write {right}")
    if tree.get(right) is None:
        raise InputError(f"{where}.{right} is missing; a {tree['kind']} needs it")


def _text(value: Any, where: str, *, required: bool = False) -> str:
    if value is None and not required:
        return ""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where} is {shown(value)}; write a name")
    return value.strip()


def _names(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} is {shown(value)}; write a list of names such as [m5, c6i]")
    return tuple(dict.fromkeys(_text(entry, f"{where}[{number}]", required=True) for number, entry in enumerate(value)))


def _count(value: Any, where: str, *, whole: bool) -> Fraction:
    try:
        amount = Fraction(parse_money(value), 10**18) if isinstance(value, int | float | str) else None
    except MoneyError:
        amount = None
    unit = "a whole number of machines" if whole else "units of the normalisation factor (small = 1)"
    if amount is None or not 0 <= amount <= _COUNT_MAX or (whole and amount.denominator != 1):
        raise InputError(f"{where} is {shown(value)}; write {unit}, 0 or more")
    return amount


def _dollars(value: Any, where: str) -> Money:
    try:
        amount = parse_money(value) if isinstance(value, int | float | str) else None
    except MoneyError:
        amount = None
    if amount is None or not 0 <= amount < 10**27:
        raise InputError(f"{where} is {shown(value)}; write dollars an hour, 0 or more, without a currency")
    return amount


def _rates(value: Any, where: str) -> tuple[Fraction | None, tuple[tuple[str, Money], ...]]:
    if value is None:
        return None, ()
    if isinstance(value, str):
        return _percent(value, where), ()
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where} is {shown(value)}; write a map from type to dollars an hour, or text such as '28%'")
    return None, tuple((str(name), _dollars(rate, f"{where}.{name}")) for name, rate in sorted(value.items()))


def _percent(value: Any, where: str) -> Fraction:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) > 100:
        raise InputError(f"{where} is {shown(value)}; write a percentage from 0% to 100% in quotes, such as '28%'")
    return Fraction(found[1]) / 100


def read_discount(value: Any, key: str) -> tuple[tuple[str, Fraction], ...]:
    """Read the share that is taken off on-demand prices, by cloud."""
    if not isinstance(value, dict):
        raise InputError(f"{key} is {shown(value)}; write a map such as {{aws: '20%'}}")
    for cloud in value:
        if cloud not in CLOUDS:
            raise InputError(f"{key} has the cloud {shown(cloud)}; valid clouds: {', '.join(CLOUDS)}")
    return tuple((cloud, _percent(share, f"{key}.{cloud}")) for cloud, share in sorted(value.items()))


def read_surcharge(value: Any, key: str) -> tuple[Surcharge, ...]:
    """Read what comes on top of prices, by the kind of NodeClass."""
    if not isinstance(value, list):
        raise InputError(f"{key} is {shown(value)}; write a list such as [{{nodeClassKind: NodeClass, percent: 12}}]")
    found: list[Surcharge] = []
    for number, entry in enumerate(value):
        where = f"{key}[{number}]"
        if not isinstance(entry, dict) or set(entry) != {"nodeClassKind", "percent"}:
            raise InputError(f"{where} is {shown(entry)}; write {{nodeClassKind: NodeClass, percent: 12}}")
        kind = _text(entry["nodeClassKind"], f"{where}.nodeClassKind", required=True)
        if any(kind == other.node_class_kind for other in found):
            raise InputError(f"{where}.nodeClassKind is {shown(kind)}, which an entry before it has; keep one")
        found.append(Surcharge(node_class_kind=kind, share=_extra(entry["percent"], f"{where}.percent")))
    return tuple(found)


def _extra(value: Any, where: str) -> Fraction:
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    try:
        amount = Fraction(parse_money(text), 10**18) if isinstance(text, int | float | str) else None
    except MoneyError:
        amount = None
    if amount is None or not 0 <= amount <= 1000:
        raise InputError(f"{where} is {shown(value)}; write a number from 0 to 1000, such as 12")
    return amount / 100


def unknown_parts(commitments: Sequence[Commitment], catalogue: Catalogue) -> Iterator[str]:
    """Yield a sentence for each part of a commitment that no instance type of the catalogue matches."""
    if not commitments or not catalogue.instance_types:
        return
    types = {kind.name for kind in catalogue.instance_types}
    families = {family_of(name) for name in types}
    regions = {
        value
        for kind in catalogue.instance_types
        for entry in kind.requirements
        if entry.key == REGION and entry.operator == "In"
        for value in entry.values
    }
    source = catalogue.source or "the catalogue"
    for number, entry in enumerate(commitments):
        where = f"commitments[{number}]"
        if entry.region and regions and entry.region not in regions:
            yield (
                f"{where}.region ({entry.region}) is not the region of {source} ({', '.join(sorted(regions)[:3])}); "
                f"{entry.name} covers nothing here"
            )
            continue
        if entry.region and not regions:
            yield f"{where}.region ({entry.region}): {source} has no region; {entry.name} is taken to be for it"
        for field, named, known in (
            ("instanceTypes", entry.instance_types, types),
            ("families", entry.families, families),
            ("rates", tuple(name for name, _ in entry.rates), types),
        ):
            missing = [name for name in named if name not in known]
            if missing:
                more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
                yield f"{where}.{field}: {', '.join(missing[:_NAMED_MAX])}{more} not in {source}; that covers nothing"
