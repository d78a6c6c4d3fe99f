"""`dovetail commitments import aws`, and commands that read the settings that it prints."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.commitments import read_commitments
from dovetail.cli.main import main
from dovetail.model.money import parse_money

PLAN = "4f2ab1c6-0000-4000-8000-0123456789ab"
OTHER = "9c0ffee0-0000-4000-8000-0123456789ab"


def plan(ident: str = PLAN, **more: Any) -> dict[str, Any]:
    """Return a Compute Savings Plan as describe-savings-plans prints it."""
    return {
        "offeringId": f"offer-{ident[:4]}",
        "savingsPlanId": ident,
        "savingsPlanArn": f"arn:aws:savingsplans::123456789012:savingsplan/{ident}",
        "description": "1 year No Upfront Compute Savings Plan",
        "start": "2026-01-01T00:00:00.000Z",
        "end": "2026-12-31T23:59:59.000Z",
        "state": "active",
        "savingsPlanType": "Compute",
        "paymentOption": "No Upfront",
        "productTypes": ["EC2", "Fargate", "Lambda"],
        "currency": "USD",
        "commitment": "12.40000000",
        "termDurationInSeconds": 31536000,
        **more,
    }


def rate(kind: str, amount: str, region: str = "us-east-1", **more: Any) -> dict[str, Any]:
    """Return a rate as describe-savings-plan-rates prints it."""
    parts = {"region": region, "instanceType": kind, "productDescription": "Linux/UNIX", "tenancy": "shared"}
    parts |= more.pop("parts", {})
    return {
        "rate": amount,
        "currency": "USD",
        "unit": "Hrs",
        "productType": "EC2",
        "serviceCode": "AmazonEC2",
        "usageType": f"BoxUsage:{kind}",
        "operation": "RunInstances",
        "properties": [{"name": name, "value": value} for name, value in parts.items()],
        **more,
    }


def reserved(kind: str, count: int, **more: Any) -> dict[str, Any]:
    """Return a reservation as describe-reserved-instances prints it."""
    return {
        "CurrencyCode": "USD",
        "Duration": 31536000,
        "FixedPrice": 0.0,
        "InstanceCount": count,
        "InstanceTenancy": "default",
        "InstanceType": kind,
        "OfferingClass": "standard",
        "ProductDescription": "Linux/UNIX",
        "RecurringCharges": [{"Amount": 0.06, "Frequency": "Hourly"}],
        "ReservedInstancesId": "af9f760e",
        "Scope": "Region",
        "State": "active",
        "UsagePrice": 0.0,
        **more,
    }


def plans(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return what describe-savings-plans prints."""
    return {"savingsPlans": list(entries)}


def rates(*entries: dict[str, Any], ident: str = PLAN) -> dict[str, Any]:
    """Return what describe-savings-plan-rates prints."""
    return {"savingsPlanId": ident, "searchResults": list(entries)}


RATES = rates(rate("m5.large", "0.0690"), rate("c5.large", "0.0610"))


def _import(folder: Path, *trees: Any, options: tuple[str, ...] = ("--region", "us-east-1")) -> int:
    names = []
    for number, tree in enumerate(trees):
        path = folder / f"{number}.json"
        path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
        names.append(str(path))
    return main(["commitments", "import", "aws", *names, *options])


def test_every_answer_of_the_aws_cli_becomes_commitments(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Plans with their rates, flexible reservations in units, others by type: what the settings read."""
    family = plan(OTHER, savingsPlanType="EC2Instance", ec2InstanceFamily="m5", region="us-east-1", commitment="3.2")
    offered = [
        {**rate("m5.large", "0.060"), "savingsPlanOffering": {"offeringId": "offer-9c0f", "currency": "USD"}},
        {**rate("c5.large", "0.055"), "savingsPlanOffering": {"offeringId": "offer-9c0f", "currency": "USD"}},
    ]
    held = [
        reserved("m5.large", 3),
        reserved("m5.xlarge", 1),
        reserved("c5.large", 2, Scope="Availability Zone", AvailabilityZone="us-east-1a"),
        reserved("g5.xlarge", 1, FixedPrice=8760.0),
        reserved("m5.large", 9, State="retired"),
        reserved("m5.large", 9, ProductDescription="Windows"),
    ]
    more = [
        rate("m5.large", "0.9", parts={"tenancy": "dedicated"}),
        rate("m5.large", "0.8", usageType="UnusedBox:m5.large"),
        rate("m5.large", "0.07", "eu-west-1"),
        rate("m0.huge", "0.1"),
    ]
    own = rates(rate("m5.large", "0.0690"), rate("c5.large", "0.0610"), *more)
    done = plans(plan(), family, plan(OTHER[:-1], state="retired"), plan(PLAN[:-1], savingsPlanType="SageMaker"))
    status = _import(tmp_path, done, own, {"searchResults": offered}, {"ReservedInstances": held})
    captured = capsysbinary.readouterr()
    assert (status, b"Traceback" in captured.err) == (0, False)
    tree = yaml.safe_load(captured.out)["commitments"]
    found = {entry.name: entry for entry in read_commitments(tree, "commitments")}
    assert set(found) == {"ri-m5", "ri-c5.large", "ri-g5.xlarge", "sp-4f2ab1c6", "sp-9c0ffee0"}
    assert (found["ri-m5"].families, found["ri-m5"].count) == (("m5",), Fraction(3 * 4 + 8))
    assert (found["ri-c5.large"].instance_types, found["ri-c5.large"].count) == (("c5.large",), 2)
    assert found["ri-g5.xlarge"].rates == (("g5.xlarge", parse_money("1.06")),)  # 0.06 and 8760 / 8760 h
    assert found["sp-4f2ab1c6"].hourly == parse_money("12.4")
    assert found["sp-4f2ab1c6"].rates == (("c5.large", parse_money("0.061")), ("m5.large", parse_money("0.069")))
    assert found["sp-9c0ffee0"].rates == (("m5.large", parse_money("0.06")),)
    notes = captured.err.decode()
    for words in (
        "State is retired",
        "ProductDescription is Windows",
        "its state is retired",
        "savingsPlanType is SageMaker",
        "rates: m0.huge not in",
    ):
        assert words in notes


def test_the_share_of_this_cluster(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Dollars and units are multiplied, machines rounded down."""
    held = {"ReservedInstances": [reserved("m5.large", 3), reserved("g5.xlarge", 3)]}
    assert _import(tmp_path, plans(plan()), RATES, held, options=("--region", "us-east-1", "--share", "50%")) == 0
    captured = capsysbinary.readouterr()
    found = {entry["name"]: entry for entry in yaml.safe_load(captured.out)["commitments"]}
    assert found["sp-4f2ab1c6"]["hourly"] == 6.2
    assert (found["ri-m5"]["count"], found["ri-g5.xlarge"]["count"]) == (6, 1)
    assert "rounded down to 1" in captured.err.decode()


BAD: dict[str, tuple[list[Any], str]] = {
    "a negative count": (
        [{"ReservedInstances": [reserved("m5.large", -2)]}],
        "0.json: ReservedInstances[0].InstanceCount is -2; a number of machines, 0 or more, is wanted",
    ),
    "a negative commitment": ([plans(plan(commitment="-1")), RATES], 'savingsPlans[0].commitment is "-1"; an amount'),
    "not dollars": (
        [plans(plan(currency="CNY"))],
        "savingsPlans[0].currency is CNY, and the prices of the built-in EC2 table of",
    ),
    "two currencies": (
        [plans(plan(), plan(OTHER, currency="CNY")), RATES],
        "savingsPlans[1].currency is CNY, and",
    ),
    "no rates": (
        [plans(plan())],
        "no file has its rates; also give what `aws savingsplans describe-savings-",
    ),
    "rates of another region": (
        [plans(plan()), rates(rate("m5.large", "0.07", "eu-west-1"))],
        "the rates given for it are of eu-west-1",
    ),
    "rates only": ([RATES], "these are rates only; also give what `aws savingsplans describe-savings-plans` prints"),
    "rates for types that don't exist": (
        [plans(plan()), rates(rate("m0.huge", "0.1"))],
        "none of its 1 rates (m0.huge ...) is for a type of",
    ),
    "a family that the rates don't have": (
        [plans(plan(savingsPlanType="EC2Instance", ec2InstanceFamily="x9", region="us-east-1")), RATES],
        "savingsPlans[0].ec2InstanceFamily is x9, for which the rates have no type",
    ),
    "the wrong command": ([{"Reservations": []}], "0.json: it has Reservations, which none of these commands prints"),
    "a list": ([[]], "0.json: it has [], which none of these commands prints"),
    "not JSON": (["hello"], "0.json is not JSON; run the AWS CLI with --output json"),
    "a page of many": ([{**plans(plan()), "nextToken": "x"}], "nextToken says that there is more"),
    "two rates for a type": ([plans(plan()), RATES, rates(rate("m5.large", "0.5"))], "another entry says 0.069"),
    "plans that are no list": ([{"savingsPlans": 3}], "savingsPlans is 3; give the JSON as the AWS CLI prints it"),
    "no id": ([plans(plan(savingsPlanId=None)), RATES], "savingsPlans[0].savingsPlanId is null"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_answered_with_one_sentence(
    case: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The sentence names the file and the key; the status is 2."""
    trees, wanted = BAD[case]
    assert _import(tmp_path, *trees) == 2
    captured = capsysbinary.readouterr()
    assert captured.out == b""
    text = captured.err.decode()
    assert wanted in " ".join(text.split())
    assert text.count("\n") <= 5
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), "give your cluster's, such as --region eu-west-1"),
        (("--region", "eu-moon-1"), "--catalog aws:eu-moon-1: there is no built-in table for it"),
        (("--region", "us-east-1", "--share", "0%"), '--share is "0%"; write a percentage above 0%'),
        (("--region", "us-east-1", "--share", "half"), '--share is "half"'),
    ],
)
def test_bad_options(
    options: tuple[str, ...], wanted: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A missing or unknown region and a share that is none are refused."""
    assert _import(tmp_path, plans(plan()), RATES, options=options) == 2
    assert wanted in " ".join(capsysbinary.readouterr().err.decode().split())


def test_an_unknown_family_is_named(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A reservation of a family that the catalogue doesn't have is printed, and the note names its key."""
    assert _import(tmp_path, {"ReservedInstances": [reserved("zz9.large", 1)]}) == 0
    assert "commitments[0].families: zz9 not in" in capsysbinary.readouterr().err.decode()


def test_place_orders_types_by_the_prices_that_karpenter_knows(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Karpenter launches the nodes of pending pods, by its own prices: commitments change nothing there."""
    wanted = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    wanted += [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "c5.2xlarge"]}]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    box = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    items = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": wanted}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [box]},
            "status": {"phase": "Pending", "conditions": [unplaced]},
        },
    ]
    capture, settings = tmp_path / "c.json", tmp_path / "s.yaml"
    capture.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    settings.write_text("commitments: [{name: ri, kind: ReservedInstances, instanceTypes: [c5.2xlarge], count: 9}]")
    words = ["place", "-f", str(capture), "--catalog", "aws:us-east-1", "--settings", str(settings), "-o", "json"]
    assert main(words) == 0
    (new,) = json.loads(capsysbinary.readouterr().out)["new"]
    assert new["instanceTypes"] == ["m5.large", "c5.2xlarge"]
    assert new["addsPerHour"] == "0.096"
    settings.write_text("commitments: [{name: ri, kind: ReservedInstances, instanceTypes: [m5.large], count: 9}]")
    assert main(words) == 0
    (new,) = json.loads(capsysbinary.readouterr().out)["new"]
    assert new["addsPerHour"] == "0"
    assert main(words[:-2]) == 0
    assert "nothing more: it is paid for already" in " ".join(capsysbinary.readouterr().out.decode().split())
    settings.write_text("discount: {aws: '50%'}")
    assert main(words) == 0
    assert json.loads(capsysbinary.readouterr().out)["new"][0]["addsPerHour"] == "0.048"
