"""The OpenAPI document, made of the operations and the schemas."""

import re
from typing import Any

from agentsdock.web.openapi.operations import OPERATIONS, Operation
from agentsdock.web.openapi.schemas import SCHEMAS
from agentsdock.web.openapi.shapes import STRING, ref

_REFUSALS = {
    400: "The request makes no sense here.",
    401: "A token is needed.",
    403: "Pages and names of others are refused.",
    404: "There is no such chat, run, row or file.",
    408: "The body did not arrive in time.",
    409: "The chat is in another state; the detail says which.",
    413: "Too large.",
    415: "Another content type is needed.",
    416: "The range lies behind the end of the file.",
    422: "A field or parameter cannot be read; the detail names it.",
    503: "The CLI or the disk is not usable, or the server is going down.",
}
ALWAYS = (401, 403, 408, 413, 415, 422, 503)
"""What any path under /api may answer."""


def make_document(version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agentsdock",
            "version": version,
            "description": "Coding-agent CLIs as supervised chat turns.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-AgentsDock-Token"},
            },
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": _id(operation),
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.path.startswith("/api/"):
        found["security"] = [{"bearer": []}, {"header": []}]
    if operation.body is not None:
        kind = "multipart/form-data" if operation.body == "Upload" else "application/json"
        found["requestBody"] = {
            "required": operation.body_required,
            "content": {kind: {"schema": ref(operation.body)}},
        }
    return found


def _id(operation: Operation) -> str:
    return re.sub(r"[^a-z0-9]+", "_", f"{operation.method} {operation.path}".lower()).strip("_")


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": STRING}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    in_query = [
        {
            "name": name,
            "in": "query",
            "required": name in operation.required_query,
            "schema": schema,
        }
        for name, schema in operation.query
    ]
    return in_path + in_query


def _responses(operation: Operation) -> dict[str, Any]:
    if operation.answer == "websocket":
        return {"101": {"description": "The socket is open."}, **_refusals((401, 403, 404))}
    kind = operation.answer if "/" in operation.answer else "application/json"
    content: dict[str, Any] = {kind: {}}
    if "/" not in operation.answer:
        content = {kind: {"schema": ref(operation.answer)}}
    if kind == "application/octet-stream":
        content = {"*/*": {}}
    good: dict[str, Any] = {"200": {"description": "Done.", "content": content}}
    if operation.answer == "application/octet-stream":
        good["206"] = {"description": "A part of it.", "content": content}
    if not operation.path.startswith("/api/"):
        return {**good, **_refusals((403,))}
    return {**good, **_refusals((*operation.refusals, *ALWAYS))}


def _refusals(statuses: tuple[int, ...]) -> dict[str, Any]:
    content = {"application/json": {"schema": ref("Error")}}
    return {
        str(status): {"description": _REFUSALS[status], "content": content}
        for status in sorted(set(statuses))
    }
