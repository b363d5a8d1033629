"""The calls of the AgentsDock desktop client, in the way it makes them and reads the answers.

Redirects are errors to it, each answer must be a JSON object, unknown keys are sent along, and
whatever it needs of an answer is asserted here by name.
"""

import base64
import json

import pytest
import trio
from trio_websocket import open_websocket_url

from agentsdock.web.openapi.operations import OPERATIONS

S, JOB = "/api/sessions/{session_id}", "/api/jobs/{job_id}"
CORE = {
    ("get", "/api/health"),
    ("get", "/api/runtime/catalog"),
    ("get", "/api/sessions"),
    ("post", "/api/sessions"),
    ("get", S),
    ("patch", S),
    ("delete", S),
    *(("post", f"{S}/{name}") for name in ("fork", "order", "read", "unread", "turns", "stop")),
    ("patch", f"{S}/queue/{{queued_id}}"),
    ("delete", f"{S}/queue/{{queued_id}}"),
    ("post", f"{S}/queue/{{queued_id}}/move"),
    ("post", f"{S}/queue/{{queued_id}}/run-now"),
    ("get", f"{S}/events"),
    ("get", f"{S}/timeline-index"),
    ("get", f"{S}/runs/{{run_id}}/trace"),
    ("get", f"{S}/diffs/{{run_id}}"),
    ("get", f"{S}/search"),
    ("get", "/api/search"),
    ("post", f"{S}/files"),
    ("get", f"{S}/files"),
    ("get", f"{S}/files/{{file_id}}"),
    ("head", f"{S}/files/{{file_id}}"),
    ("get", f"{S}/links/file"),
    ("head", f"{S}/links/file"),
    ("get", f"{S}/files/{{file_id}}/event"),
    ("get", "/api/jobs"),
    ("get", "/api/working-directories/complete"),
}
OPTIONAL = {("post", f"{S}/import-history"), ("get", f"{S}/subagents")}
NOT_YET = {
    ("post", "/api/jobs"),
    ("patch", JOB),
    ("delete", JOB),
    ("post", f"{JOB}/run"),
    ("get", f"{S}/jobs/{{job_id}}/runs"),
    ("post", f"{S}/digest"),
    ("post", f"{S}/digest/send"),
}
"""Scheduled jobs and digests: this release says in its capabilities that it has none."""

CREATE = {
    "title": "Garden",
    "folder": "Outside",
    "backend": "cursor",
    "model": None,
    "effort": None,
    "system_prompt": None,
    "codex_approval_policy": None,
    "codex_sandbox_mode": None,
    "codex_permission_profile": None,
    "codex_approvals_reviewer": None,
    "claude_permission_mode": None,
    "cursor_permission_mode": "default",
    "import_history": False,
    "opencode_model": "a key of another release",
}
TURN = {
    "prompt": "[[fake events=3 tools=1]] hello",
    "file_ids": [],
    "model": "",
    "effort": "",
    "client_capabilities": ["cross_chat_handoffs_v2", "agent_cross_chat_routes_v1"],
    "team_references": [],
}


@pytest.fixture
def live_server(shared_server):
    return shared_server


class Desktop:
    """The client: which statuses it takes, and what it adds to each request."""

    def __init__(self, house):
        self.house = house

    async def call(self, method, path, body=None, /, **query):
        answer = await self.house.http.request(
            method, path, json=body, params=query or None, follow_redirects=False
        )
        assert 200 <= answer.status_code < 300, (method, path, answer.status_code, answer.text)
        assert answer.headers["content-type"].startswith("application/json")
        found = answer.json()
        assert isinstance(found, dict)
        return found

    async def new(self):
        return (await self.call("POST", "/api/sessions", CREATE))["session"]["id"]

    async def turn_ended(self, chat, **turn):
        posted = await self.call("POST", f"/api/sessions/{chat}/turns", {**TURN, **turn})
        assert posted["session"]["id"] == chat
        seen = await self.listen(chat, posted["run_id"])
        return posted, seen

    async def listen(self, chat, run_id):
        seen = []
        with trio.fail_after(30):
            async with self.house.follow(chat, query="&visible=true") as socket:
                while True:
                    event = json.loads(await socket.get_message())
                    assert not seen or event["seq"] > seen[-1]["seq"]
                    seen.append(event)
                    ended = event["type"] in ("turn_finished", "turn_stopped")
                    if ended and event["run_id"] == run_id:
                        return seen


def test_every_call_that_it_cannot_do_without_is_there():
    told = {(operation.method, operation.path) for operation in OPERATIONS}
    assert told >= CORE | OPTIONAL
    assert not told & NOT_YET, "it is there now: drive it like the others"


async def test_what_is_not_there_yet_is_said_and_told_apart(house):
    desktop = Desktop(house)
    offered = (await desktop.call("GET", "/api/health"))["capabilities"]
    assert offered["scheduled_jobs"]["available"] is False
    assert offered["cross_chat_handoffs_v1"]["available"] is False
    chat = await desktop.new()
    for method, path in NOT_YET:
        place = path.format(session_id=chat, job_id="job_0000000000000000")
        answer = await house.http.request(method, place, json={})
        assert (answer.status_code, answer.json()["detail"]) in (
            (404, "Not Found"),
            (405, "Method Not Allowed"),
        )


async def test_it_follows_a_chat_with_its_token_among_the_subprotocols(house):
    desktop = Desktop(house)
    health = await desktop.call("GET", "/api/health")
    assert health["capabilities"]["websocket_auth_v1"]["available"] is True
    chat = await desktop.new()
    secret = base64.urlsafe_b64encode(house.server.token.encode()).decode().rstrip("=")
    offer = ["agentsdock-events-v1", f"agentsdock-token.{secret}"]
    url = f"{house.server.url.replace('http', 'ws')}/api/sessions/{chat}/events"
    query = "?after=0&visible=true"
    async with open_websocket_url(url + query, subprotocols=offer) as socket:
        assert socket.subprotocol == "agentsdock-events-v1"
        event = json.loads(await socket.get_message())
    assert (event["seq"], event["type"]) == (1, "session_created")


async def test_it_connects_and_polls(house):
    desktop = Desktop(house)
    health = await desktop.call("GET", "/api/health")
    assert health["ok"] is True
    assert len(health["server_identity"]) == 24
    assert health["server_instance_id"]
    assert health["capabilities"]["cursor_backend"]["version"] >= 2
    assert "tmux" not in health["capabilities"]
    again = await desktop.call("GET", "/api/health")
    assert again["server_identity"] == health["server_identity"]
    for query in ({}, {"refresh": "true"}):
        catalog = await desktop.call("GET", "/api/runtime/catalog", **query)
        for backend in ("claude", "codex"):
            assert any(m["value"].strip() for m in catalog["backends"][backend]["models"])
    assert isinstance((await desktop.call("GET", "/api/jobs"))["jobs"], list)


async def test_it_lists_makes_changes_and_deletes_chats(house):
    desktop = Desktop(house)
    chat = await desktop.new()
    rows = (await desktop.call("GET", "/api/sessions", summary="true"))["sessions"]
    [row] = [row for row in rows if row["id"] == chat]
    assert {"id", "title", "backend", "updated_at", "latest_event_seq"} <= row.keys()
    assert "system_prompt" not in row
    patched = await desktop.call("PATCH", f"/api/sessions/{chat}", {"pinned": True, "x": 1})
    assert patched["session"]["pinned"] is True
    other = await desktop.new()
    for body in ({"direction": "up"}, {"target_id": other, "placement": "after"}):
        if "target_id" in body:
            await desktop.call("PATCH", f"/api/sessions/{chat}", {"pinned": False})
        listed = await desktop.call("POST", f"/api/sessions/{chat}/order", body)
        assert {s["id"] for s in listed["sessions"]} >= {chat, other}
    read = await desktop.call(
        "POST", f"/api/sessions/{chat}/read", {"last_read_agent_event_seq": 1}
    )
    assert read["session"]["id"] == chat
    unread = await desktop.call("POST", f"/api/sessions/{chat}/unread")
    assert unread["session"]["manual_unread"] is True
    forked = await desktop.call("POST", f"/api/sessions/{chat}/fork", {})
    assert forked["session"]["id"] in {s["id"] for s in forked["sessions"]}
    imported = await desktop.call("POST", f"/api/sessions/{chat}/import-history", {})
    assert {"ok", "imported", "source_path", "message"} <= imported.keys()
    assert (await desktop.call("DELETE", f"/api/sessions/{chat}"))["deleted"] is True
    assert (await desktop.call("DELETE", f"/api/sessions/{chat}"))["deleted"] is False


async def test_it_sends_a_message_and_reads_the_chat(house):
    desktop = Desktop(house)
    chat = await desktop.new()
    posted, seen = await desktop.turn_ended(chat)
    assert posted["queued"] is False
    assert posted["event"]["type"] == "turn_started"
    assert seen[-1]["is_error"] is False
    for query in (
        {"page_mode": "semantic", "limit": 48, "tail": "true"},
        {"visible": "true", "limit": 480, "tail": "true"},
        {"after": 2, "visible": "true"},
        {"limit": 1, "compact": "true"},
    ):
        page = await desktop.call("GET", f"/api/sessions/{chat}", **query)
        needed = {"session", "events", "queued_turns", "events_omitted_before"}
        needed |= {"events_omitted_after", "latest_seq", "event_count"}
        assert needed <= page.keys()
        assert (page.get("semantic_item_count") is not None) == ("page_mode" in query)
    index = await desktop.call("GET", f"/api/sessions/{chat}/timeline-index")
    assert index["landmarks"]
    trace = await desktop.call(
        "GET",
        f"/api/sessions/{chat}/runs/{posted['run_id']}/trace",
        anchor_seq=posted["event"]["seq"],
        after_seq=0,
        limit=160,
    )
    assert {"events", "has_more", "next_after"} <= trace.keys()
    for path in (f"/api/sessions/{chat}/search", "/api/search"):
        assert isinstance((await desktop.call("GET", path, q="hello", limit=40))["results"], list)
    await desktop.call("GET", f"/api/sessions/{chat}/subagents", limit=64)


async def test_it_queues_edits_forces_and_stops(house):
    desktop = Desktop(house)
    chat = await desktop.new()
    await desktop.call("POST", f"/api/sessions/{chat}/turns", {**TURN, "prompt": "[[fake hang=1]]"})
    rows = []
    for prompt in ("[[fake]] one", "[[fake]] two", "[[fake]] three"):
        queued = await desktop.call(
            "POST", f"/api/sessions/{chat}/turns", {**TURN, "prompt": prompt}
        )
        assert queued["queued"] is True
        rows.append(queued["queued_id"])
    stem = f"/api/sessions/{chat}/queue"
    await desktop.call("PATCH", f"{stem}/{rows[0]}", {"prompt": "[[fake]] edited"})
    await desktop.call("POST", f"{stem}/{rows[1]}/move", {"direction": "up"})
    await desktop.call("DELETE", f"{stem}/{rows[2]}")
    page = await desktop.call("GET", f"/api/sessions/{chat}", limit=1)
    assert [row["queued_id"] for row in page["queued_turns"]] == [rows[1], rows[0]]
    assert page["queued_turns"][1]["prompt"] == "[[fake]] edited"
    forced = await desktop.call(
        "POST", f"{stem}/{rows[0]}/run-now", {"accept_deferred_queue_response": True}
    )
    assert forced["queued_id"] == rows[0]
    stopped = await desktop.call("POST", f"/api/sessions/{chat}/stop", {})
    assert stopped["stopped"] is True


async def test_it_gives_and_gets_files(house):
    desktop = Desktop(house)
    chat = await desktop.new()
    sent = await house.http.post(
        f"/api/sessions/{chat}/files", files={"file": ("plan.md", b"# Plan", "text/markdown")}
    )
    record = sent.json()["file"]
    assert record["session_id"] == chat
    listed = await desktop.call("GET", f"/api/sessions/{chat}/files", offset=0, limit=50)
    assert {"files", "total", "offset", "limit", "has_more"} <= listed.keys()
    path = f"/api/sessions/{chat}/files/{record['id']}"
    part = await house.http.get(path, headers={"range": "bytes=0-1"})
    assert (part.status_code, part.content) == (206, b"# ")
    assert (await house.http.head(path)).headers["content-length"] == "6"
    assert (await desktop.call("GET", f"{path}/event"))["event"]["file"]["id"] == record["id"]
    link = await house.http.get(f"/api/sessions/{chat}/links/file", params={"target": "plan.md"})
    assert link.content == b"# Plan"
    posted, _ = await desktop.turn_ended(chat, file_ids=[record["id"]])
    assert posted["event"]["file_ids"] == [record["id"]]
    diff = await house.http.get(f"/api/sessions/{chat}/diffs/{posted['run_id']}")
    assert diff.status_code == 404
    folders = await desktop.call("GET", "/api/working-directories/complete", path="/", limit=24)
    assert {"input", "resolved_path", "exists", "base_path", "suggestions"} <= folders.keys()


async def test_a_404_of_a_chat_is_told_apart_from_one_of_a_path(house):
    nowhere = "/api/sessions/sess_0000000000000000"
    for path in ("", "/timeline-index", "/subagents", "/search?q=xx", "/files", "/diffs/run_0"):
        answer = await house.http.get(nowhere + path)
        assert answer.status_code == 404
        assert answer.json()["detail"].lower() != "not found"


async def test_what_it_probes_for_is_absent_in_the_way_it_expects(house):
    for method, path in (
        ("GET", "/api/emergency-alerts/events"),
        ("POST", "/api/sessions/sess_0000000000000000/provider/reload"),
        ("GET", "/api/admin/updates"),
        ("GET", "/api/sessions/sess_0000000000000000/tmux"),
    ):
        answer = await house.http.request(method, path)
        assert answer.status_code == 404
        assert answer.json() == {"detail": "Not Found"}
    answer = await house.http.put("/api/health")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
