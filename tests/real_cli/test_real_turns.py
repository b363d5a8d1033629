"""Turns of the real Claude Code and Codex: what they say, what they cost, how they fail."""

import json

import httpx
import pytest
import trio
from installing import PINS
from real_house import TOKEN, Chat, judged_again

pytestmark = pytest.mark.real_cli
both = pytest.mark.parametrize("backend", ["claude", "codex"])

HELLO = "Hello from the scripted model. The answer is 42."


@both
async def test_a_turn_has_an_answer_and_what_it_cost(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("Say hello [[stub:text]]")
    assert turn.verdict == ("succeeded", None)
    assert turn.last["result_text"] == HELLO
    assert [event["text"] for event in turn.of("assistant_text")][-1] == HELLO
    assert (turn.last["exit_code"], turn.last["tree_empty"]) == (0, True)
    assert turn.last["output_tokens"] == 20
    assert turn.last["input_tokens"] >= 100
    assert (turn.last.get("cost_usd") is not None) == (backend == "claude")
    assert len(turn.of("provider_session")) == 1


async def test_the_real_programs_are_found_ready_in_their_pinned_versions(client):
    catalog = await client.catalog(refresh=True)
    pins = json.loads((PINS / "package.json").read_text())["dependencies"]
    for backend, package in (("claude", "@anthropic-ai/claude-code"), ("codex", "@openai/codex")):
        found = catalog["backends"][backend]
        assert found["diagnostic"]["installed"] is True
        assert pins[package] in found["diagnostic"]["version"]
        assert len(found["models"]) > 1
    assert catalog["backends"]["claude"]["diagnostic"]["status"] == "ready"


@both
async def test_what_the_cli_wrote_down_is_imported_into_a_new_chat(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("Remember Orion [[stub:text]]")
    (bound,) = turn.of("provider_session")
    cwd = (await chat.session())["cwd"]
    again = await open_chat(backend, cwd=cwd, provider_session_id=bound["provider_session_id"])
    events = (await again.client.session(again.id))["events"]
    (asked,) = [event for event in events if event["type"] == "turn_started"]
    (told,) = [event for event in events if event["type"] == "assistant_text"]
    assert "Remember Orion" in asked["prompt"]
    assert (told["text"], told["imported"]) == (HELLO, True)


@both
async def test_files_and_commands_are_seen_as_tools_and_done(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("Make notes [[stub:multi]]")
    assert turn.verdict == ("succeeded", None)
    assert turn.last["tools"]["ok"] >= 4
    assert turn.last["tools"]["failed"] == turn.last["tools"]["unfinished"] == 0
    session = await chat.session()
    assert (chat.house.folder / session["cwd"] / "notes.txt").read_text() == "goodbye\nworld\n"
    assert "notes.txt" in str(turn.of("code_diff"))


@both
async def test_the_next_turn_goes_on_with_the_same_conversation(backend, open_chat):
    chat = await open_chat(backend)
    first = await chat.turn("One [[stub:text]]")
    again = await chat.turn("Two [[stub:shell cmd=pwd]]")
    assert again.verdict == ("succeeded", None)
    ids = [turn.of("provider_session")[0]["provider_session_id"] for turn in (first, again)]
    assert ids[0] == ids[1]


@both
async def test_a_fork_answers_and_leaves_the_first_chat_as_it_was(
    backend, open_chat, client, real_house
):
    chat = await open_chat(backend)
    await chat.turn("One [[stub:text]]")
    answer = httpx.post(
        f"{real_house.url}/api/sessions/{chat.id}/fork",
        json={},
        headers={"Authorization": f"Bearer {TOKEN}"},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    fork = Chat(real_house, client, answer.json()["session"])
    fork.seq = (await client.session(fork.id, limit=1))["session"]["latest_event_seq"]
    turn = await fork.turn("Two [[stub:text]]")
    assert turn.verdict == ("succeeded", None)
    again = await chat.turn("Three [[stub:text]]")
    ids = {one.of("provider_session")[0]["provider_session_id"] for one in (turn, again)}
    assert len(ids) == 2


@both
async def test_a_failing_model_is_an_error_after_few_tries(backend, open_chat):
    async def fail(script):
        chat = await open_chat(backend)
        turn = await chat.turn(f"Fail [[stub:{script}]]")
        assert turn.verdict == ("failed", "logical_error"), script
        assert turn.last["result_text"] == ""
        tries = [one for one in chat.house.asked() if one["script"] == script]
        mine = [one for one in tries if (one["api"] == "messages") == (backend == "claude")]
        assert 1 <= len(mine) <= 8, script

    async with trio.open_nursery() as nursery:
        for script in ("e400", "e401", "e429", "e500"):
            nursery.start_soon(fail, script)


@both
async def test_a_stream_that_breaks_off_is_no_answer(backend, open_chat):
    async def break_off(script):
        turn = await (await open_chat(backend)).turn(f"[[stub:{script}]]")
        assert turn.verdict == ("failed", "logical_error"), script

    async with trio.open_nursery() as nursery:
        for script in ("drop", "cut", "toolthen500"):
            nursery.start_soon(break_off, script)


@both
async def test_what_comes_in_the_end_is_the_answer(backend, open_chat):
    async def recover(script):
        mark = f"[[stub:{script} for={backend}]]"
        turn = await (await open_chat(backend)).turn(mark)
        assert turn.verdict == ("succeeded", None), script
        assert turn.last["result_text"]

    async with trio.open_nursery() as nursery:
        for script in ("e429once", "droponce", "slow"):
            nursery.start_soon(recover, script)


async def test_claude_s_refused_tools_are_told(open_chat):
    chat = await open_chat("claude", claude_permission_mode="default")
    turn = await chat.turn('[[stub:shell cmd="touch made.txt"]]')
    assert turn.verdict == ("succeeded", None)
    assert turn.last["tools"]["rejected"] == 1
    assert not (chat.house.folder / (await chat.session())["cwd"] / "made.txt").exists()


async def test_codex_changes_nothing_in_a_read_only_sandbox(open_chat):
    chat = await open_chat("codex", codex_sandbox_mode="read-only")
    turn = await chat.turn("[[stub:write path=made.txt]]")
    assert turn.verdict == ("succeeded", None)
    assert not (chat.house.folder / (await chat.session())["cwd"] / "made.txt").exists()


@both
async def test_a_prompt_that_no_argument_could_carry_arrives(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("x" * 300_000 + " [[stub:echo text=arrived]]")
    assert turn.verdict == ("succeeded", None)
    assert turn.last["result_text"] == "arrived"


@both
async def test_its_recording_is_judged_as_the_turn_was(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("Make notes [[stub:multi]]")
    again = judged_again(chat, turn)
    assert (again.state, again.code) == turn.verdict
    assert again.result_text == turn.last["result_text"]
    assert again.tools == turn.last["tools"]
