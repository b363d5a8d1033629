"""``agentsdock files`` against a real server: there and back, never over something else."""

import os
import pathlib

import pytest
from click.testing import CliRunner

from agentsdock.cli.main import main


@pytest.fixture
def command(shared_server):
    options = ["--url", shared_server.url, "--token", shared_server.token]

    def run(*args, status=0):
        result = CliRunner().invoke(main, ["files", *args, *options])
        assert result.exit_code == status, result.output
        return result.output

    return run


@pytest.fixture
def chat(shared_server):
    import httpx

    headers = {"X-AgentsDock-Token": shared_server.token}
    url = f"{shared_server.url}/api/sessions"
    answer = httpx.post(url, json={"backend": "cursor"}, headers=headers, trust_env=False)
    return answer.json()["session"]["id"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_go_there_and_back(command, chat, here):
    data = os.urandom(700_000)
    (here / "résumé 語.pdf").write_bytes(data)
    (here / "b.txt").write_text("two")
    told = command("upload", chat, "résumé 語.pdf", "b.txt")
    [first, second] = [line.split("  ") for line in told.splitlines()]
    assert (first[1], second[1]) == ("résumé 語.pdf", "b.txt")
    listed = command("list", chat).splitlines()
    assert listed[0].startswith(second[0])
    assert "683.6 KiB" in listed[1]
    (here / "got").mkdir()
    command("get", chat, first[0], "-o", "got")
    fetched = here / "got" / "résumé 語.pdf"
    assert fetched.read_bytes() == data
    assert fetched.stat().st_mode & 0o777 == 0o600
    assert os.listdir(here / "got") == ["résumé 語.pdf"]


def test_nothing_is_overwritten_unless_it_is_forced(command, chat, here):
    (here / "a.txt").write_text("new")
    command("upload", chat, "a.txt")
    (here / "a.txt").write_text("precious")
    assert "--force" in command("get", chat, "a.txt", status=1)
    assert (here / "a.txt").read_text() == "precious"
    command("get", chat, "a.txt", "--force")
    assert (here / "a.txt").read_text() == "new"


def test_a_download_goes_on_with_what_is_there(command, chat, here):
    data = os.urandom(100_000)
    (here / "a.bin").write_bytes(data)
    file_id = command("upload", chat, "a.bin").split()[0]
    (here / "got").mkdir()
    part = here / "got" / f".{file_id}.part"
    for kept in (data[:60_000], data):
        # What is there is believed: the server sends the rest only.
        part.write_bytes(bytes(10) + kept[10:])
        command("get", chat, "a.bin", "-o", "got", "--force")
        assert (here / "got" / "a.bin").read_bytes() == bytes(10) + data[10:]
        assert not part.exists()
    part.write_bytes(data + b"too much")
    command("get", chat, "a.bin", "-o", "got", "--force")
    assert (here / "got" / "a.bin").read_bytes() == data


@pytest.mark.parametrize("args", [["get", "sess_0", "a"], ["upload", "sess_0", "a"], ["list", "s"]])
def test_what_is_refused_is_told(command, here, args):
    pathlib.Path("a").write_text("x")
    assert "session not found" in command(*args, status=1)


def test_a_file_that_is_not_there_is_told(command, chat):
    assert "no file nothing" in command("get", chat, "nothing", status=1)


def test_an_empty_file_and_an_empty_list(command, chat, here):
    assert "no files" in command("list", chat)
    (here / "empty").touch()
    command("upload", chat, "empty")
    (here / "got").mkdir()
    command("get", chat, "empty", "-o", "got")
    assert (here / "got" / "empty").read_bytes() == b""
