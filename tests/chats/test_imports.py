"""Imports that take long: nobody has to wait for them, and they happen once."""

import json
import threading

import pytest
import trio
from attrs import evolve

from agentsdock.chats import imports
from agentsdock.chats.imports import Imports


@pytest.fixture
def importing(house, tmp_path):
    settings = evolve(house.settings, claude_projects_root=tmp_path / "projects")
    (tmp_path / "projects" / "folder").mkdir(parents=True)
    line = {"type": "user", "uuid": "1", "message": {"content": "hello"}}
    (tmp_path / "projects" / "folder" / "abc.jsonl").write_text(json.dumps(line) + "\n")
    return Imports(settings, house.store, house.registry, house.nursery)


@pytest.fixture
def slow(monkeypatch):
    """Holds the reading of transcripts until it is let go."""
    go_on = threading.Event()
    real = imports.files.lines

    def lines(path):
        go_on.wait(10)
        return real(path)

    monkeypatch.setattr(imports.files, "lines", lines)
    yield go_on
    go_on.set()


async def test_a_chat_with_a_long_history_is_there_before_it(house, importing, slow, monkeypatch):
    monkeypatch.setattr(imports, "WAIT_SECONDS", 0.05)
    chat = await house.new(backend="claude", provider_session_id="abc")
    with trio.fail_after(5):
        await importing.at_creation(chat)
    assert await house.types(chat) == ["session_created"]
    counts = []

    async def again():
        counts.append((await importing.import_history(chat))["imported"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        await trio.testing.wait_all_tasks_blocked()
        slow.set()
    with trio.fail_after(5):
        while "history_imported" not in await house.types(chat):
            await trio.sleep(0.01)
    await again()
    assert (await house.types(chat)).count("turn_started") == 1
    assert sum(counts) <= 1


async def test_a_short_one_is_there_with_the_chat(house, importing):
    chat = await house.new(backend="claude", provider_session_id="abc")
    await importing.at_creation(chat)
    assert (await house.types(chat))[1:] == ["history_imported", "turn_started"]
