"""Chats in which messages wait, and what tests ask of their queues."""

import contextlib

from attrs import evolve
from house import settle
from scripted_guard import INIT

from agentsdock.store.protocol import PutQueued


async def running_with(house, *prompts, said=(INIT,)):
    """A chat with a turn that runs, its process, and the ids of the rows that wait behind it."""
    chat = await house.new()
    await house.post(chat, "running")
    process = await house.launcher.next()
    process.say(*said)
    await settle()
    rows = [(await house.post(chat, prompt))["queued_id"] for prompt in prompts]
    return chat, process, rows


async def paused_with(house, *prompts):
    """An idle chat whose rows a stop has paused."""
    chat, _, rows = await running_with(house, *prompts)
    await house.stop(chat)
    return chat, rows


async def change_row(house, chat, queued_id, **fields):
    """Give a row what no request can give it."""
    place = house.registry.require(chat)
    row = next(row for row in place.queue if row.queued_id == queued_id)
    row = evolve(row, **fields)
    await house.registry.write(place, [], [PutQueued(row)])
    place.replace_row(row)


async def hide(house, chat, queued_id):
    """Make a row a delivery from another chat."""
    await change_row(house, chat, queued_id, purpose="cross_chat_handoff_delivery")


async def state(house, chat):
    """All that a change of the queue may change; what is in memory must be what is on disk."""
    queue = tuple(house.registry.require(chat).queue)
    stored = (await house.store.load()).queue
    assert tuple(row for row in stored if row.session_id == chat) == queue
    return queue, await house.events(chat)


@contextlib.asynccontextmanager
async def unchanged(house, *chats):
    before = [await state(house, chat) for chat in chats]
    yield
    assert [await state(house, chat) for chat in chats] == before


async def waiting(house, chat):
    """The texts of the rows that are shown, in order."""
    return [row["prompt"] for row in await house.rows(chat)]


async def started(house, chat):
    return [event["prompt"] for event in await house.of_type(chat, "turn_started")]
