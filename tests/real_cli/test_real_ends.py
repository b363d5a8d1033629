"""Turns of the real CLIs that are ended: by a stop, a limit, a signal; and what is left of them."""

import os
import pathlib
import signal

import pytest
import trio
from real_house import FREE, Chat, alive, open_house

pytestmark = pytest.mark.real_cli
both = pytest.mark.parametrize("backend", ["claude", "codex"])


@both
async def test_a_stop_in_the_middle_of_a_tool_leaves_nothing_and_the_chat_goes_on(
    backend, open_chat, client
):
    chat = await open_chat(backend)
    await chat.post("[[stub:longshell seconds=3601]]")
    await chat.tool()
    receipt = await client.stop(chat.id)
    assert (receipt.outcome, receipt.tree_empty) == ("stopped", True)
    turn = await chat.end()
    assert turn.verdict == ("stopped", "stopped")
    assert alive("sleep(3601)") == []
    after = await chat.turn("And now? [[stub:text]]")
    assert after.verdict == ("succeeded", None)


@both
async def test_daemons_that_a_tool_left_do_not_outlive_the_turn(backend, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn("[[stub:daemon seconds=3602]]")
    assert turn.verdict == ("succeeded", None)
    assert turn.last["tree_empty"] is True
    assert alive("sleep 3602") == []


@pytest.mark.parametrize("backend, script", [("claude", "background"), ("codex", "yield")])
async def test_a_command_in_the_background_ends_with_the_turn(backend, script, open_chat):
    chat = await open_chat(backend)
    turn = await chat.turn(f"[[stub:{script} seconds=3603]]")
    assert turn.last["type"] == "turn_finished"
    assert turn.last["tree_empty"] is True
    assert alive("3603") == []


@both
async def test_a_signal_from_outside_is_told_as_what_it_is(backend, open_chat):
    chat = await open_chat(backend)
    await chat.post("[[stub:longshell seconds=3604]]")
    told = await chat.tool()
    (started,) = [event for event in told if event["type"] == "process_started"]
    os.kill(cli_of(chat, started), signal.SIGTERM)
    turn = await chat.end()
    assert turn.verdict == ("failed", "nonzero_exit")
    # Claude answers the signal with a status of its own, Codex dies of it.
    assert turn.last["exit_code"] in (143, -signal.SIGTERM)
    assert alive("sleep(3604)") == []


def cli_of(chat, started):
    """The CLI's own process: its command line begins with the program that was admitted."""
    folder = f"/{chat.backend}-"
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            program = os.readlink(entry / "exe")
            where = os.readlink(entry / "cwd")
        except OSError:
            continue
        if program.endswith(f"/{chat.backend}") and where == started["cwd"]:
            found.append(int(entry.name))
    assert found, folder
    return min(found)


async def test_a_silent_model_is_waited_for_as_long_as_the_idle_limit(clis, tmp_path):
    """Codex gives a silent stream up by itself, but not a model that refuses its connection."""
    limits = {"AGENTSDOCK_IDLE_KILL_SECONDS": "15"}
    ends = {}
    with open_house(tmp_path, clis, codex_model="http://127.0.0.1:9", **limits) as house:
        async with house.client() as client, trio.open_nursery() as nursery:

            async def wait(backend):
                fields = {**FREE[backend], "cwd": str(house.workspace(backend))}
                chat = await Chat.open(house, client, backend, **fields)
                ends[backend] = (await chat.turn("[[stub:stall]]")).verdict

            for backend in FREE:
                nursery.start_soon(wait, backend)
    assert set(ends.values()) == {("failed", "idle_timeout")}, ends


async def test_codex_gives_a_silent_stream_up(open_chat):
    turn = await (await open_chat("codex")).turn("[[stub:stall]]")
    assert turn.verdict == ("failed", "logical_error")
