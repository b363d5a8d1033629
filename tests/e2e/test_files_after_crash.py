"""What a server that was killed leaves of files: whole ones, and nothing of the others."""

import contextlib
import json
import pathlib

import httpx
import trio
from chaos.cli_program import install_cli
from serving_house import House
from test_manifest import script
from test_timeline_e2e import get, played

from agentsdock.testing.server import running_server

PUBLISH = """
open("a.txt", "w").write("one")
done = publish("a.txt", "--publication-id", "p")
told((done.returncode, done.stdout, done.stderr))
"""


async def handed_out(house, chat):
    chat, _ = await played(house, script(PUBLISH), chat=chat)
    events = (await get(house, f"/api/sessions/{chat}", limit=1000))["events"]
    [[status, out, err]] = json.loads(events[-1]["result_text"])
    assert status == 0, err
    return chat, json.loads(out)["receipts"]


async def test_a_killed_server_has_whole_files_and_their_receipts_and_no_others(tmp_path):
    (tmp_path / "bin").mkdir()
    cli = pathlib.Path(__file__).with_name("publishing_cli.py")
    environment = {
        "CURSOR_BIN": str(install_cli(tmp_path / "bin", cli)),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
    }
    files = tmp_path / "state" / "files"
    with running_server(tmp_path / "state", environment, token="crash-7") as server:
        house = House(server)
        async with house.http:
            chat, receipts = await handed_out(house, None)
            [whole] = list(files.iterdir())
            head = (
                f"POST /api/sessions/{chat}/files HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                "X-AgentsDock-Token: crash-7\r\nContent-Length: 100000000\r\n"
                "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
                '--x\r\nContent-Disposition: form-data; name="file"; filename="half"\r\n\r\n'
            ).encode()
            async with await house.connect() as stream:
                await stream.send_all(head + b"x" * 3_000_000)
                with trio.fail_after(20):
                    while not list(files.glob("*/half")):
                        await trio.sleep(0.02)
                server.process.kill()
                server.process.wait()
    assert len(list(files.iterdir())) == 2
    stale = tmp_path / "state" / "sessions" / chat / "manifests" / "current.json"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_text('{"files": ["/etc/hostname"]}')
    with running_server(tmp_path / "state", environment, token="crash-7") as server:
        house = House(server)
        async with house.http:
            assert not stale.exists()
            with trio.fail_after(20):
                while list(files.iterdir()) != [whole]:
                    await trio.sleep(0.02)
            listed = (await get(house, f"/api/sessions/{chat}/files"))["files"]
            assert [file["filename"] for file in listed] == ["a.txt"]
            _, again = await handed_out(house, chat)
            assert again == receipts
            assert list(files.iterdir()) == [whole]
            await killed_while_a_fork_copies(house, chat, files)
    with running_server(tmp_path / "state", environment, token="crash-7") as server:
        house = House(server)
        async with house.http:
            chats = (await get(house, "/api/sessions"))["sessions"]
            owned = set()
            for row in chats:
                listed = (await get(house, f"/api/sessions/{row['id']}/files"))["files"]
                assert [file["filename"] for file in listed] == ["big", "a.txt"]
                owned |= {file["id"] for file in listed}
            with trio.fail_after(20):
                while {path.name for path in files.iterdir()} != owned:
                    await trio.sleep(0.02)


async def killed_while_a_fork_copies(house, chat, files):
    path = f"/api/sessions/{chat}"
    await house.http.post(f"{path}/files", files={"file": ("big", bytes(60_000_000))})
    before = len(list(files.iterdir()))
    async with trio.open_nursery() as nursery:

        async def fork():
            with contextlib.suppress(httpx.HTTPError):
                await house.http.post(f"{path}/fork", json={})

        nursery.start_soon(fork)
        while len(list(files.iterdir())) < before + 2:
            await trio.sleep(0.001)
        house.server.process.kill()
        house.server.process.wait()
