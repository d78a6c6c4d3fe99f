"""Write the types of the pages' script from the JSON schemas: one source for both sides.

Run from the project root: .venv/bin/python tools/build_web_types.py
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "src" / "dovetail" / "report" / "schemas"
OUT = ROOT / "src" / "dovetail" / "report" / "web" / "types.d.ts"


def type_of(schema: dict[str, Any]) -> str:
    """Return a schema as a TypeScript type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": one}) for one in kind)
    if kind == "array":
        inner = type_of(schema["items"])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object":
        if "properties" in schema:
            return members(schema)
        return f"Record<string, {type_of(schema.get('additionalProperties') or {})}>"
    return {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}.get(
        str(kind), "unknown"
    )


def members(schema: dict[str, Any]) -> str:
    """Return an object's members."""
    required = set(schema.get("required", ()))
    lines = [
        f"  {name}{'' if name in required else '?'}: {type_of(inner)};" for name, inner in schema["properties"].items()
    ]
    return "{\n" + "\n".join(lines) + "\n}"


def build() -> str:
    """Return the whole file."""
    parts = ["// Written by tools/build_web_types.py from report/schemas; do not edit."]
    seen: dict[str, str] = {}
    for path in sorted(SCHEMAS.glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        named = {schema["title"]: schema, **schema.get("$defs", {})}
        for name, inner in named.items():
            text = type_of(inner)
            if seen.setdefault(name, text) != text:
                raise SystemExit(f"{path.name}: {name} means something else in another schema")
            if seen[name] is text:
                parts.append(f"export type {name} = {text};")
    return "\n\n".join(dict.fromkeys(parts)) + "\n"


if __name__ == "__main__":
    OUT.write_text(build(), encoding="utf-8")
    print(OUT.relative_to(ROOT))
