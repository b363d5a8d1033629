"""Publications against a full disk, a stop and an end that come in the middle of them."""

import errno
import json

import pytest
import trio
from house import living
from scripted_guard import settle

from agentsdock.chats.entries import Entry
from agentsdock.chats.publishing import Publication, Publishing
from agentsdock.files import sources, storage
from agentsdock.model.errors import Conflict, Unavailable
from agentsdock.store.protocol import StoreFull


class Turn:
    """A running turn and two files that it may hand out."""

    def __init__(self, house, chat, process, folder):
        self.house = house
        self.chat = chat
        self.process = process
        self.publishing = Publishing(
            house.store, house.registry, house.library, house.authorities, house.nursery
        )
        live = house.registry.require(chat).live
        self.holder = self.publishing.holder(
            chat, json.loads(live.grant.path.read_text())["capability"]
        )
        self.entries = []
        for name in ("a.txt", "b.txt"):
            (folder / name).write_text(name)
            self.entries.append(Entry(str(folder / name)))

    async def publish(self, key="p"):
        return await self.publishing.publish(self.holder, Publication(key, tuple(self.entries)))

    async def publish_new(self):
        await self.publishing.publish_new(self.holder, "m", self.entries)

    async def told(self):
        events = await self.house.of_type(self.chat, "artifact_created")
        return [event["artifact"]["filename"] for event in events]

    @property
    def on_disk(self):
        return self.house.library.storage.names()


@pytest.fixture
async def turn(house, tmp_path):
    return await running(house, tmp_path)


async def running(house, folder):
    chat = await house.new(cwd=str(folder))
    await house.post(chat)
    process = await house.launcher.next()
    await settle()
    return Turn(house, chat, process, folder)


@pytest.fixture
def copying(monkeypatch):
    """Holds the copying of a second file until it is let go."""

    class Copying:
        def __init__(self):
            self.begun = trio.Event()
            self.go_on = trio.Event()

    held = Copying()
    real = sources.read_source

    async def read(source, digest):
        if source.name == "b.txt":
            held.begun.set()
            await held.go_on.wait()
        async for piece in real(source, digest):
            yield piece

    monkeypatch.setattr("agentsdock.chats.publishing.read_source", read)
    return held


async def test_each_file_is_handed_out_once_however_it_is_told_of(turn, tmp_path):
    await turn.publish()
    await turn.publish_new()
    assert await turn.told() == ["a.txt", "b.txt"]
    (tmp_path / "b.txt").write_text("better")
    await turn.publish_new()
    await turn.publish_new()
    assert await turn.told() == ["a.txt", "b.txt", "b.txt"]
    assert len(turn.on_disk) == 3
    # Who publishes by name gets receipts for all of it.
    assert len((await turn.publish("q"))["receipts"]) == 2


@pytest.mark.parametrize("way", ["publish", "publish_new"])
async def test_a_stop_in_the_middle_of_a_copy_hands_out_nothing(turn, copying, way):
    async with trio.open_nursery() as nursery:

        async def publish():
            with pytest.raises(Conflict):
                await getattr(turn, way)()

        nursery.start_soon(publish)
        await copying.begun.wait()
        assert len(turn.on_disk) == 2
        turn.house.registry.require(turn.chat).live.authorities.revoke(turn.holder.run_id)
        copying.go_on.set()
    assert turn.on_disk == []
    assert await turn.told() == []


async def test_an_end_in_the_middle_of_a_copy_comes_first_or_not_at_all(turn, copying):
    async with trio.open_nursery() as nursery:

        async def publish():
            with pytest.raises(Conflict):
                await turn.publish()

        nursery.start_soon(publish)
        await copying.begun.wait()
        turn.process.exit(1)
        assert (await turn.house.terminal(turn.chat))["is_error"]
        copying.go_on.set()
    assert turn.on_disk == []
    assert (await turn.house.types(turn.chat))[-1] == "turn_finished"


async def test_a_caller_that_goes_away_leaves_the_publication_going(turn, copying):
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.publish)
            await copying.begun.wait()
            scope.cancel()
    copying.go_on.set()
    with trio.fail_after(10):
        while len(await turn.told()) < 2:
            await trio.sleep(0.01)


async def test_a_manifest_that_is_left_leaves_no_copies(turn, copying):
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.publish_new)
            await copying.begun.wait()
            scope.cancel()
    assert turn.on_disk == []


async def test_a_disk_that_fills_in_the_middle_is_told_and_leaves_nothing(turn, monkeypatch):
    real = storage._write

    def full(file, data):
        if b"b.txt" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, data)

    monkeypatch.setattr(storage, "_write", full)
    with pytest.raises(Unavailable) as refused:
        await turn.publish()
    assert refused.value.code == "storage_full"
    assert turn.on_disk == []
    monkeypatch.undo()
    await turn.publish()
    assert await turn.told() == ["a.txt", "b.txt"]


async def test_a_store_without_space_leaves_no_copies(tmp_path, disk):
    async with living(tmp_path, disk=disk) as house:
        turn = await running(house, tmp_path)
        disk.full = True
        with pytest.raises(StoreFull):
            await turn.publish()
        assert turn.on_disk == []
        disk.full = False
        await turn.publish()
        assert await turn.told() == ["a.txt", "b.txt"]


@pytest.fixture
def disk():
    from house import FullDisk

    return FullDisk()
