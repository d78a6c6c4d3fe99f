"""`dovetail commitments import aws` on whole answers of the AWS CLI: every field, in pages, with what is no machine."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.commitments import read_commitments
from dovetail.cli.main import main
from dovetail.model.commitments import BilledMachine, Bills, Commitment
from dovetail.model.money import parse_money

COMPUTE = "5b7d0c9e-4d0e-4f0a-9d39-3c1f5c8f5f11"
FAMILY = "c2a4e1f0-8f5b-4a0b-8a5e-6f1b9b1f0a22"

PLANS = f"""{{
    "savingsPlans": [
        {{
            "offeringId": "2f5a1a7e-7d1c-4b57-9a4e-2b0d7e9b6f01",
            "savingsPlanId": "{COMPUTE}",
            "savingsPlanArn": "arn:aws:savingsplans::111122223333:savingsplan/{COMPUTE}",
            "description": "3 year Partial Upfront Compute Savings Plan",
            "start": "2025-04-21T08:16:07.000Z",
            "end": "2028-04-20T08:16:06.000Z",
            "state": "active",
            "region": "",
            "ec2InstanceFamily": "",
            "savingsPlanType": "Compute",
            "paymentOption": "Partial Upfront",
            "productTypes": ["Fargate", "EC2", "Lambda"],
            "currency": "USD",
            "commitment": "5.21400000",
            "upfrontPaymentAmount": "68512.00000000",
            "recurringPaymentAmount": "2.60699848",
            "termDurationInSeconds": 94608000,
            "tags": {{}},
            "returnableUntil": "2025-04-28T08:16:07.000Z"
        }},
        {{
            "offeringId": "8d0e4f9c-1111-4b57-9a4e-2b0d7e9b6f02",
            "savingsPlanId": "{FAMILY}",
            "savingsPlanArn": "arn:aws:savingsplans::111122223333:savingsplan/{FAMILY}",
            "description": "1 year No Upfront EC2 Instance m5 Savings Plan in eu-west-1",
            "start": "2026-02-01T00:00:00.000Z",
            "end": "2027-01-31T23:59:59.000Z",
            "state": "active",
            "region": "eu-west-1",
            "ec2InstanceFamily": "m5",
            "savingsPlanType": "EC2Instance",
            "paymentOption": "No Upfront",
            "productTypes": ["EC2"],
            "currency": "USD",
            "commitment": "1.50000000",
            "upfrontPaymentAmount": "0.0",
            "recurringPaymentAmount": "1.50000000",
            "termDurationInSeconds": 31536000,
            "tags": {{"team": "platform"}}
        }},
        {{
            "offeringId": "0a0a0a0a-1111-4b57-9a4e-2b0d7e9b6f03",
            "savingsPlanId": "77777777-8f5b-4a0b-8a5e-6f1b9b1f0a33",
            "savingsPlanArn": "arn:aws:savingsplans::111122223333:savingsplan/77777777-8f5b-4a0b-8a5e-6f1b9b1f0a33",
            "description": "1 year No Upfront SageMaker Savings Plan",
            "start": "2026-02-01T00:00:00.000Z",
            "end": "2027-01-31T23:59:59.000Z",
            "state": "active",
            "savingsPlanType": "SageMaker",
            "paymentOption": "No Upfront",
            "productTypes": ["SageMaker"],
            "currency": "USD",
            "commitment": "0.25000000",
            "upfrontPaymentAmount": "0.0",
            "recurringPaymentAmount": "0.25000000",
            "termDurationInSeconds": 31536000,
            "tags": {{}}
        }},
        {{
            "offeringId": "2f5a1a7e-7d1c-4b57-9a4e-2b0d7e9b6f01",
            "savingsPlanId": "88888888-8f5b-4a0b-8a5e-6f1b9b1f0a44",
            "savingsPlanArn": "arn:aws:savingsplans::111122223333:savingsplan/88888888-8f5b-4a0b-8a5e-6f1b9b1f0a44",
            "description": "1 year No Upfront Compute Savings Plan",
            "start": "2027-01-01T00:00:00.000Z",
            "state": "queued",
            "savingsPlanType": "Compute",
            "paymentOption": "No Upfront",
            "productTypes": ["Fargate", "EC2", "Lambda"],
            "currency": "USD",
            "commitment": "9.00000000",
            "termDurationInSeconds": 31536000,
            "tags": {{}}
        }}
    ]
}}"""

RESERVED = """{
    "ReservedInstances": [
        {
            "CurrencyCode": "USD",
            "InstanceTenancy": "default",
            "OfferingClass": "convertible",
            "OfferingType": "No Upfront",
            "RecurringCharges": [{"Amount": 0.0620, "Frequency": "Hourly"}],
            "Scope": "Region",
            "Tags": [],
            "ReservedInstancesId": "1ba8e2e3-3556-4264-949e-63ee671405a9",
            "InstanceType": "c5.large",
            "Start": "2026-05-11T09:32:45.203000+00:00",
            "End": "2027-05-11T09:32:44+00:00",
            "Duration": 31536000,
            "UsagePrice": 0.0,
            "FixedPrice": 0.0,
            "InstanceCount": 4,
            "ProductDescription": "Linux/UNIX",
            "State": "active"
        },
        {
            "CurrencyCode": "USD",
            "InstanceTenancy": "default",
            "OfferingClass": "standard",
            "OfferingType": "All Upfront",
            "RecurringCharges": [{"Amount": 0.0, "Frequency": "Hourly"}],
            "Scope": "Region",
            "ReservedInstancesId": "2ba8e2e3-3556-4264-949e-63ee671405b0",
            "InstanceType": "c5.xlarge",
            "Start": "2026-05-11T09:32:45.203000+00:00",
            "End": "2027-05-11T09:32:44+00:00",
            "Duration": 31536000,
            "UsagePrice": 0.0,
            "FixedPrice": 876.0,
            "InstanceCount": 2,
            "ProductDescription": "Linux/UNIX (Amazon VPC)",
            "State": "active"
        },
        {
            "CurrencyCode": "USD",
            "InstanceTenancy": "default",
            "OfferingClass": "standard",
            "OfferingType": "Partial Upfront",
            "RecurringCharges": [{"Amount": 0.05, "Frequency": "Hourly"}],
            "Scope": "Availability Zone",
            "AvailabilityZone": "eu-west-1b",
            "AvailabilityZoneId": "euw1-az2",
            "ReservedInstancesId": "3ba8e2e3-3556-4264-949e-63ee671405c1",
            "InstanceType": "r5.large",
            "Start": "2025-05-11T09:32:45.203000+00:00",
            "End": "2028-05-10T09:32:44+00:00",
            "Duration": 94608000,
            "UsagePrice": 0.0,
            "FixedPrice": 262.8,
            "InstanceCount": 1,
            "ProductDescription": "Linux/UNIX",
            "State": "active"
        },
        {
            "CurrencyCode": "USD",
            "InstanceTenancy": "default",
            "OfferingClass": "standard",
            "OfferingType": "No Upfront",
            "RecurringCharges": [],
            "Scope": "Region",
            "ReservedInstancesId": "4ba8e2e3-3556-4264-949e-63ee671405d2",
            "InstanceType": "m4.large",
            "Start": "2019-05-11T09:32:45.203000+00:00",
            "End": "2020-05-11T09:32:44+00:00",
            "Duration": 31536000,
            "UsagePrice": 0.0,
            "FixedPrice": 0.0,
            "InstanceCount": 10,
            "ProductDescription": "Linux/UNIX",
            "State": "retired"
        }
    ]
}"""


def _rate(usage: str, operation: str, amount: str, product: str = "EC2", **parts: str) -> dict[str, Any]:
    """Return an entry as the AWS CLI prints it."""
    return {
        "rate": amount,
        "currency": "USD",
        "unit": "Hrs",
        "productType": product,
        "serviceCode": {"EC2": "AmazonEC2", "Fargate": "AmazonECS", "Lambda": "AWSLambda"}[product],
        "usageType": usage,
        "operation": operation,
        "properties": [{"name": name, "value": value} for name, value in parts.items()],
    }


def _machine(kind: str, amount: str, system: str = "Linux/UNIX", tenancy: str = "shared") -> dict[str, Any]:
    usage = {"shared": "BoxUsage", "dedicated": "DedicatedUsage"}[tenancy]
    return _rate(
        f"EU-{usage}:{kind}", "RunInstances" if system == "Linux/UNIX" else "RunInstances:0010", amount,
        region="eu-west-1", instanceType=kind, instanceFamily=kind.partition(".")[0],
        productDescription=system, tenancy=tenancy,
    )  # fmt: skip


FIRST_PAGE = [
    _machine("m5.large", "0.0810000000"),
    _machine("m5.large", "0.1410000000", "Red Hat Enterprise Linux"),
    _machine("m5.large", "0.0870000000", tenancy="dedicated"),
    _rate("EU-UnusedBox:m5.large", "RunInstances", "0.0810", region="eu-west-1", instanceType="m5.large",
          instanceFamily="m5", productDescription="Linux/UNIX", tenancy="shared"),
    _rate("EU-CPUCredits:t3", "RunInstances", "0.05", region="eu-west-1", instanceFamily="t3"),
]  # fmt: skip
SECOND_PAGE = [
    _machine("c5.large", "0.0710000000"),
    _rate("EU-Fargate-vCPU-Hours:perCPU", "", "0.0323", "Fargate", region="eu-west-1"),
    _rate("EU-Lambda-GB-Second", "Invoke", "0.0000147", "Lambda", region="eu-west-1"),
    _rate("BoxUsage:m5.large", "RunInstances", "0.0700", region="us-east-1", instanceType="m5.large",
          instanceFamily="m5", productDescription="Linux/UNIX", tenancy="shared"),
]  # fmt: skip


def _files(folder: Path, *trees: Any) -> list[str]:
    names = []
    for number, tree in enumerate(trees):
        path = folder / f"{number}.json"
        path.write_text(tree if isinstance(tree, str) else json.dumps(tree, indent=4))
        names.append(str(path))
    return names


def _page(ident: str, entries: list[dict[str, Any]], token: str | None = None) -> dict[str, Any]:
    page: dict[str, Any] = {"savingsPlanId": ident, "searchResults": entries}
    return page if token is None else {**page, "nextToken": token}


def _all(folder: Path) -> list[str]:
    return _files(
        folder, PLANS, RESERVED,
        _page(COMPUTE, FIRST_PAGE, "AAEAAexample/token+1="), _page(COMPUTE, SECOND_PAGE, ""),
        _page(FAMILY, [_machine("m5.large", "0.0675"), _machine("m5.xlarge", "0.1350")]),
    )  # fmt: skip


def _imported(folder: Path, capture: pytest.CaptureFixture[bytes]) -> tuple[dict[str, Commitment], str]:
    assert main(["commitments", "import", "aws", *_all(folder), "--region", "eu-west-1"]) == 0
    captured = capture.readouterr()
    tree = yaml.safe_load(captured.out)["commitments"]
    return {entry.name: entry for entry in read_commitments(tree, "commitments")}, captured.err.decode()


def test_whole_answers(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Two pages of rates are one; rates of Fargate, Lambda, RHEL, dedicated hosts and other regions cover no node."""
    found, notes = _imported(tmp_path, capsysbinary)
    assert set(found) == {"ri-c5", "ri-r5.large", "sp-5b7d0c9e", "sp-c2a4e1f0"}
    compute = found["sp-5b7d0c9e"]
    assert (compute.hourly, compute.families) == (parse_money("5.214"), ())
    assert compute.rates == (("c5.large", parse_money("0.071")), ("m5.large", parse_money("0.081")))
    assert found["sp-c2a4e1f0"].families == ("m5",)
    assert dict(found["sp-c2a4e1f0"].rates)["m5.xlarge"] == parse_money("0.135")
    flexible = found["ri-c5"]
    assert (flexible.count, flexible.families) == (Fraction(4 * 4 + 2 * 8), ("c5",))
    assert flexible.hourly == parse_money("0.448")  # 4 x 0.062, and 2 x 876 / 8760 h
    assert found["ri-r5.large"].rates == (("r5.large", parse_money("0.06")),)  # 0.05 and 262.8 / 26280 h
    for words in ("its savingsPlanType is SageMaker", "its state is queued", "State is retired"):
        assert words in notes


def test_the_bill_of_what_was_imported(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """To the cent: what is committed is plans, flexible and zonal reservations; 30 m5.large are covered in order."""
    found, _ = _imported(tmp_path, capsysbinary)
    machine = BilledMachine("m5.large", "on-demand", parse_money("0.107"), 0, "eu-west-1", "m5", Fraction(4))
    bill = Bills(found.values()).bill({machine: 100})
    assert bill.committed == parse_money("5.214") + parse_money("1.5") + parse_money("0.448") + parse_money("0.06")
    by_family = Fraction("1.5") / Fraction("0.0675")
    by_compute = Fraction("5.214") / Fraction("0.081")
    assert bill.covered[machine] == (("sp-c2a4e1f0", by_family), ("sp-5b7d0c9e", by_compute))
    assert bill.uncovered == (100 - by_family - by_compute) * parse_money("0.107")


def test_the_last_page_is_missing(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The sentence says how to get it."""
    names = _files(
        tmp_path, PLANS, _page(COMPUTE, FIRST_PAGE, "AAEA+1="), _page(FAMILY, [_machine("m5.large", "0.06")])
    )
    assert main(["commitments", "import", "aws", *names, "--region", "eu-west-1"]) == 2
    said = " ".join(capsysbinary.readouterr().err.decode().split())
    assert '1.json: nextToken says that there is more; run the command again with --next-token "AAEA+1="' in said


def test_what_it_prints_is_read_back(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The settings written again from what was read are the same commitments."""
    from dovetail.api.settings_file import _commitment

    found, _ = _imported(tmp_path, capsysbinary)
    written = [_commitment(entry) for entry in found.values()]
    assert read_commitments(written, "commitments") == tuple(found.values())
