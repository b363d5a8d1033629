"""What no client should send, made from the API's own document, and the answer that it gets.

Nothing fails inside the server, each refusal is an envelope that names the field, and nothing
redirects.
"""

import itertools
import json

import documented
import httpx
import pytest

from agentsdock.web.openapi.operations import OPERATIONS
from agentsdock.web.openapi.schemas import SCHEMAS

NOWHERE = "sess_0000000000000000"
JSON = {"content-type": "application/json"}
SAMPLES = {
    "PostTurn": {"prompt": "[[fake]]"},
    "Extend": {"seconds": 5},
    "Place": {"direction": "up"},
    "Move": {"direction": "up"},
}
VALUES = {
    "string": ("text", "", "x" * 100_000, "nul \0"),
    "boolean": (True, False),
    "integer": (5, -1, 2**63, -(2**63) - 1, 10**400),
    "number": (1.5, 1e308, -1e-308),
    "array": ([], [[]], [None], ["x"] * 1000),
    "object": ({}, {"a": 1}),
    "null": (None,),
}
METHODS = {"get", "head", "post", "put", "patch", "delete", "options", "trace", "propfind"}

http = [op for op in OPERATIONS if op.answer != "websocket"]
with_json = [
    op for op in http if op.body not in (None, "Upload") and not op.path.startswith("/api/agent/")
]
with_query = [op for op in http if op.query]


def each(operations):
    names = [f"{op.method} {op.path.removeprefix('/api/')}" for op in operations]
    return pytest.mark.parametrize("op", operations, ids=names)


@pytest.fixture(scope="module", autouse=True)
def nothing_failed(shared_server):
    yield
    log = shared_server.log.read_text()
    assert "handler failed" not in log
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def client(shared_server):
    headers = {"X-AgentsDock-Token": shared_server.token}
    with httpx.Client(
        base_url=shared_server.url,
        headers=headers,
        trust_env=False,
        timeout=30,
        follow_redirects=False,
        event_hooks={"response": [documented.check]},
    ) as client:
        yield client


@pytest.fixture
def new_chat(client):
    made = []

    def new():
        made.append(client.post("/api/sessions", json={}).json()["session"]["id"])
        return made[-1]

    yield new
    for chat in made:
        client.delete(f"/api/sessions/{chat}")


@pytest.fixture
def chat(new_chat):
    return new_chat()


def place(op, chat, **ids):
    names = {"session_id": chat, "queued_id": "queued_0", "run_id": "run_0", "file_id": "file_0"}
    return op.path.format(**names | ids)


def refusal(answer):
    """Its detail; every answer that is no success is an envelope."""
    assert 400 <= answer.status_code < 500, (answer.request.url, answer.text[:500])
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found.keys() == {"detail"}
    assert found["detail"]
    return found["detail"]


def names(detail):
    """The fields that a refusal names."""
    return {item["loc"][1] for item in detail} if isinstance(detail, list) else set()


def kinds(schema):
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def values_beyond(schema):
    """What a field is not: by type and by bound."""
    own = kinds(schema) | ({"integer"} if "number" in kinds(schema) else set())
    yield from itertools.chain(*(VALUES[kind] for kind in VALUES.keys() - own))
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "string" in own:
        yield "nul \0"
    if "enum" in schema:
        yield "none of these"
    if "maxItems" in schema:
        yield [{}] * (schema["maxItems"] + 1)
    if "array" in own:
        yield from ([5], [None], [[]])
    for bound, step in (("minimum", -1), ("maximum", 1)):
        if bound in schema:
            yield schema[bound] + step


@each(with_json)
def test_each_field_refuses_what_it_is_not_and_is_named(client, chat, op):
    for name, schema in SCHEMAS[op.body]["properties"].items():
        for value in values_beyond(schema):
            body = {**SAMPLES.get(op.body, {}), name: value}
            answer = client.request(op.method, place(op, chat), json=body)
            detail = refusal(answer)
            if answer.status_code == 422:
                assert names(detail) == {name}, (value, detail)
            else:
                assert name in str(detail), (value, detail)


@each(with_json)
def test_half_a_character_is_told_wherever_it_stands(client, chat, op):
    fields = [*SCHEMAS[op.body]["properties"], "nobody reads this"]
    for name in fields:
        for value in ('"\\ud83d"', '"a \\udc00"', '["\\ud83d"]', '{"\\ud83d": 1}'):
            body = f'{{"{name}": {value}}}'.encode()
            answer = client.request(op.method, place(op, chat), content=body, headers=JSON)
            assert answer.status_code == 422
            assert "surrogate" in refusal(answer)[0]["msg"], name


BROKEN = {
    "no JSON": b"nonsense",
    "cut": b'{"title": "x',
    "more behind": b"{} {}",
    "a comma": b'{"title": "x",}',
    "single quotes": b"{'title': 'x'}",
    "not a number": b'{"title": NaN}',
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "a number": b"7",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"title": "x"}'.encode("utf-16"),
    "a zero byte": b"{}\0",
    "a line break in a text": b'{"title": "a\nb"}',
    "deep": b'{"title": ' + b"[" * 65 + b"]" * 65 + b"}",
    "very deep": b'{"title": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a large list": b'{"title": [' + b"1," * 200_000 + b"1]}",
}


@each(with_json)
def test_a_body_that_cannot_be_read_is_told_so(client, chat, op):
    for kind, body in BROKEN.items():
        answer = client.request(op.method, place(op, chat), content=body, headers=JSON)
        refusal(answer)
        assert answer.status_code == 422, kind


@each(with_json)
def test_no_body_is_an_empty_one_where_none_is_needed(client, chat, op):
    answers = [
        client.request(op.method, place(op, chat)),
        client.request(op.method, place(op, chat), content=b"", headers=JSON),
        client.request(op.method, place(op, chat), json={}),
    ]
    if op.body_required:
        assert answers[0].status_code == answers[1].status_code == 422
        for answer in answers[:2]:
            refusal(answer)
    else:
        assert len({answer.status_code for answer in answers}) == 1


@each(with_json)
def test_unknown_keys_change_nothing(client, new_chat, op):
    extra = {"surprise": {"a": [1, {"b": None}]}, "": "", "__proto__": {}, "x" * 10_000: "\0"}
    body = SAMPLES.get(op.body, {})
    plain = client.request(op.method, place(op, new_chat()), json=body)
    answer = client.request(op.method, place(op, new_chat()), json={**extra, **body})
    assert answer.status_code == plain.status_code
    assert answer.json().keys() == plain.json().keys()


@each(with_json)
def test_of_a_key_that_comes_twice_the_last_counts(client, chat, op):
    for name in SCHEMAS[op.body]["properties"]:
        others = "".join(f'"{k}": {json.dumps(v)}, ' for k, v in SAMPLES.get(op.body, {}).items())
        twice = f'{{{others}"{name}": null, "{name}": 1e999}}'.encode()
        answer = client.request(op.method, place(op, chat), content=twice, headers=JSON)
        assert names(refusal(answer)) == {name}


@each([op for op in http if op.method in ("post", "patch", "delete") and op.body != "Upload"])
def test_a_body_must_say_that_it_is_json(client, chat, op):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"):
        headers = {"content-type": kind}
        answer = client.request(op.method, place(op, chat), content=b"{}", headers=headers)
        refusal(answer)
        assert answer.status_code == 415, kind
    answer = client.request(
        op.method, place(op, chat), content=b"{}", headers={"content-encoding": "gzip"}
    )
    assert answer.status_code == 415


WAYS_OUT = ("%00", "..%2F..%2Fetc%2Fpasswd", "%FF%FE", "%ED%A0%80", "%F0%9F%98%80", "x" * 20_000)


@each([op for op in http if "{session_id}" in op.path])
@pytest.mark.parametrize("known", [True, False], ids=["right form", "any form"])
def test_a_chat_that_is_not_there_is_not_found(client, op, known):
    body = {"json": SAMPLES.get(op.body, {})} if op.body not in (None, "Upload") else {}
    if op.body == "Upload":
        body = {"files": {"file": ("a.txt", b"x")}}
    query = {name: "1" if name == "limit" else "xx" for name in op.required_query}
    for chat in (NOWHERE, "sess_") if known else WAYS_OUT:
        answer = client.request(op.method, place(op, chat), params=query, **body)
        if "%2F" in chat:  # it is another path then
            assert answer.status_code in (404, 415)
        elif op.path.endswith("/stop"):
            assert answer.json()["outcome"] == "idle"
        elif op.method == "delete" and op.path.endswith("{session_id}"):
            assert answer.json()["deleted"] is False
        elif op.path.startswith("/api/agent/"):
            assert answer.status_code in (403, 404)
        else:
            assert answer.status_code == 404
            assert op.method == "head" or refusal(answer)


@each([op for op in http if op.path.count("{") == 2])
def test_what_belongs_to_another_chat_is_not_found(client, new_chat, op):
    owner, other = new_chat(), new_chat()
    turns = f"/api/sessions/{owner}/turns"
    run = client.post(turns, json={"prompt": "[[fake hang=1]]"}).json()["run_id"]
    waiting = client.post(turns, json={"prompt": "[[fake]]"}).json()["queued_id"]
    sent = client.post(f"/api/sessions/{owner}/files", files={"file": ("a.txt", b"x")})
    ids = {"run_id": run, "queued_id": waiting, "file_id": sent.json()["file"]["id"]}
    body = {"json": SAMPLES.get(op.body, {})} if op.body else {}
    answer = client.request(op.method, place(op, other, **ids), **body)
    assert answer.status_code == 404
    for nonsense in WAYS_OUT:
        answer = client.request(op.method, place(op, owner, **dict.fromkeys(ids, nonsense)), **body)
        assert answer.status_code == 404
    rows = client.get(f"/api/sessions/{owner}?limit=1").json()["queued_turns"]
    assert [row["queued_id"] for row in rows] == [waiting]


BAD_QUERIES = ("x", "1.5", "1e3", "0x10", "--1", "9" * 30, "%00", "%ED%A0%80", "%D9%A3", "1_0")


@each(with_query)
def test_a_parameter_that_cannot_be_read_is_named(client, chat, op):
    needed = dict.fromkeys(op.required_query, "xx")
    for name, schema in op.query:
        if "string" in kinds(schema):
            continue
        for value in BAD_QUERIES:
            query = "&".join(f"{key}={v}" for key, v in {**needed, name: value}.items())
            answer = client.request(op.method, f"{place(op, chat)}?{query}")
            assert answer.status_code == 422, (query, answer.text)
            assert names(refusal(answer)) == {name}


@each(with_query)
def test_no_text_in_a_query_breaks_anything(client, chat, op):
    for name, schema in op.query:
        if "string" not in kinds(schema):
            continue
        for value in (*WAYS_OUT, "", "%22%22%22", "%27%3B--", "*", "%", "a" * 60_000):
            answer = client.request(op.method, f"{place(op, chat)}?{name}={value}&{name}=x")
            assert answer.status_code < 500
            if answer.status_code >= 400 and op.method != "head":
                refusal(answer)


@pytest.mark.parametrize("path", sorted({op.path for op in OPERATIONS}))
def test_another_method_is_405_and_says_which_there_are(client, chat, path):
    allowed = {op.method for op in OPERATIONS if op.path == path and op.answer != "websocket"}
    allowed |= {"head"} if "get" in allowed else set()
    socket = any(op.path == path and op.answer == "websocket" for op in OPERATIONS)
    for method in METHODS - allowed - ({"get", "head"} if socket else set()):
        operation = next(op for op in OPERATIONS if op.path == path)
        answer = client.request(method, place(operation, chat))
        assert answer.status_code == 405, method
        assert method == "head" or answer.json() == {"detail": "Method Not Allowed"}
        if allowed:
            assert {word.strip().lower() for word in answer.headers["allow"].split(",")} == allowed


def test_a_plain_request_for_a_socket_is_told_what_it_is(client, chat):
    answer = client.get(f"/api/sessions/{chat}/events")
    assert (answer.status_code, "WebSocket" in refusal(answer)) == (400, True)


@each([op for op in http if op.method == "get"])
def test_head_answers_as_get_does_without_a_body(client, chat, op):
    if op.path in ("/api/health", "/metrics"):
        return  # its numbers change from one moment to the next
    query = dict.fromkeys(op.required_query, "xx")
    got = client.get(place(op, chat), params=query)
    head = client.head(place(op, chat), params=query)
    assert head.status_code == got.status_code
    assert head.content == b""
    for name in ("content-type", "cache-control", "content-length"):
        assert head.headers.get(name) == got.headers.get(name)


@each(http)
def test_a_slash_at_the_end_never_redirects(client, chat, op):
    body = {"json": SAMPLES.get(op.body, {})} if op.body not in (None, "Upload") else {}
    answer = client.request(op.method, place(op, chat) + "/", **body)
    assert not 300 <= answer.status_code < 400
    assert "location" not in answer.headers


def test_a_file_is_only_taken_from_a_form_that_can_be_read(client, chat):
    path = f"/api/sessions/{chat}/files"
    part = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\nx\r\n--b--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    for name in (b"\xed\xa0\x80.txt", b"\xff"):
        answer = client.post(path, content=part % name, headers=headers)
        assert (answer.status_code, names(refusal(answer))) == (422, {"file"})
    for name in (b"a\0b.txt", b"../../etc/passwd", b"x" * 5000, "\N{GRINNING FACE}.md".encode()):
        found = client.post(path, content=part % name, headers=headers).json()["file"]["filename"]
        assert "\0" not in found
        assert "/" not in found
        assert len(found.encode()) <= 200
    rows = client.get(path).json()
    assert rows["total"] == 4
    assert json.loads(json.dumps(rows)) == rows
