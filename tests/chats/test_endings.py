"""How a run ends: every row of the contract's table, from the message to the durable facts."""

import errno

import pytest
import trio
from attrs import evolve, frozen
from house import living, make_settings, settle
from scripted_guard import INIT, PROVIDER, RESULT, query, result, text, tool

from agentsdock.guard.contract import SpawnFailed
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.requests import PatchSession
from agentsdock.streams.neutral import Bounds

OTHER = "22222222-2222-4222-8222-222222222222"


def by_other(*lines):
    """The same lines from a session with another id."""
    return [line.replace(PROVIDER.encode(), OTHER.encode()) for line in lines]


@frozen
class Row:
    """What the CLI does, and what has to come of it.

    ``exit`` of None: it does not exit by itself.  ``binds``: the id is stored by a first turn.
    ``suspect``: a resumed turn that ends so leaves the id suspect.
    """

    says: tuple[bytes, ...]
    exit: int | None
    code: str | None
    exit_code: int | None
    binds: bool
    suspect: bool = False


ROWS = {
    "success": Row((INIT, text("hi"), RESULT), 0, None, 0, binds=True),
    "success without an exit": Row((INIT, RESULT), None, None, None, binds=True),
    "logical_error": Row((INIT, result(is_error=True)), 1, "logical_error", 1, binds=True),
    "missing_result": Row((INIT, text("hi")), 0, "missing_result", 0, binds=True),
    "missing_init": Row((), 0, "missing_init", 0, binds=False, suspect=True),
    "missing_init, activity": Row(
        (text("hi"),), None, "missing_init", None, binds=False, suspect=True
    ),
    "nonzero_exit": Row((INIT,), 3, "nonzero_exit", 3, binds=True),
    "nonzero_exit after a result": Row((INIT, RESULT), 3, "nonzero_exit", 3, binds=True),
    "nonzero_exit before init": Row((), 3, "nonzero_exit", 3, binds=False, suspect=True),
    "a signal": Row((INIT,), -11, "nonzero_exit", -11, binds=True),
    "unknown_schema": Row((INIT, b'{"type":"x"}\n'), None, "unknown_schema", None, binds=True),
    "bad_line": Row((INIT, b"prose\n"), None, "bad_line", None, binds=True),
    "bad_line before init": Row((b"prose\n",), None, "bad_line", None, binds=False, suspect=True),
    "line_too_long": Row((INIT, b"x" * 70_000), None, "line_too_long", None, binds=True),
    "output_limit": Row((INIT, text("x") * 200), None, "output_limit", None, binds=True),
    "tool_limit": Row(
        (INIT, *(tool(str(n)) for n in range(40))), None, "tool_limit", None, binds=True
    ),
    "startup_timeout": Row((), None, "startup_timeout", None, binds=False, suspect=True),
    "idle_timeout": Row((INIT,), None, "idle_timeout", None, binds=True),
    "approval_required": Row((INIT, query()), None, "approval_required", None, binds=True),
    "approval_required, left": Row((INIT, query()), 0, "approval_required", 0, binds=True),
}


@pytest.fixture
async def house(tmp_path):
    cursor = make_settings(tmp_path).backends["cursor"]
    bounds = Bounds(line_bytes=65_536, stream_lines=100, tool_calls=32)
    backends = {"cursor": evolve(cursor, bounds=bounds)}
    async with living(tmp_path, backends=backends) as house:
        yield house


async def end_a_turn(house, chat, row):
    posted = await house.post(chat)
    process = await house.launcher.next()
    process.say(*row.says)
    if row.exit is not None:
        process.exit(row.exit)
    return await house.terminal(chat, posted["run_id"])


@pytest.mark.parametrize("name", ROWS)
async def test_an_ending_is_told_as_what_it_is(house, name, autojump_clock):
    row = ROWS[name]
    chat = await house.new()
    ending = await end_a_turn(house, chat, row)
    assert ending["type"] == "turn_finished"
    assert ending["code"] == row.code
    assert ending["is_error"] is (row.code is not None)
    assert ending["stopped"] is False
    assert ending["exit_code"] == row.exit_code
    assert ending["result_text"] == ("done" if row.code is None else "")
    assert ending.get("exit_overrun", False) is (row.code is None and row.exit is None)
    assert ending["tree_empty"] is True
    types = await house.types(chat)
    assert types.count("error") == (row.code is not None)
    assert types[-1] == "turn_finished"
    if row.code is not None:
        assert types[-2] == "error"
        [error] = await house.of_type(chat, "error")
        assert (error["code"], error["exit_code"]) == (row.code, row.exit_code)
        assert error["message"]
    assert types[1:3] == ["turn_started", "process_started"]
    assert ("provider_session" in types) is row.binds


@pytest.mark.parametrize("name", ROWS)
async def test_the_next_message_starts_whatever_the_ending(house, name, autojump_clock):
    row = ROWS[name]
    chat = await house.new()
    await house.post(chat, "first")
    process = await house.launcher.next()
    assert (await house.post(chat, "second"))["queued"]
    process.say(*row.says)
    if row.exit is not None:
        process.exit(row.exit)
    second = await house.launcher.next()
    second.say(INIT, RESULT)
    second.exit(0)
    await settle()
    assert [e["code"] for e in await house.of_type(chat, "turn_finished")] == [row.code, None]
    assert await house.rows(chat) == []


@pytest.mark.parametrize("name", ROWS)
async def test_the_provider_s_id_is_stored_at_a_valid_init_and_the_rest_by_success(
    house, name, autojump_clock
):
    row = ROWS[name]
    chat = await house.new()
    await end_a_turn(house, chat, row)
    binding = house.session(chat).cursor
    assert binding.session_id == (PROVIDER if row.binds else None)
    assert (binding.instruction_hash is not None) is (row.code is None)
    assert (binding.instruction_version is not None) is (row.code is None)
    assert binding.failed_resumes == 0
    stored = (await house.store.load()).sessions[0]
    assert stored == house.session(chat)


@pytest.mark.parametrize("name", ROWS)
async def test_a_resumed_turn_that_fails_before_init_makes_its_id_suspect(
    house, name, autojump_clock
):
    row = ROWS[name]
    chat = await house.new()
    await house.play(chat, INIT, RESULT)
    before = house.session(chat).cursor
    ending = await end_a_turn(house, chat, row)
    assert house.launcher.launched[-1].spec.argv[-2:] == ("--resume", PROVIDER)
    after = house.session(chat).cursor
    assert after == evolve(before, failed_resumes=int(row.suspect))
    assert ending.get("provider_session_suspect", False) is row.suspect
    [*_, told] = await house.events(chat)
    assert told.get("provider_session_suspect", False) is row.suspect


async def test_another_id_than_the_resumed_one_changes_nothing_that_is_stored(
    house, autojump_clock
):
    chat = await house.new()
    await house.play(chat, INIT, RESULT)
    before = house.session(chat).cursor
    ending = await house.play(chat, *by_other(INIT, RESULT))
    assert ending["code"] == "session_mismatch"
    assert house.session(chat).cursor == evolve(before, failed_resumes=1)
    assert ending["provider_session_suspect"] is True


async def test_an_init_clears_the_suspicion(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, RESULT)
    await house.play(chat, exit_code=3)
    assert house.session(chat).cursor.failed_resumes == 1
    await house.play(chat, INIT, exit_code=3)
    assert house.session(chat).cursor.failed_resumes == 0


async def test_two_failed_resumes_in_a_row_start_a_fresh_session_with_memory(house, autojump_clock):
    chat = await house.new(system_prompt="Be brief.")
    await house.play(chat, INIT, text("the tests pass"), RESULT, prompt="run the tests")
    await house.play(chat, exit_code=3)
    await house.play(chat, exit_code=3)
    assert await house.of_type(chat, "provider_rollover") == []
    ending = await house.play(chat, *by_other(INIT, RESULT), prompt="and now?")
    assert ending["code"] is None
    [rollover] = await house.of_type(chat, "provider_rollover")
    assert rollover["old_provider_session_id"] == PROVIDER
    assert rollover["run_id"] == ending["run_id"]
    assert "--resume" not in house.launcher.launched[-1].spec.argv
    prompt = house.backend.prompts[-1]
    for part in ("Be brief.", "User: run the tests", "Assistant: the tests pass", "and now?"):
        assert part in prompt
    session = house.session(chat)
    assert (session.cursor.session_id, session.cursor.failed_resumes) == (OTHER, 0)
    assert session.memory_seed_used is True
    await house.play(chat, *by_other(INIT, RESULT), prompt="next")
    assert "run the tests" not in house.backend.prompts[-1]


async def test_memory_that_a_failed_turn_was_given_is_given_again(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, text("hello"), RESULT, prompt="remember me")
    for _ in range(2):
        await house.play(chat, exit_code=3)
    await house.play(chat, *by_other(INIT), exit_code=3)
    await house.play(chat, *by_other(INIT, RESULT))
    assert "remember me" in house.backend.prompts[-1]
    assert len(await house.of_type(chat, "provider_rollover")) == 1


@pytest.mark.parametrize("how", ["stop", "shutdown", "gone", "forbidden", "full", "bug"])
async def test_what_the_cli_is_not_to_blame_for_makes_no_id_suspect(house, how, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, RESULT)
    before = house.session(chat).cursor
    if how in ("gone", "forbidden"):
        number = errno.ENOENT if how == "gone" else errno.EACCES
        house.launcher.fails = [SpawnFailed("no", number)]
    posted = await house.post(chat)
    if how not in ("gone", "forbidden"):
        process = await house.launcher.next()
    if how == "stop":
        await house.stop(chat)
    elif how == "shutdown":
        await house.stopper.shut_down()
    elif how in ("full", "bug"):
        code = Code.STORAGE_FULL if how == "full" else Code.INTERNAL_ERROR
        house.registry.require(chat).live.runner.fail(code, "ours")
        process.exit(1)
    ending = await house.terminal(chat, posted["run_id"])
    assert house.session(chat).cursor == before
    assert "provider_session_suspect" not in ending


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOENT, "runtime_unavailable"), (errno.EACCES, "spawn_failed")],
)
async def test_a_program_that_does_not_start_leaves_no_process(house, number, code, autojump_clock):
    chat = await house.new()
    house.launcher.fails = [SpawnFailed("it did not start", number)]
    posted = await house.post(chat)
    ending = await house.terminal(chat, posted["run_id"])
    assert (ending["code"], ending["exit_code"], ending["tree_empty"]) == (code, None, True)
    assert await house.types(chat) == ["session_created", "turn_started", "error", "turn_finished"]
    await settle()
    assert house.runtimes.told == (["missing"] if code == "runtime_unavailable" else [])


async def test_a_prompt_that_fits_no_more_at_launch_fails_with_the_prompt_kept(
    house, autojump_clock
):
    chat = await house.new()
    await house.chats.patch(chat, PatchSession(system_prompt="x" * 5000))
    posted = await house.post(chat, "my message")
    ending = await house.terminal(chat, posted["run_id"])
    assert (ending["code"], ending["is_error"]) == ("prompt_too_large", True)
    [started] = await house.of_type(chat, "turn_started")
    assert started["prompt"] == "my message"
    assert house.launcher.launched == []


async def test_a_stopped_turn(house, autojump_clock):
    chat = await house.new()
    await house.post(chat, "first")
    process = await house.launcher.next()
    await house.post(chat, "second")
    process.say(INIT, text("so far"))
    await settle()
    await house.stop(chat)
    ending = await house.terminal(chat)
    assert (ending["type"], ending["code"]) == ("turn_finished", "stopped")
    assert (ending["stopped"], ending["is_error"], ending["result_text"]) == (True, False, "")
    assert ending["exit_code"] is None
    assert "error" not in await house.types(chat)
    assert [(row["paused"], row["pause_reason"]) for row in await house.rows(chat)] == [
        (True, "stopped")
    ]
    binding = house.session(chat).cursor
    assert (binding.session_id, binding.instruction_hash) == (PROVIDER, None)


async def test_a_turn_stopped_before_its_process(house, autojump_clock):
    house.launcher.gate = trio.Event()
    chat = await house.new()
    posted = await house.post(chat)
    await house.launcher.launching.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stop, chat)
        await settle()
        house.launcher.gate.set()
    ending = await house.terminal(chat, posted["run_id"])
    assert (ending["code"], ending["stopped"]) == ("stopped", True)


async def test_a_turn_of_a_deleted_chat(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    seen = []
    with house.feed.watch(chat, 0) as watcher:

        async def follow():
            while True:
                try:
                    seen.extend(event.decode() for event in await watcher.next())
                except trio.EndOfChannel:
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await settle()
            assert (await house.chats.delete(chat))["deleted"]
    assert (seen[-1]["type"], seen[-1]["code"]) == ("turn_finished", "stopped")
    assert seen[-1]["stop_reason"] == "deleted"
    assert "turn_queue_paused" not in [event["type"] for event in seen]
    assert process.closed.is_set()
    assert (await house.store.load()).sessions == ()


async def test_a_turn_of_an_archived_chat_goes_on_and_its_rows_wait(house, autojump_clock):
    chat = await house.new()
    posted = await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    await house.chats.patch(chat, PatchSession(archived=True))
    process.say(INIT, RESULT)
    process.exit(0)
    assert (await house.terminal(chat, posted["run_id"]))["code"] is None
    await trio.sleep(1000)
    assert len(house.launcher.launched) == 1
    await house.chats.patch(chat, PatchSession(archived=False))
    await house.launcher.next()


async def test_a_turn_at_a_shutdown_and_its_rows_at_the_next_boot(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        await house.post(chat, "second")
        process.say(INIT)
        await settle()
        await house.stopper.shut_down()
        ending = await house.terminal(chat)
        assert (ending["type"], ending["code"]) == ("turn_finished", "server_shutdown")
        assert (ending["stopped"], ending["is_error"]) == (True, False)
        assert [row["paused"] for row in await house.rows(chat)] == [False]
        assert len(house.launcher.launched) == 1
    async with living(tmp_path) as house:
        process = await house.launcher.next()
        assert process.spec.argv[-2:] == ("--resume", PROVIDER)
        [_, started] = await house.of_type(chat, "turn_started")
        assert started["prompt"] == "second"


async def test_a_turn_that_a_crash_cut_off(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        posted = await house.post(chat)
        process = await house.launcher.next()
        await house.post(chat, "second")
        process.say(INIT, text("so far"))
        await settle()
    async with living(tmp_path) as house:
        [ending] = await house.of_type(chat, "turn_finished", "turn_stopped")
        assert (ending["type"], ending["code"]) == ("turn_stopped", "server_restart")
        assert (ending["stopped"], ending["is_error"]) == (True, False)
        assert ending["recovered_after_restart"] is True
        assert (ending["run_id"], ending["exit_code"]) == (posted["run_id"], None)
        assert house.session(chat).cursor.session_id == PROVIDER
        await house.launcher.next()
        started = await house.of_type(chat, "turn_started")
        assert [event["prompt"] for event in started] == ["do it", "second"]


async def test_a_bug_in_one_turn_ends_no_other(house, autojump_clock):
    broken, sound = await house.new(), await house.new()
    await house.post(broken)
    await house.launcher.next()
    await house.post(sound)
    second = await house.launcher.next()
    house.registry.require(broken).live.runner.machine._parser = None
    house.launcher.launched[0].say(INIT)
    ending = await house.terminal(broken)
    assert (ending["code"], ending["is_error"]) == ("internal_error", True)
    second.say(INIT, RESULT)
    second.exit(0)
    assert (await house.terminal(sound))["code"] is None
    assert house.launcher.all_closed


async def test_an_ending_that_cannot_be_put_into_words_is_an_error_of_ours(house, autojump_clock):
    chat = await house.new()
    posted = await house.post(chat)
    process = await house.launcher.next()
    unsayable = Draft("turn_finished", {"stopped": True, "is_error": False, "run_id": object()})
    house.registry.require(chat).live.runner.machine.finish = lambda end: [unsayable]
    await house.stop(chat)
    ending = await house.terminal(chat, posted["run_id"])
    assert (ending["code"], ending["is_error"]) == ("internal_error", True)
    assert process.closed.is_set()


async def test_an_ending_that_fails_is_an_error_of_ours_by_its_own_name(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    await house.launcher.next()
    house.registry.require(chat).live.runner.machine.finish = lambda end: 1 // 0
    await house.stop(chat)
    ending = await house.terminal(chat)
    assert ending["code"] == "internal_error"
    assert ending["message"].startswith("ZeroDivisionError in the server")


async def test_a_bug_in_what_is_learned_from_a_turn_harms_no_other(house, autojump_clock):
    chat, other = await house.new(), await house.new()
    house.runtimes.record_success = None
    ended = []
    house.dispatcher.capsules.wake = lambda: ended.append("recording may be compressed")
    assert (await house.play(chat, INIT, RESULT))["code"] is None
    await settle()
    assert (await house.play(other, INIT, RESULT))["code"] is None
    assert len(ended) == 2


async def test_what_a_turn_taught_about_its_cli_is_passed_on(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, RESULT)
    posted = await house.post(chat)
    process = await house.launcher.next()
    process.complain(b"Error: not logged in\n")
    process.exit(1)
    await house.terminal(chat, posted["run_id"])
    await settle()
    await house.post(chat)
    await house.launcher.next()
    await house.stop(chat)
    await settle()
    assert house.runtimes.told == ["success", ("failure", True)]


@pytest.mark.parametrize("code", [Code.STORAGE_FULL, Code.INTERNAL_ERROR, Code.PROMPT_TOO_LARGE])
async def test_what_the_cli_did_not_cause_is_not_told_of_it(house, code, autojump_clock):
    chat = await house.new()
    posted = await house.post(chat)
    await house.launcher.next()
    house.registry.require(chat).live.runner.fail(code, "ours")
    assert (await house.terminal(chat, posted["run_id"]))["code"] == code
    await settle()
    assert house.runtimes.told == []
