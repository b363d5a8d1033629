"""The words in which bodies and answers are described: JSON Schema, as OpenAPI 3.1 takes it."""

from typing import Any

Schema = dict[str, Any]

MAX_INTEGER = 2**53 - 1
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TIME: Schema = {"type": "string", "description": "UTC, whole seconds: 2026-01-02T03:04:05Z"}


def nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def told(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def text(limit: int) -> Schema:
    return {"type": "string", "maxLength": limit}


def whole(low: int, high: int = MAX_INTEGER) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def one_of(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def array(items: Schema, limit: int | None = None) -> Schema:
    found: Schema = {"type": "array", "items": items}
    return found if limit is None else {**found, "maxItems": limit}


def each(schema: Schema) -> Schema:
    """An object whose keys are names of what it holds."""
    return {"type": "object", "additionalProperties": schema}


def record(required: str = "", /, **properties: Schema) -> Schema:
    """An object; ``required`` names keys that are always there, ``*`` all of them."""
    names = list(properties) if required == "*" else required.split()
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": names} if names else found


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
