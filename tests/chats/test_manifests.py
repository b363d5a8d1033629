"""What is taken for a manifest, and what is not."""

import json
import os

import pytest

from agentsdock.chats import manifests
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
