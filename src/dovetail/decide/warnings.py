"""What people should know although nothing stops: broken policies and budgets, annotations that can't be read.

Sentences only, in a stable order. Sits in decide, below the round.
"""

from dovetail.decide.scene import Scene

UNREADABLE_MAX = 20
"""How many unreadable annotations are spelled out; the rest is counted."""


def warnings_of(scene: Scene) -> tuple[str, ...]:
    """Give all warnings of a round: pools by name first, then pods."""
    found: list[str] = []
    for name in sorted(scene.policies):
        policy = scene.policies[name]
        found.extend(f"NodePool {name}: {text}" for text in (*policy.problems, *policy.warnings))
    unreadable = [text for facts in scene.nodes for text in facts.unreadable]
    found.extend(unreadable[:UNREADABLE_MAX])
    if len(unreadable) > UNREADABLE_MAX:
        found.append(f"{len(unreadable) - UNREADABLE_MAX} more pods have annotations that can't be read")
    return tuple(found)
