"""Replace drifted nodes: oldest drift first, zone by zone where the pool's budgets ask for it.

See docs/rules.md#methods and #budgets; topology-budgets, Algorithm; lifecycle-controller (`deleteDrifted`,
`replaceDrifted`: lower cost breaks ties). The profile `karpenter-1.15` has Karpenter's two methods instead: static
pools first, then the rest, empty nodes before others, one node per command, no topology. Sits in decide, beside the
other methods, which it does not know.
"""

from collections.abc import Mapping
from datetime import datetime

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import DomainAllowance
from dovetail.decide.methods.leaving import alone, first_command
from dovetail.decide.methods.method import MethodRun, budget_result, domain_result
from dovetail.decide.methods.moves import bare_command
from dovetail.decide.methods.static import (
    is_static,
    may_terminate_first,
    scaling_down,
    static_room,
    template_replacement,
    terminate_first,
)
from dovetail.decide.methods.turns import PoolTurn, turns_of
from dovetail.decide.rollouts.keep import roll_changes
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Command, Method
from dovetail.model.verdicts import GateResult

METHOD = Method.DRIFTED


def candidates(scene: Scene) -> list[NodeFacts]:
    """Return the drifted nodes in the order in which they are replaced."""
    found = scene.passing(METHOD)
    if not scene.settings.rules.static_drift_first:
        return sorted(found, key=lambda facts: (_since(facts), float(facts.disruption_cost(scene.now)), facts.name))
    static = sorted((facts for facts in found if is_static(facts)), key=lambda facts: facts.name)
    others = sorted(
        (facts for facts in found if not is_static(facts)),
        key=lambda facts: (not facts.empty, _since(facts), facts.name),
    )
    return [*static, *others]


def _since(facts: NodeFacts) -> datetime:
    assert facts.drifted_since is not None
    return facts.drifted_since


def run(work: Work) -> MethodRun:
    """Return what drift does next."""
    scene = work.scene
    found = candidates(scene)
    if scene.settings.rules.static_drift_first:
        return _run_as_karpenter(work, found)
    turns = turns_of(work, found)
    kept, held, line = _by_domain(scene, found, turns)
    command, more = first_command(work, METHOD, kept)
    held.update(more)
    for facts in line if command is None else ():
        # No earlier node of its domain can go: an allowance is for nodes that leave, not for nodes that can't.
        del held[facts.name]
        command, more = first_command(work, METHOD, (facts,))
        held.update(more)
        if command is not None:
            break
    rolling = tuple(roll_changes(scene, turns, tried=command is None))
    return MethodRun(method=METHOD, commands=(command,) if command else (), held=held, rolling=rolling)


def _by_domain(
    scene: Scene, found: list[NodeFacts], turns: Mapping[str, PoolTurn]
) -> tuple[list[NodeFacts], dict[str, GateResult], list[NodeFacts]]:
    """Filter by the pools' topology budgets (topology-budgets, Zone Selection), keeping the order.

    Returns the allowed nodes, what blocks the others, and which of the others are next.
    """
    pools: dict[str, list[NodeFacts]] = {}
    for facts in found:
        pools.setdefault(facts.pool_name, []).append(facts)
    waiting: dict[str, DomainAllowance] = {}
    for pool in sorted(pools):
        active = turns[pool].active if pool in turns else None
        _, held = scene.ledger.take_by_domain(pool, pools[pool], active)
        waiting.update(held)
    results = {
        facts.name: domain_result(facts.pool_name, waiting[facts.name]) for facts in found if facts.name in waiting
    }
    line = [facts for facts in found if facts.name in waiting and waiting[facts.name].in_line]
    return [facts for facts in found if facts.name not in waiting], results, line


# ---------------------------------------------------------------- as Karpenter v1.15


def _run_as_karpenter(work: Work, found: list[NodeFacts]) -> MethodRun:
    scene = work.scene
    left = scene.left(METHOD)
    held = {facts.name: budget_result(scene, METHOD, facts.pool_name) for facts in found if left[facts.pool_name] <= 0}
    static = [facts for facts in found if is_static(facts)]
    commands = _static_commands(scene, static, left)
    if not commands:
        for facts in found:
            if not is_static(facts) and facts.name not in held:
                outcome = alone(work, METHOD, facts)
                if isinstance(outcome, Command):
                    commands = [outcome]
                    break
    return MethodRun(method=METHOD, commands=tuple(commands), held=held)


def _static_commands(scene: Scene, static: list[NodeFacts], left: dict[str, int]) -> list[Command]:
    """Replace as many drifted nodes of each static pool as its budget and its node limit allow, one command each."""
    commands: list[Command] = []
    for pool in sorted({facts.pool_name for facts in static}):
        members = [facts for facts in static if facts.pool_name == pool]
        node_pool = members[0].pool
        assert node_pool is not None
        if scaling_down(scene, node_pool):
            continue
        early = [facts for facts in members if may_terminate_first(scene, facts)]
        if early:
            commands.extend(terminate_first(scene, METHOD, facts) for facts in early[: left[pool]])
            continue
        room = static_room(scene, node_pool)
        count = min(left[pool], len(members), len(members) if room is None else room)
        replacement = (template_replacement(node_pool),)
        commands.extend(bare_command(scene, METHOD, (facts,), replacement) for facts in members[:count])
    return commands
