"""The document of the API names each route there is, and nothing else."""

import re

import jsonschema_rs

from agentsdock.web.app import make_app
from agentsdock.web.openapi.document import make_document
from agentsdock.web.openapi.operations import OPERATIONS
from agentsdock.web.openapi.page import render
from agentsdock.web.openapi.schemas import SCHEMAS


async def test_the_routes_of_the_document_are_those_of_the_server(dock):
    served = {
        (method.lower(), re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in make_app(dock).url_map.iter_rules()
        if not rule.endpoint.startswith("page.")  # for people, and free to change
        for method in (rule.methods or {"GET"}) - {"OPTIONS"}
    }
    # Each GET answers HEAD too; the document names it where it is of use.
    files = {path for method, path in served if method == "head" and "file" in path}
    served -= {(m, p) for m, p in served if m == "head" and p not in files}
    told = {(operation.method, operation.path) for operation in OPERATIONS}
    assert told - served == set()
    assert {found for found in served - told if found[0] != "head"} == set()
    assert len(told) == len(OPERATIONS)


def references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_shape_is_valid_and_used():
    document = make_document("1.2.3")
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({**schema, "components": document["components"]})
    used = set(references(document))
    assert used == set(SCHEMAS)
    names = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(set(names)) == len(names)


async def test_the_document_and_its_page_are_served_without_anything_else(server):
    async with server.http() as http:
        document = (await http.get("/openapi.json")).json()
        assert document["info"]["version"] == "1.2.3"
        page = await http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert not re.findall(r"""(?:src|href)=["'](?!#|/openapi\.json)""", page.text)
    for operation in OPERATIONS:
        assert f"<code>{operation.path}</code>" in page.text


def test_the_page_says_every_field_and_each_link_leads_somewhere():
    page = render(make_document("1"))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links - set(re.findall(r'id="([^"]+)"', page)) == set()
    for name, schema in SCHEMAS.items():
        assert f'id="{name}"' in page
        for field in schema.get("properties", ()):
            assert f"<dt><code>{field}</code></dt>" in page
    for operation in OPERATIONS:
        assert operation.summary.replace("'", "&#x27;") in page
        for name, _ in operation.query:
            assert f"<dt><code>{name}</code></dt>" in page


def test_texts_of_the_document_cannot_break_out_of_the_page():
    document = make_document("<b>")
    document["info"]["description"] = "<script>alert(1)</script>"
    assert "<script" not in render(document)
    assert "&lt;b&gt;" in render(document)
