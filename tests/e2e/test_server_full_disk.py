"""No space in the state folder: said as such, nothing that was acknowledged is lost, no restart."""

import contextlib
import os
import pathlib
import subprocess
import sys

import psutil
import pytest
import trio
from attrs import evolve
from chaos.cli_program import install_cli
from chaos.witness import Witness, read_all

from agentsdock.testing.server import running_server

SPACE = "8m"
TEXTS = 3000
TOKEN = "full-disk"


class SmallDisk:
    """A file system of its own for the state folder."""

    def __init__(self, folder):
        self._folder = folder
        self._filler = folder / "filler"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SPACE},mode=700", "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            pytest.skip("nothing can be mounted here")

    def fill(self, server):
        with self._filler.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)

    def free(self, server):
        self._filler.unlink()

    def close(self):
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True, timeout=10)


class FileLimit:
    """The system's limit on file sizes, lowered while the server runs."""

    def __init__(self, folder):
        pass

    def fill(self, server):
        process = psutil.Process(server.process.pid)
        self._before = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (0, self._before[1]))

    def free(self, server):
        psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_FSIZE, self._before)

    def close(self):
        pass


@pytest.fixture(params=[SmallDisk, FileLimit], ids=lambda kind: kind.__name__)
def disk(request, tmp_path):
    disk = request.param(tmp_path / "state")
    yield disk
    disk.close()


@pytest.fixture
def environment(tmp_path):
    program = install_cli(tmp_path, pathlib.Path(__file__).with_name("bad_cli.py"))
    return {
        "CURSOR_BIN": str(program),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
    }


@pytest.fixture
def live_server(disk, environment, tmp_path):
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        yield server


def running_cli(house, gate):
    children = psutil.Process(house.server.process.pid).children(recursive=True)
    (cli,) = [child for child in children if str(gate) in " ".join(child.cmdline())]
    return cli.pid


@contextlib.contextmanager
def held(pid):
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


async def refused(house, chat):
    answer = await house.http.post(f"/api/sessions/{chat}/turns", json={"prompt": "[[fake]]"})
    return answer.status_code == 503 and answer.json()["detail"]["code"] == "storage_full"


async def test_a_full_disk_refuses_fails_and_is_over_without_a_restart(house, disk, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    busy, idle = Witness(await house.chat()), Witness(await house.chat())
    async with trio.open_nursery() as nursery:
        for witness in (busy, idle):
            nursery.start_soon(witness.follow, house.server)
        run = await house.turn(busy.chat, f"[[fake gate={gate} events={TEXTS} size=2000]]")
        await busy.hear(lambda timeline: timeline.has("process_started"))

        disk.fill(house.server)
        assert await refused(house, idle.chat), "a turn"
        assert await refused(house, busy.chat), "a turn that would wait"
        with held(running_cli(house, gate)) as pidfd:
            opened = os.open(gate, os.O_RDWR)
            await trio.lowlevel.wait_readable(pidfd)
            os.close(opened)
        assert not busy.timeline.endings
        assert (await house.http.get("/api/health")).status_code == 200
        disk.free(house.server)

        ending = await busy.hear(lambda timeline: timeline.endings.get(run))
        assert (ending["code"], ending["is_error"]) == ("storage_full", True)
        assert ending["tree_empty"] is True
        said = busy.timeline.texts(run)
        assert [text[:7] for text in said] == [f"#{n:06d}" for n in range(len(said))]
        assert len(said) < TEXTS
        for witness in (idle, busy):
            after = await house.turn(witness.chat, "[[fake]]")
            ending = await witness.hear(lambda timeline, run=after: timeline.endings.get(run))
            assert ending["code"] is None
            assert await read_all(house.http, witness.chat) == witness.timeline.events
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("disk", [SmallDisk], indirect=True)
async def test_a_server_that_starts_on_a_full_disk_ends_the_open_run_once_it_can(
    house, disk, environment, tmp_path
):
    witness = Witness(await house.chat())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.follow, house.server)
        run = await house.turn(witness.chat, "[[fake hang=1]]")
        await witness.hear(lambda timeline: timeline.has("provider_session"))
        disk.fill(house.server)
        house.server.process.kill()
        house.server.process.wait()
        nursery.cancel_scope.cancel()
    with started(house.server, environment) as server:
        disk.free(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(witness.follow, server)
            ending = await witness.hear(lambda timeline: timeline.endings.get(run))
            nursery.cancel_scope.cancel()
        assert (ending["type"], ending["code"]) == ("turn_stopped", "server_restart")
        assert server.stop() == 0


@contextlib.contextmanager
def started(before, environment):
    """The next life of a server, without the files by which it is found otherwise."""
    port = before.url.rpartition(":")[2]
    command = [sys.executable, "-m", "agentsdock", "serve", "--port", port]
    secret = {"AGENTSDOCK_AGENT_TOKEN": TOKEN}
    with subprocess.Popen(
        [*command, "--state-dir", str(before.state_dir)],
        env={**os.environ, **environment, **secret},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert any(b"listening" in line for line in iter(process.stderr.readline, b""))
            yield evolve(before, process=process)
        finally:
            process.kill()


async def test_an_upload_without_space_is_told_and_leaves_nothing(house, disk):
    chat = await house.chat()
    files = house.server.state_dir / "files"
    path = f"/api/sessions/{chat}/files"
    disk.fill(house.server)
    for size in (1, 20_000_000):
        answer = await house.http.post(path, files={"file": ("a.bin", bytes(size))})
        assert (answer.status_code, answer.json()["detail"]["code"]) == (503, "storage_full")
        assert list(files.iterdir()) == []
    disk.free(house.server)
    answer = await house.http.post(path, files={"file": ("a.bin", b"x")})
    assert answer.status_code == 200
    [listed] = (await house.http.get(path)).json()["files"]
    assert listed["id"] == answer.json()["file"]["id"]
