"""Whether an answer is what the API's own document says: its status, its shape, every key of it."""

import functools
import re

import jsonschema_rs

from agentsdock.web.openapi.document import make_document

OPEN = ("Event", "Error")
"""Shapes whose further keys depend on what they tell of."""


def closed(schema, name=""):
    """The same shape with no keys but those that are named."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and name not in OPEN:
        found.setdefault("additionalProperties", False)
    return found


DOCUMENT = make_document("1")
SHAPES = {name: closed(found, name) for name, found in DOCUMENT["components"]["schemas"].items()}
PATHS = {
    re.compile(re.sub(r"{\w+}", "[^/]+", path)): operations
    for path, operations in DOCUMENT["paths"].items()
}


@functools.cache
def validator(reference):
    return jsonschema_rs.validator_for({"$ref": reference, "components": {"schemas": SHAPES}})


def content_of(response):
    """What the document says of an answer like this; None where it is silent about the path."""
    request = response.request
    operations = next((o for p, o in PATHS.items() if p.fullmatch(request.url.path)), {})
    operation = operations.get(request.method.lower())
    if operation is None or "101" in operation["responses"]:
        return None
    said = operation["responses"].get(str(response.status_code))
    assert said is not None, f"{request.method} {request.url}: undocumented {response.status_code}"
    kind = response.headers.get("content-type", "").partition(";")[0]
    assert said["content"].keys() & {kind, "*/*"}, f"{request.method} {request.url}: {kind}"
    return said["content"].get(kind, {})


def check(response):
    """For a client's hook.  Raises AssertionError, or a ValidationError that says where."""
    content = content_of(response)
    if content and "schema" in content and response.request.method != "HEAD":
        response.read()
        validator(content["schema"]["$ref"]).validate(response.json())


async def check_later(response):
    content = content_of(response)
    if content and "schema" in content and response.request.method != "HEAD":
        await response.aread()
        validator(content["schema"]["$ref"]).validate(response.json())
