"""Building blocks of a CRD's schema: a map, a text, a list, a rule and its message.

Knows no kind and no field. Sits in api, below `policy` and `definitions`, which use it.
"""

from typing import Any, Final

from dovetail.api.crds.cron_rules import CelRule

Schema = dict[str, Any]

DNS: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def object_of(description: str, properties: Schema, required: list[str] | None = None, **more: Any) -> Schema:
    """Build a map with these fields."""
    schema: Schema = {"description": description, "type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema | more


def text(description: str, **more: Any) -> Schema:
    """Build a string field."""
    return {"description": description, "type": "string"} | more


def checked(description: str, pattern: str, remedy: str, **more: Any) -> Schema:
    """Build a string field with its pattern twice: for clients, and as a rule with a message for people."""
    return text(description, pattern=pattern, **more) | rules(rule(f"self.matches(r'{pattern}')", remedy))


def whole(description: str, **more: Any) -> Schema:
    """Build an integer field."""
    return {"description": description, "type": "integer"} | more


def time(description: str) -> Schema:
    """Build a time field."""
    return text(description, format="date-time")


def list_of(description: str, items: Schema, kind: str = "atomic", **more: Any) -> Schema:
    """Build a list."""
    return {"description": description, "type": "array", "items": items, "x-kubernetes-list-type": kind} | more


def quantities(description: str) -> Schema:
    """Build a map of resources."""
    either = [{"type": "integer"}, {"type": "string"}]
    value = {"anyOf": either, "pattern": QUANTITY, "x-kubernetes-int-or-string": True}
    return {"description": description, "type": "object", "additionalProperties": value}


def rules(*each: CelRule) -> Schema:
    """Attach CEL rules."""
    return {"x-kubernetes-validations": [{"rule": one.rule, "message": one.message} for one in each]}


def rule(condition: str, message: str) -> CelRule:
    """Build a CEL rule with the message that people see."""
    return CelRule(rule=condition, message=message)
