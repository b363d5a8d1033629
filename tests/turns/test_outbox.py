"""Drafts on their way: in order, in batches, within a bound, and all of them."""

import pytest
import trio
from scripted_guard import settle

from agentsdock.model.events import Draft
from agentsdock.turns.outbox import MAX_WAITING_BYTES, Outbox


def drafts(*names):
    return [Draft(name, {}) for name in names]


class Slow:
    """Takes a batch each time that ``go`` is set."""

    def __init__(self):
        self.batches = []
        self.go = trio.Event()

    async def __call__(self, batch):
        await self.go.wait()
        self.go = trio.Event()
        self.batches.append([draft.type for draft in batch])


@pytest.fixture
async def slow():
    return Slow()


async def test_what_comes_while_a_batch_is_written_makes_the_next_batch(slow, nursery):
    outbox = Outbox()
    nursery.start_soon(outbox.deliver, slow)
    outbox.put(drafts("a"))
    await settle()
    outbox.put(drafts("b", "c"))
    outbox.put(drafts("d"))
    slow.go.set()
    await settle()
    slow.go.set()
    await settle()
    assert slow.batches == [["a"], ["b", "c", "d"]]


async def test_closing_delivers_what_is_in_and_then_returns(slow):
    outbox = Outbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.deliver, slow)
        outbox.put(drafts("a"))
        await settle()
        outbox.put(drafts("b"))
        outbox.close()
        slow.go.set()
        await settle()
        slow.go.set()
    assert slow.batches == [["a"], ["b"]]


async def test_an_empty_outbox_closes_without_a_batch(slow):
    outbox = Outbox()
    outbox.put([])
    outbox.close()
    await outbox.deliver(slow)
    assert slow.batches == []


async def test_there_is_room_until_the_bound_and_again_once_a_batch_is_taken(slow, nursery):
    outbox = Outbox()
    nursery.start_soon(outbox.deliver, slow)
    outbox.put(drafts("being written"))
    await settle()
    outbox.put(drafts("b"), MAX_WAITING_BYTES)
    with trio.fail_after(1):
        await outbox.room()
    outbox.put(drafts("c"), 1)
    got_room = trio.Event()

    async def wait_for_room():
        await outbox.room()
        got_room.set()

    nursery.start_soon(wait_for_room)
    await settle()
    assert not got_room.is_set()
    slow.go.set()
    await settle()
    assert got_room.is_set()
    outbox.close()
    slow.go.set()


async def test_bytes_that_made_no_event_take_no_room(slow):
    outbox = Outbox()
    outbox.put([], 10 * MAX_WAITING_BYTES)
    await outbox.room()


async def test_closing_frees_who_waits_for_room(slow):
    outbox = Outbox()
    outbox.put(drafts("a"), 2 * MAX_WAITING_BYTES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.room)
        await settle()
        outbox.close()
