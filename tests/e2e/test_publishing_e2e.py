"""An agent hands out files: its own turn's, from its own machine, whole and once."""

import json
import os
import pathlib
import shutil
import sys
import textwrap

import pytest
import trio
from chaos.cli_program import install_cli
from test_forks_e2e import fork
from test_timeline_e2e import get, played

from agentsdock.model.errors import Unprocessable
from agentsdock.testing.server import ServerNotReady, running_server
from agentsdock.web.agents import read_publication
from agentsdock.web.parsing import Body


@pytest.fixture(scope="module")
def live_server(tmp_path_factory):
    """One for all of these tests: each has chats of its own."""
    folder = tmp_path_factory.mktemp("publishing")
    (folder / "bin").mkdir()
    (folder / "work").mkdir()
    cli = pathlib.Path(__file__).with_name("publishing_cli.py")
    environment = {
        "CURSOR_BIN": str(install_cli(folder / "bin", cli)),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(folder / "work"),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }
    with running_server(folder / "state", environment, token="publishing-7") as server:
        yield server


@pytest.fixture
def work(live_server):
    """Where the agents work, empty."""
    folder = live_server.state_dir.with_name("work")
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return folder


async def ran(house, code):
    """A turn in which an agent runs the code; what it told, and the chat's events."""
    chat, [run] = await played(house, f"<<python>>{textwrap.dedent(code)}<</python>>")
    events = (await get(house, f"/api/sessions/{chat}", limit=1000))["events"]
    [end] = [event for event in events if event["type"] == "turn_finished"]
    assert end["is_error"] is False, end
    return chat, run, json.loads(end["result_text"]), events


async def test_files_of_a_turn_are_in_its_chat_before_it_ends(house, work):
    chat, run, [(status, out, err)], events = await ran(
        house,
        """
        open("a.txt", "w").write("hello")
        open("b.png", "wb").write(b"png")
        done = publish("a.txt", "b.png", "--publication-id", "first")
        told((done.returncode, done.stdout, done.stderr))
        """,
    )
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert (answer["chat_id"], answer["run_id"], answer["publication_id"]) == (chat, run, "first")
    artifacts = [event for event in events if event["type"] == "artifact_created"]
    assert [event["publication_index"] for event in artifacts] == [0, 1]
    assert {event["publication_count"] for event in artifacts} == {2}
    for event, receipt in zip(artifacts, answer["receipts"], strict=True):
        assert (receipt["event_id"], receipt["event_seq"]) == (event["id"], event["seq"])
        assert receipt["artifact_id"] == event["artifact"]["id"]
        assert event["run_id"] == receipt["run_id"] == run
        assert event["artifact"]["kind"] == "artifact"
    assert artifacts[-1]["seq"] < events[-1]["seq"]
    url = f"/api/sessions/{chat}/files/{artifacts[0]['artifact']['id']}"
    assert (await house.http.get(url)).text == "hello"
    link = await house.http.get(
        f"/api/sessions/{chat}/links/file", params={"target": str(work / "a.txt")}
    )
    assert link.text == "hello"
    child = (await fork(house, chat))["session"]["id"]
    assert len((await get(house, f"/api/sessions/{child}/files"))["files"]) == 2


async def test_a_repeat_gets_the_first_receipts_and_other_files_do_not(house, work):
    _, _, [first, again, changed], events = await ran(
        house,
        """
        open("a.txt", "w").write("one")
        for text in ("one", "one", "two"):
            open("a.txt", "w").write(text)
            done = publish("a.txt", "--publication-id", "p")
            told((done.returncode, done.stdout, done.stderr))
        """,
    )
    assert first[:2] == again[:2]
    assert changed[0] == 1
    assert "409" in changed[2]
    assert sum(event["type"] == "artifact_created" for event in events) == 1


async def test_an_improved_file_is_handed_out_again(house, work):
    _, _, told, events = await ran(
        house,
        """
        for text in ("one", "two", "two"):
            open("a.txt", "w").write(text)
            told(publish("a.txt").returncode)
        """,
    )
    assert told == [0, 0, 0]
    assert sum(event["type"] == "artifact_created" for event in events) == 2


async def test_a_turn_ends_well_whatever_the_agent_does_to_its_authority(house, work):
    _, _, told, _ = await ran(
        house,
        """
        import os
        os.unlink(authority)
        os.mkdir(authority)
        told("done")
        """,
    )
    assert told == ["done"]


async def test_paths_that_lead_elsewhere_refuse_the_whole_batch(house, tmp_path, work):
    files = house.server.state_dir / "files"
    before = len(os.listdir(files))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    _, _, told, events = await ran(
        house,
        f"""
        import os, socket
        open("good.txt", "w").write("good")
        os.symlink({str(tmp_path / "elsewhere")!r}, "hop")
        os.symlink("good.txt", "link")
        os.mkfifo("fifo")
        os.mkdir("folder")
        os.link("good.txt", "twin")
        socket.socket(socket.AF_UNIX).bind("sock")
        for path in ("hop/secret", "link", "fifo", "folder", "twin", "sock", "/dev/null",
                     "missing", authority):
            done = publish("good.txt", path)
            told((path, done.returncode, "422" in done.stderr))
        os.unlink("twin")
        done = publish("good.txt")
        told(("good", done.returncode, False))
        """,
    )
    assert all(status == 1 and refused for _, status, refused in told[:-1]), told
    assert told[-1][1] == 0
    assert sum(event["type"] == "artifact_created" for event in events) == 1
    assert len(os.listdir(files)) == before + 1


async def test_the_capability_counts_for_its_own_chat_and_run_only(house, work):
    other = await house.chat()
    folder = house.server.state_dir / "cross_chat_authority"
    chat, run, [path, content, mode, foreign, proxied], _ = await ran(
        house,
        f"""
        import json, os, stat
        told(authority)
        told(open(authority).read())
        told(stat.S_IMODE(os.stat(authority).st_mode))
        open("a.txt", "w").write("x")
        done = publish("a.txt", "--chat-id", {other!r})
        told((done.returncode, "403" in done.stderr))
        done = publish("a.txt", http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9")
        told(done.returncode)
        """,
    )
    authority = json.loads(content)
    assert pathlib.Path(path).parent == folder
    assert pathlib.Path(path).name.startswith(f"{run}-")
    assert (authority["version"], authority["source_session_id"]) == (1, chat)
    assert authority["capability"] == authority["provider_capability"]
    assert mode == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert foreign == [1, True]
    assert proxied == 0
    assert not pathlib.Path(path).exists()
    late = await house.http.post(
        f"/api/agent/sessions/{chat}/artifacts",
        json={"publication_id": "late", "files": [str(work / "a.txt")]},
        headers={"X-AgentsDock-Provider-Capability": authority["capability"]},
    )
    assert late.status_code == 403
    without = await house.http.post(
        f"/api/agent/sessions/{chat}/artifacts",
        json={"publication_id": "late", "files": ["/etc/hostname"]},
    )
    assert without.status_code == 403


async def test_the_helper_refuses_what_could_betray_it(house, work):
    _, _, told, events = await ran(
        house,
        """
        import os, shutil
        open("a.txt", "w").write("x")
        url = os.environ["AGENTSDOCK_SERVER_URL"]
        for environ in ({"AGENTSDOCK_SERVER_URL": "http://192.0.2.1:80"},
                        {"AGENTSDOCK_SERVER_URL": url.replace("http:", "https:")},
                        {"AGENTSDOCK_SERVER_URL": ""}):
            told(publish("a.txt", **environ).returncode)
        shutil.copy(authority, "copy")
        os.chmod("copy", 0o640)
        told(publish("a.txt", "--authority-file", "copy").returncode)
        os.symlink(authority, "link")
        told(publish("a.txt", "--authority-file", "link").returncode)
        told(publish().returncode)
        told(publish("--entry-json", "[]").returncode)
        """,
    )
    assert told == [1] * 7
    assert not any(event["type"] == "artifact_created" for event in events)


BAD = [
    {},
    {"publication_id": "a", "files": []},
    {"publication_id": "-a", "files": ["/a"]},
    {"publication_id": "a", "files": ["a"]},
    {"publication_id": "a", "files": ["/a", "/a"]},
    {"publication_id": "a", "files": [{"path": "/a", "more": 1}]},
    {"publication_id": "a", "files": [{"title": "a"}]},
    {"publication_id": "a", "files": [{"path": "/a", "title": "x" * 1001}]},
    {"publication_id": "a", "files": ["/a\0"]},
    {"publication_id": "a", "files": [7]},
    {"publication_id": "a", "files": ["/a"] * 65},
]


@pytest.mark.parametrize("body", BAD)
def test_bodies_that_are_none_are_refused(body):
    with pytest.raises(Unprocessable):
        read_publication(Body(json.dumps(body).encode()))


def test_a_body_may_name_files_in_two_ways():
    files = ["/a", {"path": "/b", "title": "B", "text": None}]
    body = Body(json.dumps({"publication_id": "a", "files": files}).encode())
    entries = read_publication(body).entries
    assert [(entry.path, entry.title) for entry in entries] == [("/a", None), ("/b", "B")]


async def test_leftover_authorities_are_gone_at_the_next_start(tmp_path):
    folder = tmp_path / "state" / "cross_chat_authority"
    folder.mkdir(parents=True)
    (folder / "run_old.json").write_text("{}")
    with running_server(tmp_path / "state"):
        assert list(folder.iterdir()) == []
        # Those of this server's turns are no leftovers for another one that must not start here.
        (folder / "run_now.json").write_text("{}")
        command = [sys.executable, "-m", "agentsdock", "serve", "--port", "0"]
        second = await trio.run_process(
            [*command, "--state-dir", str(tmp_path / "state")], check=False, capture_stderr=True
        )
        assert b"another server" in second.stderr
        assert [file.name for file in folder.iterdir()] == ["run_now.json"]


async def test_an_authority_folder_that_leads_elsewhere_stops_the_start(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("x")
    (tmp_path / "state" / "cross_chat_authority").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ServerNotReady, match="cannot use"):  # noqa: SIM117
        with running_server(tmp_path / "state"):
            pass
    assert (tmp_path / "elsewhere" / "precious").exists()
