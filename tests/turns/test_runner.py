"""A turn from its launch to its final events."""

import errno

import pytest
import trio
from attrs import evolve
from running_turns import LIMITS, RUN, Turn, running
from scripted_guard import INIT, PROVIDER, RESULT, result, settle, text, tool

from agentsdock.guard.contract import SpawnFailed
from agentsdock.model.codes import Code
from agentsdock.turns.capsule import CapsuleWriter, open_capsule
from agentsdock.turns.verdicts import StopReason


async def test_a_success_is_told_in_order_with_its_facts(autojump_clock):
    async with running() as turn:
        await trio.sleep(1.5)
        turn.process.say(INIT, text("hello"))
        await trio.sleep(2)
        turn.process.say(result("the answer"))
        turn.process.exit(0)
        ending = await turn.terminal()
    assert turn.ledger.types == ["process_started", "provider_session", "assistant_text"]
    assert [draft.type for draft in turn.last] == ["turn_finished"]
    assert (ending["code"], ending["result_text"], ending["exit_code"]) == (None, "the answer", 0)
    assert (ending["stopped"], ending["is_error"], ending["tree_empty"]) == (False, False, True)
    assert "exit_overrun" not in ending
    assert ending["wall_seconds"] == 3.5
    assert ending["startup_ms"] == 1500.0
    assert (ending["elapsed_ms"], ending["cpu_seconds"]) == (1.2, 0.123)
    assert ending["provider_session_id"] == PROVIDER
    assert turn.ledger.states == [("handed_over", turn.process.pid), "acknowledged"]
    assert turn.process.ends == 0


async def test_what_is_shown_of_the_command_is_not_the_command(autojump_clock):
    async with running() as turn:
        turn.process.exit(1)
        await turn.terminal()
    started = turn.ledger.drafts[0]
    assert started.payload["argv"] == ["agent", "-p", "<prompt>"]
    assert started.payload["run_id"] == RUN


async def test_the_last_words_before_an_exit_are_all_heard(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, *(text(str(n)) for n in range(3000)), RESULT)
        turn.process.exit(0)
        assert await turn.code() is None
    assert turn.ledger.texts == [str(n) for n in range(3000)]


async def test_a_failing_exit_after_a_success_is_no_success(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, RESULT)
        turn.process.exit(3)
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"], ending["result_text"]) == ("nonzero_exit", 3, "")
    assert [draft.type for draft in turn.last] == ["error", "turn_finished"]


async def test_a_signal_from_outside_is_told_as_one(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        turn.process.exit(-9)
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"], ending["signal"]) == (
        "nonzero_exit",
        -9,
        "SIGKILL",
    )


async def test_a_fault_in_the_stream_ends_the_cli_at_once(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, b"{not json}\n", text("never shown"))
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"]) == ("bad_line", None)
    assert turn.process.ends == 1
    assert turn.ledger.texts == []


async def test_a_call_without_an_end_gets_one(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, tool("c1"), RESULT)
        turn.process.exit(0)
        ending = await turn.terminal()
    assert [draft.type for draft in turn.last] == ["tool_finished", "turn_finished"]
    assert ending["tools"]["unfinished"] == 1


async def test_a_daemon_that_holds_the_pipe_does_not_hold_the_turn(autojump_clock):
    async with running() as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == (None, LIMITS.drain_seconds)


async def test_a_daemon_that_goes_on_talking_does_not_hold_the_turn_either(autojump_clock):
    async with running() as turn, trio.open_nursery() as nursery:
        turn.process.pipes_outlive_exit = True
        turn.process.say(INIT, RESULT)

        async def talk():
            while True:
                await trio.sleep(0.3)
                turn.process.say(text("more"))

        nursery.start_soon(talk)
        turn.process.exit(0)
        ending = await turn.terminal()
        nursery.cancel_scope.cancel()
    assert (ending["code"], ending["wall_seconds"]) == (None, LIMITS.drain_seconds)


async def test_survivors_are_told_loudly(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, RESULT)
        turn.process.exit(0, survivors=(77, 78), processes_ended=3)
        ending = await turn.terminal()
    assert ending["tree_empty"] is False
    assert (ending["survivors"], ending["processes_ended"]) == ([77, 78], 3)


async def test_a_guard_that_is_lost_makes_no_success_of_a_turn(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, text("half"))
        turn.process.exit(None, guard_lost=True)
        ending = await turn.terminal()
    assert (ending["code"], ending["guard_lost"]) == ("internal_error", True)


async def test_a_guard_that_never_reports_leaves_the_tree_unproven(autojump_clock):
    async with running() as turn:
        turn.process.stop_takes = float("inf")
        turn.process.end = trio.sleep_forever
        turn.runner.fail(Code.TURN_TIMEOUT, "over")
        ending = await turn.terminal()
    assert (ending["code"], ending["tree_empty"]) == ("turn_timeout", False)


async def test_stdout_is_emptied_while_the_tree_is_ended(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        turn.process.stop_takes = 1.0
        await settle()
        turn.runner.stop(StopReason.USER)
        await settle()
        turn.process.say(b"x" * 5_000_000)
        await settle()
        assert turn.process.unread == 0
        assert await turn.code() == "stopped"


async def test_stderr_is_kept_to_its_tail_and_counted_whole(autojump_clock):
    async with running() as turn:
        turn.process.complain(b"a" * 500_000)
        turn.process.complain(b"\nthe last word\n")
        await settle()
        turn.process.complain(b"and one more\n")
        turn.process.exit(2)
        await turn.terminal()
    error = turn.last[0].payload
    assert error["stderr_bytes"] == 500_000 + len("\nthe last word\nand one more\n")
    assert error["stderr_tail"].endswith("the last word\nand one more\n")
    assert len(error["stderr_tail"]) == 4000


async def test_the_tail_of_stderr_keeps_its_length_as_it_moves_on(autojump_clock):
    async with running(evolve(LIMITS, stderr_tail_bytes=4096)) as turn:
        for data in (b"a" * 8190, b"b" * 10, b"c" * 10):
            turn.process.complain(data)
            await settle()
        turn.process.exit(2)
        await turn.terminal()
    assert turn.last[0].payload["stderr_tail"] == "a" * 3980 + "b" * 10 + "c" * 10


async def test_stderr_of_the_cli_s_last_moments_is_waited_for(autojump_clock):
    async with running() as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.exit(2)
        turn.process._stdout.close()
        await trio.sleep(1)
        turn.process.complain(b"Error: too late?\n")
        await turn.terminal()
    assert turn.last[0].payload["stderr_tail"] == "Error: too late?\n"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.E2BIG, "prompt_too_large"),
        (errno.ENOENT, "runtime_unavailable"),
        (errno.EACCES, "spawn_failed"),
        (None, "spawn_failed"),
    ],
)
async def test_a_program_that_cannot_start_says_why(number, code, autojump_clock):
    turn = Turn()
    turn.launcher.fails = [SpawnFailed("it did not start", number)]
    await turn.run()
    ending = await turn.terminal()
    assert (ending["code"], ending["is_error"], ending["exit_code"]) == (code, True, None)
    assert (ending["tree_empty"], ending["message"]) == (True, "it did not start")
    assert turn.ledger.types == []
    assert [draft.type for draft in turn.last] == ["error", "turn_finished"]


async def test_a_turn_that_was_refused_before_it_ran_launches_nothing():
    turn = Turn(spec=False)
    turn.runner.fail(Code.PROMPT_TOO_LARGE, "too large")
    await turn.run()
    assert await turn.code() == "prompt_too_large"
    assert turn.launcher.launched == []


class Exploding:
    """A parser with a bug in it."""

    def __init__(self, facts):
        self.facts = facts

    def feed(self, data):
        if b"boom" in data:
            raise ZeroDivisionError("of ours")
        return []

    def end(self):
        return []


async def test_a_bug_of_ours_ends_the_turn_and_its_tree(autojump_clock):
    from agentsdock.streams.neutral import StreamFacts

    async with running(parser=Exploding(StreamFacts())) as turn:
        turn.process.say(b"boom")
        ending = await turn.terminal()
    assert (ending["code"], ending["tree_empty"]) == ("internal_error", True)
    assert turn.process.ends == 1
    assert "of ours" not in ending["message"]


async def test_a_bug_loses_nothing_that_was_said_before_it(autojump_clock):
    from agentsdock.streams.cursor import CursorParser

    class Late(CursorParser):
        def feed(self, data):
            if b"boom" in data:
                raise ZeroDivisionError
            return super().feed(data)

    async with running(parser=Late()) as turn:
        turn.ledger.gate = trio.Event()
        turn.process.say(INIT, text("one"))
        await settle()
        turn.process.say(text("two"))
        await settle()
        turn.process.say(b"boom\n")
        await settle()
        turn.ledger.gate.set()
        assert await turn.code() == "internal_error"
    assert turn.ledger.texts == ["one", "two"]


async def test_a_recording_that_fails_harms_no_turn(tmp_path, autojump_clock):
    (tmp_path / "file").touch()
    capsule = recording(tmp_path / "file" / "below-a-file.capsule")
    async with running(capsule=capsule) as turn:
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        assert await turn.code() is None
    assert capsule.error is not None


async def test_a_recording_holds_what_was_read_and_how_it_ended(tmp_path, autojump_clock):
    capsule = recording(tmp_path / "run.capsule")
    async with running(capsule=capsule) as turn:
        turn.process.say(INIT, RESULT)
        turn.process.complain(b"hm\n")
        turn.process.exit(3)
        await turn.terminal()
    with open_capsule(capsule.path) as reader:
        assert b"".join(data for _, data in reader) == INIT + RESULT
        trailer = reader.trailer
    assert (trailer.exit_code, trailer.code, trailer.stderr_tail) == (3, "nonzero_exit", "hm\n")


def recording(path):
    return CapsuleWriter(
        path, backend="cursor", version="1", argv=("agent",), resume_id=None, max_bytes=10**6
    )


async def test_one_cli_starts_at_a_time_until_each_has_spoken(autojump_clock):
    pace = trio.Semaphore(1)
    first, second = Turn(pace=pace), Turn(pace=pace)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        await settle()
        nursery.start_soon(second.run)
        await settle()
        assert (len(first.launcher.launched), len(second.launcher.launched)) == (1, 0)
        first.process.say(INIT)
        await settle()
        assert len(second.launcher.launched) == 1
        second.process.exit(1)
        first.process.exit(1)
    assert pace.value == 1


@pytest.mark.parametrize("how", ["fails to start", "exits without a word", "is stopped"])
async def test_a_cli_that_never_speaks_gives_its_place_back(how, autojump_clock):
    pace = trio.Semaphore(1)
    turn = Turn(pace=pace)
    if how == "fails to start":
        turn.launcher.fails = [SpawnFailed("no")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await settle()
        if how == "is stopped":
            turn.runner.stop(StopReason.USER)
        elif turn.launcher.launched:
            turn.process.exit(1)
        await turn.terminal()
    assert pace.value == 1


async def test_a_bug_of_the_launcher_gives_the_place_back_too(autojump_clock):
    pace = trio.Semaphore(1)
    turn = Turn(pace=pace)
    turn.launcher.fails = [ZeroDivisionError()]
    await turn.run()
    assert await turn.code() == "internal_error"
    assert pace.value == 1


async def test_a_stop_while_waiting_for_the_pace_launches_nothing(autojump_clock):
    pace = trio.Semaphore(0)
    turn = Turn(pace=pace)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await settle()
        turn.runner.stop(StopReason.USER)
        assert await turn.code() == "stopped"
    assert (turn.launcher.launched, pace.value) == ([], 0)
