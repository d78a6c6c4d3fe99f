"""Turns what the AWS CLI prints about savings plans and reserved instances into the settings' `commitments`.

Reads the answers of `aws savingsplans describe-savings-plans`, `describe-savings-plan-rates`,
`describe-savings-plans-offering-rates` and `aws ec2 describe-reserved-instances`; each says by its keys which it is.
Only what covers Linux machines on shared hardware is taken; all else is left out, and `Imported.notes` says so. Knows
no bill (`model.commitments`). Sits in api, beside the built-in tables.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from dovetail.api.commitments import read_commitments, unknown_parts
from dovetail.api.findings import InputError, shown
from dovetail.model.catalogue import Catalogue
from dovetail.model.commitments import family_of, units_of
from dovetail.model.money import UNIT, MoneyError, format_money, nearest, parse_money

COMMANDS: Final = (
    "aws savingsplans describe-savings-plans",
    "aws savingsplans describe-savings-plan-rates",
    "aws savingsplans describe-savings-plans-offering-rates",
    "aws ec2 describe-reserved-instances",
)
_PLANS: Final = "savingsPlans"
_RATES: Final = "searchResults"
_RESERVED: Final = "ReservedInstances"
_LINUX: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_INFLEXIBLE: Final = re.compile(r"g4ad|g4dn|g5g?|g6\w*|gr6\w*|hpc\w*|p5\w*|inf\d\w*|u\d?-?\w*|trn\d\w*")
"""Families whose reservations fit one size only; bare metal does as well."""
_DOLLARS: Final = "USD"
_HOUR: Final = 3600
_NAMED_MAX: Final = 5
_ZONE: Final = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d+)[a-z]")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAnswer:
    """One file: its name and what it holds."""

    name: str
    tree: Any


@dataclass(slots=True, kw_only=True)
class Imported:
    """The entries of the settings' `commitments`, and what was left out of them and why."""

    commitments: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_aws(answers: Sequence[AwsAnswer], catalogue: Catalogue, region: str, share: Fraction) -> Imported:
    """Return the commitments that the answers describe.

    `region`: the cluster's; `catalogue`: its types; `share`: this cluster's part of everything. Raise an InputError
    that names the file and the key for anything that can't be read.
    """
    plans: list[tuple[str, Json]] = []
    rates: list[tuple[str, Json, str]] = []
    reserved: list[tuple[str, Json]] = []
    for answer in answers:
        _sort(answer, plans, rates, reserved)
    _check_pages(answers)
    found = Imported()
    entries = [*plans, *((where, tree) for where, tree, _ in rates), *reserved]
    found.notes.extend(_check_currency(entries, catalogue))
    _add_reserved(found, reserved, region, share)
    known = _Rates(rates, region)
    for where, plan in plans:
        _add_plan(found, where, plan, known, region, share)
    if rates and not plans:
        raise InputError(
            f"{rates[0][0]}: these are rates only; also give what `{COMMANDS[0]}` prints, which says how much is "
            "committed"
        )
    types = {kind.name for kind in catalogue.instance_types}
    for number, entry in enumerate(found.commitments):
        _drop_unknown_rates(found, number, entry, types, catalogue.source)
    found.notes.extend(unknown_parts(read_commitments(found.commitments, "commitments"), catalogue))
    return found


def _sort(
    answer: AwsAnswer,
    plans: list[tuple[str, Json]],
    rates: list[tuple[str, Json, str]],
    reserved: list[tuple[str, Json]],
) -> None:
    tree, name = answer.tree, answer.name
    if isinstance(tree, dict) and _PLANS in tree:
        plans.extend(_entries(tree, _PLANS, name))
    elif isinstance(tree, dict) and _RATES in tree:
        owner = str(tree.get("savingsPlanId") or "")
        rates.extend((where, entry, owner) for where, entry in _entries(tree, _RATES, name))
    elif isinstance(tree, dict) and _RESERVED in tree:
        reserved.extend(_entries(tree, _RESERVED, name))
    else:
        keys = ", ".join(sorted(map(str, tree))[:_NAMED_MAX]) if isinstance(tree, dict) else shown(tree)
        raise InputError(
            f"{name}: it has {keys or 'nothing'}, which none of these commands prints: {'; '.join(COMMANDS)}; give the "
            "JSON of one of them"
        )


def _check_pages(answers: Sequence[AwsAnswer]) -> None:
    """Raise an InputError if the last page of an answer is missing: all pages but the last have a nextToken.

    The AWS CLI does not put pages of these commands together.
    """
    open_pages: dict[tuple[str, str], list[AwsAnswer]] = {}
    ends: dict[tuple[str, str], int] = {}
    for answer in answers:
        kind = next(key for key in (_PLANS, _RATES, _RESERVED) if key in answer.tree)
        group = (kind, str(answer.tree.get("savingsPlanId") or ""))
        if answer.tree.get("nextToken"):
            open_pages.setdefault(group, []).append(answer)
        else:
            ends[group] = ends.get(group, 0) + 1
    for group, pages in open_pages.items():
        if not ends.get(group):
            last = pages[-1]
            raise InputError(
                f"{last.name}: nextToken says that there is more; run the command again with --next-token "
                f"{shown(last.tree['nextToken'])} and give that file too"
            )


def _entries(tree: Json, key: str, name: str) -> Iterator[tuple[str, Json]]:
    value = tree[key]
    if not isinstance(value, list):
        raise InputError(f"{name}: {key} is {shown(value)}; give the JSON as the AWS CLI prints it")
    for number, entry in enumerate(value):
        where = f"{name}: {key}[{number}]"
        if not isinstance(entry, dict):
            raise InputError(f"{where} is {shown(entry)}; give the JSON as the AWS CLI prints it")
        yield where, entry


def _check_currency(entries: Iterable[tuple[str, Json]], catalogue: Catalogue) -> list[str]:
    """Return what to know about the currency; raise an InputError if there are two, or not that of the prices."""
    first: tuple[str, str] | None = None
    for where, tree in entries:
        offering = tree.get("savingsPlanOffering")
        within = offering if isinstance(offering, dict) else {}
        for key, value in (
            ("currency", tree.get("currency")),
            ("CurrencyCode", tree.get("CurrencyCode")),
            ("savingsPlanOffering.currency", within.get("currency")),
        ):
            if not isinstance(value, str) or not value:
                continue
            if first is None:
                first = (f"{where}.{key}", value)
            elif value != first[1]:
                raise InputError(
                    f"{where}.{key} is {value}, and {first[0]} is {first[1]}; import the commitments of one currency "
                    "at a time"
                )
    if first is None or first[1] == _DOLLARS:
        return []
    where, currency = first
    if catalogue.source.startswith("built-in"):
        raise InputError(
            f"{where} is {currency}, and the prices of the {catalogue.source} are dollars; give a --catalog with "
            f"prices in {currency}"
        )
    return [f"all amounts are {currency}, as the prices of {catalogue.source} have to be"]


# ---------------------------------------------------------------- reserved instances


def _add_reserved(found: Imported, entries: Sequence[tuple[str, Json]], region: str, share: Fraction) -> None:
    """Add one entry for each family, and for each type whose reservations don't fit other sizes."""
    flexible: dict[str, tuple[Fraction, Fraction]] = {}
    exact: dict[str, tuple[int, Fraction]] = {}
    skipped: dict[str, int] = {}
    for where, tree in entries:
        kind, count = _text(tree, "InstanceType", where), _count(tree, where)
        why = _unusable(tree, region)
        if why:
            skipped[why] = skipped.get(why, 0) + 1
            continue
        family, size = family_of(kind), kind.partition(".")[2]
        regional = tree.get("Scope", "Region") == "Region"
        if regional and not size.startswith("metal") and not _INFLEXIBLE.fullmatch(family):
            units, cost = flexible.get(family, (Fraction(0), Fraction(0)))
            flexible[family] = (units + count * units_of(kind, 0), cost + count * _hourly(tree, where))
        else:
            before, paid = exact.get(kind, (0, Fraction(0)))
            exact[kind] = (before + count, paid + count * _hourly(tree, where))
    for family, (units, cost) in sorted(flexible.items()):
        entry: Json = {"name": f"ri-{family}", "kind": _RESERVED, "region": region, "families": [family]}
        entry["count"] = _plain(units * share)
        if cost:
            entry["hourly"] = _dollars(cost * share)
        found.commitments.append(entry)
    for kind, (count, paid) in sorted(exact.items()):
        mine = int(count * share)
        if mine != count * share:
            found.notes.append(f"ri-{kind}: this cluster's share of {count} machines is rounded down to {mine}")
        exactly: Json = {"name": f"ri-{kind}", "kind": _RESERVED, "region": region, "instanceTypes": [kind]}
        exactly["count"] = mine
        if paid:
            exactly["rates"] = {kind: _dollars(paid / count)}
        found.commitments.append(exactly)
    found.notes.extend(
        f"{number} of the reserved instances {'is' if number == 1 else 'are'} left out: {why}"
        for why, number in sorted(skipped.items())
    )


def _unusable(tree: Json, region: str) -> str:
    """Return why reserved instances cover nothing here; empty: they do."""
    state = tree.get("State", "active")
    if state != "active":
        return f"State is {state}"
    platform = tree.get("ProductDescription", _LINUX[0])
    if platform not in _LINUX:
        return f"ProductDescription is {platform}, and nodes run Linux/UNIX"
    if tree.get("InstanceTenancy", "default") != "default":
        return f"InstanceTenancy is {tree['InstanceTenancy']}, and nodes run on shared hardware"
    zone = _ZONE.fullmatch(str(tree.get("AvailabilityZone") or ""))
    return f"AvailabilityZone is {tree['AvailabilityZone']}, not in {region}" if zone and zone[1] != region else ""


def _count(tree: Json, where: str) -> int:
    value = tree.get("InstanceCount")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{where}.InstanceCount is {shown(value)}; a number of machines, 0 or more, is wanted")
    return value


def _hourly(tree: Json, where: str) -> Fraction:
    """Return what one reserved machine costs an hour: recurring charges, and its part of what was paid at once."""
    total = Fraction(0)
    charges = tree.get("RecurringCharges") or []
    for number, charge in enumerate(charges if isinstance(charges, list) else []):
        if isinstance(charge, dict) and charge.get("Frequency", "Hourly") == "Hourly":
            total += _amount(charge.get("Amount", 0), f"{where}.RecurringCharges[{number}].Amount")
    duration = tree.get("Duration")
    if tree.get("FixedPrice") and isinstance(duration, int) and duration > 0:
        total += _amount(tree["FixedPrice"], f"{where}.FixedPrice") / Fraction(duration, _HOUR)
    return total


# ---------------------------------------------------------------- savings plans


class _Rates:
    """The rates of Linux machines on shared hardware in one region, by plan or by offering."""

    def __init__(self, entries: Sequence[tuple[str, Json, str]], region: str) -> None:
        self._by_owner: dict[str, dict[str, Fraction]] = {}
        self.regions: dict[str, set[str]] = {}
        for where, tree, plan in entries:
            offering = tree.get("savingsPlanOffering")
            owner = plan or (str(offering.get("offeringId") or "") if isinstance(offering, dict) else "")
            parts = _properties(tree)
            usage = str(tree.get("usageType") or "")
            kind = parts.get("instanceType") or usage.rpartition(":")[2]
            if not _is_for_nodes(tree, parts, usage) or "." not in kind:
                continue
            self.regions.setdefault(owner, set()).add(parts.get("region", region))
            if parts.get("region", region) != region:
                continue
            rate, known = _amount(tree.get("rate"), f"{where}.rate"), self._by_owner.setdefault(owner, {})
            if known.setdefault(kind, rate) != rate:
                raise InputError(
                    f"{where}.rate is {tree.get('rate')!r}, and another entry says {_dollars(known[kind])} for {kind} "
                    f"in {region}; ask for one plan at a time, with --savings-plan-id"
                )

    def of(self, plan: Json) -> tuple[str, dict[str, Fraction]]:
        """Return the rates of a plan, by its own id or by its offering's."""
        for key in (str(plan.get("savingsPlanId") or ""), str(plan.get("offeringId") or "")):
            if key and key in self.regions:
                return key, self._by_owner.get(key, {})
        return "", {}


def _properties(tree: Json) -> dict[str, str]:
    parts = tree.get("properties")
    return {
        str(part.get("name")): str(part.get("value"))
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict)
    }


def _is_for_nodes(tree: Json, parts: Mapping[str, str], usage: str) -> bool:
    return (
        tree.get("productType", "EC2") == "EC2"
        and parts.get("productDescription", _LINUX[0]) in _LINUX
        and parts.get("tenancy", "shared") == "shared"
        and (not usage or "BoxUsage" in usage)
    )


def _add_plan(found: Imported, where: str, plan: Json, rates: _Rates, region: str, share: Fraction) -> None:
    ident = _text(plan, "savingsPlanId", where)
    name, kind, state = f"sp-{ident.partition('-')[0]}", plan.get("savingsPlanType"), plan.get("state", "active")
    if any(entry["name"] == name for entry in found.commitments):
        name = f"sp-{ident}"
    hourly = _amount(plan.get("commitment"), f"{where}.commitment")
    if state != "active":
        found.notes.append(f"{name} is left out: its state is {state}")
        return
    if kind not in ("Compute", "EC2Instance"):
        found.notes.append(f"{name} is left out: its savingsPlanType is {kind}, which covers no machines")
        return
    entry: Json = {"name": name, "kind": "SavingsPlan", "region": region}
    if kind == "EC2Instance":
        home, family = _text(plan, "region", where), _text(plan, "ec2InstanceFamily", where)
        if home != region:
            found.notes.append(f"{name} is left out: its region is {home}, not {region}")
            return
        entry["families"] = [family]
    owner, known = rates.of(plan)
    if not known:
        there = ", ".join(sorted(rates.regions.get(owner, ()))[:_NAMED_MAX])
        has = f"the rates given for it are of {there}" if there else "no file has its rates"
        raise InputError(
            f"{where}: {has}; also give what `{COMMANDS[1]} --savings-plan-id {ident}` prints, with the rates of "
            f"{region}"
        )
    wanted = {name: rate for name, rate in known.items() if family_of(name) in entry.get("families", [family_of(name)])}
    entry["hourly"] = _dollars(hourly * share)
    entry["rates"] = {name: _dollars(rate) for name, rate in sorted(wanted.items())}
    if not wanted:
        raise InputError(f"{where}.ec2InstanceFamily is {entry['families'][0]}, for which the rates have no type")
    found.commitments.append(entry)


def _drop_unknown_rates(found: Imported, number: int, entry: Json, types: set[str], source: str) -> None:
    """Leave out rates of types that the catalogue doesn't have: they would cover nothing."""
    rates = entry.get("rates")
    if not isinstance(rates, dict) or entry["kind"] != "SavingsPlan":
        return
    missing = [name for name in rates if name not in types]
    if not missing:
        return
    if len(missing) == len(rates):
        raise InputError(
            f"{entry['name']}: none of its {len(rates)} rates ({', '.join(missing[:_NAMED_MAX])} ...) is for a type "
            f"of {source}; give the rates of another region, or another --catalog"
        )
    for name in missing:
        del rates[name]
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    found.notes.append(
        f"commitments[{number}].rates: {', '.join(missing[:_NAMED_MAX])}{more} not in {source}; left out"
    )


# ---------------------------------------------------------------- values


def _text(tree: Json, key: str, where: str) -> str:
    value = tree.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}.{key} is {shown(value)}; give the JSON as the AWS CLI prints it")
    return value


def _amount(value: Any, where: str) -> Fraction:
    try:
        found = Fraction(parse_money(value), UNIT) if isinstance(value, int | float | str) else None
    except MoneyError:
        found = None
    if found is None or found < 0:
        raise InputError(f"{where} is {shown(value)}; an amount, 0 or more, is wanted")
    return found


def _dollars(amount: Fraction) -> float | str:
    """Return an amount as a settings file has it: a number, or text if no number has all of its digits."""
    exact = format_money(nearest(amount * UNIT))
    return float(exact) if parse_money(float(exact)) == parse_money(exact) else exact


def _plain(amount: Fraction) -> int | float:
    return int(amount) if amount.denominator == 1 else float(round(amount, 6))
