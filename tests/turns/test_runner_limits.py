"""The clocks of a running turn, on a clock of the test's own."""

import trio
from attrs import evolve
from running_turns import LIMITS, Turn, running
from scripted_guard import INIT, RESULT, query, result, settle, text, tool

from agentsdock.turns.clocks import Limit
from agentsdock.turns.verdicts import StopReason


async def test_a_cli_that_never_initialises_is_ended(autojump_clock):
    async with running() as turn:
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("startup_timeout", 10)
    assert ending["exit_code"] is None
    assert turn.process.ends == 1


async def test_the_time_before_the_launch_is_not_the_cli_s(autojump_clock):
    turn = Turn()
    turn.launcher.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await trio.sleep(100)
        turn.launcher.gate.set()
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("startup_timeout", 110)


async def test_silence_is_warned_of_and_then_ends_the_turn(autojump_clock):
    async with running() as turn:
        await trio.sleep(1)
        turn.process.say(INIT)
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("idle_timeout", 41)
    warning = turn.ledger.drafts[-1].payload
    assert turn.ledger.types.count("idle_warning") == 1
    assert warning["clock"] == "idle"
    assert (warning["idle_seconds"], warning["left_seconds"]) == (20, 20)
    assert (warning["budget_seconds"], warning["last_sign"]) == (40, "Init")


async def test_each_line_is_a_sign_of_life_that_arms_the_warning_again(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        for _ in range(3):
            await trio.sleep(30)
            turn.process.say(text("still here"))
        turn.process.say(RESULT)
        turn.process.exit(0)
        assert await turn.code() is None
    assert turn.ledger.types.count("idle_warning") == 3


async def test_the_absolute_limit_ends_a_turn_that_talks_all_the_time(autojump_clock):
    async with running() as turn, trio.open_nursery() as nursery:
        turn.process.say(INIT)

        async def talk():
            while True:
                await trio.sleep(7)
                turn.process.say(text("on"))

        nursery.start_soon(talk)
        ending = await turn.terminal()
        nursery.cancel_scope.cancel()
    assert (ending["code"], ending["wall_seconds"]) == ("turn_timeout", 200)
    assert "idle_warning" not in turn.ledger.types


async def test_an_open_call_may_be_silent_for_as_long_as_it_declared(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, tool(timeout=60_000))
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("idle_timeout", 120)


async def test_a_call_that_declares_nothing_extends_nothing(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, tool())
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("idle_timeout", 40)


async def test_a_question_that_nobody_answers_ends_the_turn(autojump_clock):
    async with running() as turn:
        await trio.sleep(2)
        turn.process.say(INIT, query())
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("approval_required", 22)
    assert ending["open_queries"] == ["askQuestionInteractionQuery"]


async def test_a_success_that_does_not_exit_is_a_success_with_an_overrun(autojump_clock):
    async with running() as turn:
        await trio.sleep(1)
        turn.process.say(INIT, result("the answer"))
        ending = await turn.terminal()
    assert (ending["code"], ending["result_text"], ending["exit_code"]) == (
        None,
        "the answer",
        None,
    )
    assert (ending["exit_overrun"], ending["wall_seconds"]) == (True, 6)
    assert turn.process.ends == 1


async def test_a_failure_that_does_not_exit_stays_the_failure(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT, result("no", is_error=True))
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("logical_error", 5)


async def test_no_clock_runs_once_the_cli_has_gone(autojump_clock):
    limits = evolve(LIMITS, drain_seconds=60.0)
    async with running(limits) as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.say(INIT, RESULT)
        turn.process.exit(0)
        await trio.sleep(30)
        turn.process.close_pipes()
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"]) == (None, 0)
    assert "exit_overrun" not in ending


async def test_an_exit_that_contradicts_the_result_counts_though_the_pipe_is_still_open(
    autojump_clock,
):
    limits = evolve(LIMITS, drain_seconds=60.0)
    async with running(limits) as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.say(INIT, RESULT)
        turn.process.exit(4)
        await trio.sleep(30)
        turn.runner.stop(StopReason.USER)
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"]) == ("nonzero_exit", 4)


async def test_granted_time_moves_the_limit_that_was_named(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        assert turn.runner.extend(50, Limit.IDLE) == (90, 200)
        ending = await turn.terminal()
    assert (ending["code"], ending["wall_seconds"]) == ("idle_timeout", 90)


async def test_granted_time_moves_both_limits_if_none_is_named(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await trio.sleep(10)
        assert turn.runner.extend(1000, None) == (1030, 1190)
        ending = await turn.terminal()
    assert ending["code"] == "idle_timeout"


async def test_no_time_is_granted_where_no_clock_runs(autojump_clock):
    turn = Turn()
    turn.launcher.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await settle()
        assert turn.runner.extend(50, None) is None
        turn.launcher.gate.set()
        await turn.launcher.next()
        turn.process.stop_takes = 1.0
        turn.runner.stop(StopReason.USER)
        assert turn.runner.extend(50, None) is None
        await turn.terminal()
        assert turn.runner.extend(50, None) is None


async def test_no_time_is_granted_to_a_cli_that_has_left(autojump_clock):
    async with running() as turn:
        turn.process.pipes_outlive_exit = True
        turn.process.exit(1)
        await settle()
        assert turn.runner.extend(50, None) is None
        await turn.terminal()


async def test_a_limit_reached_while_a_grant_is_being_made_is_not_reached(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await trio.sleep(39.999)
        turn.runner.extend(10, Limit.IDLE)
        ending = await turn.terminal()
    assert ending["wall_seconds"] == 50
