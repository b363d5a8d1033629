"""A turn whose events cannot be written, or not fast enough."""

import pytest
import trio
from running_turns import running
from scripted_guard import INIT, RESULT, settle, text

from agentsdock.store.protocol import SessionGone, StoreDamaged, StoreFull
from agentsdock.turns.outbox import MAX_WAITING_BYTES
from agentsdock.turns.runner import READ_BYTES
from agentsdock.turns.verdicts import StopReason


async def test_a_slow_store_slows_the_reader_and_loses_nothing(autojump_clock):
    said = [str(n).rjust(1000) for n in range(3000)]
    async with running() as turn:
        turn.ledger.gate = trio.Event()
        turn.process.say(INIT, *map(text, said))
        total = turn.process.unread
        await settle()
        taken = total - turn.process.unread
        assert MAX_WAITING_BYTES < taken <= MAX_WAITING_BYTES + 2 * READ_BYTES
        turn.ledger.gate.set()
        turn.process.say(RESULT)
        turn.process.exit(0)
        assert await turn.code() is None
    assert turn.ledger.texts == said


async def test_a_slow_store_is_not_taken_for_an_empty_pipe(autojump_clock):
    said = [str(n).rjust(1000) for n in range(3000)]
    async with running() as turn:
        turn.ledger.gate = trio.Event()
        turn.process.say(INIT, *map(text, said), RESULT)
        turn.process.exit(0)
        await trio.sleep(100)
        turn.ledger.gate.set()
        ending = await turn.terminal()
    assert (ending["code"], ending["exit_code"]) == (None, 0)
    assert turn.ledger.texts == said


async def test_a_reader_that_is_stopped_while_it_waits_for_the_store_loses_nothing(autojump_clock):
    said = [str(n).rjust(1000) for n in range(3000)]
    async with running() as turn:
        turn.ledger.gate = trio.Event()
        turn.process.say(INIT, *map(text, said))
        await settle()
        turn.runner.stop(StopReason.USER)
        await settle()
        turn.ledger.gate.set()
        assert await turn.code() == "stopped"
    kept = turn.ledger.texts
    assert kept == said[: len(kept)]
    assert len(kept) * 1000 > MAX_WAITING_BYTES / 2


@pytest.mark.parametrize(
    ("error", "code", "stopped"),
    [
        (StoreFull("no space"), "storage_full", False),
        (StoreDamaged("unreadable"), "internal_error", False),
        (SessionGone("deleted"), "stopped", True),
    ],
)
async def test_a_store_that_fails_ends_the_turn_and_its_tree(error, code, stopped, autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.ledger.errors = [error]
        turn.process.say(text("lost"))
        ending = await turn.terminal()
    assert (ending["code"], ending["stopped"]) == (code, stopped)
    assert turn.process.ends == 1


async def test_nothing_is_recorded_behind_a_gap(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.ledger.gate = trio.Event()
        turn.ledger.errors = [StoreFull("no space")]
        turn.process.say(text("does not fit"))
        await settle()
        turn.process.say(text("would fit"))
        await settle()
        turn.ledger.gate.set()
        assert await turn.code() == "storage_full"
    assert turn.ledger.texts == []


async def test_a_full_store_makes_no_success_of_a_result(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.ledger.errors = [StoreFull("no space")]
        turn.process.say(text("lost"), RESULT)
        turn.process.exit(0)
        ending = await turn.terminal()
    assert (ending["code"], ending["result_text"]) == ("storage_full", "")


async def test_a_bug_in_the_recorder_is_ours_and_ends_the_tree(autojump_clock):
    async with running() as turn:
        turn.process.say(INIT)
        await settle()
        turn.ledger.errors = [ZeroDivisionError("bug")]
        turn.process.say(text("hello"))
        ending = await turn.terminal()
    assert (ending["code"], ending["tree_empty"]) == ("internal_error", True)
    assert turn.process.ends == 1
