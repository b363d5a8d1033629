"""What is taken for a manifest, and what is not."""

import json
import os
from types import SimpleNamespace

import pytest
import trio

from agentsdock.chats import manifests
from agentsdock.chats.authority import Grant
from agentsdock.model.errors import Unprocessable


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "sessions" / "sess_1" / "manifests" / "current.json"
    manifests._make_place(tmp_path, path)
    return path


def read(path):
    return manifests._read(path.parents[3], path)


def test_there_may_be_none(place):
    assert read(place) is None


def test_files_may_be_named_in_two_ways_and_may_be_missing_yet(place):
    place.write_text(json.dumps({"files": ["/a", {"path": "/b", "title": "B", "text": None}]}))
    entries = read(place).entries
    assert [(entry.path, entry.title) for entry in entries] == [("/a", None), ("/b", "B")]


def test_a_list_has_changed_when_one_of_its_files_has(place, tmp_path):
    file = tmp_path / "a"
    place.write_text(json.dumps({"files": [str(file)]}))
    missing = read(place).signature
    file.write_text("x")
    there = read(place).signature
    file.write_text("xy")
    assert len({missing, there, read(place).signature}) == 3
    assert read(place).signature == read(place).signature


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"files": null}',
        '{"files": {}}',
        '{"files": []}',
        '{"files": ["a"]}',
        '{"files": [7]}',
        '{"files": ["/a", "/a"]}',
        '{"files": ["/a\\u0000"]}',
        '{"files": ["/\\ud800"]}',
        '{"files": [{"path": "/a", "more": 1}]}',
        '{"files": [{"title": "a"}]}',
        '{"files": ["/a"], "more": []}',
        '{"more": ["/a"]}',
        json.dumps({"files": [f"/{n}" for n in range(65)]}),
        "[" * 100_000,
        '{"files": ["/a"]}' + " " * manifests.MAX_BYTES,
    ],
)
def test_what_is_none_is_refused(place, content):
    place.write_text(content)
    with pytest.raises(Unprocessable):
        read(place)


def test_no_link_is_followed_and_nothing_but_a_plain_file_is_opened(place, tmp_path):
    good = tmp_path / "good.json"
    good.write_text('{"files": ["/a"]}')
    for make in (
        lambda: place.symlink_to(good),
        lambda: os.mkfifo(place),
        lambda: place.mkdir(),
    ):
        make()
        with pytest.raises(Unprocessable):
            read(place)
        place.rmdir() if place.is_dir() else place.unlink()
    folder = place.parent
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "current.json").write_text('{"files": ["/a"]}')
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unprocessable):
        read(place)
    with pytest.raises(OSError):
        manifests._make_place(tmp_path, place)
    assert (tmp_path / "elsewhere" / "current.json").exists()


def test_a_place_that_was_left_is_gone_and_things_of_the_agent_stay(place, tmp_path):
    place.write_text("{}")
    manifests._clear(place)
    assert not place.parents[1].exists()
    assert (tmp_path / "sessions").exists()
    manifests._make_place(tmp_path, place)
    (place.parent / "notes").write_text("x")
    manifests._clear(place)
    assert (place.parent / "notes").exists()
    manifests.purge(tmp_path)
    assert not (tmp_path / "sessions").exists()


class Publisher:
    """Stands for ``Publishing``: notes what it is asked, and when."""

    def __init__(self):
        self.asked = []
        self.errors = []
        self.told = []
        self.refuse = None
        self.blocks = False
        self.registry = self
        self.live = SimpleNamespace(run=SimpleNamespace(meta={"purpose": "p"}))

    async def publish_new(self, holder, publication_id, entries):
        await trio.lowlevel.checkpoint()
        self.asked.append((trio.current_time(), entries))
        if self.blocks:
            await trio.sleep_forever()
        if self.refuse is not None:
            raise self.refuse

    def get(self, session_id):
        return self

    async def write(self, chat, drafts):
        await trio.lowlevel.checkpoint()
        self.told += drafts


class Watched:
    """A manifest that is found as a test says: one finding for each look, the last for ever."""

    def __init__(self, folder, monkeypatch, *found):
        self.publisher = Publisher()
        grant = Grant("sess_1", "run_1", folder / "authority", frozenset(), "full")
        self.manifest = manifests.Manifest(self.publisher, folder, grant)
        self.over = trio.Event()
        self._found = list(found)
        # A mock clock does not wait for threads.
        monkeypatch.setattr(self.manifest, "_look", self._look)

    async def _look(self):
        await trio.lowlevel.checkpoint()
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, Exception):
            raise found
        return found and manifests.Found(found, (found,))

    async def for_seconds(self, seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.manifest.follow, self.over)
            await trio.sleep(seconds)
            self.over.set()


@pytest.fixture
def watched(tmp_path, monkeypatch):
    return lambda *found: Watched(tmp_path, monkeypatch, *found)


async def test_what_still_changes_is_waited_for(watched, autojump_clock):
    began = trio.current_time()
    watch = watched("A", "B", None, "C", "C", "C", "C", "D")
    await watch.for_seconds(10)
    moments = [(moment - began, entries) for moment, entries in watch.publisher.asked]
    assert moments == [(3.0, "C"), (5.0, "D")]


async def test_what_stands_there_at_the_end_is_published_without_waiting(watched, autojump_clock):
    watch = watched("A", "B")
    await watch.for_seconds(0.8)
    assert [entries for _, entries in watch.publisher.asked] == ["B"]
    assert watch.publisher.told == []


async def test_half_a_list_is_no_error_before_the_end(watched, autojump_clock):
    watch = watched(Unprocessable("half"), Unprocessable("half"), "A")
    await watch.for_seconds(5)
    assert [entries for _, entries in watch.publisher.asked] == ["A"]
    assert watch.publisher.told == []


async def test_a_refusal_is_told_once_at_the_end_and_not_tried_again(watched, autojump_clock):
    watch = watched("A")
    watch.publisher.refuse = Unprocessable("a link")
    await watch.for_seconds(20)
    assert len(watch.publisher.asked) == 1
    [draft] = watch.publisher.told
    assert (draft.type, draft.payload["detail"]) == ("artifact_error", "a link")
    assert (draft.payload["run_id"], draft.payload["purpose"]) == ("run_1", "p")


async def test_a_list_that_was_put_right_is_no_error(watched, autojump_clock):
    watch = watched(*["A"] * 4, "B")
    watch.publisher.refuse = Unprocessable("a link")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.for_seconds, 10)
        await trio.sleep(2.2)
        watch.publisher.refuse = None
    assert [entries for _, entries in watch.publisher.asked] == ["A", "B"]
    assert watch.publisher.told == []


async def test_files_that_take_too_long_do_not_hold_the_end(watched, autojump_clock):
    watch = watched("A")
    watch.publisher.blocks = True
    began = trio.current_time()
    await watch.for_seconds(0.2)
    assert trio.current_time() - began == pytest.approx(0.2 + manifests.LAST_SECONDS)
    assert ["too long" in draft.payload["detail"] for draft in watch.publisher.told] == [True]


async def test_who_leaves_waits_for_nothing(watched, autojump_clock):
    watch = watched("A")
    watch.publisher.blocks = True
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.for_seconds, 3)
        await trio.sleep(2.9)
        watch.manifest.leave()
    assert trio.current_time() - began == pytest.approx(3)
    assert watch.publisher.told == []


async def test_files_that_nobody_can_look_at_do_not_hold_the_end(watched, autojump_clock):
    watch = watched("A")
    watch.manifest._look = trio.sleep_forever
    began = trio.current_time()
    await watch.for_seconds(3)
    assert trio.current_time() - began == pytest.approx(3 + manifests.LAST_SECONDS)
    assert len(watch.publisher.told) == 1


async def test_what_was_being_copied_when_the_turn_ended_is_copied_then(watched, autojump_clock):
    watch = watched("A")
    watch.publisher.blocks = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.for_seconds, 3)
        await trio.sleep(2.9)
        watch.publisher.blocks = False
    assert [entries for _, entries in watch.publisher.asked] == ["A", "A"]
    assert watch.publisher.told == []


async def test_a_bug_in_it_is_told_and_does_not_end_the_turn(watched, autojump_clock):
    watch = watched("A")
    watch.publisher.refuse = RuntimeError("a bug")
    await watch.for_seconds(3)
    [draft] = watch.publisher.told
    assert draft.type == "artifact_error"
    assert "a bug" not in draft.payload["detail"]
