"""Turns of Claude Code and Codex through a real server: the same promises in other dialects."""

import json
import pathlib
import sys

import httpx
import pytest
import trio
from serving_house import House
from test_timeline_e2e import get, played

from agentsdock.testing import fake_agent
from agentsdock.testing.server import running_server

TOKEN = "e2e-SECRET-7"
BACKENDS = ("claude", "codex")
STARTS = {"claude": "claude_session_id", "codex": "codex_thread_id"}


def speaking(folder, name):
    program = folder / name
    _, _, source = pathlib.Path(fake_agent.__file__).read_text().partition("\n")
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    environ = {
        "CLAUDE_BIN": speaking(folder, "claude"),
        "CODEX_BIN": speaking(folder, "codex"),
        "CODEX_HOME": str(folder / "codex-home"),
        "CURSOR_BIN": str(folder / "nothing"),
        "AGENTSDOCK_AGENT_CWD": str(folder),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.4",
        "AGENTSDOCK_CLAUDE_POST_TERMINAL_EXIT_SECONDS": "0.3",
        "AGENTSDOCK_CODEX_POST_TERMINAL_EXIT_SECONDS": "0.3",
    }
    with running_server(folder / "state", environ, token=TOKEN) as running:
        yield running


@pytest.fixture
async def dock(server):
    house = House(server)
    async with house.http:
        with trio.fail_after(60):
            yield house


async def chat_of(dock, backend, **fields):
    answer = await dock.http.post("/api/sessions", json={"backend": backend, **fields})
    return answer.raise_for_status().json()["session"]["id"]


async def ran(dock, chat, prompt):
    """The events of one turn, its terminal one last."""
    _, [run] = await played(dock, prompt, chat=chat)
    page = await get(dock, f"/api/sessions/{chat}", limit=1000)
    return [event for event in page["events"] if event.get("run_id") == run]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_turn_is_told_as_any_other_and_the_next_one_goes_on(dock, backend):
    chat = await chat_of(dock, backend)
    first = await ran(dock, chat, "[[fake events=2 tools=1]]")
    types = [event["type"] for event in first]
    assert types[:3] == ["turn_started", "process_started", "provider_session"]
    assert types.count("assistant_text") == 2
    assert types[-1] == "turn_finished"
    end = first[-1]
    assert (end["code"], end["is_error"], end["stopped"], end["exit_code"]) == (
        None,
        False,
        False,
        0,
    )
    assert end["result_text"] == [e["text"] for e in first if e["type"] == "assistant_text"][-1]
    assert end["tree_empty"] is True
    session = (await get(dock, f"/api/sessions/{chat}"))["session"]
    assert session[STARTS[backend]] == session["session_id"] == end["provider_session_id"]
    second = await ran(dock, chat, "[[fake]]")
    assert second[-1]["provider_session_id"] == end["provider_session_id"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "orders,code",
    [
        ("error=1 exit=1", "logical_error"),
        ("noresult=1", "missing_result"),
        ("noinit=1 noresult=1 events=0", "missing_init"),
        ("exit=3", "nonzero_exit"),
        ("noresult=1 exit=2", "nonzero_exit"),
        ("nonjson=1", "bad_line"),
    ],
)
async def test_each_failure_is_told_apart(dock, backend, orders, code):
    *_, error, end = await ran(dock, await chat_of(dock, backend), f"[[fake {orders}]]")
    assert (error["type"], error["code"]) == ("error", code)
    assert (end["type"], end["code"], end["is_error"]) == ("turn_finished", code, True)
    assert end["result_text"] == ""


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_it_left_behind_is_ended_after_a_success_too(dock, backend):
    end = (await ran(dock, await chat_of(dock, backend), "[[fake child=setsid,plain]]"))[-1]
    assert (end["code"], end["tree_empty"], end["processes_ended"]) == (None, True, 2)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_one_that_overstays_its_result_is_a_success_that_was_ended(dock, backend):
    end = (await ran(dock, await chat_of(dock, backend), "[[fake linger=-1]]"))[-1]
    assert (end["code"], end["exit_overrun"], end["tree_empty"]) == (None, True, True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("deaf", [0, 1])
async def test_a_stop_ends_it_and_all_that_it_started(dock, backend, deaf):
    chat = await chat_of(dock, backend)
    await dock.turn(chat, f"[[fake hang=1 child=setsid ignoreterm={deaf}]]")
    async with dock.follow(chat) as socket:
        while json.loads(await socket.get_message())["type"] != "provider_session":
            pass
    receipt = (await dock.http.post(f"/api/sessions/{chat}/stop")).json()
    assert (receipt["outcome"], receipt["tree_empty"]) == ("stopped", True)


async def test_usage_is_told_with_the_turn_and_summed_for_the_chat(dock):
    chat = await chat_of(dock, "claude")
    for turns in (1, 2):
        end = (await ran(dock, chat, "[[fake]]"))[-1]
        assert (end["input_tokens"], end["output_tokens"], end["cost_usd"]) == (1, 1, 0.0)
        usage = (await get(dock, f"/api/sessions/{chat}"))["session"]["usage"]
        assert (usage["input_tokens"], usage["total_tokens"]) == (turns, 2 * turns)


async def test_of_a_thread_s_running_total_only_the_turn_s_own_part_counts(dock):
    chat = await chat_of(dock, "codex")
    for turns in (1, 2, 3):
        end = (await ran(dock, chat, f"[[fake used={turns}]]"))[-1]
        assert (end["input_tokens"], end["output_tokens"]) == (1, 1)
    usage = (await get(dock, f"/api/sessions/{chat}"))["session"]["usage"]
    assert usage["total_tokens"] == 6


async def test_a_fork_of_a_thread_begins_with_its_copy_and_has_an_id_of_its_own(dock):
    chat = await chat_of(dock, "codex")
    before = (await ran(dock, chat, "[[fake used=1]]"))[-1]
    answer = await dock.http.post(f"/api/sessions/{chat}/fork", json={})
    child = answer.raise_for_status().json()["session"]
    assert (child["codex_thread_id"], child["fork_from"]) == (None, before["provider_session_id"])
    end = (await ran(dock, child["id"], "[[fake used=2]]"))[-1]
    assert end["provider_session_id"] != before["provider_session_id"]
    assert end["input_tokens"] == 1
    session = (await get(dock, f"/api/sessions/{child['id']}"))["session"]
    assert (session["fork_from"], session["usage"]["total_tokens"]) == (None, 2)


async def test_a_fork_whose_source_the_cli_has_lost_goes_on_afresh_with_memory(dock):
    chat = await chat_of(dock, "codex")
    await ran(dock, chat, "[[fake]] remember the blue door")
    child = (await dock.http.post(f"/api/sessions/{chat}/fork", json={})).json()["session"]
    for _ in range(2):
        end = (await ran(dock, child["id"], "[[fake noinit=1 noresult=1 events=0 exit=1]]"))[-1]
        assert (end["code"], end["provider_session_suspect"]) == ("nonzero_exit", True)
    first, *_, end = await ran(dock, child["id"], "[[fake]]")
    assert (first["type"], end["code"]) == ("turn_started", None)
    told = (await get(dock, f"/api/sessions/{child['id']}", limit=1000))["events"]
    assert [e["type"] for e in told if e["type"] == "provider_rollover"] == ["provider_rollover"]
    session = (await get(dock, f"/api/sessions/{child['id']}"))["session"]
    assert (session["fork_from"], session["memory_seed_used"]) == (None, True)


async def test_what_a_chat_has_used_is_known_after_a_restart(tmp_path):
    environ = {
        "CODEX_BIN": speaking(tmp_path, "codex"),
        "CODEX_HOME": str(tmp_path / "codex-home"),
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
    }
    chat = None
    for turns in (1, 2):
        with running_server(tmp_path / "state", environ, token=TOKEN) as running:
            house = House(running)
            async with house.http:
                with trio.fail_after(60):
                    chat = chat or await chat_of(house, "codex")
                    end = (await ran(house, chat, f"[[fake used={turns}]]"))[-1]
                    session = (await get(house, f"/api/sessions/{chat}"))["session"]
        assert (end["total_tokens"], session["usage"]["total_tokens"]) == (2, 2 * turns)


async def test_a_prompt_of_any_length_is_taken(dock):
    for backend in BACKENDS:
        prompt = f"{'x' * 400_000} [[fake]]"
        assert (await ran(dock, await chat_of(dock, backend), prompt))[-1]["code"] is None


async def test_health_and_catalogue_tell_of_all_three(dock):
    catalog = (await get(dock, "/api/runtime/catalog"))["backends"]
    states = {name: entry["diagnostic"]["status"] for name, entry in catalog.items()}
    assert states == {"claude": "ready", "codex": "ready", "cursor": "missing"}
    assert [catalog[name]["available"] for name in ("claude", "codex", "cursor")] == [
        True,
        True,
        False,
    ]
    for name in BACKENDS:
        assert len(catalog[name]["models"]) > 1
    health: httpx.Response = await dock.http.get("/api/health")
    assert health.json()["runtimes"]["claude"]["status"] == "ready"
