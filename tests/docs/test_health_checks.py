"""The health checks for Argo CD (Lua) and Flux (CEL) that docs/rolls.md prints, run on NodePools in every state."""

import re
from typing import Any

import celpy
import lupa
import pytest
import yaml

from tests.paths import ROOT

ROLL = "dovetail.dev/RolloutComplete"
PAGE = (ROOT / "docs" / "rolls.md").read_text()


def _printed(part: str) -> Any:
    """Return the YAML block of the page that has a part."""
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if part in text]
    return yaml.safe_load(block)


LUA = _printed("resource.customizations.health")["data"]["resource.customizations.health.karpenter.sh_NodePool"]
(FLUX,) = _printed("healthCheckExprs")["spec"]["healthCheckExprs"]


def _condition(kind: str, status: str, generation: int | None = 3) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind, "status": status, "message": f"{kind} is {status}"}
    return found if generation is None else {**found, "observedGeneration": generation}


def _pool(*conditions: dict[str, Any]) -> dict[str, Any]:
    """Return a NodePool whose spec was changed twice."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "generation": 3},
        "status": {"conditions": list(conditions)},
    }


READY, UNREADY = _condition("Ready", "True"), _condition("Ready", "False")
STATES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a roll that has ended": (_pool(READY, _condition(ROLL, "True")), "Healthy", "current"),
    "a roll under way": (_pool(READY, _condition(ROLL, "False")), "Progressing", "in progress"),
    "a roll that is not judged yet": (_pool(READY, _condition(ROLL, "Unknown")), "Progressing", "in progress"),
    "the spec was changed since": (_pool(READY, _condition(ROLL, "True", 2)), "Progressing", "in progress"),
    "of no known spec": (_pool(READY, _condition(ROLL, "True", None)), "Progressing", "in progress"),
    "not ready, roll ended": (_pool(UNREADY, _condition(ROLL, "True")), "Degraded", "failed"),
    "not ready, roll under way": (_pool(_condition(ROLL, "False"), UNREADY), "Degraded", "failed"),
    "not managed, ready": (_pool(READY), "Healthy", "in progress"),
    "not managed, not ready": (_pool(UNREADY), "Degraded", "failed"),
    "readiness unknown": (_pool(_condition("Ready", "Unknown")), "Progressing", "in progress"),
    "no conditions yet": (_pool(), "Progressing", "in progress"),
}


def _argo(pool: dict[str, Any]) -> tuple[str, str]:
    """Return status and message as Argo CD computes them: the script with `obj`, without libraries of the system."""
    runtime = lupa.LuaRuntime(unpack_returned_tuples=True)

    def table(value: Any) -> Any:
        if isinstance(value, dict):
            return runtime.table_from({key: table(entry) for key, entry in value.items()})
        return runtime.table_from([table(entry) for entry in value]) if isinstance(value, list) else value

    run = runtime.eval(
        "function(source, obj) "
        "return assert(load(source, 'health', 't', {obj = obj, ipairs = ipairs, pairs = pairs}))() end"
    )
    found = dict(run(LUA, table(pool)))
    return str(found["status"]), str(found.get("message") or "")


def _flux(pool: dict[str, Any]) -> str:
    """Return what Flux makes of it: failed before current, in progress if neither holds or an expression fails."""
    environment = celpy.Environment()
    variables = {key: celpy.json_to_cel(value) for key, value in pool.items()}
    for state in ("failed", "current"):
        try:
            if environment.program(environment.compile(FLUX[state])).evaluate(variables):
                return state
        except celpy.CELEvalError:
            return "in progress"
    return "in progress"


@pytest.mark.parametrize("state", STATES)
def test_argo_cd(state: str) -> None:
    """Healthy only once the roll of the newest spec has ended, or for a ready pool that Dovetail does not manage."""
    pool, wanted, _ = STATES[state]
    status, message = _argo(pool)
    assert status == wanted
    assert message


def test_argo_cd_before_there_is_a_status() -> None:
    """A NodePool that was created just now is no error of the script."""
    pool = _pool()
    assert _argo({**pool, "status": {}})[0] == "Progressing"
    del pool["status"]
    assert _argo(pool)[0] == "Progressing"


@pytest.mark.parametrize("state", STATES)
def test_flux(state: str) -> None:
    """Current only once the roll of the newest spec has ended; failed if the pool is not ready."""
    pool, _, wanted = STATES[state]
    assert _flux(pool) == wanted


def test_flux_before_there_is_a_status() -> None:
    """A NodePool without a status is in progress, not current."""
    pool = _pool()
    del pool["status"]
    assert _flux(pool) == "in progress"


def test_the_condition_is_the_one_that_the_controller_writes() -> None:
    """Both checks name the condition by the name in the code."""
    from dovetail.model import names

    assert names.ROLLOUT_COMPLETE == ROLL
    assert ROLL in LUA
    assert ROLL in FLUX["current"]
