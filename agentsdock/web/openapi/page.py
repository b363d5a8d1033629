"""The document as one page that needs nothing else: no script, no other host."""

import html
from collections.abc import Iterator
from typing import Any

from agentsdock.web.openapi.document import ALWAYS

Json = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 52rem; padding: 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
h3 { margin: 1rem 0 .25rem; font-size: 1em; }
nav a { display: inline-block; margin: 0 1rem .25rem 0; padding: .25rem 0; }
details { border: 1px solid var(--line); border-radius: .5rem; }
details { margin: .5rem 0; padding: .5rem .75rem; overflow-wrap: anywhere; }
summary { cursor: pointer; } summary span { display: block; opacity: .75; }
code { font: 14px/1.4 ui-monospace, monospace; }
b.method { display: inline-block; min-width: 3.75rem; text-transform: uppercase; font-size: .8em; }
dl { margin: 0; } dt { border-top: 1px solid var(--line); padding-top: .25rem; }
dd { margin: 0 0 .25rem 1rem; opacity: .85; } dd dl { margin: .25rem 0; }
:target { background: var(--soft); }
"""
_SIMPLE = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "object",
    "number": "number",
    "null": "null",
}


def render(document: Json) -> str:
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    info = document["info"]
    names = [*tags, "Shapes"]
    links = "".join(f'<a href="#-{_e(name)}">{_e(name)}</a>' for name in names)
    schemas = sorted(document["components"]["schemas"].items())
    tags["Shapes"] = [_shape(name, schema) for name, schema in schemas]
    body = "".join(
        f'<h2 id="-{_e(name)}">{_e(name)}</h2>{"".join(parts)}' for name, parts in tags.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_e(info['title'])} {_e(info['version'])}</h1><p>{_e(info['description'])} "
        '<a href="/openapi.json">openapi.json</a></p>'
        f"<nav>{links}</nav>{_common(document)}{body}</body></html>"
    )


def _common(document: Json) -> str:
    """What holds for every operation, said once."""
    told = document["paths"]["/api/health"]["get"]["responses"]
    statuses = "".join(_answer(str(status), told[str(status)]) for status in ALWAYS)
    return (
        "<p>Where the server has a token, every path under <code>/api</code> needs it: "
        "<code>Authorization: Bearer TOKEN</code> or <code>X-AgentsDock-Token: TOKEN</code>. "
        'A refusal is an <a href="#Error">Error</a>. Any path may answer with:</p>'
        f"<dl>{statuses}</dl>"
    )


def _operation(method: str, path: str, operation: Json) -> str:
    parts = []
    queries = [found for found in operation["parameters"] if found["in"] == "query"]
    if queries:
        parts.append(f"<h3>Parameters</h3><dl>{''.join(map(_parameter, queries))}</dl>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        need = "" if operation["requestBody"]["required"] else ", may be left out"
        parts.append(f"<h3>Body</h3><p>{_kind(content)} <code>{_e(kind)}</code>{need}</p>")
    own = ((s, told) for s, told in operation["responses"].items() if int(s) not in ALWAYS)
    parts.append(f"<h3>Answers</h3><dl>{''.join(_answer(*each) for each in own)}</dl>")
    return (
        f'<details><summary><b class="method">{_e(method)}</b> <code>{_e(path)}</code>'
        f"<span>{_e(operation['summary'])}</span></summary>{''.join(parts)}</details>"
    )


def _parameter(found: Json) -> str:
    need = "required: " if found["required"] else ""
    return f"<dt><code>{_e(found['name'])}</code></dt><dd>{need}{_kind(found)}</dd>"


def _answer(status: str, found: Json) -> str:
    kinds = [
        _kind(content) if "schema" in content else f"<code>{_e(kind)}</code>"
        for kind, content in found.get("content", {}).items()
    ]
    kinds = [] if status >= "400" else kinds
    return f"<dt>{_e(status)} {' '.join(kinds)}</dt><dd>{_e(found['description'])}</dd>"


def _kind(holder: Json) -> str:
    return ", ".join(_words(holder["schema"])) + _note(holder["schema"])


def _note(schema: Json) -> str:
    return f"<br>{_e(schema['description'])}" if "description" in schema else ""


def _shape(name: str, schema: Json) -> str:
    # The anchor is inside, since only that makes browsers open the fold.
    told = _fields(schema) or f"<p>{', '.join(_words(schema))}</p>"
    return (
        f'<details><summary><code>{_e(name)}</code></summary><div id="{_e(name)}">{told}</div>'
        "</details>"
    )


def _fields(schema: Json) -> str:
    needed = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        words = list(_words(field)) + ([] if name in needed else ["may be absent"])
        told = f"{', '.join(words)}{_note(field)}{_inside(field)}"
        rows.append(f"<dt><code>{_e(name)}</code></dt><dd>{told}</dd>")
    return f"<dl>{''.join(rows)}</dl>" if rows else ""


def _inside(schema: Json) -> str:
    """The fields of what a field holds."""
    held = schema.get("items", schema)
    return _fields(held)


def _words(schema: Json) -> Iterator[str]:
    """What a value may be, in words."""
    yield _type(schema)
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']:,} characters"
    if "maxItems" in schema:
        yield f"at most {schema['maxItems']:,}"
    if "minimum" in schema:
        top = schema.get("maximum", 2**53)
        yield f"at least {schema['minimum']:,}" + (f", at most {top:,}" if top < 2**53 - 1 else "")
    if "pattern" in schema:
        yield f"<code>{_e(schema['pattern'])}</code>"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = _e(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema:
        return f"<code>{_e(str(schema['const']).lower())}</code>"
    if "enum" in schema:
        values = ("null" if value is None else f'"{value}"' for value in schema["enum"])
        return " or ".join(f"<code>{_e(value)}</code>" for value in values)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_named(kind, schema) for kind in kinds) or "anything"


def _named(kind: str, schema: Json) -> str:
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{_type(schema['additionalProperties'])} by name"
    return _SIMPLE[kind]


def _e(text: str) -> str:
    return html.escape(text, quote=True)
