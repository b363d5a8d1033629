"""No space left, at every point of a turn's way; and what happens when there is some again."""

import pytest
import trio
from attrs import evolve
from house import FullDisk, living, settle
from scripted_guard import INIT, PROVIDER, RESULT, text

from agentsdock.chats import pressure
from agentsdock.model.requests import CreateSession, PatchSession
from agentsdock.store.protocol import StoreFull


@pytest.fixture
def disk():
    return FullDisk()


@pytest.fixture
async def house(tmp_path, disk):
    async with living(tmp_path, disk=disk) as house:
        yield house


async def succeed(house, chat, *said):
    posted = await house.post(chat)
    process = await house.launcher.next()
    process.say(INIT, *said, RESULT)
    process.exit(0)
    ending = await house.terminal(chat, posted["run_id"])
    assert ending["code"] is None


async def test_a_message_is_refused_and_leaves_no_trace(house, disk, autojump_clock):
    chat = await house.new()
    disk.full = True
    for key in (None, "k"):
        with pytest.raises(StoreFull):
            await house.post(chat, key=key)
    assert not house.session(chat).locked
    assert house.session(chat).title == "New chat"
    disk.full = False
    assert await house.types(chat) == ["session_created"]
    assert house.launcher.launched == []
    await succeed(house, chat)


async def test_a_message_that_would_wait_is_refused_too(house, disk, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    disk.full = True
    with pytest.raises(StoreFull):
        await house.post(chat, "second")
    assert await house.rows(chat) == []
    disk.full = False
    process.exit(1)
    await house.terminal(chat)
    assert len(house.launcher.launched) == 1


async def test_a_turn_that_cannot_record_its_events_says_so_when_it_can(
    house, disk, autojump_clock
):
    chat = await house.new()
    posted = await house.post(chat)
    process = await house.launcher.next()
    process.say(INIT)
    await settle()
    disk.full = True
    process.say(text("lost"))
    with trio.fail_after(10):
        await process.closed.wait()
    await trio.sleep(60)
    assert house.registry.require(chat).busy
    disk.full = False
    ending = await house.terminal(chat, posted["run_id"])
    assert (ending["code"], ending["is_error"]) == ("storage_full", True)
    assert "assistant_text" not in await house.types(chat)
    await succeed(house, chat)


async def test_an_id_that_could_not_be_kept_is_not_known(house, disk, autojump_clock):
    chat = await house.new()
    posted = await house.post(chat)
    process = await house.launcher.next()
    await settle()
    disk.full = True
    process.say(INIT)
    await process.closed.wait()
    disk.full = False
    ending = await house.terminal(chat, posted["run_id"])
    assert ending["code"] == "storage_full"
    assert house.session(chat).cursor.session_id is None
    assert "provider_session" not in await house.types(chat)
    assert (await house.store.load()).sessions[0] == house.session(chat)


async def test_an_end_that_cannot_be_written_holds_its_chat_until_it_can(
    house, disk, autojump_clock
):
    chat, other = await house.new(), await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    process.say(INIT)
    await settle()
    disk.full = True
    process.exit(3)
    await trio.sleep(60)
    assert len(house.launcher.launched) == 1
    with pytest.raises(StoreFull):
        await house.post(other)
    disk.full = False
    await house.launcher.next()
    [ending] = await house.of_type(chat, "turn_finished")
    assert ending["code"] == "nonzero_exit"


async def test_a_delivery_state_that_cannot_be_written_harms_no_turn(house, disk, autojump_clock):
    house.launcher.gate = trio.Event()
    chat = await house.new()
    posted = await house.post(chat)
    await house.launcher.launching.wait()
    renew = house.store.renew

    async def no_space(run):
        await trio.lowlevel.checkpoint()
        raise StoreFull("no space")

    house.store.renew = no_space
    house.launcher.gate.set()
    process = await house.launcher.next()
    process.say(INIT, RESULT)
    process.exit(0)
    assert (await house.terminal(chat, posted["run_id"]))["code"] is None
    house.store.renew = renew


async def test_a_waiting_head_starts_when_there_is_space(house, disk, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    process.say(INIT, RESULT)
    process.exit(0)
    finish = house.store.finish

    async def fill_up(*unit):
        committed = await finish(*unit)
        disk.full = True
        return committed

    house.store.finish = fill_up
    await house.terminal(chat)
    house.store.finish = finish
    await trio.sleep(600)
    assert len(house.launcher.launched) == 1
    assert disk.refused < 100
    disk.full = False
    with trio.fail_after(house.settings.busy_retry_seconds + 1):
        await house.launcher.next()


async def test_a_deferral_that_cannot_be_written_is_tried_again_in_a_while(
    house, disk, monkeypatch, autojump_clock
):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    monkeypatch.setattr(pressure, "reason_to_wait", lambda settings, live: "no memory")
    append = house.store.append
    tried = []

    async def no_space(*unit):
        tried.append(unit)
        await trio.lowlevel.checkpoint()
        raise StoreFull("no space")

    process.exit(1)
    house.store.append = no_space
    await trio.sleep(600)
    assert 5 < len(tried) < 20
    house.store.append = append
    await trio.sleep(house.settings.busy_retry_seconds + 1)
    assert "turn_deferred" in await house.types(chat)


async def test_a_row_that_can_never_start_waits_until_that_can_be_said(house, disk, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    queue = house.registry.require(chat).queue
    queue[0] = evolve(queue[0], backend="claude", deferred=True)
    append = house.store.append

    async def no_space_to_refuse(session_id, events=(), changes=()):
        if any(event.type == "turn_unqueued" for event in events):
            await trio.lowlevel.checkpoint()
            raise StoreFull("no space")
        return await append(session_id, events, changes)

    house.store.append = no_space_to_refuse
    process.exit(1)
    await trio.sleep(600)
    assert len(await house.rows(chat)) == 1
    house.store.append = append
    await trio.sleep(house.settings.busy_retry_seconds + 1)
    assert await house.rows(chat) == []
    assert "turn_unqueued" in await house.types(chat)


async def test_a_stop_ends_the_turn_though_the_pause_cannot_be_kept(house, disk, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    process.say(INIT)
    await settle()
    disk.full = True
    with pytest.raises(StoreFull):
        await house.stop(chat)
    assert process.closed.is_set()
    assert [row["paused"] for row in await house.rows(chat)] == [False]


async def test_what_is_refused_of_a_chat_is_not_shown_either(house, disk, autojump_clock):
    chat = await house.new(title="before")
    disk.full = True
    with pytest.raises(StoreFull):
        await house.chats.patch(chat, PatchSession(title="after"))
    with pytest.raises(StoreFull):
        await house.chats.create(CreateSession(title="another"))
    with pytest.raises(StoreFull):
        await house.chats.mark_unread(chat)
    with pytest.raises(StoreFull):
        await house.chats.delete(chat)
    assert [session["title"] for session in house.chats.details()] == ["before"]
    assert not house.chats.detail(chat)["manual_unread"]
    disk.full = False
    await succeed(house, chat)
    assert (await house.chats.delete(chat))["deleted"]


async def test_a_shutdown_does_not_wait_for_space(house, disk, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    process.say(INIT)
    await settle()
    disk.full = True
    process.exit(1)
    await settle()
    began = trio.current_time()
    await house.stopper.shut_down()
    assert trio.current_time() - began <= 10
    assert house.session(chat).cursor.session_id == PROVIDER
    assert len((await house.store.load()).open_runs) == 1
