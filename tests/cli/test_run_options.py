"""Options of `dovetail run` that are checked before the cluster is contacted."""

import re
import urllib.request
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.control_plane import ControlPlane
from tests.support.processes import running


@pytest.mark.parametrize("listen", ["8080x", "localhost", "127.0.0.1:"])
def test_a_port_is_a_number(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is not a number is wrong usage."""
    assert main(["run", f"--listen={listen}"]) == 2
    assert "write HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"])
def test_both_kinds_of_addresses_can_be_listened_on(api_server: ControlPlane, tmp_path: Path, listen: str) -> None:
    """Addresses can be IPv4, or IPv6 in brackets."""
    if "::" in listen and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    arguments = ["run", "--observe", f"--kubeconfig={api_server.kubeconfig}", "--catalog=aws:us-east-1"]
    with running([*arguments, f"--listen={listen}"], tmp_path / "log") as controller:
        assert controller.wait_for(message="starting")["port"] > 0
        assert controller.stop() == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--notify=missing"], "is not a folder"),
        (["--catalog=aws-live:nowhere"], "names no region"),
        (["--catalog=aws:mars-1"], "there is no built-in table for it"),
    ],
)
def test_what_cant_be_used_stops_at_once(
    api_server: ControlPlane, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without webhooks and an unknown region each fail with one sentence and exit status 2; nothing starts."""
    arguments = ["run", f"--kubeconfig={api_server.kubeconfig}", "--catalog=aws:us-east-1", "--listen=127.0.0.1:0"]
    assert main([*arguments, *options]) == 2
    assert sentence in capsys.readouterr().err


def test_without_aws_it_starts_on_the_built_in_table_and_says_so(api_server: ControlPlane, tmp_path: Path) -> None:
    """If AWS can't be reached for live prices, Dovetail starts, warns, shows their age, and stops at once."""
    aws = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    arguments = ["run", "--observe", f"--kubeconfig={api_server.kubeconfig}", "--catalog=aws-live:us-east-1"]
    with running([*arguments, "--listen=127.0.0.1:0"], tmp_path / "log", aws) as controller:
        started = controller.wait_for(message="starting", seconds_max=120)
        assert (started["catalogue"], started["prices_as_of"]) == ("built-in EC2 table of us-east-1", "2026-08-22")
        warned = next(line["message"] for line in controller.lines() if line["level"] == "warning")
        assert "using the built-in EC2 table of us-east-1 of 2026-08-22 until it answers" in warned
        controller.wait_for(message="in sync")
        with urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/metrics", timeout=10) as answer:
            ages = re.findall(r"^dovetail_catalogue_age_seconds (\S+)$", answer.read().decode(), re.MULTILINE)
        assert float(ages[0]) > 86400
        assert controller.stop() == 0
        assert "very-secret" not in controller.text
