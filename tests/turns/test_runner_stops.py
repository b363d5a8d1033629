"""Stops and shutdowns at every moment of a turn's life."""

import pytest
import trio
from running_turns import Turn, running
from scripted_guard import INIT, RESULT, result, settle, text
from trio.testing import Sequencer

from agentsdock.turns.capsule import CapsuleWriter, open_capsule
from agentsdock.turns.verdicts import StopReason


def end_by(turn, how):
    if how == "stopped":
        turn.runner.stop(StopReason.USER)
    else:
        turn.runner.shut_down()


both = pytest.mark.parametrize("how", ["stopped", "server_shutdown"])


@both
async def test_before_the_launch_nothing_is_launched(how):
    turn = Turn()
    end_by(turn, how)
    await turn.run()
    ending = await turn.terminal()
    assert (ending["code"], ending["stopped"], ending["is_error"]) == (how, True, False)
    assert (turn.launcher.launched, turn.ledger.types) == ([], [])
    assert [draft.type for draft in turn.last] == ["turn_finished"]


@both
async def test_during_the_launch_what_was_launched_is_ended(how, autojump_clock):
    turn = Turn()
    turn.launcher.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await turn.launcher.launching.wait()
        end_by(turn, how)
        await settle()
        assert not turn.ended.is_set()
        turn.launcher.gate.set()
        assert await turn.code() == how
    assert turn.process.ends == 1
    assert turn.ledger.types == ["process_started"]


@both
async def test_while_it_works_the_tree_is_ended_and_the_text_kept(how, autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, text("so far"))
        await settle()
        turn.process.stop_takes = 1.5
        end_by(turn, how)
        ending = await turn.terminal()
    assert (ending["code"], ending["result_text"], ending["exit_code"]) == (how, "", None)
    assert ending["wall_seconds"] == 1.5
    assert turn.ledger.texts == ["so far"]
    assert "error" not in [draft.type for draft in turn.last]


@both
async def test_after_a_success_result_it_stays_a_success(how, autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, result("the answer"))
        await settle()
        end_by(turn, how)
        ending = await turn.terminal()
    assert (ending["code"], ending["result_text"]) == (None, "the answer")
    assert (ending["stopped"], ending["also"]) == (False, [how])
    assert ending["wall_seconds"] == 0
    assert "stop_reason" not in ending


@both
async def test_after_a_failure_it_stays_the_failure(how, autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, result("no", is_error=True))
        await settle()
        end_by(turn, how)
        ending = await turn.terminal()
    assert (ending["code"], ending["stopped"]) == ("logical_error", False)


async def test_a_stop_says_why(autojump_clock):
    async with running() as turn:
        turn.runner.stop(StopReason.SUPERSEDED, superseded_by_queued_id="queued_1")
        ending = await turn.terminal()
    assert ending["stop_reason"] == "superseded"
    assert ending["superseded_by_queued_id"] == "queued_1"


async def test_two_stops_are_one(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.process.stop_takes = 1.0
        turn.runner.stop(StopReason.USER)
        await trio.sleep(0.5)
        turn.runner.stop(StopReason.DELETED)
        turn.runner.shut_down()
        ending = await turn.terminal()
    assert (ending["code"], ending["stop_reason"]) == ("stopped", "user")
    assert turn.process.ends == 1


async def test_a_stop_after_the_end_changes_nothing(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        before = dict(await turn.terminal())
        turn.runner.stop(StopReason.USER)
        turn.runner.shut_down()
        assert turn.last[-1].payload == before


@pytest.mark.parametrize("stop_first", [True, False])
async def test_in_the_instant_of_the_exit_there_is_one_honest_ending(stop_first, autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.process.say(RESULT)
        if stop_first:
            turn.runner.stop(StopReason.USER)
            turn.process.exit(0)
        else:
            turn.process.exit(0)
            turn.runner.stop(StopReason.USER)
        ending = await turn.terminal()
    # The result was not read yet, so the stop was the first that was known of the end.
    assert (ending["code"], ending["result_text"]) == ("stopped", "")


async def test_a_stop_between_the_exit_and_the_last_line_keeps_what_was_decided(autojump_clock):
    async with running() as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        await settle()
        turn.runner.stop(StopReason.USER)
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"]) == (None, 0)
    assert "exit_overrun" not in ending


async def test_a_stop_that_races_a_limit_gives_one_ending_whichever_comes_first(autojump_clock):
    """The limit is due in the very instant of the stop."""
    for stop_at, code in ((9.999, "stopped"), (10.001, "startup_timeout")):
        async with running() as turn, trio.open_nursery() as nursery:
            turn.process.stop_takes = 0.5

            async def stop_later(turn=turn, seconds=stop_at):
                await trio.sleep(seconds)
                turn.runner.stop(StopReason.USER)

            nursery.start_soon(stop_later)
            assert await turn.code() == code
        assert turn.process.ends == 1


async def test_a_stop_while_the_store_is_slow_waits_for_what_was_said(autojump_clock):
    order = Sequencer()
    async with running() as turn:
        turn.ledger.gate = trio.Event()
        turn.process.say(INIT, text("one"))
        await settle()
        turn.process.say(text("two"))
        await settle()

        async def free_the_store():
            async with order(1):
                await settle()
                assert not turn.ended.is_set()
                turn.ledger.gate.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(free_the_store)
            async with order(0):
                turn.runner.stop(StopReason.USER)
            assert await turn.code() == "stopped"
    assert turn.ledger.texts == ["one", "two"]


async def test_a_cancelled_server_still_ends_the_tree(tmp_path, autojump_clock):
    path = tmp_path / "run.capsule"
    turn = Turn(
        capsule=CapsuleWriter(
            path, backend="cursor", version=None, argv=(), resume_id=None, max_bytes=1000
        )
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await turn.launcher.next()
        turn.process.say(INIT)
        turn.process.stop_takes = 1.0
        await settle()
        nursery.cancel_scope.cancel()
    assert turn.process.ends == 1
    assert turn.process.closed.is_set()
    assert turn.last is None
    with open_capsule(path) as reader:
        assert b"".join(data for _, data in reader) == INIT
        assert reader.trailer.killed
