"""Files that an agent lists in its turn's manifest: without the helper, and never twice."""

import json
import pathlib
import textwrap

import pytest
import trio
from chaos.cli_program import install_cli
from serving_house import House
from test_timeline_e2e import get, played

from agentsdock.testing.server import running_server

LIST = """
import json, os
manifest = os.environ["AGENTSDOCK_MANIFEST_PATH"]
here = os.path.abspath
def listed(*files, **more):
    json.dump({"files": list(files), **more}, open(manifest + ".new", "w"))
    os.rename(manifest + ".new", manifest)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifests")
    (folder / "bin").mkdir()
    (folder / "work").mkdir()
    cli = pathlib.Path(__file__).with_name("publishing_cli.py")
    environment = {
        "CURSOR_BIN": str(install_cli(folder / "bin", cli)),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(folder / "work"),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }
    with running_server(folder / "state", environment, token="manifest-7") as server:
        yield server


@pytest.fixture
async def house(server):
    house = House(server)
    async with house.http:
        with trio.fail_after(60):
            yield house


def script(code):
    return f"<<python>>{LIST}{textwrap.dedent(code)}<</python>>"


async def ran(house, code, chat=None):
    chat, runs = await played(house, script(code), chat=chat)
    events = (await get(house, f"/api/sessions/{chat}", limit=1000))["events"]
    return chat, [event for event in events if event.get("run_id") == runs[-1]]


def artifacts(events):
    return [e["artifact"] for e in events if e["type"] == "artifact_created"]


def errors(events):
    return [event for event in events if event["type"] == "artifact_error"]


async def test_what_is_listed_is_in_the_chat_before_the_turn_ends(house):
    chat, events = await ran(
        house,
        """
        open("a.txt", "w").write("hello")
        listed(here("a.txt"), {"path": here("b.txt"), "title": "B", "text": "two"})
        open("b.txt", "w").write("late")
        """,
    )
    first, second = artifacts(events)
    assert (first["filename"], first["size"]) == ("a.txt", 5)
    assert (second["title"], second["text"], second["source_path"][-6:]) == ("B", "two", "/b.txt")
    assert events[-1]["type"] == "turn_finished"
    answer = await house.http.get(f"/api/sessions/{chat}/files/{first['id']}")
    assert answer.text == "hello"
    assert not (house.server.state_dir / "sessions" / chat).exists()


async def test_a_list_that_stays_as_it_is_is_taken_while_the_turn_runs(house, tmp_path):
    chat = await house.chat()
    code = f"""
        import time
        open("a.txt", "w").write("hello")
        listed(here("a.txt"))
        deadline = time.monotonic() + 30
        while not os.path.exists({str(tmp_path / "seen")!r}) and time.monotonic() < deadline:
            time.sleep(0.02)
        open("b.txt", "w").write("more")
        listed(here("a.txt"), here("b.txt"))
        """
    await house.turn(chat, script(code))
    events = []
    async with house.follow(chat) as socket:
        while not events or events[-1]["type"] != "turn_finished":
            events.append(json.loads(await socket.get_message()))
            if events[-1]["type"] == "artifact_created":
                (tmp_path / "seen").touch()
    assert [file["filename"] for file in artifacts(events)] == ["a.txt", "b.txt"]
    ids = {e["publication_id"] for e in events if e["type"] == "artifact_created"}
    assert len(ids) == 2


async def test_what_the_helper_handed_out_is_not_handed_out_again(house):
    _, events = await ran(
        house,
        """
        open("a.txt", "w").write("one")
        open("b.txt", "w").write("one")
        told(publish("a.txt").returncode)
        json.dump({"files": [here("a.txt"), here("b.txt")]}, open("list.json", "w"))
        told(publish("--manifest", "list.json", "--publication-id", "all").returncode)
        open("b.txt", "w").write("two")
        listed(here("a.txt"), here("b.txt"))
        """,
    )
    names = [file["filename"] for file in artifacts(events)]
    assert names == ["a.txt", "a.txt", "b.txt", "b.txt"]
    assert json.loads(events[-1]["result_text"]) == [0, 0]


BAD = {
    "no JSON": "open(manifest, 'w').write('{')",
    "a link": "os.symlink('a.txt', 'link'); listed(here('a.txt'), here('link'))",
    "of the server": "listed(authority)",
}


@pytest.mark.parametrize("code", BAD.values(), ids=BAD)
async def test_a_list_that_is_none_is_told_once_and_hands_out_nothing(house, code):
    chat, events = await ran(house, f"open('a.txt', 'w').write('x')\nexec({code!r})")
    [error] = errors(events)
    assert artifacts(events) == []
    assert error["detail"]
    assert events[-1]["type"] == "turn_finished"
    assert events[-1]["is_error"] is False
    assert not (house.server.state_dir / "sessions" / chat).exists()


async def test_a_list_of_an_earlier_turn_counts_no_more(house):
    chat, _ = await ran(house, "listed(here('missing'))")
    folder = house.server.state_dir / "sessions" / chat / "manifests"
    folder.mkdir(parents=True)
    (folder / "current.json").write_text('{"files": ["/etc/hostname"]}')
    _, events = await ran(house, "told('nothing')", chat)
    assert artifacts(events) == errors(events) == []


async def test_a_stopped_turn_hands_out_nothing_more(house):
    chat = await house.chat()
    code = """
    open("a.txt", "w").write("x")
    listed(here("a.txt"), here("never"))
    open("listed", "w")
    import time
    time.sleep(60)
    """
    run = await house.turn(chat, script(code))
    mark = pathlib.Path(house.server.state_dir).parent / "work" / "listed"
    while not mark.exists():
        await trio.sleep(0.02)
    answer = (await house.http.post(f"/api/sessions/{chat}/stop")).json()
    assert (answer["run_id"], answer["outcome"]) == (run, "stopped")
    events = (await get(house, f"/api/sessions/{chat}"))["events"]
    assert artifacts(events) == errors(events) == []
