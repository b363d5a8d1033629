"""Files of chats: what a link may mean, and turns whose files are gone."""

import pathlib

import pytest

from agentsdock.chats.library import link_targets
from agentsdock.model.errors import BadRequest, NotFound


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("notes.txt", ["notes.txt"]),
        ("/a%20b", ["/a%20b"]),
        ("file:///a%20b", ["/a b", "/a%20b"]),
        ("file:///a b", ["/a b"]),
        ("file://localhost/a%C3%A9", ["/aé", "/a%C3%A9"]),
        ("FILE://LOCALHOST/a", ["/a"]),
        ("file:///100%", ["/100%"]),
    ],
)
def test_a_link_means_a_path_of_this_machine(target, meant):
    assert link_targets(target) == meant


@pytest.mark.parametrize("target", ["file://host/a", "file://127.0.0.1/a", "file://localhost:1/a"])
def test_a_file_of_another_machine_is_refused(target):
    with pytest.raises(BadRequest):
        link_targets(target)


async def one(data):
    yield data


async def uploaded(house, chat):
    return await house.library.upload(chat, "notes.txt", None, one(b"hello"))


async def test_a_message_whose_file_is_gone_is_refused(house):
    chat = await house.new()
    record = await uploaded(house, chat)
    pathlib.Path(record["path"]).unlink()
    with pytest.raises(NotFound, match=r"notes\.txt"):
        await house.post(chat, file_ids=(record["id"],))
    assert "turn_started" not in await house.types(chat)


async def test_a_waiting_message_whose_file_has_gone_meanwhile_leaves_the_queue(house):
    chat = await house.new()
    record = await uploaded(house, chat)
    await house.post(chat)
    first = await house.launcher.next()
    row = (await house.post(chat, file_ids=(record["id"],)))["queued_id"]
    await house.post(chat, "and then")
    pathlib.Path(record["path"]).unlink()
    first.exit(1)
    following = await house.launcher.next()
    assert "and then" in following.spec.argv[1]
    [error] = [e for e in await house.of_type(chat, "error") if e["code"] == "launch_refused"]
    assert "notes.txt" in error["message"]
    assert [e["queued_id"] for e in await house.of_type(chat, "turn_unqueued")] == [row]
    assert await house.rows(chat) == []
