import logging

import pytest
import trio
from fake_dock import CHAT, FakeDock
from fake_house import serving
from wire import read_answer, request

from agentsdock import logs
from agentsdock.model.errors import Conflict, NotFound, Unavailable
from agentsdock.model.requests import CreateSession, PatchSession, PostTurn, ReadPage
from agentsdock.store.protocol import (
    RunExists,
    SessionGone,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
)
from agentsdock.web.app import make_app

TOKEN = "SECRET-7"
TURNS = f"/api/sessions/{CHAT}/turns"


@pytest.fixture
async def client(server):
    async with server.http() as client:
        yield client


async def test_the_liveness_probe_tells_nothing_but_ok(client):
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")
    assert answer.headers["content-type"].startswith("text/plain")


async def test_health_has_every_key_that_clients_read(client, server):
    health = (await client.get("/api/health")).json()
    assert health["ok"] is True
    assert health["api_contract_version"] == 14
    assert health["server_identity"] == server.dock.identity.server
    assert health["server_instance_id"] == server.dock.identity.instance
    assert health["server_version"] == "1.2.3"
    assert health["auth_required"] is False
    assert set(health["runtimes"]) == {"claude", "codex", "cursor"}
    assert set(health) >= {
        "state_dir",
        "default_backend",
        "default_cwd",
        "managed_updates",
        "capabilities",
        "websocket_runtime",
        "websocket_runtime_version",
        "active",
        "active_count",
        "queued",
        "update_blocking_queued_count",
        "jobs",
        "host_health_log",
    }
    assert set(health["job_guard"]) == {
        "load_1m",
        "load_per_cpu",
        "cpu_count",
        "available_mem_mb",
        "job_min_available_mem_mb",
        "job_max_active_runs",
        "start_min_available_mem_mb",
        "start_max_active_runs",
    }


async def test_health_neither_probes_nor_reads(client, server):
    await client.get("/api/health")
    assert (server.dock.runtimes.refreshed, server.dock.store.reads) == ([], 0)


async def test_the_cursor_capability_states_the_contract_not_readiness(client):
    capability = (await client.get("/api/health")).json()["capabilities"]["cursor_backend"]
    assert (capability["available"], capability["required"], capability["version"]) == (
        True,
        False,
        2,
    )
    assert capability["permission_modes"] == ["default", "full_access", "plan"]
    assert capability["default_permission_mode"] == "default"
    assert capability["permission_semantics"] == {
        "default": "cursor_configured_permissions_without_force",
        "full_access": "force_allow_except_explicit_cursor_denies",
        "plan": "plan_only",
    }
    assert capability["supports_standalone_context"] is True
    assert capability["instruction_channel"] == "prompt_envelope"
    assert capability["trusted_system_instruction_channel"] is False


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_socket_authentication_is_offered_where_there_is_a_token(token):
    async with serving(FakeDock(token=token)) as server, server.http() as client:
        answer = await client.get("/api/health", headers={"X-AgentsDock-Token": TOKEN})
        health = answer.json()
    assert health["auth_required"] is (token is not None)
    assert health["capabilities"]["websocket_auth_v1"]["available"] is (token is not None)
    assert "tmux" not in health["capabilities"]


async def test_the_catalogue_is_refreshed_when_asked(client, server):
    await client.get("/api/runtime/catalog")
    await client.get("/api/runtime/catalog?refresh=true")
    assert server.dock.runtimes.refreshed == [False, True]


async def test_the_job_list_is_empty(client):
    assert (await client.get("/api/jobs")).json() == {"jobs": []}


async def test_summaries_are_sent_as_they_are_kept(client):
    assert (await client.get("/api/sessions?summary=true")).json() == {"sessions": [{"id": CHAT}]}
    full = (await client.get("/api/sessions")).json()["sessions"]
    assert full == [{"id": CHAT, "system_prompt": None}]


@pytest.mark.parametrize(
    ("method", "path", "body", "call", "key"),
    [
        ("POST", "/api/sessions", {"title": "T"}, ("create", CreateSession(title="T")), "session"),
        ("POST", "/api/sessions", None, ("create", CreateSession()), "session"),
        (
            "PATCH",
            f"/api/sessions/{CHAT}",
            {"pinned": True},
            ("patch", CHAT, PatchSession(pinned=True)),
            "session",
        ),
        ("DELETE", f"/api/sessions/{CHAT}", None, ("delete", CHAT), "deleted"),
        (
            "GET",
            f"/api/sessions/{CHAT}?after=3&limit=7",
            None,
            ("page", CHAT, ReadPage(after=3, limit=7)),
            "events",
        ),
        ("POST", TURNS, {"prompt": "x"}, ("post_turn", CHAT, PostTurn("x"), None), "run_id"),
        ("POST", f"/api/sessions/{CHAT}/stop", None, ("stop", CHAT), "stopped"),
        ("POST", f"/api/sessions/{CHAT}/stop", {}, ("stop", CHAT), "stopped"),
        ("POST", f"/api/sessions/{CHAT}/read", None, ("mark_read", CHAT, None), "session"),
        (
            "POST",
            f"/api/sessions/{CHAT}/read",
            {"last_read_agent_event_seq": 5},
            ("mark_read", CHAT, 5),
            "session",
        ),
        (
            "POST",
            f"/api/sessions/{CHAT}/read",
            {"last_read_agent_event_seq": -5},
            ("mark_read", CHAT, 0),
            "session",
        ),
        ("POST", f"/api/sessions/{CHAT}/unread", {}, ("mark_unread", CHAT), "session"),
        (
            "POST",
            f"/api/sessions/{CHAT}/runs/run_1/extend",
            {"seconds": 60, "clock": "turn"},
            ("extend", CHAT, "run_1", 60.0, "turn"),
            "run_id",
        ),
    ],
)
async def test_each_route_hands_its_request_on(client, server, method, path, body, call, key):
    answer = await client.request(method, path, json=body)
    assert answer.status_code == 200
    assert key in answer.json()
    assert server.dock.chats.calls == [call]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_an_idempotency_key_reaches_admission_with_its_scope(client, server):
    for prompt in ("x", "x", "y"):
        headers = {"Idempotency-Key": "key-1"}
        await client.post(TURNS, json={"prompt": prompt}, headers=headers)
    first, again, other = (call[3] for call in server.dock.chats.calls)
    assert first == again
    assert (first.key, first.scope) == ("key-1", f"POST {TURNS}")
    assert first.request_hash != other.request_hash


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (NotFound("session not found"), 404, "session not found"),
        (Conflict("archived"), 409, "archived"),
        (
            Unavailable("no", code="runtime_unavailable", action="log in", backend="cursor"),
            503,
            {
                "code": "runtime_unavailable",
                "message": "no",
                "action": "log in",
                "backend": "cursor",
            },
        ),
        (SessionGone("gone"), 404, "session not found"),
        (StoreError("disk on fire at /home/me"), 500, "internal server error"),
        (RuntimeError("a secret"), 500, "internal server error"),
        (ExceptionGroup("", [RuntimeError("a secret")]), 500, "internal server error"),
        (ExceptionGroup("", [Conflict("archived")]), 409, "archived"),
    ],
)
async def test_refusals_and_failures_share_one_envelope(client, server, error, status, detail):
    server.dock.chats.raises = error
    answer = await client.post(TURNS, json={"prompt": "x"})
    assert (answer.status_code, answer.json()) == (status, {"detail": detail})


async def test_a_full_disk_says_so(client, server):
    server.dock.chats.raises = StoreFull("x")
    answer = await client.post(TURNS, json={"prompt": "x"})
    assert (answer.status_code, answer.json()["detail"]["code"]) == (503, "storage_full")


@pytest.mark.parametrize("kind", [StoreBusy, StoreClosed, RunExists])
async def test_what_may_help_to_try_again_says_so(client, server, kind):
    server.dock.chats.raises = kind("x")
    answer = await client.post(TURNS, json={"prompt": "x"})
    assert answer.status_code == 503
    assert "try again" in answer.json()["detail"]


async def test_a_body_that_cannot_be_read_names_the_field(client, server):
    answer = await client.post(TURNS, json={"prompt": 5})
    (item,) = answer.json()["detail"]
    assert (answer.status_code, item["loc"]) == (422, ["body", "prompt"])
    assert "str" in item["msg"]
    assert server.dock.chats.calls == []


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/",
        "/api/nowhere",
        "/nowhere",
        "//api/sessions",
        "/api//sessions",
        "/api/sessions//",
        "/%2Fapi/sessions",
        "/api/../api/sessions",
    ],
)
async def test_an_unknown_path_is_404_with_the_text_that_clients_look_for(server, path):
    async with await server.connect() as client:
        await client.send_all(request(target=path))
        answer = await read_answer(client)
    assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/sessions"),
        ("GET", TURNS),
        ("OPTIONS", "/api/sessions"),
        ("DELETE", "/healthz"),
        ("POST", "/api/health"),
    ],
)
async def test_a_wrong_method_is_405(client, method, path):
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("path", ["/api/sessions/", "/api/health/", f"/api/sessions/{CHAT}/"])
async def test_nothing_redirects(client, path):
    assert (await client.get(path)).status_code == 200


OPEN = {
    "/healthz": 200,
    "/openapi.json": 200,
    "/docs": 200,
    "/login": 422,
    "/logout": 200,
    "/static/<version>/<name>": 404,
}


async def test_every_route_asks_for_the_token_but_those_that_tell_nothing():
    dock = FakeDock(token=TOKEN)
    app = make_app(dock)
    async with serving(dock, app=app) as server, server.http() as client:
        for rule in app.url_map.iter_rules():
            path = rule.rule.replace("<session_id>", CHAT).replace("<run_id>", "run_1")
            for method in rule.methods or ["GET"]:
                answer = await client.request(method, path)
                # A turn's CLI has a capability of its own instead of the token.
                is_agents = path.startswith("/api/agent/")
                expected = OPEN.get(path, 403 if is_agents else 401)
                assert ("www-authenticate" in answer.headers) == (expected == 401)
                assert answer.status_code == expected, (method, path)
    assert dock.chats.calls == []


async def test_no_get_changes_anything(client, server):
    for rule in make_app(server.dock).url_map.iter_rules():
        if "GET" in (rule.methods or ()):
            await client.get(rule.rule.replace("<session_id>", CHAT).replace("<run_id>", "r"))
    assert {call[0] for call in server.dock.chats.calls} <= {"page", "patch_of"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.invalid"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.invalid"},
        {"Host": "127.0.0.1.evil.invalid:7850"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)
@pytest.mark.parametrize("path", ["/turns", "/stop", "/read", "/unread", "/runs/r/extend"])
async def test_a_web_page_cannot_make_the_server_do_anything(client, server, headers, path):
    answer = await client.post(
        f"/api/sessions/{CHAT}{path}",
        content=b'{"prompt":"x","seconds":5}',
        headers={"Content-Type": "application/json"} | headers,
    )
    assert answer.status_code in (403, 415)
    assert server.dock.chats.calls == []


SPELLINGS = [
    "?token=SECRET-7",
    "?a=b&token=SECRET-7&c=d",
    "?%74oken=SECRET-7",
    "?TOKEN=SECRET-7",
    "?token=SECRET-7x",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_the_token_is_in_no_log_and_no_answer(spelling, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    kept = []
    monkeypatch.setattr(logs.Log, "_write", lambda *args: kept.append(args[1:]))
    dock = FakeDock(token=TOKEN)
    async with serving(dock) as server, server.http() as client:
        said = []
        headers = {"Referer": f"http://127.0.0.1/{spelling}"}
        for path in ("/api/health", "/api/nowhere", "/nowhere", TURNS, "/healthz"):
            answer = await client.get(path + spelling, headers=headers)
            said.append(answer.text)
        dock.chats.raises = RuntimeError(f"broke at {spelling}")
        for extra in ({}, {"X-AgentsDock-Token": TOKEN}):
            answer = await client.post(
                TURNS + spelling, json={"prompt": TOKEN}, headers=headers | extra
            )
            said.append(answer.text)
        async with await server.connect() as aborted:
            await aborted.send_all(f"GET /api/sessions/{CHAT}/events{spelling} HT".encode())
    own = [record.getMessage() for record in caplog.records if record.name.startswith("hypercorn")]
    out = capfd.readouterr()
    assert any("handler failed" in str(line) for line in kept)
    assert "SECRET-7" not in repr((said, kept, own, out.out, out.err))


async def test_a_failure_is_logged_with_its_place_and_not_its_words(client, server, monkeypatch):
    kept = []
    monkeypatch.setattr(logs.Log, "_write", lambda *args: kept.append(args[1:]))
    server.dock.chats.raises = RuntimeError("a secret")
    await client.post(TURNS, json={"prompt": "x"})
    ((level, event, fields),) = kept
    assert (level, event, fields["path"]) == ("error", "handler failed", TURNS)
    assert "RuntimeError" in fields["error"]
    assert "_note" in fields["error"]
    assert "secret" not in repr(fields)


async def test_a_turn_of_sixteen_mebibytes_is_taken_and_one_byte_more_is_not(client, server):
    frame = len(b'{"prompt":""}')
    headers = {"Content-Type": "application/json"}
    whole = b'{"prompt":"%b"}' % (b"x" * (16 * 2**20 - frame))
    assert (await client.post(TURNS, content=whole, headers=headers)).status_code == 200
    assert len(server.dock.chats.calls[0][2].prompt) == 16 * 2**20 - frame
    answer = await client.post(TURNS, content=whole + b" ", headers=headers)
    assert answer.status_code == 413


async def test_health_answers_while_requests_wait(client, server):
    server.dock.chats.holding = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(lambda: client.post(TURNS, json={"prompt": "x"}))
        await server.dock.chats.entered.wait()
        assert (await client.get("/api/health")).status_code == 200
        server.dock.chats.holding.set()
