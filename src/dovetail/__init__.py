"""Dovetail: node disruption for Kubernetes, decided by one pure core and executed by three thin shells.

`import dovetail` is the Python interface (docs/python.md): `_WHERE` lists its names and where each is defined. A name
is loaded when it is first used, so that the import itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.api.catalogue import load_catalogue
    from dovetail.api.findings import InputError
    from dovetail.decide.decider import Decider
    from dovetail.decide.question import Question
    from dovetail.decide.round import RoundResult, plan_round
    from dovetail.interface import load_cluster, load_settings, run_scenario
    from dovetail.plan.explanation import Explanation, explain
    from dovetail.plan.to_end import ToEnd, plan_to_end
    from dovetail.sim.ledger import Result
    from dovetail.sim.scenarios.scenario import load_scenario

__version__ = "0.1.0"

__all__ = [
    "Decider",
    "Explanation",
    "InputError",
    "Question",
    "Result",
    "RoundResult",
    "ToEnd",
    "__version__",
    "explain",
    "load_catalogue",
    "load_cluster",
    "load_scenario",
    "load_settings",
    "plan_round",
    "plan_to_end",
    "run_scenario",
]

_WHERE = {
    "Decider": "decide.decider",
    "Explanation": "plan.explanation",
    "InputError": "api.findings",
    "Question": "decide.question",
    "Result": "sim.ledger",
    "RoundResult": "decide.round",
    "ToEnd": "plan.to_end",
    "explain": "plan.explanation",
    "load_catalogue": "api.catalogue",
    "load_cluster": "interface",
    "load_scenario": "sim.scenarios.scenario",
    "load_settings": "interface",
    "plan_round": "decide.round",
    "plan_to_end": "plan.to_end",
    "run_scenario": "interface",
}


def __getattr__(name: str) -> Any:
    """Load a name of the interface when it is first used."""
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"dovetail.{module}"), name)
    return found


def __dir__() -> list[str]:
    """List the interface before anything of it is loaded."""
    return sorted({*globals(), *__all__})
