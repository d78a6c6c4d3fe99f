"""Promised and actual savings in a simulated run: in the ledger and on the page, not in the JSON."""

import re

from dovetail.model.settings import KARPENTER_1_15
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.pages.run_page import simulation_page
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, load_scenario
from dovetail.sim.world.clock import SECOND

HOURS = 3


def test_promised_and_kept() -> None:
    """After three hours the ledger has every command that ended an hour ago, and the page has the sums."""
    scenario = load_scenario("issue-7146")
    policy = Policy(name="karpenter-1.15", settings=KARPENTER_1_15)
    result = run_scenario(scenario, policy, 0, HOURS * 3600 * SECOND)
    assert result.outcomes
    assert len({found.command_id for found in result.outcomes}) == len(result.outcomes) <= len(result.commands)
    for found in result.outcomes:
        assert 0 <= found.saved <= found.promised + 1e-9
        assert 0 <= found.moved_again <= found.pods
        assert found.reopened or found.saved == found.promised
    assert sum(found.moved_again for found in result.outcomes) > 0, "this cluster is known for it"
    assert "outcomes" not in result.to_dict()
    page = simulation_page(
        PolicyPage(scenario="x", about="", seed=0, seconds=result.seconds, results=(result,)), "the end"
    )
    section = page.partition("Promised and kept")[2].partition("</table>")[0]
    cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>.*?</td>", section)]
    assert cells[:2] == ["karpenter-1.15", f"{len(result.outcomes)}"]
    assert cells[3] == f"${sum(found.promised for found in result.outcomes):,.2f}"
    assert cells[7] == f"{sum(found.moved_again for found in result.outcomes)}"
