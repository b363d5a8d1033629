"""Which files count as edited by the agent, and when the runner asks what became of them."""

import pytest
import trio
from running_turns import LIMITS, RUN, Turn, running
from scripted import INIT as BEGIN
from scripted import machine, play
from scripted_guard import INIT, RESULT, line, settle

from agentsdock.streams.neutral import Outcome, ToolFinished, ToolStarted
from agentsdock.turns import projection
from agentsdock.turns.verdicts import StopReason

FOUND = {"files_changed": 1, "repository_root": "/w"}


def began(call="c1", *edits):
    return ToolStarted(call, "edit", {}, None, edits)


def ended(call="c1", *edits, outcome=Outcome.OK):
    return ToolFinished(call, "edit", None, outcome, None, "", None, 0, edits)


def edited(*events):
    return play(BEGIN, *events)[0].edited


def test_files_are_those_of_finished_and_of_open_calls_each_once():
    assert edited(began("c1", "a", "b"), ended("c1"), began("c2", "c", "a")) == ("a", "b", "c")
    assert edited(ended("c1", "a")) == ("a",)
    assert edited(began("c1"), ended("c1")) == ()


def test_a_failed_edit_may_have_done_something_and_a_refused_one_has_not():
    assert edited(began("c1", "a"), ended("c1", outcome=Outcome.FAILED)) == ("a",)
    assert edited(began("c1", "a"), ended("c1", outcome=Outcome.REJECTED)) == ()
    both = (began("c1", "a"), ended("c1"), began("c2", "a"), ended("c2", outcome=Outcome.REJECTED))
    assert edited(*both) == ("a",)


def test_their_number_is_bounded(monkeypatch):
    monkeypatch.setattr(projection, "MAX_EDITED", 5)
    calls = [began(f"c{n}", f"{n}", f"{n}b") for n in range(9)]
    assert len(edited(*calls)) == 5
    assert len(edited(*(ended(f"c{n}", f"{n}") for n in range(9)))) == 5


def test_a_new_machine_has_edited_nothing():
    assert machine().edited == ()


def edit(path, subtype="started"):
    call = {"editToolCall": {"args": {"path": path}, "result": {"success": {}}}}
    return line("tool_call", subtype=subtype, call_id=path, tool_call=call)


EDIT = edit("a.txt") + edit("a.txt", "completed")


async def test_the_state_is_noted_before_the_launch_and_compared_after_the_end():
    async with running() as turn:
        assert turn.differ.noted == "/"
        turn.differ.found = FOUND
        turn.process.say(INIT, EDIT, RESULT)
        await settle()
        assert turn.differ.edited == []
        turn.process.exit(0)
        ending = await turn.terminal()
    assert turn.differ.edited == [("a.txt",)]
    assert [draft.type for draft in turn.last] == ["code_diff", "turn_finished"]
    assert turn.last[0].payload == {"run_id": RUN, "backend": "cursor", **FOUND}
    assert "code_diff_missing" not in ending


@pytest.mark.parametrize("how", ["fails", "is stopped", "is killed"])
async def test_a_turn_has_its_diff_however_it(how):
    async with running() as turn:
        turn.differ.found = FOUND
        turn.process.say(INIT, EDIT)
        await settle()
        match how:
            case "fails":
                turn.process.exit(3)
            case "is stopped":
                turn.runner.stop(StopReason.USER)
            case "is killed":
                turn.process.exit(-9)
        await turn.terminal()
    errors = [] if how == "is stopped" else ["error"]
    assert [draft.type for draft in turn.last] == ["code_diff", *errors, "turn_finished"]


async def test_an_edit_that_was_under_way_counts():
    async with running() as turn:
        turn.differ.found = FOUND
        turn.process.say(INIT, edit("half.txt"))
        await settle()
        turn.runner.stop(StopReason.USER)
        await turn.terminal()
    assert turn.differ.edited == [("half.txt",)]
    types = [draft.type for draft in turn.last]
    assert types == ["tool_finished", "code_diff", "turn_finished"]


async def test_a_turn_without_edits_is_not_compared():
    async with running() as turn:
        turn.differ.missing = "git is not installed"
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        ending = await turn.terminal()
    assert turn.differ.edited == []
    assert "code_diff_missing" not in ending


async def test_a_diff_that_cannot_be_told_is_said_to_be_missing_and_fails_nothing():
    async with running() as turn:
        turn.differ.missing = "git is not installed"
        turn.process.say(INIT, EDIT, RESULT)
        turn.process.exit(0)
        ending = await turn.terminal()
    assert [draft.type for draft in turn.last] == ["turn_finished"]
    assert (ending["code"], ending["code_diff_missing"]) == (None, "git is not installed")


@pytest.mark.parametrize("how", ["stop", "shutdown"])
async def test_a_stop_while_the_state_is_noted_launches_nothing(how, autojump_clock):
    turn = Turn()
    turn.differ.noting = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await settle()
        at = trio.current_time()
        if how == "stop":
            turn.runner.stop(StopReason.USER)
        else:
            turn.runner.shut_down()
        ending = await turn.terminal()
        assert trio.current_time() == at
    assert ending["stopped"] is True
    assert turn.launcher.launched == []


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_who_wants_the_turn_to_be_over_waits_five_seconds_for_its_diff(when, autojump_clock):
    async with running() as turn:
        turn.differ.comparing = trio.Event()
        turn.process.say(INIT, EDIT)
        await settle()
        if when == "meanwhile":
            turn.process.say(RESULT)
            turn.process.exit(0)
            await trio.sleep(60)
            assert not turn.ended.is_set(), "nobody has asked for the end yet"
        asked = trio.current_time()
        turn.runner.stop(StopReason.USER)
        await trio.sleep(1)
        turn.runner.stop(StopReason.USER)
        ending = await turn.terminal()
        assert trio.current_time() - asked == 5
    assert ending["stopped"] is (when == "before")
    assert ending["code_diff_missing"] == "not in time"
    assert [draft.type for draft in turn.last] == ["turn_finished"]


async def test_a_deleted_chat_waits_for_no_diff(autojump_clock):
    async with running() as turn:
        turn.differ.comparing = trio.Event()
        turn.process.say(INIT, EDIT)
        await settle()
        asked = trio.current_time()
        turn.runner.stop(StopReason.DELETED)
        await turn.terminal()
        assert trio.current_time() == asked


async def test_the_time_of_noting_counts_for_no_limit_of_the_cli(autojump_clock):
    turn = Turn()
    turn.differ.noting = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await trio.sleep(3 * LIMITS.startup_seconds)
        turn.differ.noting.set()
        process = await turn.launcher.next()
        process.say(INIT, RESULT)
        process.exit(0)
        assert await turn.code() is None
