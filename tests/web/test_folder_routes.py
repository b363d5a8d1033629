"""Completing folders: what is suggested, and what is no path at all."""

import os
import urllib.parse

import pytest
from fake_dock import FakeDock
from fake_house import serving

from agentsdock.chats import folders


@pytest.fixture
def home(tmp_path):
    for name in ("projects/one", "Project two", "prose/x", ".private", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "profile").write_text("a file")
    (tmp_path / "prolink").symlink_to("other")
    (tmp_path / "progone").symlink_to("nowhere")
    return tmp_path


@pytest.fixture
async def complete(home):
    async with serving(FakeDock(cwd=str(home))) as server, server.http() as client:

        async def ask(path, status=200, **query):
            told = urllib.parse.urlencode({"path": path, **query})
            answer = await client.get(f"/api/working-directories/complete?{told}")
            assert answer.status_code == status
            return answer.json()

        yield ask


def names(answer):
    return [folder["name"] for folder in answer["suggestions"]]


async def test_folders_that_begin_as_the_path_does_are_suggested(complete, home):
    answer = await complete(f"{home}/pro")
    assert answer == {
        "input": f"{home}/pro",
        "resolved_path": f"{home}/pro",
        "exists": False,
        "base_path": str(home),
        "suggestions": [
            {"name": "Project two", "path": f"{home}/Project two/"},
            {"name": "projects", "path": f"{home}/projects/"},
            {"name": "prolink", "path": f"{home}/prolink/", "symlink": True},
            {"name": "prose", "path": f"{home}/prose/"},
        ],
        "truncated": False,
        "message": None,
    }


async def test_a_whole_folder_lists_its_own_folders(complete, home):
    assert names(await complete(f"{home}/projects/")) == ["one"]
    answer = await complete(f"{home}/projects")
    assert answer["exists"] is True
    assert names(answer) == ["projects"]


@pytest.mark.parametrize("path", ["", "pro", "./pro", "projects/../pro"])
async def test_a_relative_path_starts_at_the_default_folder(complete, home, path):
    answer = await complete(path)
    assert answer["input"] == path
    assert answer["base_path"] == str(home)
    assert "projects" in names(answer)
    assert ".private" not in names(answer)


async def test_hidden_folders_are_given_to_who_asks_for_them(complete, home):
    assert names(await complete(f"{home}/.")) == [".private"]


async def test_the_tilde_is_the_home_of_the_server(complete):
    assert (await complete("~/"))["base_path"] == os.path.expanduser("~")


@pytest.mark.parametrize("limit, count", [("1", 1), ("0", 1), ("-5", 1), ("2", 2), ("1000", 4)])
async def test_no_more_than_the_limit_is_given(complete, home, limit, count):
    answer = await complete(f"{home}/pro", limit=limit)
    assert len(answer["suggestions"]) == count
    assert answer["truncated"] is (count < 4)


async def test_fifty_is_the_most_and_a_scan_is_bounded(complete, home, monkeypatch):
    for number in range(60):
        (home / f"many-{number:02}").mkdir()
    answer = await complete(f"{home}/many", limit=99)
    assert names(answer) == [f"many-{number:02}" for number in range(50)]
    assert answer["truncated"] is True
    monkeypatch.setattr(folders, "MOST_SCANNED", 5)
    assert (await complete(f"{home}/many-0"))["truncated"] is True


async def test_a_name_that_json_cannot_hold_is_left_out(complete, home):
    os.mkdir(os.fsencode(home) + b"/pro\xff")
    assert len(names(await complete(f"{home}/pro"))) == 4


@pytest.mark.parametrize("path", ["/nowhere/at/all/x", "profile/x", "a" * 300 + "/x"])
async def test_a_folder_that_cannot_be_read_is_an_answer(complete, path):
    answer = await complete(path)
    assert answer["suggestions"] == []
    assert answer["exists"] is False
    assert "cannot be read" in answer["message"]


async def test_what_is_no_path_is_refused(complete):
    await complete("a\0b", status=400)
    await complete("a" * 4097, status=422)
    await complete("x", status=422, limit="many")
