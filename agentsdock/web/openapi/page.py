"""The document as one page that needs nothing else: no script, no other host."""

import html
import json
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 52rem; padding: 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
details { border: 1px solid var(--line); border-radius: .5rem; }
details { margin: .5rem 0; padding: .5rem .75rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { background: var(--soft); overflow-x: auto; padding: .5rem; border-radius: .25rem; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .25rem .5rem .25rem 0; vertical-align: top; }
b.method { display: inline-block; min-width: 3.5rem; text-transform: uppercase; font-size: .8em; }
p.note { color: color-mix(in srgb, currentColor 70%, transparent); margin: .25rem 0 .5rem; }
"""


def render(document: dict[str, Any]) -> str:
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    body = "".join(f"<h2>{_e(tag)}</h2>{''.join(parts)}" for tag, parts in tags.items())
    schemas = "".join(
        f'<details id="{_e(name)}"><summary><code>{_e(name)}</code></summary>'
        f"{_code(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_e(info['title'])} {_e(info['version'])}</h1><p>{_e(info['description'])} "
        '<a href="/openapi.json">openapi.json</a></p>'
        f"{body}<h2>Shapes</h2>{schemas}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(map(_parameter, operation["parameters"]))
    body = operation.get("requestBody")
    sent = "".join(
        f"<p>Body: {_link(content)} <code>{_e(kind)}</code></p>"
        for kind, content in (body["content"].items() if body else ())
    )
    answers = "".join(_answer(*answer) for answer in operation["responses"].items())
    return (
        f'<details><summary><b class="method">{_e(method)}</b> <code>{_e(path)}</code></summary>'
        f'<p class="note">{_e(operation["summary"])}</p><table>{parameters}</table>{sent}'
        f"<table>{answers}</table></details>"
    )


def _parameter(found: dict[str, Any]) -> str:
    place = found["in"] + (", required" if found["required"] else "")
    shape = json.dumps(found["schema"], ensure_ascii=False).strip("{}").replace('"', "")
    return _row(f"<code>{_e(found['name'])}</code>", _e(place), f"<code>{_e(shape)}</code>")


def _answer(status: str, found: dict[str, Any]) -> str:
    shapes = "".join(map(_link, found.get("content", {}).values()))
    return _row(_e(status), _e(found["description"]), shapes)


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _link(content: dict[str, Any]) -> str:
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f'<a href="#{_e(name)}">{_e(name)}</a>' if name else ""


def _code(schema: dict[str, Any]) -> str:
    return f"<pre>{_e(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"


def _e(text: str) -> str:
    return html.escape(text, quote=True)
