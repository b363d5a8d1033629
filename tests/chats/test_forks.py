"""Forks that meet a full disk, or lose their parent, in the middle."""

import errno

import pytest
import trio
from house import FullDisk, living

from agentsdock.chats.forks import Forks
from agentsdock.chats.library import Library
from agentsdock.files import storage
from agentsdock.model.errors import NotFound
from agentsdock.store.protocol import SessionGone, StoreFull


async def one(data):
    yield data


async def parent_of(house):
    chat = await house.new(cwd="/")
    for name in ("a.txt", "b.txt"):
        await house.library.upload(chat, name, None, one(name.encode()))
    return chat


def forks(house):
    return Forks(
        house.settings,
        house.store,
        house.registry,
        house.library,
        lambda _: True,
        {"cursor": house.backend},
        house.nursery,
    )


def meanwhile(monkeypatch, work):
    """Let something happen when the second file is about to be copied."""
    copied = []
    real = Library.copy

    async def copy(library, record, session_id):
        copied.append(record["filename"])
        if len(copied) == 2:
            await work()
        return await real(library, record, session_id)

    monkeypatch.setattr(Library, "copy", copy)
    return copied


def ids(house):
    return {chat.id for chat in house.registry}


async def test_a_parent_that_is_deleted_takes_its_unfinished_fork_along(house, monkeypatch):
    parent = await parent_of(house)

    async def delete():
        assert (await house.chats.delete(parent))["deleted"]

    assert meanwhile(monkeypatch, delete) == []
    with pytest.raises((NotFound, SessionGone)):
        await forks(house).fork(parent, None)
    assert ids(house) == set()
    assert house.library.storage.names() == []
    loaded = await house.store.load()
    assert list(loaded.sessions) == []


async def test_a_fork_without_space_leaves_no_chat_after_the_next_start_at_the_latest(
    tmp_path, monkeypatch
):
    disk = FullDisk()
    async with living(tmp_path, disk=disk) as house:
        parent = await parent_of(house)

        async def fill():
            disk.full = True

        meanwhile(monkeypatch, fill)
        with pytest.raises(StoreFull):
            await forks(house).fork(parent, None)
        assert ids(house) == {parent}
        disk.full = False
        await house.play(parent, exit_code=1)
    monkeypatch.undo()
    async with living(tmp_path) as house:
        assert ids(house) == {parent}
        await house.library.sweep(house.library.storage.names())
        assert len(house.library.storage.names()) == 2
        child = (await forks(house).fork(parent, None))["session"]["id"]
        assert (
            len((await house.library.page(child, limit=None, offset=0, content_prefix=""))["files"])
            == 2
        )


async def test_a_file_without_space_is_missing_in_the_fork_and_said_to_be(house, monkeypatch):
    parent = await parent_of(house)

    def full(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "_write", full)
        child = (await forks(house).fork(parent, None))["session"]["id"]
    lost = await house.of_type(child, "artifact_error")
    assert [event["filename"] for event in lost] == ["a.txt", "b.txt"]
    assert len(house.library.storage.names()) == 2


async def test_a_fork_whose_caller_goes_away_is_made_all_the_same(house, monkeypatch):
    parent = await parent_of(house)
    scope = trio.CancelScope()

    async def leave():
        scope.cancel()

    meanwhile(monkeypatch, leave)
    with scope:
        await forks(house).fork(parent, "The fork")
    assert scope.cancelled_caught
    with trio.fail_after(10):
        while "The fork" not in [chat.session.title for chat in house.registry]:
            await trio.sleep(0.01)
