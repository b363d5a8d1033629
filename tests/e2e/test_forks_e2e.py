"""Forks and imports through a real server: whole or not at all, and never the parent's id."""

import json
import pathlib
import re

import httpx
import pytest
import trio
from chaos.cli_program import install_cli
from serving_house import House, peak_memory
from test_timeline_e2e import get, played

from agentsdock.testing.server import running_server

INHERITED = (
    "folder",
    "cwd",
    "backend",
    "model",
    "effort",
    "system_prompt",
    "cursor_permission_mode",
    "claude_permission_mode",
    "codex_approval_policy",
    "codex_sandbox_mode",
    "provider_jobs_access",
    "pinned",
    "archived",
)


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "projects").mkdir()
    program = install_cli(tmp_path / "bin", pathlib.Path(__file__).with_name("telling_cli.py"))
    return {
        "CURSOR_BIN": str(program),
        "CLAUDE_PROJECTS_ROOT": str(tmp_path / "projects"),
        "CODEX_HOME": str(tmp_path / "codex"),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }


@pytest.fixture
def transcripts(tmp_path):
    return tmp_path / "projects"


@pytest.fixture
def calls(tmp_path):
    """The command lines of the turns that ran."""

    def read():
        told = map(json.loads, (tmp_path / "bin" / "calls").read_text().splitlines())
        return [" ".join(call["argv"]) for call in told if "-p" in call["argv"]]

    return read


async def fork(house, chat, status=200, **body):
    answer = await house.http.post(f"/api/sessions/{chat}/fork", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def events(house, chat):
    return (await get(house, f"/api/sessions/{chat}", limit=1000))["events"]


async def test_a_fork_begins_with_what_was_said_and_not_with_the_session_of_the_cli(house):
    chat, [run] = await played(house, "[[fake tools=1]] plan the garden")
    patch = {"title": "Garden", "folder": "Outside", "system_prompt": "Be brief", "pinned": True}
    await house.http.patch(f"/api/sessions/{chat}", json=patch)
    parent = (await get(house, f"/api/sessions/{chat}"))["session"]
    answer = await fork(house, chat)
    child = answer["session"]
    assert {name: child[name] for name in INHERITED} == {name: parent[name] for name in INHERITED}
    assert (child["title"], child["parent_id"]) == ("Fork of Garden", chat)
    assert child["session_id"] is None
    assert child["cursor_session_id"] is None
    assert child["memory_forked"] is True
    assert child["memory_seed_used"] is False
    assert [row["id"] for row in answer["sessions"]] == [chat, child["id"]]
    copy = await events(house, child["id"])
    assert [event["seq"] for event in copy] == list(range(1, len(copy) + 1))
    assert {event["session_id"] for event in copy} == {child["id"]}
    assert copy[-1]["type"] == "history_imported"
    assert copy[-1]["copied_events"] == len(copy) - 1
    assert [event["type"] for event in copy[:-1]] == [
        "turn_started",
        "tool_started",
        "tool_finished",
        "assistant_text",
        "turn_finished",
    ]
    assert all(event["run_id"] == run and event["forked"] for event in copy[:-1])
    assert child["last_read_agent_event_seq"] == child["latest_agent_event_seq"]
    noted = (await events(house, chat))[-1]
    assert (noted["type"], noted["child_id"]) == ("session_forked", child["id"])


async def test_the_memory_of_a_fork_is_told_once_and_counts_as_told_after_a_success(house, calls):
    chat, _ = await played(house, "[[fake]] plan the garden")
    child = (await fork(house, chat, title="Child"))["session"]["id"]
    prompts = ["[[fake error=1]]", "[[fake]] first", "[[fake]] second"]
    used = []
    for prompt in prompts:
        await finished(house, child, prompt)
        used.append((await get(house, f"/api/sessions/{child}"))["session"]["memory_seed_used"])
    assert used == [False, True, True]
    told = ["Fork memory context" in call for call in calls()[-3:]]
    assert told == [True, True, False]
    assert "plan the garden" in calls()[-2]
    notes = [e for e in await events(house, child) if e["type"] == "history_imported"]
    assert [note.get("run_id") is not None for note in notes] == [False, True]
    assert "--resume" not in calls()[1]


async def finished(house, chat, prompt):
    run = await house.turn(chat, prompt)
    with trio.fail_after(20):
        while True:
            shown = await events(house, chat)
            if any(e["type"] == "turn_finished" and e.get("run_id") == run for e in shown):
                return
            await trio.sleep(0.02)


async def test_a_fork_lives_on_without_its_parent(house):
    chat, _ = await played(house, "[[fake]] needle")
    child = (await fork(house, chat))["session"]["id"]
    before = await events(house, child)
    await house.http.delete(f"/api/sessions/{chat}")
    assert await events(house, child) == before
    found = await get(house, f"/api/sessions/{child}/search", q="needle")
    assert len(found["results"]) == 1
    grandchild = (await fork(house, child))["session"]
    assert grandchild["parent_id"] == child
    assert len(await events(house, grandchild["id"])) == len(before)


async def test_a_chat_that_cannot_be_forked_says_why_and_leaves_nothing(house, tmp_path):
    await fork(house, "sess_0000000000000000", 404)
    chat = await house.chat()
    await house.turn(chat, "[[fake hang=1]]")
    assert "running" in (await fork(house, chat, 409))["detail"]
    await house.http.post(f"/api/sessions/{chat}/stop")
    await house.http.patch(f"/api/sessions/{chat}", json={"cwd": str(tmp_path / "gone")})
    assert "folder" in (await fork(house, chat, 409))["detail"]
    await fork(house, chat, 422, title=7)
    rows = (await get(house, "/api/sessions", summary="true"))["sessions"]
    assert [row["id"] for row in rows] == [chat]


async def test_a_claude_chat_is_forked_where_its_transcript_is(house, transcripts, tmp_path):
    made = await house.http.post(
        "/api/sessions",
        json={"backend": "claude", "claude_session_id": "abc-1", "import_history": False},
    )
    chat = made.json()["session"]["id"]
    assert "transcript" in (await fork(house, chat, 409))["detail"]
    folder = transcripts / re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path))
    folder.mkdir()
    (folder / "abc-1.jsonl").write_text("{}\n")
    child = (await fork(house, chat))["session"]
    assert (child["fork_from"], child["claude_session_id"]) == ("abc-1", None)
    assert child["backend_locked"]
    await house.http.patch(f"/api/sessions/{chat}", json={"cwd": "/"})
    await fork(house, chat, 409)


async def test_history_is_imported_once_unless_forced(house, transcripts):
    lines = [
        {"type": "user", "uuid": "1", "message": {"content": "hello"}, "timestamp": "2026-01-02"},
        {"type": "assistant", "uuid": "2", "message": {"content": "hi"}},
    ]
    (transcripts / "some-folder").mkdir()
    path = transcripts / "some-folder" / "abc-2.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\nnull\n")
    made = await house.http.post(
        "/api/sessions", json={"backend": "claude", "provider_session_id": "abc-2"}
    )
    session = made.json()["session"]
    chat = session["id"]
    assert session["title"] == "Resumed Claude abc-2"
    _, note, user, assistant = await events(house, chat)
    assert note["type"] == "history_imported"
    assert (note["provider_session_id"], note["source_path"]) == ("abc-2", str(path))
    assert re.fullmatch(r"import_[0-9a-f]{12}", note["run_id"])
    assert (user["type"], user["prompt"], user["imported"]) == ("turn_started", "hello", True)
    assert user["ts"] == assistant["ts"] == "2026-01-02T00:00:00Z"
    assert (assistant["type"], assistant["text"]) == ("assistant_text", "hi")
    assert {user["run_id"], assistant["run_id"]} == {note["run_id"]}

    async def again(**body):
        answer = await house.http.post(f"/api/sessions/{chat}/import-history", json=body)
        assert answer.status_code == 200
        return answer.json()

    second = await again()
    assert (second["ok"], second["imported"]) == (True, 0)
    forced = await again(force=True, limit=1)
    assert forced["imported"] == 1
    assert forced["source_path"] == str(path)
    assert "1 no object" in forced["message"]


async def test_a_long_transcript_keeps_nobody_waiting(house, transcripts):
    folder = transcripts / "some-folder"
    folder.mkdir()
    with (folder / "abc-9.jsonl").open("w") as file:
        for number in range(20_000):
            role = "assistant" if number % 2 else "user"
            message = {"role": role, "content": f"{number} " + "x" * 2500}
            file.write(json.dumps({"type": role, "uuid": str(number), "message": message}) + "\n")
        assert file.tell() > 50_000_000
    before = peak_memory(house.server.process.pid)
    waited = []

    async def look():
        while True:
            began = trio.current_time()
            assert (await house.http.get("/healthz")).status_code == 200
            waited.append(trio.current_time() - began)
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        made = await house.http.post(
            "/api/sessions", json={"backend": "claude", "provider_session_id": "abc-9"}
        )
        nursery.cancel_scope.cancel()
    found = await events(house, made.json()["session"]["id"])
    assert [event["type"] for event in found[:2]] == ["session_created", "history_imported"]
    assert found[-1]["text"].startswith("19999 ")
    assert len(found) == 402
    assert max(waited) < 1
    assert peak_memory(house.server.process.pid) - before < 48 << 20


async def test_two_imports_at_once_add_the_history_once(house, transcripts):
    line = {"type": "user", "uuid": "1", "message": {"content": "hello"}}
    (transcripts / "some-folder").mkdir()
    (transcripts / "some-folder" / "abc-3.jsonl").write_text(json.dumps(line) + "\n")
    made = await house.http.post(
        "/api/sessions",
        json={"backend": "claude", "provider_session_id": "abc-3", "import_history": False},
    )
    chat = made.json()["session"]["id"]
    counts = []

    async def once():
        answer = await house.http.post(f"/api/sessions/{chat}/import-history", json={})
        counts.append(answer.json()["imported"])

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(once)
    assert sorted(counts) == [0, 0, 1]
    assert [event.get("prompt") for event in await events(house, chat)].count("hello") == 1


async def test_an_import_that_finds_nothing_says_so_and_fails_nothing(house, transcripts):
    for body in (
        {"backend": "claude", "provider_session_id": "nowhere"},
        {"backend": "codex", "codex_thread_id": "nowhere"},
        {"backend": "claude", "import_history": True},
        {"backend": "cursor", "cursor_session_id": "nowhere", "import_history": True},
    ):
        made = await house.http.post("/api/sessions", json=body)
        assert made.status_code == 200
        chat = made.json()["session"]["id"]
        answer = await house.http.post(f"/api/sessions/{chat}/import-history", json={})
        found = answer.json()
        assert (found["ok"], found["imported"], found["source_path"]) == (True, 0, None)
        assert found["message"]
    missing = await house.http.post("/api/sessions/sess_0000000000000000/import-history", json={})
    assert missing.status_code == 404


async def test_half_a_fork_is_gone_after_a_crash(environment, tmp_path):
    state = tmp_path / "state"
    forked = 0
    for round_ in range(4):
        with running_server(state, environment, token="forks") as server:
            house = House(server)
            async with house.http:
                rows = (await get(house, "/api/sessions"))["sessions"]
                assert all(row["latest_event_type"] for row in rows)
                assert len(rows) == (forked + 1 if rows else 0)
                if not rows:
                    chat, _ = await played(house, "[[fake events=6000 size=100]]")
                    whole = (await get(house, f"/api/sessions/{chat}", limit=1))["latest_seq"]
                for row in rows:
                    if row["parent_id"]:
                        copy = await get(house, f"/api/sessions/{row['id']}", limit=1, tail="true")
                        assert copy["events"][-1]["copied_events"] > 6000 <= whole
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask_and_go, house, chat)
                    await trio.sleep(0.05 * (round_ + 1))
                    server.process.kill()
                    server.process.wait()
                    nursery.cancel_scope.cancel()
        with running_server(state, environment, token="forks") as server:
            house = House(server)
            async with house.http:
                forked = len((await get(house, "/api/sessions"))["sessions"]) - 1


async def ask_and_go(house, chat):
    try:
        await house.http.post(f"/api/sessions/{chat}/fork", json={})
    except httpx.HTTPError:
        pass
